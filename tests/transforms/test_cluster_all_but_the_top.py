import numpy as np
import pytest
from sklearn.decomposition import PCA

from isotropy.errors import InputError, SettingError
from isotropy.measures import local_isotropy
from isotropy.transforms import ClusterAllButTheTop

CENTRES = np.array([[50, 0, 0, 0, 0], [0, 50, 0, 0, 0], [0, 0, 50, 0, 0]])
Clusters = tuple[np.ndarray, np.ndarray]


@pytest.fixture
def clusters(rng: np.random.Generator) -> Clusters:
    labels = np.arange(600) % 3
    spread = np.stack([np.roll([5, 1, 1, 1, 1], i) for i in range(3)])
    return CENTRES[labels] + rng.normal(size=(600, 5)) * spread[labels], labels


@pytest.mark.parametrize("sample", [20_000, 100])
def test_every_cluster_loses_its_own_top(clusters: Clusters, sample: int) -> None:
    x, labels = clusters
    y = ClusterAllButTheTop(clusters=3, d=1, sample=sample).fit_transform(x)
    for label in range(3):
        part = x[labels == label]
        pca = PCA(1).fit(part)
        left = part - pca.inverse_transform(pca.transform(part))
        np.testing.assert_allclose(y[labels == label], left, atol=1e-9)


def test_new_rows_go_to_the_nearest_centre(clusters: Clusters) -> None:
    x, labels = clusters
    fitted = ClusterAllButTheTop(clusters=3, d=0).fit(x)
    expected = CENTRES - np.stack([x[labels == label].mean(axis=0) for label in range(3)])
    np.testing.assert_allclose(fitted.transform(CENTRES.astype(float)), expected, atol=1e-9)


def test_it_makes_the_inside_of_clusters_isotropic(clusters: Clusters) -> None:
    x, labels = clusters
    y = ClusterAllButTheTop(clusters=3, d=1).fit_transform(x)
    assert local_isotropy(x, labels=labels).inside < 0.3
    assert local_isotropy(y, labels=labels).inside > 0.7  # four of five directions are left


def test_weights_count_inside_clusters(clusters: Clusters) -> None:
    x, labels = clusters
    weights = 1 / np.arange(1, 601)
    y = ClusterAllButTheTop(clusters=3, d=0).fit(x, weights=weights).transform(x)
    for label in range(3):
        mine = labels == label
        left = x[mine] - np.average(x[mine], axis=0, weights=weights[mine])
        np.testing.assert_allclose(y[mine], left, atol=1e-9)


def test_fewer_different_rows_than_clusters() -> None:
    x = np.repeat(np.eye(3), 10, axis=0)
    y = ClusterAllButTheTop(clusters=7, d=2).fit_transform(x)
    np.testing.assert_allclose(y, 0, atol=1e-12)


def test_fewer_rows_than_clusters() -> None:
    with pytest.raises(InputError, match=r"got array with 4 rows, expected at least 7 for clu"):
        ClusterAllButTheTop(clusters=7).fit(np.eye(4))


@pytest.mark.parametrize("setting", ["clusters", "sample", "seed", "d"])
def test_bad_settings(setting: str) -> None:
    with pytest.raises(SettingError, match=f"got {setting}=-1, expected a whole number"):
        ClusterAllButTheTop(**{setting: -1}).fit(np.eye(20))

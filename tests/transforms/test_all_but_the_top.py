import numpy as np
import pytest
from sklearn.decomposition import PCA

from isotropy.errors import SettingError
from isotropy.transforms import AllButTheTop


@pytest.fixture
def cloud(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(200, 10)) @ rng.normal(size=(10, 10)) + 5


@pytest.mark.parametrize("d", [0, 1, 4, 10])
def test_it_is_what_pca_leaves(cloud: np.ndarray, d: int) -> None:
    left = cloud - cloud.mean(axis=0)
    if d:
        pca = PCA(d).fit(cloud)
        left = cloud - pca.inverse_transform(pca.transform(cloud))
    np.testing.assert_allclose(AllButTheTop(d).fit_transform(cloud), left, atol=1e-10)


@pytest.mark.parametrize(("features", "removed"), [(10, 1), (300, 3), (768, 8)])
def test_by_default_one_direction_for_every_hundred_features(
    rng: np.random.Generator, features: int, removed: int
) -> None:
    x = rng.normal(size=(20, features))
    assert AllButTheTop().fit(x).components_.shape == (removed, features)


def test_weights_move_mean_and_directions(cloud: np.ndarray) -> None:
    weights = 1 / np.arange(1, 201)
    _, vectors = np.linalg.eigh(np.cov(cloud.T, aweights=weights))
    left = cloud - np.average(cloud, axis=0, weights=weights)
    expected = left - left @ np.outer(vectors[:, -1], vectors[:, -1])
    y = AllButTheTop(1).fit(cloud, weights=weights).transform(cloud)
    np.testing.assert_allclose(y, expected, atol=1e-10)


@pytest.mark.parametrize(("d", "message"), [(-1, "got d=-1"), (11, "got d=11 for 10 features")])
def test_bad_settings(cloud: np.ndarray, d: int, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        AllButTheTop(d).fit(cloud)

"""Local isotropy: which rows go into which mean; the score itself has tests of its own."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from isotropy.errors import InputError, IsotropyWarning, SettingError, UndefinedError
from isotropy.measures._iso_score_unbiased import iso_score_unbiased
from isotropy.measures._local_isotropy import SPEC, local_isotropy


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def blobs(sizes=(50, 80, 30), d=6):
    """Well separated clusters of different shapes, and their labels, in a random order."""
    rng = np.random.default_rng(0)
    labels = rng.permutation(np.repeat(np.arange(len(sizes)), sizes))
    shapes = rng.random((len(sizes), d))
    centres = 100 * np.eye(d)[: len(sizes)]
    return gaussian(len(labels), d) * shapes[labels] + centres[labels], labels


def weighted(x, labels):
    groups = [x[labels == label] for label in set(labels.tolist())]
    return np.average([iso_score_unbiased(g) for g in groups], weights=[len(g) for g in groups])


def test_inside_is_the_mean_by_rows_and_whole_the_score_of_all():
    x, labels = blobs()
    found = local_isotropy(x, labels=labels)
    assert found.inside == pytest.approx(weighted(x, labels), rel=1e-12)
    assert found.whole == iso_score_unbiased(x)


def test_k_means_finds_separate_clusters():
    x, labels = blobs()
    assert local_isotropy(x, clusters=3) == pytest.approx(local_isotropy(x, labels=labels))


def test_only_the_clusters_make_it_anisotropic():
    x = gaussian(3000, 20)
    x[:1500] += 50
    found = local_isotropy(x, clusters=2)
    assert found.inside == pytest.approx(1, abs=0.02)
    assert found.whole < 0.01


def test_one_cluster_is_the_whole():
    inside, whole = local_isotropy(gaussian(100, 5), clusters=1)
    assert inside == pytest.approx(whole, rel=1e-12)


@pytest.mark.parametrize("kind", ["strings", "list", "tensor", "negative numbers"])
def test_labels_of_any_kind(kind):
    x, labels = blobs()
    given_labels = {
        "strings": np.array(["a", "b", "c"])[labels],
        "list": labels.tolist(),
        "tensor": torch.from_numpy(labels),
        "negative numbers": labels.astype(np.int32) * -5,
    }[kind]
    assert local_isotropy(x, labels=given_labels) == local_isotropy(x, labels=labels)


def test_small_and_equal_clusters_are_left_out_and_counted():
    x, labels = blobs()
    more = np.concatenate((x, gaussian(3, 6), np.ones((9, 6))))
    more_labels = np.concatenate((labels, [7] * 3, [8] * 9))
    with pytest.warns(IsotropyWarning, match=r"left out 2 of 5 clusters \(12 of 172 rows\)"):
        found = local_isotropy(more, labels=more_labels)
    assert found.inside == pytest.approx(weighted(x, labels), rel=1e-12)
    assert found.whole == iso_score_unbiased(more)


def test_fewer_different_rows_than_clusters():
    x = np.repeat(gaussian(5, 3), 20, axis=0)
    with pytest.raises(UndefinedError, match="5 clusters, expected one with at least 4 rows"):
        local_isotropy(x)


def test_errors():
    x = gaussian(39, 3)
    with pytest.raises(InputError, match="39 rows, expected at least 40"):
        local_isotropy(x)
    with pytest.raises(SettingError, match="clusters=0"):
        local_isotropy(x, clusters=0)
    with pytest.raises(InputError, match="38 labels for 39 rows"):
        local_isotropy(x, labels=range(38))
    with pytest.raises(InputError, match=r"labels with shape \(39, 1\)"):
        local_isotropy(x, labels=np.zeros((39, 1)))
    with pytest.raises(InputError, match="labels of several types"):
        local_isotropy(x, labels=np.array([None, "a", 3] * 13, dtype=object))
    with pytest.raises(UndefinedError, match="13 clusters, expected one"):
        local_isotropy(x, labels=np.arange(39) % 13)


def test_equal_seeds_give_equal_scores():
    x = gaussian(300, 4)
    assert local_isotropy(x, seed=1) == local_isotropy(x, seed=1)
    assert local_isotropy(x, seed=1) != local_isotropy(x, seed=2)


@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e18, 1e30])
def test_huge_and_tiny_scales(scale):
    x, _ = blobs()
    found = local_isotropy(x.astype(np.float32), clusters=3)
    assert local_isotropy((x * scale).astype(np.float32), clusters=3) == pytest.approx(
        found, rel=1e-4
    )


def test_gradient():
    x, _ = blobs((8, 9), d=3)
    rows = torch.from_numpy(x).requires_grad_()
    assert torch.autograd.gradcheck(lambda r: tuple(local_isotropy(r, clusters=2)), rows)


def test_types():
    x, labels = blobs()
    assert all(isinstance(value, float) for value in local_isotropy(x, labels=labels))
    for value in local_isotropy(torch.from_numpy(x).half(), labels=labels):
        assert value.dtype == torch.float32


@settings(max_examples=25)
@given(st.integers(40, 80), st.integers(2, 6), st.integers(0, 1000))
@pytest.mark.filterwarnings("ignore:local_isotropy left out")
def test_rotation_scale_and_translation_change_nothing(n, d, seed):
    x = gaussian(n, d, seed=seed)
    frame, _ = np.linalg.qr(gaussian(d, d, seed=seed + 1))
    found = local_isotropy(x, clusters=3)
    assert found.inside >= 0
    for other in (x @ frame, x * 1e18, x * 1e-18, x + 1e4):
        assert local_isotropy(other, clusters=3) == pytest.approx(found, rel=1e-6)


def test_spec():
    rows = torch.from_numpy(gaussian(100, 8))
    spec = SPEC.with_options(clusters=4, seed=3)
    expected = local_isotropy(rows, clusters=4, seed=3)
    assert spec.from_rows(rows, **spec.options) == pytest.approx(
        [value.item() for value in expected]
    )

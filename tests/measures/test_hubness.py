"""Hubness against scikit-learn's neighbours and scipy's skewness."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.stats import skew
from sklearn.neighbors import NearestNeighbors

from isotropy.errors import InputError, IsotropyWarning, SettingError, UndefinedError
from isotropy.measures._hubness import SPEC, hubness
from isotropy.neighbours import nearest_neighbours


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def occurrences(x, k):
    indices = NearestNeighbors(n_neighbors=k).fit(x).kneighbors(return_distance=False)
    return np.bincount(indices.ravel(), minlength=len(x))


@pytest.mark.parametrize(("n", "d", "k"), [(500, 3, 10), (300, 50, 10), (200, 20, 1), (5, 2, 2)])
def test_skewness_and_what_robin_hood_takes(n, d, k):
    x = gaussian(n, d)
    counts = occurrences(x, k)
    taken = sum(count - k for count in counts if count > k)
    skewness, robin_hood = hubness(x, k=k)
    assert skewness == pytest.approx(skew(counts), abs=1e-12)
    assert robin_hood == pytest.approx(taken / counts.sum(), abs=1e-12)


def test_a_star_is_all_hub():
    arms = np.concatenate((np.zeros((1, 20)), np.eye(20)))  # the origin is everybody's nearest
    counts = np.array([20] + [1] + [0] * 19)
    found = hubness(arms, k=1)
    assert found.skewness == pytest.approx(skew(counts))
    assert found.robin_hood == pytest.approx(19 / 21)


def test_more_features_make_more_hubs():
    few, many = hubness(gaussian(1000, 3)), hubness(gaussian(1000, 300))
    assert many.skewness > few.skewness + 1
    assert many.robin_hood > few.robin_hood + 0.1


def test_even_occurrence_is_zero():
    assert hubness(gaussian(11, 3)) == (0, 0)  # all others are everybody's neighbours


def test_duplicates_are_left_out_and_counted():
    x = gaussian(300, 4)
    with pytest.warns(IsotropyWarning, match="hubness left out 100 of 400 rows"):
        assert hubness(np.concatenate((x, x[:100]))) == pytest.approx(hubness(x))


def test_errors():
    with pytest.raises(InputError, match="10 rows, expected at least 11"):
        hubness(gaussian(10, 3))
    with pytest.raises(SettingError, match="k=0"):
        hubness(gaussian(10, 3), k=0)
    with pytest.raises(UndefinedError, match="40 rows of which only 10 differ"):
        hubness(np.repeat(gaussian(10, 3), 4, axis=0))


def test_types():
    x = gaussian(100, 8)
    assert all(isinstance(value, float) for value in hubness(x))
    for value, expected in zip(hubness(torch.from_numpy(x)), hubness(x), strict=True):
        assert value.dtype == torch.float64
        assert value.item() == expected


@settings(max_examples=25)
@given(st.integers(11, 80), st.integers(2, 8), st.integers(0, 1000), st.sampled_from([1e-18, 1e18]))
def test_rotation_scale_and_translation_change_nothing(n, d, seed, scale):
    x = gaussian(n, d, seed=seed)
    frame, _ = np.linalg.qr(gaussian(d, d, seed=seed + 1))
    found = hubness(x)
    assert 0 <= found.robin_hood <= 1
    for other in (x @ frame, x * scale, x + 1e4, x[::-1]):
        assert hubness(other) == pytest.approx(found, abs=1e-9)


def test_spec_reads_the_nearest_of_more_neighbours():
    x = torch.from_numpy(gaussian(100, 4))
    assert SPEC.neighbours == 10
    values = SPEC.from_neighbours(nearest_neighbours(x, 20), **SPEC.options)
    assert values == pytest.approx([value.item() for value in hubness(x)])

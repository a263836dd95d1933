"""Levina–Bickel against a loop over scipy's sorted distances, and on known dimensions."""

from math import log

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.spatial.distance import cdist

from isotropy.errors import InputError, IsotropyWarning, SettingError, UndefinedError
from isotropy.measures._mle_dimension import SPEC, mle_dimension
from isotropy.neighbours import nearest_neighbours


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def inverse_estimates(x, k):
    """One over Levina and Bickel's estimate at every row."""
    inverses = []
    for distances in np.sort(cdist(x, x), axis=1):
        near = distances[1 : k + 1]
        inverses.append(sum(log(near[-1] / t) for t in near[:-1]) / (k - 1))
    return inverses


@pytest.mark.parametrize(("n", "d", "k"), [(300, 3, 20), (200, 40, 5), (21, 2, 20), (3, 2, 2)])
def test_is_the_harmonic_mean_of_the_rows_estimates(n, d, k):
    x = gaussian(n, d)
    expected = 1 / np.mean(inverse_estimates(x, k))
    assert mle_dimension(x, k=k) == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_finds_a_known_dimension(dimension):
    rng = np.random.default_rng(dimension)
    frame, _ = np.linalg.qr(rng.standard_normal((20, dimension)))
    x = rng.random((3000, dimension)) @ frame.T
    assert mle_dimension(x, k=10) == pytest.approx(dimension, rel=0.1)


def test_finds_the_dimension_of_a_sphere():
    x = gaussian(3000, 4)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    assert mle_dimension(x) == pytest.approx(3, rel=0.05)


def test_a_row_with_equally_distant_neighbours_does_not_make_it_infinite():
    x = np.concatenate((np.eye(3), gaussian(50, 3) * 0.01 + 50))
    assert 0 in inverse_estimates(x, 2)
    assert mle_dimension(x, k=2) == pytest.approx(1 / np.mean(inverse_estimates(x, 2)))


def test_duplicates_are_left_out_and_counted():
    x = gaussian(300, 4)
    with pytest.warns(IsotropyWarning, match="mle_dimension left out 100 of 400 rows"):
        value = mle_dimension(np.concatenate((x, x[:100])))
    assert value == pytest.approx(mle_dimension(x), rel=1e-12)


def test_undefined():
    with pytest.raises(UndefinedError, match="equal rows"):
        mle_dimension(np.ones((30, 3)))
    with pytest.raises(UndefinedError, match="40 rows of which only 10 differ, expected at least"):
        mle_dimension(np.repeat(gaussian(10, 3), 4, axis=0))
    with pytest.raises(UndefinedError, match="equally far"):
        mle_dimension(np.eye(4), k=3)
    with pytest.raises(InputError, match="20 rows, expected at least 21"):
        mle_dimension(gaussian(20, 3))
    with pytest.raises(SettingError, match="k=1, expected a whole number from 2 up"):
        mle_dimension(gaussian(20, 3), k=1)


def test_float64_rows_whose_distance_underflows():
    x = gaussian(50, 2)
    x[1] = x[0] = 0
    x[1, 0] = 1e-300
    assert np.isfinite(mle_dimension(x))


def test_types():
    x = gaussian(200, 8)
    assert isinstance(mle_dimension(x), float)
    assert mle_dimension(torch.from_numpy(x).half()).dtype == torch.float32
    assert mle_dimension(torch.from_numpy(x)).item() == mle_dimension(x)


@settings(max_examples=25)
@given(st.integers(6, 60), st.integers(2, 8), st.integers(0, 1000), st.sampled_from([1e-18, 1e18]))
def test_rotation_scale_and_translation_change_nothing(n, d, seed, scale):
    x = gaussian(n, d, seed=seed)
    frame, _ = np.linalg.qr(gaussian(d, d, seed=seed + 1))
    value = mle_dimension(x, k=5)
    assert value > 0
    assert mle_dimension(x @ frame, k=5) == pytest.approx(value, rel=1e-6)
    assert mle_dimension(x * scale, k=5) == pytest.approx(value, rel=1e-6)
    assert mle_dimension(x + 1e4, k=5) == pytest.approx(value, rel=1e-4)
    assert mle_dimension(x[::-1], k=5) == pytest.approx(value, rel=1e-6)


def test_spec_reads_the_nearest_of_more_neighbours():
    x = torch.from_numpy(gaussian(100, 4))
    spec = SPEC.with_options(k=7)
    assert spec.neighbours == 7
    values = spec.from_neighbours(nearest_neighbours(x, 20), **spec.options)
    assert values == pytest.approx((mle_dimension(x, k=7).item(),))

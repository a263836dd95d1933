"""What every measure that follows from moments keeps, on clouds of any small shape."""

import numpy as np
import pytest
from hypothesis import given, strategies as st

from isotropy.measures import SPECS
from isotropy.testing import numbers

NAMES = [
    "iso_score",
    "iso_score_star",
    "iso_score_unbiased",
    "anisotropy",
    "centered_anisotropy",
    "explained_variance",
    "effective_rank",
    "participation_ratio",
    "partition_isotropy",
    "mean_cosine",
    "mean_norm_ratio",
    "outlier_dimensions",
]
# What these say of rows on a line through the origin, ±: their first numbers.
ON_A_LINE = {
    "iso_score": [0],
    "iso_score_unbiased": [0],
    "anisotropy": [1, 0, 0],
    "centered_anisotropy": [1, 0, 0],
    "explained_variance": [1, 1, 1],
    "effective_rank": [1],
    "participation_ratio": [1],
}
# These count pairs of rows, or divide by n − 1 where the scale counts.
NOT_OF_THE_DISTRIBUTION = {"iso_score_star", "iso_score_unbiased", "mean_cosine"}

every_measure = pytest.mark.parametrize("name", NAMES)
shapes = given(st.integers(0, 8), st.integers(2, 8), st.integers(0, 1000))


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def cloud(name, more_rows, d, seed):
    """As few rows as the measure takes, or some more, in no special position."""
    n = SPECS[name].min_rows + more_rows
    return gaussian(n, d, seed=seed) @ gaussian(d, d, seed=seed + 1) + gaussian(d, seed=seed + 2)


def scores(name, x):
    return numbers(SPECS[name].function(x, **SPECS[name].options))


@every_measure
@shapes
def test_bounds(name, more_rows, d, seed):
    x = cloud(name, more_rows, d, seed)
    for rows in (x, x.astype(np.float32), x + 1e4, (x + 1e4).astype(np.float32)):
        for number, score in zip(SPECS[name].numbers, scores(name, rows), strict=True):
            assert number.low <= score <= number.high


@every_measure
@shapes
def test_declared_invariances(name, more_rows, d, seed):
    x = cloud(name, more_rows, d, seed)
    expected = pytest.approx(scores(name, x), rel=1e-5, abs=1e-6)
    frame, _ = np.linalg.qr(gaussian(d, d, seed=seed + 3))
    changed = {
        "rotation": [x @ frame],
        "scale": [x * 1e18, x * 1e-18],
        "translation": [x + 1e4, x - np.arange(d)],
    }
    for kind in SPECS[name].invariant_to:
        for rows in changed[kind]:
            assert scores(name, rows) == expected


@every_measure
@shapes
def test_order_of_the_rows(name, more_rows, d, seed):
    x = cloud(name, more_rows, d, seed)
    order = np.random.default_rng(seed).permutation(len(x))
    assert scores(name, x[order]) == pytest.approx(scores(name, x), rel=1e-6, abs=1e-9)


@every_measure
@shapes
def test_float32_is_float64(name, more_rows, d, seed):
    x = cloud(name, more_rows, d, seed).astype(np.float32)
    expected = scores(name, x.astype(np.float64))
    assert scores(name, x) == pytest.approx(expected, rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("name", [name for name in NAMES if name not in NOT_OF_THE_DISTRIBUTION])
@shapes
def test_the_whole_cloud_twice_is_the_same_distribution(name, more_rows, d, seed):
    x = cloud(name, more_rows, d, seed)
    twice = np.concatenate((x, x))
    assert scores(name, twice) == pytest.approx(scores(name, x), rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("name", ON_A_LINE)
@shapes
def test_rank_one(name, more_rows, d, seed):
    n = SPECS[name].min_rows + more_rows
    x = np.outer(gaussian(n, seed=seed), gaussian(d, seed=seed + 1))
    for rows in (x, x * 1e18, x * 1e-18, x.astype(np.float32)):
        assert scores(name, rows) == pytest.approx(ON_A_LINE[name], abs=1e-5)

"""Outlier dimensions: planted ones are found, and their share of the variance is numpy's."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from isotropy.errors import InputError, SettingError, UndefinedError
from isotropy.measurement import measure
from isotropy.measures._outlier_dimensions import outlier_dimensions


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def planted(n=500, d=100):
    """Dimensions 7 and 40 vary 20 times as much; 3, 50 and 77 have a mean far off."""
    x = gaussian(n, d)
    x[:, [7, 40]] *= 20
    x[:, [3, 77]] += 10
    x[:, 50] -= 15
    return x


def test_finds_what_was_planted():
    x = planted()
    variance = x.var(axis=0)
    found = outlier_dimensions(x)
    assert found.by_variance == 2
    assert found.by_mean == 3
    assert found.variance_share == pytest.approx(variance[[7, 40]].sum() / variance.sum(), rel=1e-9)


def test_nothing_stands_out_among_equals():
    assert outlier_dimensions(gaussian(5000, 50)).by_variance == 0
    cross = np.concatenate((np.eye(20), -np.eye(20)))
    for scale in (1, 1e-18, 1 / 3):
        assert outlier_dimensions(cross * scale) == (0, 0, 0)
        assert outlier_dimensions(((cross + 0.1) * scale).astype(np.float32)) == (0, 0, 0)


def test_rounding_makes_nothing_stand_out():
    """The same values in another order for every dimension: equal but for the last digit."""
    for seed in range(10):
        values = gaussian(999, seed=seed)
        rng = np.random.default_rng(seed)
        x = np.stack([rng.permutation(values) for _ in range(100)], axis=1)
        assert outlier_dimensions(x) == (0, 0, 0)
        report = measure(x, ["outlier_dimensions"])
        assert [score.value for score in report.values()] == [0, 0, 0]


def test_three_standard_deviations_need_eleven_dimensions():
    """One of d values lies √(d − 1) standard deviations above the mean at most."""
    for d, expected in ((10, 0), (11, 1)):
        x = np.zeros((4, d))
        x[:, 0] = [-1, 1, -1, 1]
        assert outlier_dimensions(x).by_variance == expected
    x = np.zeros((4, 5))
    x[:, 0] = [-1, 1, -1, 1]
    assert outlier_dimensions(x, threshold=1.99).by_variance == 1
    assert outlier_dimensions(x, threshold=2.01).by_variance == 0


@given(st.integers(0, 1000), st.floats(0.5, 4))
def test_counts_are_the_definitions(seed, threshold):
    x = np.exp(gaussian(20, 30, seed=seed)) * np.exp(gaussian(30, seed=seed + 1))
    found = outlier_dimensions(x, threshold=threshold)
    variance, mean = x.var(axis=0, ddof=1), np.abs(x.mean(axis=0))
    out = variance > variance.mean() + threshold * variance.std()
    assert found.by_variance == out.sum()
    assert found.by_mean == (mean > mean.mean() + threshold * mean.std()).sum()
    assert found.variance_share == pytest.approx(variance[out].sum() / variance.sum(), rel=1e-9)


def test_in_a_stream_with_options():
    x = planted()
    report = measure(x, ["outlier_dimensions"], chunk_rows=37)
    assert [score.value for score in report.values()] == pytest.approx(list(outlier_dimensions(x)))
    options = {"outlier_dimensions": {"threshold": 8}}
    strict = measure(x, ["outlier_dimensions"], options=options)
    assert strict["outlier_dimensions"].value == 0
    assert strict["outlier_variance_share"].value == 0


@pytest.mark.parametrize("chunk_rows", [None, 37])
@pytest.mark.parametrize("interval", [None, 0.95])
def test_measure_keeps_every_dimensions_mean_and_standard_deviation(chunk_rows, interval):
    x = planted() + 1e3
    kept = measure(x, ["outlier_dimensions"], chunk_rows=chunk_rows, interval=interval).dimensions
    assert kept.mean == pytest.approx(x.mean(axis=0), rel=1e-12)
    assert kept.std == pytest.approx(x.std(axis=0, ddof=1), rel=1e-9)
    # Paper D's figure 4 names the dimensions that stand out: they can be told from what is kept.
    assert set(np.argsort(kept.std)[-2:]) == {7, 40}


def test_a_spread_that_vanishes_beside_the_mean():
    x = np.zeros((5, 12))
    x[:, 0] = 1e200
    x[:, 1] = 1e-5 * np.arange(5)
    assert outlier_dimensions(x) == (1, 1, 1)


@pytest.mark.parametrize("threshold", [0.0, -1.0, float("nan")])
def test_threshold_out_of_range(threshold):
    with pytest.raises(SettingError, match=r"threshold=.*expected a finite number above 0"):
        outlier_dimensions(planted(), threshold=threshold)
    with pytest.raises(SettingError, match=r"threshold=.*expected a finite number above 0"):
        measure(planted(), options={"outlier_dimensions": {"threshold": threshold}})


def test_errors_and_types():
    with pytest.raises(InputError, match="1 row"):
        outlier_dimensions(gaussian(1, 3))
    with pytest.raises(UndefinedError, match="equal rows"):
        outlier_dimensions(np.ones((5, 3)))
    assert all(isinstance(value, float) for value in outlier_dimensions(planted()))
    for value in outlier_dimensions(torch.from_numpy(planted()).half()):
        assert value.dtype == torch.float32

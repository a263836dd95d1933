"""Persistent entropy against scipy's spanning tree and scipy's entropy."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform

from isotropy.bars import prominent_bars
from isotropy.errors import InputError, SettingError, UndefinedError
from isotropy.measurement import measure
from isotropy.measures import persistent_entropy


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def scipy_bars(x):
    return minimum_spanning_tree(squareform(pdist(x))).data


@pytest.mark.parametrize("shape", [(5, 2), (64, 768), (300, 4)])
def test_of_all_bars(shape):
    x = gaussian(*shape)
    expected = stats.entropy(scipy_bars(x))
    found = persistent_entropy(x, bars="all")
    assert found.entropy == pytest.approx(expected, rel=1e-9)
    assert found.normalized == pytest.approx(expected / np.log(len(x) - 1), rel=1e-9)


@pytest.mark.parametrize("shape", [(5, 2), (64, 768), (300, 4)])
def test_of_the_prominent_bars(shape):
    x = gaussian(*shape)
    kept = prominent_bars(scipy_bars(x))
    expected = stats.entropy(kept)
    found = persistent_entropy(x)
    assert found.entropy == pytest.approx(expected, rel=1e-9)
    assert found.normalized == pytest.approx(expected / np.log(len(kept)), rel=1e-9)
    assert found.prominent_bars == len(kept)
    assert persistent_entropy(x, bars="all").prominent_bars == len(kept)


def test_equal_bars_have_the_greatest_entropy():
    found = persistent_entropy(np.eye(40))
    assert found.normalized == pytest.approx(1)
    assert found.prominent_bars == 5
    assert persistent_entropy(np.eye(40), bars="all").entropy == pytest.approx(np.log(39))


@pytest.mark.parametrize("bars", ["prominent", "all"])
def test_of_a_single_bar(bars):
    assert persistent_entropy(np.array([[0.0, 0.0], [3.0, 4.0]]), bars=bars) == (0, 0, 1)


def test_equal_rows_count_for_nothing():
    x = gaussian(30, 3)
    for bars in ("prominent", "all"):
        found = persistent_entropy(np.repeat(x, 3, axis=0), bars=bars)
        assert found == pytest.approx(persistent_entropy(x, bars=bars), rel=1e-9)


def test_gradient_is_that_of_the_kept_bars():
    x = torch.from_numpy(gaussian(20, 3)).requires_grad_()
    found = persistent_entropy(x)
    (gradient,) = torch.autograd.grad(found.entropy, x, retain_graph=True)
    # A step along the gradient changes the entropy as it says.
    step = 1e-6 * gradient / gradient.norm()
    with torch.no_grad():
        change = persistent_entropy(x + step).entropy - persistent_entropy(x - step).entropy
    assert change.item() == pytest.approx(2e-6 * gradient.norm().item(), rel=1e-4)
    assert not found.prominent_bars.requires_grad
    assert (gradient != 0).any(dim=1).sum() <= 2 * found.prominent_bars


@settings(max_examples=25)
@given(st.integers(2, 60), st.integers(2, 6), st.integers(0, 1000), st.sampled_from([1e-18, 1e18]))
def test_rotation_scale_translation_and_order_change_nothing(n, d, seed, scale):
    x = gaussian(n, d, seed=seed)
    frame, _ = np.linalg.qr(gaussian(d, d, seed=seed + 1))
    for bars in ("prominent", "all"):
        found = persistent_entropy(x, bars=bars)
        assert 0 <= found.entropy <= np.log(n)
        assert 0 <= found.normalized <= 1
        for same in (x @ frame, x * scale, x + 100, x[::-1]):
            assert persistent_entropy(same, bars=bars) == pytest.approx(found, rel=1e-6, abs=1e-9)


def test_intervals_leave_out_what_grows_with_the_rows():
    report = measure(gaussian(200, 5), ["persistent_entropy"], interval=0.95)
    low, high = report["persistent_entropy_normalized"].interval
    assert 0 <= low < high <= 1
    assert report["persistent_entropy"].interval is None
    assert report["prominent_bars"].interval is None


def test_errors():
    with pytest.raises(SettingError, match=r"got bars='prominant', expected 'prominent' or 'all'"):
        persistent_entropy(gaussian(5, 2), bars="prominant")
    with pytest.raises(UndefinedError, match="5 equal rows"):
        persistent_entropy(np.ones((5, 2)))
    with pytest.raises(InputError, match="at least 2 rows"):
        persistent_entropy(np.ones((1, 2)))

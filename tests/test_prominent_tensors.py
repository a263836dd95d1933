"""The choice of prominent bars on an accelerator: the same counts as the loop on a CPU."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

import isotropy._prominent_tensors
from isotropy._prominent import count_prominent
from isotropy._prominent_tensors import count_prominent_tensors
from isotropy.bars import h0_bars_by_class, prominent_mask
from isotropy.testing import no_host_copies

DRAWS = {
    "gamma": lambda random, m: random.gamma(2.0, size=m),
    "concentrated": lambda random, m: 1 + 0.01 * random.standard_normal(m),
    "nearly equal": lambda random, m: 1 + 1e-6 * random.standard_normal(m),
    "heavy tailed": lambda random, m: random.pareto(1.0, size=m) + 1e-3,
    "two kinds": lambda random, m: random.choice([1.0, 10.0], size=m) + random.random(m),
    "few values": lambda random, m: random.integers(1, 4, size=m).astype(float),
    "many zeros": lambda random, m: random.integers(0, 3, size=m).astype(float),
    "equal": lambda random, m: np.full(m, random.random()),
    "many orders": lambda random, m: 10 ** random.uniform(-300, 300, size=m),
    "huge": lambda random, m: 1e300 * random.random(m),
    "tiny": lambda random, m: 1e-310 * random.random(m),
}


def table(random, draw, sets, most):
    """Sets of 0 to `most` bars in descending order, filled up with zeros."""
    rows = np.zeros((sets, most))
    for row in rows:
        m = int(random.integers(0, most + 1))
        row[:m] = np.sort(draw(random, m))[::-1]
    return rows


def one_by_one(rows):
    return [count_prominent(row[row > 0]) for row in rows]


@pytest.mark.parametrize("kind", DRAWS)
def test_counts_are_those_of_the_loop(kind):
    random = np.random.default_rng(0)
    for most in [1, 2, 3, 4, 5, 6, 7, 8, *[15, 31, 63] * 6]:
        rows = table(random, DRAWS[kind], 12, most)
        found = count_prominent_tensors(torch.from_numpy(rows))
        assert found.tolist() == one_by_one(rows)
        known = count_prominent_tensors(torch.from_numpy(rows), at_most=int((rows > 0).sum()))
        assert torch.equal(known, found)


@settings(max_examples=100)
@given(st.lists(st.lists(st.floats(0, 1e6), max_size=20), min_size=1, max_size=4))
def test_counts_of_any_lengths(sets):
    rows = np.zeros((len(sets), 20))
    for row, bars in zip(rows, sets, strict=True):
        row[: len(bars)] = sorted(bars, reverse=True)
    assert count_prominent_tensors(torch.from_numpy(rows)).tolist() == one_by_one(rows)


def test_one_long_set_and_many_short_ones():
    random = np.random.default_rng(2)
    for draw in (DRAWS["concentrated"], DRAWS["gamma"]):
        long = np.sort(draw(random, 1000))[::-1][None].copy()
        assert count_prominent_tensors(torch.from_numpy(long)).tolist() == one_by_one(long)
    short = table(random, DRAWS["gamma"], 500, 3)
    assert count_prominent_tensors(torch.from_numpy(short)).tolist() == one_by_one(short)


@pytest.mark.parametrize("length", [1.0, 0.1, 1 / 3, 1e-18, 1e18, 5e-324])
def test_seven_or_more_equal_bars_give_five(length):
    for m in [7, 8, 9, 20, 63, 255]:
        rows = torch.full((2, m), length, dtype=torch.float64)
        assert count_prominent_tensors(rows).tolist() == [5, 5]


def test_bars_that_are_equal_but_for_rounding_give_five_too():
    random = np.random.default_rng(4)
    for m in [7, 8, 9, 20, 63, 255]:
        rows = np.sort(1 + 1e-15 * random.standard_normal((20, m)))[:, ::-1].copy()
        assert one_by_one(rows) == [5] * 20
        assert count_prominent_tensors(torch.from_numpy(rows)).tolist() == [5] * 20


def test_blocks_of_rounds_change_nothing(monkeypatch):
    rows = table(np.random.default_rng(3), DRAWS["concentrated"], 6, 40)
    expected = one_by_one(rows)
    for size in (1, 100, 1000):
        monkeypatch.setattr(isotropy._prominent_tensors, "_BLOCK_SUMS", size)
        assert count_prominent_tensors(torch.from_numpy(rows)).tolist() == expected


@pytest.mark.parametrize("shape", [(0, 0), (3, 0), (0, 4)])
def test_nothing_to_choose_from(shape):
    rows = torch.zeros(shape, dtype=torch.float64)
    assert count_prominent_tensors(rows).tolist() == [0] * shape[0]


def test_bars_of_classes_on_an_accelerator_look_at_nothing():
    with no_host_copies():
        x = torch.empty(40, 8, device="meta", requires_grad=True)
        labels = torch.empty(40, dtype=torch.int64, device="meta")
        lengths = h0_bars_by_class(x, labels, 40)
        mask = prominent_mask(lengths, at_most=39)
        (lengths * mask).sum().backward()
    assert mask.shape == lengths.shape == (40, 39)
    assert x.grad is not None

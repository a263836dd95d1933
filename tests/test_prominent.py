"""The choice of prominent bars against the procedure as it is written down, in plain loops."""

from decimal import Decimal, localcontext
from math import ceil, exp, log

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from isotropy._prominent import _features_per_bar, count_prominent


def entropy(bars):
    total = sum(bars)
    return -sum(bar / total * log(bar / total) for bar in bars)


def exact_features_per_bar(alpha):
    """α(α − 1 − log α)/(α − 1)² to 50 digits, and its limit at 1."""
    with localcontext() as context:
        context.prec = 50
        a = Decimal(alpha)
        return Decimal("0.5") if a == 1 else a * (a - 1 - a.ln()) / (a - 1) ** 2


def literal_count(lengths):
    """The published procedure with the decisions of this project; slow."""
    bars = sorted((float(length) for length in lengths if length > 0), reverse=True)
    if not bars:
        return 0
    longest, shortest = bars[0], bars[-1]
    others = bars[1:]  # l_1 ≥ … ≥ l_{m−1}, the last of which is the shortest bar
    share = exact_features_per_bar(shortest / longest)
    while True:
        m = len(others) + 1
        if m < 4:
            return 1 + max(0, m - 2)
        sums = []
        for i in range(m - 2):
            rest = [*others[i:], longest]
            neutral = sum(rest) / exp(entropy(rest))
            sums.append(sum(rest) + i * neutral)
        grown = [i for i in range(1, m - 2) if sums[i] > sums[i - 1] * (1 + 1e-12)]
        last = grown[0] if grown else m - 3
        if ceil(share * m) >= last:
            return 1 + last
        others = [*others[:last], shortest]


def count(lengths):
    return count_prominent(np.sort(np.asarray(lengths, dtype=np.float64))[::-1])


DRAWS = {
    "gamma": lambda random, m: random.gamma(2.0, size=m),
    "concentrated": lambda random, m: 1 + 0.01 * random.standard_normal(m),
    "nearly equal": lambda random, m: 1 + 1e-6 * random.standard_normal(m),
    "heavy tailed": lambda random, m: random.pareto(1.0, size=m) + 1e-3,
    "two kinds": lambda random, m: random.choice([1.0, 10.0], size=m) + random.random(m),
    "many orders": lambda random, m: 10 ** random.uniform(-12, 3, size=m),
    "few values": lambda random, m: random.integers(1, 4, size=m).astype(float),
}


@pytest.mark.parametrize("kind", DRAWS)
def test_is_the_written_procedure(kind):
    random = np.random.default_rng(0)
    for m in [*range(13), *[16, 23, 31, 47, 63]] * 4:
        lengths = DRAWS[kind](random, m)
        assert count(lengths) == literal_count(lengths), lengths


@settings(max_examples=200)
@given(st.lists(st.floats(1e-6, 1e6), max_size=20))
def test_is_the_written_procedure_on_any_lengths(lengths):
    assert count(lengths) == literal_count(lengths)


def test_long_rounds_are_the_written_procedure():
    """Concentrated bars go one a round: the most rounds there can be."""
    lengths = 1 + 0.01 * np.random.default_rng(1).standard_normal(150)
    assert count(lengths) == literal_count(lengths)


def test_worked_by_hand():
    # Fewer than four bars: T and l_1 … l_{m−2}.
    assert [count([]), count([5]), count([5, 2]), count([5, 2, 1])] == [0, 1, 1, 2]
    # m = 4, so that i* = m − 3 = 1 whatever the sums; Q ≥ 1 always: T and l_1.
    assert count([9, 8, 7, 6]) == count([9, 8, 1e-9, 1e-12]) == 2


@pytest.mark.parametrize("length", [1.0, 0.1, 1 / 3, 1e-18, 1e18, 5e-324])
def test_seven_or_more_equal_bars_give_five(length):
    for m in [*range(7, 70), 255, 1023]:
        assert count_prominent(np.full(m, length)) == 5


@pytest.mark.parametrize("alpha", [1.0, 1 - 1e-16, 1 - 1e-9, 0.9901, 0.9899, 0.5, 1e-9, 1e-300])
def test_the_bound_on_features_keeps_its_digits(alpha):
    assert _features_per_bar(alpha) == pytest.approx(float(exact_features_per_bar(alpha)), rel=1e-9)


def test_a_bar_that_vanishes_beside_the_longest_counts_for_nothing():
    with np.errstate(all="raise", under="ignore"):
        assert count_prominent(np.array([1e300, 1e299, 1e298, 1e297, 1e-300])) == count_prominent(
            np.array([1e3, 1e2, 1e1, 1.0])
        )


# Powers of two scale exactly, so that no comparison can change.
@settings(max_examples=50)
@given(
    st.lists(st.floats(1e-3, 1e3), min_size=1, max_size=40),
    st.sampled_from([2.0**-60, 4.0, 2.0**60]),
)
def test_scale_and_bounds(lengths, scale):
    found = count(lengths)
    assert 1 <= found <= max(1, len(lengths) - 1)
    assert count(np.array(lengths) * scale) == found

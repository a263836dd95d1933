"""Tests, intervals and sizes against scipy, hand-worked numbers, permutations and simulation."""

import math
from itertools import combinations
from statistics import fmean

import numpy as np
import pytest
from hypothesis import assume, given, strategies as st
from scipy import integrate, special, stats

from isotropy.errors import SettingError
from isotropy.experiments.statistics import (
    Contrast,
    Value,
    contrast,
    defined,
    hedges,
    holm,
    noncentrality,
    paired,
    summary,
    welch,
)

rng = np.random.default_rng(0)
SIZES = [(2, 2), (3, 5), (5, 5), (7, 3)]
PAIRS = [(rng.normal(0.8, 0.02, n), rng.normal(0.79, 0.01, m)) for n, m in SIZES]
scores = st.lists(st.integers(-1000, 1000).map(lambda x: x / 1000), min_size=2, max_size=8)


def found(result: Contrast | None) -> Contrast:
    assert result is not None
    return result


# What is there to summarise.


def test_summary_by_hand() -> None:
    whole = summary([1.0, 2.0, None, 6.0])
    assert (whole.n, whole.undefined, whole.mean, whole.median) == (3, 1, 3.0, 2.0)
    assert whole.std == pytest.approx(math.sqrt(7))


def test_summary_of_little() -> None:
    assert summary([]).mean is None
    assert summary([None, None]).undefined == 2
    assert summary([0.5]).std is None
    assert not summary([0.5]).constant
    assert summary([0.1] * 7).constant


def test_what_is_not_finite_is_undefined() -> None:
    assert defined([1.0, None, math.nan, math.inf]) == [1.0]


def test_rounding_is_no_scatter() -> None:
    values = [0.1 + 0.2, 0.3, 0.3]
    assert len(set(values)) == 2
    assert summary(values).std == 0
    assert found(welch(values, [0.3, 0.3])).p() is None


# Differences.


@pytest.mark.parametrize(("x", "y"), PAIRS)
@pytest.mark.parametrize("bound", [0.0, 0.01])
def test_welch_is_scipys(x: np.ndarray, y: np.ndarray, bound: float) -> None:
    ours, theirs = found(welch(list(x), list(y))), stats.ttest_ind(x - bound, y, equal_var=False)
    assert ours.p(bound) == pytest.approx(theirs.pvalue, rel=1e-9)
    assert ours.freedom == pytest.approx(theirs.df)
    less = stats.ttest_ind(x - bound, y, equal_var=False, alternative="less").pvalue
    assert ours.p_below(bound) == pytest.approx(less)
    assert ours.p_above(bound) == pytest.approx(1 - less)
    for level in (0.9, 0.95):
        assert ours.interval(level) == pytest.approx(
            stats.ttest_ind(x, y, equal_var=False).confidence_interval(level)
        )


def test_welch_by_hand() -> None:
    # Means 4 and 2, variances 1 and 4, n = 4 and 5: se² = 1/4 + 4/5 = 1.05,
    # df = 1.05² / (.25²/3 + .8²/4) = 1.1025 / .1808333
    x = [4 - math.sqrt(1.5), 4.0, 4.0, 4 + math.sqrt(1.5)]
    y = [2 - math.sqrt(8), 2.0, 2.0, 2.0, 2 + math.sqrt(8)]
    result = found(welch(x, y))
    assert result.estimate == pytest.approx(2)
    assert result.error == pytest.approx(math.sqrt(1.05))
    assert result.freedom == pytest.approx(6.09677, abs=1e-5)


def test_paired_is_scipys_over_the_shared_seeds() -> None:
    x, y = rng.normal(size=6), rng.normal(size=6)
    ours = {seed: float(v) for seed, v in enumerate(x)} | {9: 100.0}
    theirs: dict[int, Value] = {5 - i: float(v) for i, v in enumerate(y[::-1])} | {11: -5.0}
    result = found(paired(ours, theirs))
    assert result.p() == pytest.approx(stats.ttest_rel(x, y).pvalue)
    assert result.runs == 6
    assert paired({0: 1.0}, {1: 2.0}) is None
    assert paired({0: 1.0, 1: None}, {0: 1.0, 1: 2.0}) == Contrast(0.0, None, None, 1)


def test_tests_agree_with_all_permutations() -> None:
    x, y = rng.normal(0.4, 1, 8), rng.normal(0, 1, 8)
    both = np.concatenate([x, y])
    gap = abs(x.mean() - y.mean())
    gaps = [
        abs(both[list(i)].mean() * 2 - both.sum() / 8) for i in combinations(range(16), 8)
    ]  # mean of one half minus that of the other
    assert found(welch(list(x), list(y))).p() == pytest.approx(
        np.mean(np.array(gaps) >= gap - 1e-12), abs=0.02
    )
    signs = np.array(np.meshgrid(*[[-1, 1]] * 8)).reshape(8, -1)
    flipped = np.abs((signs * (x - y)[:, None]).mean(axis=0))
    share = np.mean(flipped >= abs((x - y).mean()) - 1e-12)
    pair = paired(dict(enumerate(x.tolist())), dict(enumerate(y.tolist())))
    assert found(pair).p() == pytest.approx(share, abs=0.02)


def test_a_contrast_of_many_groups() -> None:
    # Two methods against one baseline: the average difference, whose baseline counts once.
    a, b, base = (rng.normal(mean, 1, 4) for mean in (2, 3, 0))
    result = found(contrast([(0.5, list(a)), (0.5, list(b)), (-1, list(base))]))
    assert result.estimate == pytest.approx((a.mean() + b.mean()) / 2 - base.mean())
    parts = np.array([a.var(ddof=1) / 16, b.var(ddof=1) / 16, base.var(ddof=1) / 4])
    assert result.error == pytest.approx(math.sqrt(parts.sum()))
    assert result.freedom == pytest.approx(parts.sum() ** 2 / (parts**2 / 3).sum())
    assert result.runs == 12


def test_errors_of_the_first_kind_and_coverage() -> None:
    random = np.random.default_rng(1)
    draws, rejected, rejected_pairs, covered = 4000, 0, 0, 0
    for _ in range(draws):
        x, y = random.normal(5, 1, 5), random.normal(5, 2, 5)
        result = found(welch(list(x), list(y)))
        rejected += result.p() < 0.05  # type: ignore[operator]
        low, high = result.interval()  # type: ignore[misc]
        covered += low <= 0 <= high
        shared = random.normal(0, 5, 5)
        pair = paired(dict(enumerate(x + shared)), dict(enumerate(y + shared)))
        rejected_pairs += found(pair).p() < 0.05  # type: ignore[operator]
    assert 0.035 < rejected / draws < 0.06
    assert covered == draws - rejected
    assert 0.04 < rejected_pairs / draws < 0.06


def test_equivalence() -> None:
    random = np.random.default_rng(2)
    x = random.normal(0.8, 0.003, 5)
    y = random.normal(0.8, 0.003, 5)
    result = found(welch(list(x), list(y)))
    # Two one-sided tests reject exactly where the 90 % interval lies within the margin.
    for margin in np.linspace(0.001, 0.02, 40):
        low, high = result.interval(0.9)  # type: ignore[misc]
        within = result.p_within(float(margin))
        assert within is not None
        assert (within < 0.05) == (-margin < low and high < margin)
    assert stats.ttest_ind(x + 0.01, y, equal_var=False, alternative="greater").pvalue == (
        pytest.approx(result.p_above(-0.01))
    )
    # At the margin itself it is wrong in at most 5 %.
    wrong = 0
    for _ in range(2000):
        a, b = random.normal(0.81, 0.002, 5), random.normal(0.8, 0.002, 5)
        wrong += found(welch(list(a), list(b))).p_within(0.01) < 0.05  # type: ignore[operator]
    assert 0.035 < wrong / 2000 < 0.065


# Where little or nothing can be said.


@pytest.mark.parametrize(
    ("x", "y"),
    [([0.5], [0.5, 0.6]), ([0.5], [0.6]), ([0.5, 0.5], [0.5, 0.5]), ([0.6] * 5, [0.5] * 5)],
    ids=["one run", "one each", "no scatter, equal", "no scatter, different"],
)
def test_no_test_without_scatter(x: list[Value], y: list[Value]) -> None:
    result = found(welch(x, y))
    assert result.estimate == pytest.approx(fmean(defined(x)) - fmean(defined(y)))
    assert result.error is None
    assert result.p() is result.p_within(0.01) is result.interval() is result.detectable() is None


def test_one_constant_side_has_a_test() -> None:
    result = found(welch([0.5] * 5, [0.6, 0.62, 0.58, 0.61, 0.6]))
    assert result.freedom == pytest.approx(4)
    one = stats.ttest_1samp([0.6, 0.62, 0.58, 0.61, 0.6], 0.5)
    assert result.p() == pytest.approx(one.pvalue)


def test_no_difference_without_scores() -> None:
    assert welch([None, None], [0.5, 0.6]) is None
    assert welch([], [0.5, 0.6]) is None
    assert contrast([]) is None


def test_undefined_scores_are_left_out() -> None:
    assert welch([0.5, None, 0.7], [0.1, 0.3]) == welch([0.5, 0.7], [0.1, 0.3])


# Several tests.


def test_holm_by_hand() -> None:
    # .01·4, .02·3 = .06, .03·2 = .06, .5·1
    assert holm([0.5, 0.01, 0.03, 0.02]) == pytest.approx([0.5, 0.04, 0.06, 0.06])
    assert holm([0.4, 0.5]) == [0.8, 0.8]
    assert holm([0.7, 0.6]) == [1.0, 1.0]
    assert holm([None, 0.01]) == [None, 0.01]
    assert holm([]) == []


@given(st.lists(st.floats(0, 1), min_size=1, max_size=8), st.sampled_from([0.01, 0.05, 0.3]))
def test_holm_rejects_as_its_steps_do(ps: list[float], alpha: float) -> None:
    rejected = set()
    for rank, place in enumerate(sorted(range(len(ps)), key=lambda i: ps[i])):
        if ps[place] * (len(ps) - rank) > alpha:
            break
        rejected.add(place)
    assert {i for i, p in enumerate(holm(ps)) if p is not None and p <= alpha} == rejected


# Sizes of effects.


def test_hedges_by_hand() -> None:
    # Means 3 apart, both variances 2.5, n = 5: d = 3/√2.5; J(8) = 1 - 3/(4·8 - 1), nearly.
    result = hedges([4.0, 5.0, 6.0, 7.0, 8.0], [1.0, 2.0, 3.0, 4.0, 5.0])
    assert result is not None
    assert result.g == pytest.approx(3 / math.sqrt(2.5) * (1 - 3 / 31), rel=1e-3)


def test_hedges_is_unbiased_and_its_interval_covers() -> None:
    random = np.random.default_rng(3)
    found_, covered, truth = [], 0, 0.8
    for _ in range(3000):
        result = hedges(list(random.normal(truth * 2, 2, 5)), list(random.normal(0, 2, 4)))
        assert result is not None
        found_.append(result.g)
        covered += result.low <= truth <= result.high
    assert np.mean(found_) == pytest.approx(truth, abs=3 * np.std(found_) / math.sqrt(3000))
    assert covered / 3000 == pytest.approx(0.95, abs=0.012)


def test_hedges_of_a_huge_effect() -> None:
    result = hedges([0.9, 0.9001, 0.8999], [0.1, 0.1001, 0.0999])
    assert result is not None
    assert 0 < result.low < result.g < result.high < math.inf


def test_no_hedges_without_scatter() -> None:
    assert hedges([0.5, 0.5], [0.4, 0.4]) is None
    assert hedges([0.5, 0.6], [0.4]) is None
    assert hedges([], [0.4, 0.5, 0.6]) is None


# What runs could have shown.


def power_of(shift: float, freedom: float, alpha: float) -> float:
    """P(|Z + shift| > t·√(χ²/ν)), by integrating over the χ distribution."""
    critical = stats.t.isf(alpha / 2, freedom)

    def inside(s: float) -> float:
        both = special.ndtr(critical * s - shift) - special.ndtr(-critical * s - shift)
        return float(both * stats.chi.pdf(s * math.sqrt(freedom), freedom) * math.sqrt(freedom))

    return 1 - float(integrate.quad(inside, 0, np.inf, limit=300)[0])


@pytest.mark.parametrize("freedom", [1, 2, 4, 5.7, 8, 40])
@pytest.mark.parametrize(("alpha", "power"), [(0.05, 0.8), (0.05, 0.9), (0.002, 0.8)])
def test_noncentrality_has_the_power(freedom: float, alpha: float, power: float) -> None:
    shift = noncentrality(freedom, alpha, power)
    assert power_of(shift, freedom, alpha) == pytest.approx(power, abs=1e-6)


def test_noncentrality_of_the_normal_curve() -> None:
    assert noncentrality(1e7) == pytest.approx(1.959964 + 0.841621, abs=1e-4)


def test_the_smallest_effect_is_found_in_eight_of_ten() -> None:
    random = np.random.default_rng(4)
    effect = noncentrality(8) * math.sqrt(2 / 5)  # five runs each, standard deviation 1
    x, y = random.normal(effect, 1, (20_000, 5)), random.normal(0, 1, (20_000, 5))
    p = stats.ttest_ind(x, y, axis=1).pvalue
    assert np.mean(p < 0.05) == pytest.approx(0.8, abs=0.01)


def test_detectable_is_in_units_of_the_score() -> None:
    x, y = [1.0, 2.0, 3.0, 4.0, 5.0], [2.0, 3.0, 4.0, 5.0, 6.0]
    result = found(welch(x, y))
    assert result.detectable() == pytest.approx(noncentrality(8) * 1.0)
    assert result.detectable(alpha=0.01) > result.detectable()  # type: ignore[operator]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: noncentrality(0), "got 0 degrees of freedom, expected more than 0"),
        (lambda: noncentrality(8, 1.5), "got alpha=1.5, expected a number between 0 and 1"),
        (lambda: noncentrality(8, 0.5, 0.2), "got power=0.2, expected more than alpha"),
        (lambda: found(welch([1, 2], [3, 5])).interval(95), "got level=95, expected"),
        (lambda: found(welch([1, 2], [3, 5])).p_within(0), "got margin=0, expected"),
    ],
)
def test_settings_that_make_no_sense(call: object, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        call()  # type: ignore[operator]


# What must not change a test.


@given(scores, scores, st.sampled_from([-3.0, 0.5, 100.0]), st.sampled_from([1e-6, 0.01, 1000.0]))
def test_shift_and_scale(x: list[float], y: list[float], shift: float, scale: float) -> None:
    assume(np.ptp(x) + np.ptp(y) > 0)
    plain = found(welch(x, y))
    moved = found(welch([v * scale + shift for v in x], [v * scale + shift for v in y]))
    assume(moved.error is not None)  # a shift can round the scatter of tiny scores away
    assert moved.estimate == pytest.approx(plain.estimate * scale, rel=1e-6, abs=1e-9)
    assert moved.p() == pytest.approx(plain.p(), rel=1e-5, abs=1e-6)
    g, h = hedges(x, y), hedges([v * scale for v in x], [v * scale for v in y])
    assert (g and g.g) == (pytest.approx(h.g) if h else None)


@given(scores, scores, st.randoms(use_true_random=False))
def test_order_and_sides(x: list[float], y: list[float], random: object) -> None:
    one, other = found(welch(x, y)), found(welch(y, x))
    assert other.estimate == pytest.approx(-one.estimate)
    assert other.p() == (one.p() and pytest.approx(one.p()))
    shuffled = list(x)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert found(welch(shuffled, y)).p() == (one.p() and pytest.approx(one.p()))


@given(scores, scores)
def test_never_nan(x: list[float], y: list[float]) -> None:
    result = found(welch(x, y))
    numbers = [result.p(), result.detectable(), *(result.interval() or ()), result.p_within(0.01)]
    effect = hedges(x, y)
    numbers += [effect.g, effect.low, effect.high] if effect else []
    assert all(number is None or math.isfinite(number) for number in numbers)

"""Intervals against derivations of their own, and against the truth on simulated clouds."""

import sys
from collections.abc import Callable, Iterator
from itertools import combinations, product
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from scipy import stats

from isotropy import measure, scoring
from isotropy.intervals import GROUPS, Interval, jackknife, subsample_size, subsampling
from isotropy.sampling import random_groups

Rows = np.ndarray
LEVEL = 0.95
T = stats.t.ppf((1 + LEVEL) / 2, GROUPS - 1)


def variance(interval: Interval, groups: int) -> float:
    """The variance that a jackknife's interval stands for."""
    low, high = interval
    return float(((high - low) / 2 / stats.t.ppf((1 + LEVEL) / 2, groups - 1)) ** 2)


def jackknife_of(score: Callable[[Rows], float], x: Rows, *, pairs: bool) -> Interval:
    """The jackknife of a score of single rows, which it is given without one, and without two."""
    n = len(x)
    without = [[score(np.delete(x, i, axis=0))] for i in range(n)]
    both = [[score(np.delete(x, list(two), axis=0))] for two in combinations(range(n), 2)]
    return jackknife([score(x)], without, [1] * n, LEVEL, both if pairs else None)[0]


@pytest.mark.parametrize("pairs", [False, True])
def test_of_a_mean_is_students_t(pairs: bool) -> None:
    # A mean has nothing that varies with pairs: their correction is zero.
    x = np.random.default_rng(0).normal(size=12)
    expected = stats.t.interval(LEVEL, 11, x.mean(), stats.sem(x))
    assert jackknife_of(np.mean, x, pairs=pairs) == pytest.approx(expected, rel=1e-9)


def test_takes_the_first_bias_out() -> None:
    # The variance with 1/n has the one with 1/(n − 1) as its jackknife estimate.
    x = np.random.default_rng(1).normal(size=9)
    low, high = jackknife_of(np.var, x, pairs=False)
    assert (low + high) / 2 == pytest.approx(np.var(x, ddof=1), rel=1e-9)


def test_of_groups_of_different_sizes_follows_busing() -> None:
    # Busing, Meijer & van der Leeden 1999, equations 8 and 9, a group at a time.
    rng = np.random.default_rng(2)
    x = rng.gamma(2, size=23)
    groups = np.split(rng.permutation(23), [3, 5, 12])
    n, g = len(x), len(groups)
    theta = np.var(x)
    without = [np.var(np.delete(x, group)) for group in groups]
    estimate = g * theta - sum(
        (1 - len(group) / n) * rest for group, rest in zip(groups, without, strict=True)
    )
    spread = 0.0
    for group, rest in zip(groups, without, strict=True):
        h = n / len(group)
        spread += (h * theta - (h - 1) * rest - estimate) ** 2 / (h - 1) / g
    found = jackknife([theta], [[rest] for rest in without], [len(group) for group in groups], 0.9)
    reach = stats.t.ppf(0.95, g - 1) * spread**0.5
    assert found[0] == pytest.approx((estimate - reach, estimate + reach), rel=1e-12)


def test_several_scores_do_not_mix() -> None:
    x = np.random.default_rng(3).normal(size=10)
    rest = [np.delete(x, i) for i in range(10)]
    whole = [x.mean(), np.var(x)]
    together = jackknife(whole, [[r.mean(), np.var(r)] for r in rest], [1] * 10, LEVEL)
    alone = [jackknife_of(score, x, pairs=False) for score in (np.mean, np.var)]
    assert np.allclose(together, alone, rtol=1e-12)


def test_an_undefined_score_has_no_interval() -> None:
    low, high = jackknife([1.0], [[np.nan], [1.0], [1.1]], [1, 1, 1], LEVEL)[0]
    assert np.isnan(low)
    assert np.isnan(high)


@pytest.mark.parametrize("n", [6, 7])
def test_pairs_are_counted_once(n: int) -> None:
    """The square of a mean of centred values: all of it varies with pairs.

    Over all 3ⁿ equally likely samples, so that expectations are exact. As Efron & Stein show, the
    plain jackknife's expected variance is never below the true one; here it is far above.
    """

    def score(x: Rows) -> float:
        return float(np.mean(x) ** 2)

    plain, corrected, centres = [], [], []
    for sample in product((-1.0, 0.0, 1.0), repeat=n):
        x = np.array(sample)
        interval = jackknife_of(score, x, pairs=False)
        centres.append(sum(interval) / 2)
        plain.append(variance(interval, n))
        corrected.append(variance(jackknife_of(score, x, pairs=True), n))
    truth = np.var(centres)
    assert np.mean(plain) > 1.6 * truth
    assert truth < np.mean(corrected) < 1.35 * truth
    assert np.all(np.array(corrected) >= np.array(plain) / 2 - 1e-12)


def plug_in_iso_score(x: Rows) -> float:
    c = np.cov(x.T)
    return (np.trace(c) ** 2 / (c * c).sum() - 1) / (len(c) - 1)


def norm_ratio(x: Rows) -> float:
    return (x.mean(axis=0) ** 2).sum() / (x**2).sum(axis=1).mean()


@pytest.mark.parametrize(
    ("name", "score"), [("iso_score", plug_in_iso_score), ("mean_norm_ratio", norm_ratio)]
)
@pytest.mark.parametrize("n", [97, 200])
def test_of_measures_leaves_groups_of_rows_out(
    name: str, score: Callable[[Rows], float], n: int
) -> None:
    """From the rows themselves, without moments: leave out groups, then pairs of groups."""
    x = np.random.default_rng(n).normal(size=(n, 5)) * [1, 1, 2, 3, 4] + 2
    group = random_groups(0, n, GROUPS, seed=7)
    sizes = np.bincount(group)
    theta = score(x)
    alone = [score(x[group != i]) for i in range(GROUPS)]
    h = n / sizes
    pseudo = h * theta - (h - 1) * alone
    centre = np.sum(pseudo / h)  # which is Busing's form of the estimate
    spread = np.mean((pseudo - centre) ** 2 / (h - 1))
    excess = []
    for i, j in combinations(range(GROUPS), 2):
        left = n - sizes[i] - sizes[j]
        both = score(x[(group != i) & (group != j)])
        interaction = n * theta - (n - sizes[i]) * alone[i] - (n - sizes[j]) * alone[j]
        excess.append((interaction + left * both) * GROUPS / n)
    correction = len(excess) * np.var(excess) / (GROUPS * (GROUPS + 1))
    reach = T * max(spread - correction, spread / 2) ** 0.5
    found = measure(x, [name], interval=LEVEL, seed=7)[name].interval
    assert found == pytest.approx((centre - reach, centre + reach), rel=1e-8)


def test_subsampling_follows_its_formula() -> None:
    x = np.random.default_rng(4).normal(size=400)
    drawn: list[np.ndarray] = []

    def score(rows: np.ndarray) -> list[float]:
        drawn.append(rows)
        return [float(x[rows].mean())]

    ((low, high),) = subsampling(score, [5.0], 400, LEVEL, seed=0)
    m = subsample_size(400)
    assert [len(rows) for rows in drawn] == [m] * GROUPS
    error = np.std([x[rows].mean() for rows in drawn], ddof=1) * (m / (400 - m)) ** 0.5
    assert (low, high) == pytest.approx((5 - T * error, 5 + T * error))


def test_subsampling_estimates_the_error_of_a_mean() -> None:
    n = 400
    found = []
    for seed in range(100):
        x = np.random.default_rng(seed).normal(size=n)
        limits = subsampling(lambda rows, x=x: [x[rows].mean()], [x.mean()], n, LEVEL, seed)
        found.append(variance(limits[0], GROUPS))
    assert np.mean(found) == pytest.approx(1 / n, rel=0.1)


def test_subsampling_is_seeded() -> None:
    def limits(seed: int) -> list[Interval]:
        return subsampling(lambda rows: [float(rows.sum())], [0.0], 100, LEVEL, seed)

    assert limits(1) == limits(1)
    assert limits(1) != limits(2)


def test_no_interval_looks_at_a_row_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each row is a unit vector of its own, so that XᵀX counts how often it is looked at."""
    n = 60
    counts = []
    plain = scoring._scores_or_nan

    def spy(specs: object, view: scoring.View, rows: int) -> list[float]:
        second = view.rows.T @ view.rows if view.moments is None else view.moments.second
        counts.append(second.diagonal().double().numpy())
        return plain(specs, view, rows)

    monkeypatch.setattr(scoring, "_scores_or_nan", spy)
    x = torch.eye(n, dtype=torch.float64)
    names = ["iso_score", "anisotropy", "mean_cosine", "uniformity", "partition_isotropy"]
    measure(x, names, interval=LEVEL)
    # iso_score and mean_cosine leave out pairs too; the last two are subsampled together.
    assert len(counts) == GROUPS + (GROUPS + GROUPS * (GROUPS - 1) // 2) + GROUPS
    for seen in counts:
        assert np.allclose(seen, seen.round(), atol=1e-9)
        assert set(seen.round()) <= {0, 1}
        assert 0 < seen.sum().round() < n


@pytest.fixture(scope="module")
def simulation() -> Iterator[ModuleType]:
    """The benchmark's clouds and their true values."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(Path(__file__).parents[1] / "benchmarks"))
        import intervals

        yield intervals
        for name in ("intervals", "harness"):
            sys.modules.pop(name, None)


@pytest.mark.parametrize("distribution", ["gaussian", "student"])
def test_cover_the_truth(simulation: ModuleType, distribution: str) -> None:
    draw = getattr(simulation, distribution)
    truth = simulation.truths(draw, samples=400_000)
    found = simulation.coverage(draw, truth, 64, simulation.SMALL, clouds=60)
    assert set(found) == set(simulation.SMALL)
    # Intervals that cover 95 % would cover so few of 60 clouds once in 1000 times.
    assert min(found.values()) >= 85, found


def test_are_no_wider_than_they_need_to_be(simulation: ModuleType) -> None:
    rng = np.random.default_rng(1)
    reports = [
        measure(simulation.gaussian(rng, 64), simulation.SMALL, interval=LEVEL) for _ in range(60)
    ]
    for name in simulation.SMALL:
        spread = np.std([report[name].value for report in reports], ddof=1)
        reach = np.mean([np.ptp(report[name].interval) / 2 for report in reports])
        assert 0.7 < reach / (T * spread) < 1.3, name


@pytest.mark.long
@pytest.mark.parametrize("distribution", ["gaussian", "student"])
def test_cover_the_truth_of_200_clouds(simulation: ModuleType, distribution: str) -> None:
    draw = getattr(simulation, distribution)
    truth = simulation.truths(draw)
    for n, names in simulation.CASES:
        found = simulation.coverage(draw, truth, n, names)
        assert all(90 <= percent <= 99.5 for percent in found.values()), (n, found)

r"""Intervals for scores, without ever drawing a row twice.

Rows drawn with replacement bias these measures: duplicated rows look like a cloud of fewer
directions, and every nearest neighbour is at distance 0.

- **Jackknife over groups**, for what follows from moments: rows are dealt out to g groups at random
  and the score is computed without each group. Pseudo-values p_j = h_j θ − (h_j − 1) θ_(j), with
  h_j = n/n_j, have the score without its first-order bias as their mean θ_J, and
  Σ_j (p_j − θ_J)²/((h_j − 1) g) as the variance of that (Busing, Meijer & van der Leeden 1999).
  It counts twice what varies with pairs of rows, which is nearly all there is for the mean of a
  centred cloud; leaving out pairs of groups shows how much that is (Efron & Stein 1981).
- **Subsampling**, for all others: the score of B random subsamples of m of the n rows. As they
  share rows, its variance over them is σ²/m − σ²/n, and so the score's own σ²/n is
  m/(n − m) times it (Politis & Romano 1994).
"""

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy import stats

GROUPS = 20
"""How many groups the jackknife leaves out, and how many subsamples there are."""

SUBSAMPLE_SHARE = 0.25
"""m/n: small, so that subsamples share few rows and cost little; not too small, as some scores
drift with the number of rows."""

FEWEST_ROWS = 8
"""Rows in a subsample under which its scatter says little."""

Interval = tuple[float, float]


def jackknife(
    whole: Sequence[float],
    without: Sequence[Sequence[float]],
    sizes: Sequence[int],
    level: float,
    without_pairs: Sequence[Sequence[float]] | None = None,
) -> list[Interval]:
    """Intervals for several scores at once.

    Args:
        whole: the scores of all rows.
        without: for each group, the scores without its rows.
        sizes: how many rows each group has.
        level: such as 0.95.
        without_pairs: the scores without the rows of two groups, for the pairs in the order of
            `itertools.combinations`.

    Example:
        >>> low, high = jackknife([2.5], [[3.0], [2.66667], [2.33333], [2.0]], [1] * 4, 0.95)[0]
        >>> round(low, 2), round(high, 2)  # a mean's interval by Student's t
        (0.45, 4.55)
    """
    theta, rest = np.asarray(whole), np.asarray(without)
    n, groups = sum(sizes), len(sizes)
    h = n / np.asarray(sizes)[:, None]
    pseudo = h * theta - (h - 1) * rest
    centre = groups * theta - ((1 - 1 / h) * rest).sum(axis=0)
    variance = ((pseudo - centre) ** 2 / (h - 1)).mean(axis=0)
    if without_pairs is not None:
        excess = _from_pairs(theta, rest, np.asarray(without_pairs), np.asarray(sizes))
        # What is left is at least half, as the part that pairs have is counted just twice.
        variance = np.where(
            np.isfinite(excess), np.maximum(variance - excess, variance / 2), variance
        )
    return _around(centre, np.sqrt(variance), level, groups - 1)


def _from_pairs(
    whole: NDArray[np.float64],
    without: NDArray[np.float64],
    without_pairs: NDArray[np.float64],
    sizes: NDArray[np.int64],
) -> NDArray[np.float64]:
    """By how much the jackknife's variance is too large (Efron & Stein 1981, section 4)."""
    n, groups = sizes.sum(), len(sizes)
    i, j = np.triu_indices(groups, 1)
    a, b = sizes[i, None], sizes[j, None]
    q = n * whole - (n - a) * without[i] - (n - b) * without[j] + (n - a - b) * without_pairs
    q = q * groups / n
    return np.asarray(((q - q.mean(axis=0)) ** 2).sum(axis=0) / (groups * (groups + 1)))


def subsample_size(n: int) -> int:
    """How many of n rows a subsample has."""
    return int(n * SUBSAMPLE_SHARE)


def subsampling(
    score: Callable[[NDArray[np.int64]], Sequence[float]],
    whole: Sequence[float],
    n: int,
    level: float,
    seed: int,
) -> list[Interval]:
    """Intervals for several scores at once.

    Args:
        score: the scores of the rows with the given numbers.
        whole: the scores of all rows.
        n: how many rows there are.
        level: such as 0.95.
        seed: of the draws.
    """
    random = np.random.default_rng(seed)
    m = subsample_size(n)
    drawn = [score(np.sort(random.choice(n, m, replace=False))) for _ in range(GROUPS)]
    scatter = np.std(np.asarray(drawn), axis=0, ddof=1)
    return _around(np.asarray(whole), scatter * np.sqrt(m / (n - m)), level, GROUPS - 1)


def _around(
    centre: NDArray[np.float64], error: NDArray[np.float64], level: float, freedom: int
) -> list[Interval]:
    reach = stats.t.ppf((1 + level) / 2, freedom) * error
    return [(float(c - r), float(c + r)) for c, r in zip(centre, reach, strict=True)]

r"""What scores over seeds can say: means, differences, tests, and what they could have shown.

Everything here is a function of plain numbers. A score that is undefined (None) is left out and
counted, and a number that cannot be had, such as a test of one run, is None: never NaN.

The one idea behind all tests is a **contrast**, a weighted sum of the means of independent groups,

$$\hat\delta = \sum_g w_g \bar x_g, \qquad
  \widehat{\text{se}}^2 = \sum_g w_g^2 s_g^2 / n_g, \qquad
  \nu = \widehat{\text{se}}^4 \Big/ \sum_g \frac{(w_g^2 s_g^2 / n_g)^2}{n_g - 1},$$

with Student's t on ν degrees of freedom (Welch 1947, Satterthwaite 1946). Weights 1 and −1 on two
groups are Welch's test, weight 1 on differences by seed is the paired test, and an average over
tasks whose methods share one baseline is a contrast of more groups.

With five seeds, tests of ranks cannot replace them: the smallest two-sided p that Wilcoxon's
signed-rank test has is 2/2⁵ = .0625.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, median, stdev

import numpy as np
from scipy import optimize, special, stats

from isotropy.errors import SettingError

Interval = tuple[float, float]
Value = float | None
"""A score; None where it is undefined."""

LEVEL = 0.95
ALPHA = 0.05
POWER = 0.8
MARGIN = 0.01
"""One point of a score that is a fraction of 1: a difference that is called none."""

# Scatter below this share of the values is rounding: such scores are constant.
_ROUNDING = 1e-12


@dataclass(frozen=True)
class Summary:
    """Scores of one cell over its seeds.

    Attributes:
        n: how many are defined.
        undefined: how many are not.
        mean: None where n = 0.
        std: with n − 1; None where n < 2.
        median: None where n = 0.
    """

    n: int
    undefined: int
    mean: float | None
    std: float | None
    median: float | None

    @property
    def constant(self) -> bool:
        """Whether several runs all gave the same score."""
        return self.n > 1 and self.std == 0


def summary(values: Sequence[Value]) -> Summary:
    """Mean, standard deviation and median of the defined scores.

    Example:
        >>> summary([0.5, 0.7, None])
        Summary(n=2, undefined=1, mean=0.6, std=0.1414, median=0.6)
    """
    there = defined(values)
    n = len(there)
    return Summary(
        n=n,
        undefined=len(values) - n,
        mean=fmean(there) if there else None,
        std=(0.0 if _constant(there) else stdev(there)) if n > 1 else None,
        median=median(there) if there else None,
    )


def defined(values: Sequence[Value]) -> list[float]:
    """The scores without those that are undefined or not finite."""
    return [float(value) for value in values if value is not None and math.isfinite(value)]


@dataclass(frozen=True)
class Contrast:
    """An estimated difference and how sure it is.

    Attributes:
        estimate: the weighted sum of means.
        error: its standard error; None where it cannot be estimated: a group of one run, or no
            scatter at all, of which a few runs say nothing.
        freedom: degrees of freedom of the error, None likewise.
        runs: how many scores it rests on.
    """

    estimate: float
    error: float | None
    freedom: float | None
    runs: int

    def interval(self, level: float = LEVEL) -> Interval | None:
        """The confidence interval, by Student's t."""
        if self.error is None:
            return None
        reach = float(stats.t.ppf((1 + _share(level, "level")) / 2, self.freedom)) * self.error
        return self.estimate - reach, self.estimate + reach

    def p(self, bound: float = 0.0) -> float | None:
        """Two-sided p of "the difference is `bound`"."""
        t = self._t(bound)
        return None if t is None else float(2 * stats.t.sf(abs(t), self.freedom))

    def p_above(self, bound: float = 0.0) -> float | None:
        """One-sided p: small where the difference is surely above `bound`."""
        t = self._t(bound)
        return None if t is None else float(stats.t.sf(t, self.freedom))

    def p_below(self, bound: float = 0.0) -> float | None:
        """One-sided p: small where the difference is surely below `bound`."""
        t = self._t(bound)
        return None if t is None else float(stats.t.cdf(t, self.freedom))

    def p_within(self, margin: float) -> float | None:
        """The p of two one-sided tests: small where the difference is surely between ±`margin`."""
        above, below = self.p_above(-_positive(margin, "margin")), self.p_below(margin)
        return None if above is None or below is None else max(above, below)

    def detectable(self, alpha: float = ALPHA, power: float = POWER) -> float | None:
        """The smallest difference that these runs could have shown, given their scatter.

        Args:
            alpha: of the two-sided test; ALPHA/m where it is the first of m under Holm.
            power: how often the test would have found it.
        """
        if self.error is None or self.freedom is None:
            return None
        return noncentrality(self.freedom, alpha, power) * self.error

    def _t(self, bound: float) -> float | None:
        return None if self.error is None else (self.estimate - bound) / self.error


def contrast(groups: Sequence[tuple[float, Sequence[Value]]]) -> Contrast | None:
    """A weighted sum of the means of independent groups; None where a group has no score.

    Args:
        groups: pairs of a weight and the scores.

    Example:
        >>> found = contrast([(1, [3.0, 4.0, 5.0]), (-1, [1.0, 2.0, 3.0])])
        >>> found.estimate, round(found.error, 4), round(found.freedom, 6)
        (2.0, 0.8165, 4.0)
    """
    parts = [(weight, defined(values)) for weight, values in groups]
    if not parts or not all(values for _, values in parts):
        return None
    estimate = math.fsum(weight * fmean(values) for weight, values in parts)
    runs = sum(len(values) for _, values in parts)
    if any(len(values) < 2 for _, values in parts):
        return Contrast(estimate, None, None, runs)
    variances = [
        0.0 if _constant(values) else weight**2 * stdev(values) ** 2 / len(values)
        for weight, values in parts
    ]
    total = math.fsum(variances)
    if total == 0:
        return Contrast(estimate, None, None, runs)
    # Shares of the variance, not variances: their squares would underflow for tiny scores.
    freedom = 1 / math.fsum(
        (variance / total) ** 2 / (len(values) - 1)
        for variance, (_, values) in zip(variances, parts, strict=True)
    )
    return Contrast(estimate, math.sqrt(total), freedom, runs)


def welch(ours: Sequence[Value], theirs: Sequence[Value]) -> Contrast | None:
    """The difference of two means with their own variances (Welch's t-test).

    Example:
        >>> round(welch([3.0, 4.0, 5.0], [1.0, 2.0, 3.0]).p(), 4)
        0.0705
    """
    return contrast([(1, ours), (-1, theirs)])


def paired(ours: Mapping[int, Value], theirs: Mapping[int, Value]) -> Contrast | None:
    """The mean difference by seed, over the seeds that both have (the paired t-test).

    It is the sharper test where a seed moves both scores alike, such as through the order of data.

    Example:
        >>> paired({0: 3.0, 1: 4.0, 2: 5.5}, {0: 1.0, 1: 2.0, 2: 3.0}).estimate
        2.1667
    """
    both = [
        (mine, other)
        for seed, value in ours.items()
        if (mine := value) is not None and (other := theirs.get(seed)) is not None
    ]
    return contrast([(1, [mine - other for mine, other in both])])


def holm(values: Sequence[float | None]) -> list[float | None]:
    """Holm's corrected p-values; those that are None stay so and do not count.

    Example:
        >>> holm([0.01, 0.04, None, 0.03])
        [0.03, 0.06, None, 0.06]
    """
    order = sorted((p, place) for place, p in enumerate(values) if p is not None)
    corrected: list[float | None] = [None] * len(values)
    largest = 0.0
    for rank, (p, place) in enumerate(order):
        largest = max(largest, min(1.0, (len(order) - rank) * p))
        corrected[place] = largest
    return corrected


@dataclass(frozen=True)
class Effect:
    """A standardised difference, Hedges' g, with an interval."""

    g: float
    low: float
    high: float


def hedges(ours: Sequence[Value], theirs: Sequence[Value], level: float = LEVEL) -> Effect | None:
    r"""The difference of two means in units of their pooled standard deviation.

    g = J(m)·(x̄₁ − x̄₂)/s with m = n₁ + n₂ − 2 and J(m) = Γ(m/2)/(√(m/2)·Γ((m−1)/2)), which makes it
    unbiased. The interval inverts the noncentral t distribution, exact for normal scores of one
    variance.

    Returns:
        None where a side has no score, there are fewer than four in all, or none scatter.

    References:
        Hedges 1981, "Distribution theory for Glass's estimator of effect size".

    Example:
        >>> found = hedges([3.0, 4.0, 5.0], [1.0, 2.0, 3.0])
        >>> round(found.g, 3), round(found.low, 2), round(found.high, 2)
        (1.596, -0.15, 4.02)
    """
    mine, other = defined(ours), defined(theirs)
    freedom = len(mine) + len(other) - 2
    if not mine or not other or freedom < 2:
        return None
    squares = sum(
        0.0 if _constant(values) else stdev(values) ** 2 * (len(values) - 1)
        for values in (mine, other)
        if len(values) > 1
    )
    if squares == 0:
        return None
    scale = math.sqrt(1 / len(mine) + 1 / len(other))
    d = (fmean(mine) - fmean(other)) / math.sqrt(squares / freedom)
    gammas = math.lgamma(freedom / 2) - math.lgamma((freedom - 1) / 2)
    correction = math.exp(gammas) / math.sqrt(freedom / 2)
    tail = (1 - _share(level, "level")) / 2
    # Of the positive side, as scipy has no far lower tail.
    t = abs(d) / scale
    low, high = (float(special.nctdtrinc(freedom, p, t)) * scale for p in (1 - tail, tail))
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    return Effect(correction * d, low, high) if d >= 0 else Effect(correction * d, -high, -low)


def noncentrality(freedom: float, alpha: float = ALPHA, power: float = POWER) -> float:
    """How many standard errors a difference must be for the t-test to find it so often.

    Solves P(|T| > t_{1−α/2}) = power for T of noncentral t.

    Args:
        freedom: degrees of freedom, above 0.
        alpha: of the two-sided test.
        power: above alpha.

    Example:
        >>> round(noncentrality(8), 3)  # five runs against five: 3.2, not the normal curve's 2.8
        3.201
    """
    alpha, power = _share(alpha, "alpha"), _share(power, "power")
    if not freedom > 0:
        raise SettingError(f"got {freedom:g} degrees of freedom, expected more than 0")
    if power <= alpha:
        raise SettingError(f"got power={power:g}, expected more than alpha, which is {alpha:g}")
    critical = float(stats.t.isf(alpha / 2, freedom))

    def lacking(shift: float) -> float:
        upper = 1 - float(special.nctdtr(freedom, shift, critical))
        lower = float(special.nctdtr(freedom, shift, -critical))
        return power - upper - (lower if math.isfinite(lower) else 0.0)  # scipy's 0 can be NaN

    # Where the upper tail alone has the power, both tails have at least as much.
    enough = float(special.nctdtrinc(freedom, 1 - power, critical))
    return float(optimize.brentq(lacking, 0.0, max(enough, 0.0) + 1e-6))


def _constant(values: Sequence[float]) -> bool:
    largest = max(map(abs, values), default=0.0)
    return not values or float(np.ptp(values)) <= _ROUNDING * largest


def _share(value: float, name: str) -> float:
    if not 0 < value < 1:
        raise SettingError(f"got {name}={value!r}, expected a number between 0 and 1")
    return value


def _positive(value: float, name: str) -> float:
    if not 0 < value < math.inf:
        raise SettingError(f"got {name}={value!r}, expected a number above 0")
    return value

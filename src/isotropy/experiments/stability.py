"""How measures do on small samples of a known distribution: a study without training."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from operator import add
from statistics import fmean, stdev
from typing import TYPE_CHECKING

from isotropy.experiments._plan_file import Stability
from isotropy.output import Progress

if TYPE_CHECKING:
    import torch
    from torch import Tensor

# Rows of the shrinkage sample that are drawn at a time.
_CHUNK = 4096


@dataclass(frozen=True)
class StabilityPoint:
    """A measure at a sample size.

    Attributes:
        measure: `iso_score_star`, or `iso_score_unbiased`.
        zeta: the share of the shrinkage matrix; None where there is none.
        size: points in a sample.
        mean: over the draws.
        std: over the draws; 0 of a single one.
    """

    measure: str
    zeta: float | None
    size: int
    mean: float
    std: float


@dataclass(frozen=True)
class StabilityStudy:
    """The points of a study, and the value that they should have."""

    settings: Stability
    truth: float
    points: tuple[StabilityPoint, ...]

    def __str__(self) -> str:
        """A table: a row for each size, a column for each measure."""
        from isotropy import tables

        columns = list(dict.fromkeys((point.measure, point.zeta) for point in self.points))
        values = {(point.measure, point.zeta, point.size): point for point in self.points}
        rows = [
            [str(size), *(_cell(values[measure, zeta, size]) for measure, zeta in columns)]
            for size in self.settings.sizes
        ]
        headers = ["n", *(_header(measure, zeta) for measure, zeta in columns)]
        said = (
            f"Isotropy of samples of n points in {self.settings.features} dimensions, mean ± std "
            f"of {self.settings.draws} draws;\nthe distribution's own is {self.truth:.4f}.\n\n"
        )
        return said + tables.table(headers, rows)


def true_iso_score(variances: Sequence[float], features: int) -> float:
    r"""IsoScore of a diagonal covariance: some variances first, all others 1.

    Example:
        >>> round(true_iso_score([10, 6, 4, 4], 768), 6)
        0.867339
    """
    others = features - len(variances)
    trace = sum(variances) + others
    squares = sum(variance**2 for variance in variances) + others
    return (trace**2 / squares - 1) / (features - 1)


def simulate(settings: Stability, progress: Progress | None = None) -> StabilityStudy:
    """IsoScore* for each ζ, and the unbiased IsoScore, of samples of a Gaussian.

    ζ = 0 is IsoScore itself. The shrinkage matrix is the covariance of a sample of its own. The
    paper takes its samples from one large sample; drawn from the distribution they are the same.

    Args:
        settings: of the study.
        progress: told of each draw.

    Example:
        >>> study = simulate(Stability(features=8, sizes=[16], zetas=[0], shrinkage_points=100))
        >>> [point.measure for point in study.points]
        ['iso_score_star', 'iso_score_unbiased']
    """
    import torch

    from isotropy.measures import iso_score_star, iso_score_unbiased

    generator = torch.Generator().manual_seed(settings.seed)
    scales = torch.ones(settings.features)
    scales[: len(settings.variances)] = torch.tensor(settings.variances).sqrt()
    shrinkage = _covariance(scales, settings.shrinkage_points, generator)
    points = []
    total = len(settings.sizes) * settings.draws
    for i, size in enumerate(settings.sizes):
        found: dict[tuple[str, float | None], list[float]] = {}
        for draw in range(settings.draws):
            x = torch.randn(size, settings.features, generator=generator) * scales
            for zeta in settings.zetas:
                value = float(iso_score_star(x, shrinkage, zeta=zeta))
                found.setdefault(("iso_score_star", zeta), []).append(value)
            value = float(iso_score_unbiased(x))
            found.setdefault(("iso_score_unbiased", None), []).append(value)
            if progress is not None:
                progress("samples", i * settings.draws + draw + 1, total)
        points += [
            StabilityPoint(measure, zeta, size, fmean(values), _std(values))
            for (measure, zeta), values in found.items()
        ]
    truth = true_iso_score(settings.variances, settings.features)
    return StabilityStudy(settings, truth, tuple(points))


def _covariance(scales: "Tensor", n: int, generator: "torch.Generator") -> "Tensor":
    """The covariance of n points, drawn a chunk at a time: the points together can be large."""
    import torch

    from isotropy.moments import Moments

    parts = (
        Moments.of(torch.randn(min(_CHUNK, n - start), len(scales), generator=generator) * scales)
        for start in range(0, n, _CHUNK)
    )
    return reduce(add, parts).covariance.float()


def _std(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def _cell(point: StabilityPoint) -> str:
    # Without a space and a leading zero: seven columns of them are 80 wide.
    return f"{point.mean:.3f}±{point.std:.3f}".replace("±0.", "±.")


def _header(measure: str, zeta: float | None) -> str:
    if zeta is None:
        return "unbiased"
    return "IsoScore" if zeta == 0 else f"ζ={zeta:g}"

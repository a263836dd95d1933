"""What small samples do to IsoScore: the one claim that needs no training."""

import math
from statistics import fmean

from isotropy.experiments import stability
from isotropy.experiments._evidence import Evidence
from isotropy.experiments._plan_file import Stability
from isotropy.experiments.statistics import Contrast

SETTINGS = Stability(sizes=(64, 256, 700), zetas=(0, 0.2, 0.4, 0.6, 0.8), draws=10)
"""Paper D's distribution and shrinkage sample, at sizes below its number of dimensions."""


def of_small_samples(settings: Stability = SETTINGS) -> Evidence:
    """How far IsoScore (ζ = 0) lies below IsoScore* on the same samples.

    The truth is in the notes: being lower mends nothing unless IsoScore* is also nearer to it.
    Means over sizes and ζ; the error takes the measures as independent, which is too wide here.
    """
    study = stability.simulate(settings)
    plain = [point for point in study.points if point.zeta == 0]
    shrunk = [point for point in study.points if point.zeta]
    iso, star = fmean(point.mean for point in plain), fmean(point.mean for point in shrunk)
    # All ζ see the same samples: their scatter adds up as if it were one.
    error = math.hypot(
        _error(plain, settings.draws), max(_error([p], settings.draws) for p in shrunk)
    )
    nearer = sum(
        abs(point.mean - study.truth) < abs(other.mean - study.truth)
        for point in shrunk
        for other in plain
        if other.size == point.size
    )
    return Evidence(
        method=f"IsoScore of {', '.join(map(str, settings.sizes))} points",
        quantity="iso_score",
        difference=Contrast(iso - star, error, settings.draws - 1, settings.draws),
        cells=len(shrunk),
        above=sum(
            other.mean > point.mean
            for point in shrunk
            for other in plain
            if other.size == point.size
        ),
        runs=settings.draws * len(settings.sizes),
        notes=(
            f"the truth is {study.truth:.3f}, IsoScore says {iso:.3f} and IsoScore* {star:.3f}, "
            f"nearer to it in {nearer} of {len(shrunk)} cases",
        ),
    )


def _error(points: list[stability.StabilityPoint], draws: int) -> float:
    return math.sqrt(sum(point.std**2 for point in points) / draws) / len(points)

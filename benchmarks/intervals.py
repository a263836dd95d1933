"""How often the 95 % intervals of moment measures cover the truth, over simulated clouds."""

import sys
from collections.abc import Callable

import numpy as np
from harness import Row, Section

from isotropy import measure

FEATURES, CLOUDS, FREEDOM = 100, 200, 7
VARIANCES = 1 / np.arange(1, FEATURES + 1) ** 0.5
MEAN = 0.4 * np.cos(np.arange(FEATURES))
SMALL = ("iso_score_unbiased", "mean_cosine", "mean_norm_ratio")
LARGE = ("iso_score", "anisotropy")
CASES = ((64, SMALL), (2000, SMALL), (20_000, LARGE))

Draw = Callable[[np.random.Generator, int], np.ndarray]


def gaussian(rng: np.random.Generator, n: int) -> np.ndarray:
    return rng.standard_normal((n, FEATURES)) * np.sqrt(VARIANCES) + MEAN


def student(rng: np.random.Generator, n: int) -> np.ndarray:
    """Multivariate Student-t with its covariance scaled to be that of the Gaussian."""
    scale = np.sqrt((FREEDOM - 2) / rng.chisquare(FREEDOM, (n, 1)))
    return rng.standard_normal((n, FEATURES)) * np.sqrt(VARIANCES) * scale + MEAN


def truths(draw: Draw, samples: int = 4_000_000) -> dict[str, float]:
    """The population's values: in closed form, but for the mean direction."""
    trace = VARIANCES.sum()
    iso_score = (trace**2 / (VARIANCES**2).sum() - 1) / (FEATURES - 1)
    second = np.linalg.eigvalsh(np.diag(VARIANCES) + np.outer(MEAN, MEAN))[::-1]
    length = (MEAN**2).sum()
    rng = np.random.default_rng(1)
    direction = np.zeros(FEATURES)
    for _ in range(samples // 50_000):
        x = draw(rng, 50_000)
        direction += (x / np.linalg.norm(x, axis=1, keepdims=True)).sum(axis=0)
    return {
        "iso_score": iso_score,
        "iso_score_unbiased": iso_score,
        "mean_norm_ratio": length / (length + trace),
        "mean_cosine": (direction @ direction - samples) / (samples * (samples - 1.0)),
        **{f"anisotropy_{k + 1}": second[k] / second.sum() for k in range(3)},
    }


def coverage(
    draw: Draw, truth: dict[str, float], n: int, names: tuple[str, ...], clouds: int = CLOUDS
) -> dict[str, float]:
    """In how many of 100 clouds of n rows each number's interval covers the truth."""
    covered: dict[str, int] = {}
    rng = np.random.default_rng(0)
    for seed in range(clouds):
        scores = measure(draw(rng, n), names, interval=0.95, seed=seed)
        for key, score in scores.items():
            low, high = score.interval
            covered[key] = covered.get(key, 0) + (low <= truth[key] <= high)
    return {key: 100 * count / clouds for key, count in covered.items()}


def round_clouds(section: Section, clouds: int) -> None:
    """Where all eigenvalues are equal, those of a sample are not: an interval would be wrong."""
    rng, names = np.random.default_rng(0), ("centered_anisotropy", "explained_variance")
    given = [
        score.interval is not None
        for seed in range(clouds)
        for score in measure(
            rng.standard_normal((2000, 20)), names, interval=0.95, seed=seed
        ).values()
    ]
    section.add(
        Row(f"shares of a round spectrum, n = 2000, d = 20: intervals given in {clouds} clouds",
            100 * np.mean(given), " %", high=1)
    )  # fmt: skip


def main() -> None:
    section = Section("intervals")
    clouds = int(sys.argv[1]) if sys.argv[1:] else CLOUDS
    for draw, name in ((gaussian, "Gaussian"), (student, f"Student-t{FREEDOM}")):
        truth = truths(draw)
        for n, names in CASES:
            for key, percent in coverage(draw, truth, n, names, clouds).items():
                section.add(
                    Row(f"{key} at n = {n}, d = {FEATURES}, {name}: covered in {clouds} clouds",
                        percent, " %", low=90, high=99.5, against="the truth")
                )  # fmt: skip
    round_clouds(section, clouds)
    section.save()


if __name__ == "__main__":
    main()

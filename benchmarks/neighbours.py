"""Measures of nearest neighbours beside scikit-dimension and scikit-learn."""

import numpy as np
import skdim
from harness import Row, Section, interleaved
from sklearn.neighbors import NearestNeighbors

from isotropy import measures


def cloud(n: int = 10_000, d: int = 384, *, dimension: int = 12) -> np.ndarray:
    """A curved surface of few dimensions with a little noise: intrinsic dimension has a meaning."""
    rng = np.random.default_rng(0)
    latent = rng.standard_normal((n, dimension))
    bent = np.concatenate([latent, np.sin(2 * latent)], axis=1)
    x = bent @ rng.standard_normal((2 * dimension, d)) / np.sqrt(dimension)
    return (x + 0.01 * rng.standard_normal((n, d))).astype(np.float32)


def hubness_of(counts: np.ndarray) -> float:
    centred = counts - counts.mean()
    return float((centred**3).mean() / (centred**2).mean() ** 1.5)


def with_scikit_learn(x: np.ndarray) -> float:
    indices = NearestNeighbors(n_neighbors=11).fit(x).kneighbors(x, return_distance=False)[:, 1:]
    return hubness_of(np.bincount(indices.ravel(), minlength=len(x)))


if __name__ == "__main__":
    section = Section("neighbours")
    x = cloud()
    times = interleaved(
        {
            "ours": lambda: measures.two_nn(x),
            "scikit-dimension": lambda: skdim.id.TwoNN().fit(x),
        },
        rounds=3,
    )
    section.faster("two_nn at 10000×384", times, "scikit-dimension", low=2.5)
    theirs = skdim.id.TwoNN().fit(x).dimension_
    section.add(
        Row("two_nn at 10000×384: relative difference", abs(measures.two_nn(x) / theirs - 1),
            high=0.01, against="scikit-dimension")
    )  # fmt: skip
    times = interleaved(
        {"ours": lambda: measures.hubness(x), "scikit-learn": lambda: with_scikit_learn(x)},
        rounds=3,
    )
    section.faster("hubness (k = 10) at 10000×384", times, "scikit-learn")
    section.save()

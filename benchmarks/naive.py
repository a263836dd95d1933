"""Measures without a peer beside their formula as one would write it down."""

from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from harness import Row, Section, interleaved
from torch import Tensor

from isotropy import measures


def naive_mean_cosine(x: Tensor) -> Tensor:
    unit = torch.nn.functional.normalize(x)
    cosines = unit @ unit.T
    return cosines[~torch.eye(len(x), dtype=torch.bool)].mean()


def naive_uniformity(x: Tensor) -> Tensor:
    unit = torch.nn.functional.normalize(x)
    return torch.pdist(unit).square().mul(-2).exp().mean().log()


def naive_anisotropy(x: Tensor) -> Tensor:
    shares = torch.linalg.svdvals(x).square()
    return shares[:3] / shares.sum()


def naive_effective_rank(x: Tensor) -> Tensor:
    sigma = torch.linalg.svdvals(x - x.mean(0))
    p = sigma / sigma.sum()
    return torch.exp(-(p * p.clamp(min=1e-30).log()).sum())


def naive_participation_ratio(x: Tensor) -> Tensor:
    eigenvalues = torch.linalg.eigvalsh(torch.cov(x.T))
    return eigenvalues.sum() ** 2 / eigenvalues.square().sum()


def naive_partition_isotropy(x: Tensor) -> tuple[Tensor, Tensor]:
    vectors = torch.linalg.eigh(x.T @ x).eigenvectors
    sums = torch.cat([(x @ vectors).exp().sum(0), (-x @ vectors).exp().sum(0)])
    return sums.min() / sums.max(), sums.std(correction=0) / sums.mean()


NAIVE: dict[str, tuple[Callable[[Tensor], object], str]] = {
    "mean_cosine": (naive_mean_cosine, "all pairs"),
    "uniformity": (naive_uniformity, "all pairs"),
    "anisotropy": (naive_anisotropy, "singular values"),
    "effective_rank": (naive_effective_rank, "singular values"),
    "participation_ratio": (naive_participation_ratio, "eigenvalues"),
    "partition_isotropy": (naive_partition_isotropy, "plain exp"),
}


if __name__ == "__main__":
    section = Section("naive")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((8192, 768), dtype=np.float32) * np.linspace(0.2, 0.02, 768)
    cloud = torch.from_numpy((x + 0.05).astype(np.float32))
    for name, (naive, how) in NAIVE.items():
        ours = getattr(measures, name)
        times = interleaved({"ours": partial(ours, cloud), how: partial(naive, cloud)}, rounds=3)
        section.faster(f"{name} at 8192×768", times, how)
        exact = np.hstack([np.asarray(value) for value in np.atleast_1d(naive(cloud.double()))])
        value = np.hstack([np.asarray(value) for value in np.atleast_1d(ours(cloud))])
        error = np.abs(value / exact - 1).max()
        section.add(
            Row(f"{name} at 8192×768 in float32: relative error", error, high=1e-4,
                against=f"{how} in float64")
        )  # fmt: skip
    section.save()

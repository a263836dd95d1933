"""IsoScore, IsoScore* and its gradient, beside IsoScore 2.0.1 and the bare product X.T @ X."""

import numpy as np
import torch
from harness import Row, Section, interleaved
from IsoScore.IsoScore import IsoScore, istar

from isotropy import measures

ZETA = 0.2


def cloud(n: int, d: int = 768, *, seed: int = 0) -> np.ndarray:
    """Rows with a falling spectrum and a mean that is not zero, as embeddings have."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d), dtype=np.float32) * np.linspace(3, 0.3, d, dtype=np.float32)
    return x + rng.standard_normal(d, dtype=np.float32)


def equality(section: Section) -> None:
    for n, when in ((4096, "n > d"), (64, "n < d")):
        difference = 0.0
        for seed in range(3):
            x = cloud(n, seed=seed)
            for dtype in (np.float32, np.float64):
                theirs = float(IsoScore(x.astype(dtype)))
                difference = max(difference, abs(measures.iso_score(x.astype(dtype)) - theirs))
        section.add(
            Row(f"iso_score at {n}×768 ({when}): largest difference", difference, high=1e-5,
                against="IsoScore")
        )  # fmt: skip


def forward(section: Section) -> None:
    for n in (4096, 64):
        x = cloud(n)
        times = interleaved(
            {"ours": lambda x=x: measures.iso_score(x), "IsoScore": lambda x=x: IsoScore(x)}
        )
        section.faster(f"iso_score at {n}×768", times, "IsoScore")


def star_beside_theirs(section: Section) -> None:
    x = torch.from_numpy(cloud(64)).requires_grad_()
    shrinkage = torch.from_numpy(np.cov(cloud(4096, seed=1).T).astype(np.float32))

    def ours() -> None:
        x.grad = None
        measures.iso_score_star(x, shrinkage=shrinkage, zeta=ZETA).backward()

    def theirs() -> None:
        x.grad = None
        istar().IsoScore_star(x, shrinkage, ZETA, is_eval=False).backward()

    times = interleaved({"ours": ours, "IsoScore": theirs})
    section.faster("iso_score_star, forward and backward, at 64×768", times, "IsoScore", low=40)


def star_beside_the_product(section: Section) -> None:
    shrinkage = torch.from_numpy(np.cov(cloud(4096, seed=1).T).astype(np.float32))
    for n in (4096, 53_248):
        x = torch.from_numpy(cloud(n)).requires_grad_()
        fixed = x.detach()

        def ours(x: torch.Tensor = x) -> None:
            x.grad = None
            measures.iso_score_star(x, shrinkage=shrinkage, zeta=ZETA).backward()

        def product(x: torch.Tensor = fixed) -> None:
            _ = x.T @ x

        times = interleaved({"ours": ours, "X.T @ X": product}, rounds=9)
        section.faster(
            f"iso_score_star, forward and backward, at {n}×768", times, "X.T @ X", high=3.0
        )
        exact = fixed.double().requires_grad_()
        measures.iso_score_star(exact, shrinkage=shrinkage.double(), zeta=ZETA).backward()
        error = float((x.grad - exact.grad).norm() / exact.grad.norm())
        section.add(
            Row(f"its float32 gradient at {n}×768: relative error", error, high=1e-4,
                against="float64")
        )  # fmt: skip


if __name__ == "__main__":
    section = Section("iso_score")
    equality(section)
    forward(section)
    star_beside_theirs(section)
    star_beside_the_product(section)
    section.save()

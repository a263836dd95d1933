"""On a CUDA device: the same numbers as on the CPU, beside the bare product and the CPU."""

from collections.abc import Callable

import numpy as np
import torch
from harness import Row, Section, interleaved
from torch import Tensor

from isotropy import bars, measure, measures

MOST_DIFFERENCE = 1e-4


def cloud(n: int, d: int, *, seed: int = 0) -> Tensor:
    """Rows with a falling spectrum and a mean that is not zero, as embeddings have."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n, d), dtype=np.float32) * np.linspace(3, 0.3, d, dtype=np.float32)
    return torch.from_numpy(x + rng.standard_normal(d, dtype=np.float32))


def finished(function: Callable[[], object]) -> Callable[[], None]:
    """The function, which then returns when the device has done its work."""

    def run() -> None:
        function()
        torch.cuda.synchronize()

    return run


def same_numbers(section: Section) -> None:
    """Every measure, on 4000 rows."""
    x = cloud(4000, 128)
    names = [name for name, spec in measures.SPECS.items() if spec.default]
    exact = measure(x.double(), names)
    found = measure(x, names, device="cuda")
    worst = max(
        abs(found[key].value - score.value) / max(abs(score.value), 1e-3)
        for key, score in exact.items()
    )
    section.add(
        Row("all default measures of 4000×128: largest relative difference", worst,
            high=MOST_DIFFERENCE, against="float64 on the CPU")
    )  # fmt: skip


def star_beside_the_product(section: Section) -> None:
    shrinkage = torch.cov(cloud(4096, 768, seed=1).T).cuda()
    for n in (53_248, 1_000_000):  # smaller ones are over before they are launched
        x = cloud(n, 768).cuda().requires_grad_()
        fixed = x.detach()

        def ours(x: Tensor = x) -> None:
            x.grad = None
            measures.iso_score_star(x, shrinkage=shrinkage, zeta=0.2).backward()

        times = interleaved(
            {"ours": finished(ours), "X.T @ X": finished(lambda x=fixed: x.T @ x)}, rounds=9
        )
        section.faster(
            f"iso_score_star, forward and backward, at {n}×768", times, "X.T @ X", high=5
        )


def trees_and_neighbours(section: Section) -> None:
    for name, function, shape in (
        ("h0_bars", bars.h0_bars, (64, 768)),
        ("h0_bars", bars.h0_bars, (4096, 768)),
        ("two_nn", measures.two_nn, (10_000, 384)),
        ("uniformity", measures.uniformity, (20_000, 384)),
        ("iso_score", measures.iso_score, (53_248, 768)),
    ):
        x = cloud(*shape)
        there = x.cuda()
        times = interleaved(
            {
                "ours": finished(lambda f=function, x=there: f(x)),
                "CPU": lambda f=function, x=x: f(x),
            },
            rounds=3,
        )
        section.faster(f"{name} at {shape[0]}×{shape[1]}", times, "CPU")
        here, other = function(x), function(there).cpu()
        section.add(
            Row(f"{name} at {shape[0]}×{shape[1]}: largest relative difference",
                float(((here - other).abs() / here.abs().clamp(min=1e-3)).max()),
                high=MOST_DIFFERENCE, against="CPU")
        )  # fmt: skip


def main() -> None:
    if not torch.cuda.is_available():
        print("     skipped: no CUDA device here")
        return
    section = Section("accelerator")
    same_numbers(section)
    star_beside_the_product(section)
    trees_and_neighbours(section)
    section.save()


if __name__ == "__main__":
    main()

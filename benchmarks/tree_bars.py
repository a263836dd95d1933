"""Spanning-tree bars beside ripser, scipy and torch-topological, and the prominent ones."""

import json
import sys
import warnings

import numpy as np
import torch
from harness import Row, Section, in_fresh_process, interleaved, peak_memory

from isotropy import bars

LARGE = (50_000, 384)


def cloud(n: int, d: int, *, seed: int = 0) -> np.ndarray:
    """Gaussian clusters on a falling spectrum, as embeddings of sentences have them."""
    rng = np.random.default_rng(seed)
    centres = rng.standard_normal((20, d), dtype=np.float32)
    x = rng.standard_normal((n, d), dtype=np.float32) * np.linspace(1, 0.1, d, dtype=np.float32)
    return x + centres[rng.integers(20, size=n)]


def forward(section: Section) -> None:
    from ripser import ripser
    from scipy.sparse.csgraph import minimum_spanning_tree
    from scipy.spatial.distance import pdist, squareform
    from torch_topological.nn import VietorisRipsComplex

    # ripser takes fewer rows than columns for a mistake; its time should not be that of printing.
    warnings.filterwarnings("ignore", message="The input point cloud has more columns")
    complexes = VietorisRipsComplex(dim=0)
    for n, rounds, limits in (
        (4096, 3, {"ripser": 10, "scipy": 10, "torch-topological": None}),
        (64, 9, {"ripser": 1, "scipy": None, "torch-topological": None}),
    ):
        x = cloud(n, 768)
        tensor = torch.from_numpy(x)
        functions = {
            "ours": lambda x=x: bars.h0_bars(x),
            "ripser": lambda x=x: ripser(x, maxdim=0),
            "scipy": lambda x=x: minimum_spanning_tree(squareform(pdist(x))),
            "torch-topological": lambda x=tensor: complexes(x),
        }
        times = interleaved(functions, rounds=rounds)
        for peer, low in limits.items():
            section.faster(f"h0_bars at {n}×768", times, peer, low=low)
        ours = np.sort(bars.h0_bars(x.astype(np.float64)))
        tree = np.sort(minimum_spanning_tree(squareform(pdist(x.astype(np.float64)))).data)
        short = np.sort(bars.h0_bars(x))
        section.add(
            Row(f"h0_bars at {n}×768 in float32: relative error of the total length",
                abs(short.sum(dtype=np.float64) / tree.sum() - 1), high=1e-5, against="scipy")
        )  # fmt: skip
        section.add(
            Row(f"h0_bars at {n}×768 in float64: largest difference", np.abs(ours - tree).max(),
                high=1e-9, against="scipy")
        )  # fmt: skip


def with_gradient(section: Section) -> None:
    from torch_topological.nn import VietorisRipsComplex

    complexes = VietorisRipsComplex(dim=0)
    x = torch.from_numpy(cloud(64, 768)).requires_grad_()
    times = interleaved(
        {
            "ours": lambda: bars.h0_bars(x).sum().backward(),
            "torch-topological": lambda: complexes(x)[0].diagram[:, 1].sum().backward(),
        }
    )
    section.faster("h0_bars, forward and backward, at 64×768", times, "torch-topological")


def prominent(section: Section) -> None:
    rng = np.random.default_rng(0)
    for name, lengths, high in (
        ("gamma-distributed", rng.gamma(2.0, size=1023), 5),
        ("concentrated", 1 + 0.01 * rng.standard_normal(1023), 25),
    ):
        ordered = np.sort(lengths)[::-1].copy()
        times = interleaved({"ours": lambda x=ordered: bars.prominent_bars(x)}, rounds=9)
        section.add(
            Row(f"prominent_bars of 1023 {name} bars", 1e3 * times["ours"], " ms", high=high,
                ours=times["ours"])
        )  # fmt: skip


def memory() -> None:
    bars.h0_bars(cloud(300, LARGE[1]))
    x = cloud(*LARGE)
    print(json.dumps({"MB": peak_memory(lambda: bars.h0_bars(x))}))


if __name__ == "__main__":
    if sys.argv[1:] == ["memory"]:
        memory()
    else:
        section = Section("tree_bars")
        forward(section)
        with_gradient(section)
        prominent(section)
        section.add(
            Row(f"h0_bars at {LARGE[0]}×{LARGE[1]}: peak memory above the input",
                in_fresh_process("tree_bars.py", "memory")["MB"], " MB", high=1000)
        )  # fmt: skip
        section.save()

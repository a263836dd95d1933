"""A store of embeddings far larger than the memory that measuring it takes."""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
import torch
from harness import Row, Section, in_fresh_process, peak_memory

ROWS, FEATURES, SHARDS = 2_000_000, 384, 8
CHUNK = 16_384
BEST_OF = 3


def generate(folder: Path) -> None:
    """The shards: a falling spectrum and a mean that is not zero, in float16."""
    rng = np.random.default_rng(0)
    spectrum = np.linspace(1, 0.1, FEATURES, dtype=np.float32)
    mean = 0.3 * rng.standard_normal(FEATURES, dtype=np.float32)
    for shard in range(SHARDS):
        out = np.lib.format.open_memmap(
            folder / f"shard-{shard}.npy", "w+", np.float16, (ROWS // SHARDS, FEATURES)
        )
        for block in np.split(out, 10):
            block[:] = rng.standard_normal(block.shape, dtype=np.float32) * spectrum + mean
        out.flush()


def moment_measures() -> list[str]:
    from isotropy.measures import SPECS

    return [name for name, spec in SPECS.items() if spec.default and spec.from_moments]


def measuring(folder: Path, names: list[str] | None) -> None:
    from isotropy import measure

    measure(folder, names, chunk_rows=CHUNK)


def product(folder: Path, *, with_numpy: bool = False) -> None:
    """The bare product: read, upcast, multiply, add up; no mean, no check, nothing else."""
    total = torch.zeros(FEATURES, FEATURES, dtype=torch.float64)
    for file in sorted(folder.glob("*.npy")):
        shard = np.load(file, mmap_mode="r")
        for start in range(0, len(shard), CHUNK):
            rows = shard[start : start + CHUNK].astype(np.float32)
            if with_numpy:
                total += torch.from_numpy(rows.T @ rows)
            else:
                x = torch.from_numpy(rows)
                total += x.T @ x


def report(folder: Path, task: str) -> dict[str, float]:
    names = None if task.endswith("all") else moment_measures()
    if task.startswith("memory"):
        with TemporaryDirectory() as tiny:
            rng = np.random.default_rng(0)
            rows = rng.standard_normal((500, FEATURES)).astype(np.float16)
            np.save(Path(tiny) / "shard.npy", rows)
            measuring(Path(tiny), names)
        return {"MB": peak_memory(lambda: measuring(folder, names))}
    functions = {
        "ours": lambda: measuring(folder, names),
        "torch": lambda: product(folder),
        "numpy": lambda: product(folder, with_numpy=True),
    }
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(BEST_OF):
        for name, function in functions.items():
            start = perf_counter()
            function()
            best[name] = min(best[name], perf_counter() - start)
    return best


def main() -> None:
    section = Section("streaming")
    size = f"{ROWS}×{FEATURES} float16 in {SHARDS} shards"
    with TemporaryDirectory() as folder:
        generate(Path(folder))
        for task, what in (("memory", "the moment measures"), ("memory-all", "all default ones")):
            megabytes = in_fresh_process("streaming.py", folder, task)["MB"]
            section.add(Row(f"measure {size}: peak memory, {what}", megabytes, " MB", high=1000))
        best = in_fresh_process("streaming.py", folder, "speed")
    for peer, low in (("torch", 0.5), ("numpy", None)):
        what = f"measure {size}: the moment measures"
        times = {"ours": best["ours"], f"chunked X.T @ X ({peer})": best[peer]}
        section.faster(what, times, f"chunked X.T @ X ({peer})", low=low)
    section.save()


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(report(Path(sys.argv[1]), sys.argv[2])))
    else:
        main()

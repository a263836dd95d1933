"""Whitening of a store of embeddings far larger than the memory that it takes."""

import json
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

import numpy as np
from harness import Row, Section, in_fresh_process, peak_memory
from streaming import BEST_OF, CHUNK, FEATURES, ROWS, SHARDS, generate, product

K = 256
SAMPLE = 20_000


def fit(folder: Path, out: Path) -> None:
    from isotropy import transforms

    transforms.fit_file("whitening", folder, out, settings={"k": K}, overwrite=True)


def apply(folder: Path, fitted: Path) -> None:
    from isotropy import transforms

    whitening = transforms.load(fitted)
    transforms.apply(whitening, folder, fitted.parent / "white.npy", overwrite=True)


def bare_apply(folder: Path, out: Path) -> None:
    """The bare map: read, upcast, multiply, write; no check, nothing else."""
    matrix = np.random.default_rng(0).standard_normal((FEATURES, K), dtype=np.float32)
    with out.open("wb") as file:
        for shard in sorted(folder.glob("*.npy")):
            rows = np.load(shard, mmap_mode="r")
            for start in range(0, len(rows), CHUNK):
                part = rows[start : start + CHUNK].astype(np.float32)
                file.write((part @ matrix).astype(np.float16).data)


def report(folder: Path, out: Path, task: str) -> dict[str, float]:
    work = {
        "fit": lambda: fit(folder, out / "t.safetensors"),
        "apply": lambda: apply(folder, out / "t.safetensors"),
    }
    peers = {"fit": lambda: product(folder), "apply": lambda: bare_apply(folder, out / "bare")}
    kind, _, name = task.partition("-")
    if kind == "memory":
        warm_up(name)
        return {"MB": peak_memory(work[name])}
    functions = {"ours": work[name], "bare": peers[name]}
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(BEST_OF):
        for who, function in functions.items():
            start = perf_counter()
            function()
            best[who] = min(best[who], perf_counter() - start)
    return best


def warm_up(name: str) -> None:
    """The same work on a few rows, for what is loaded at the first use."""
    with TemporaryDirectory() as tiny:
        rows = np.random.default_rng(0).standard_normal((500, FEATURES)).astype(np.float16)
        shards = Path(tiny) / "shards"
        shards.mkdir()
        np.save(shards / "shard.npy", rows)
        fit(shards, Path(tiny) / "t.safetensors")
        if name == "apply":
            apply(shards, Path(tiny) / "t.safetensors")


def white(folder: Path, out: Path) -> float:
    """The largest entry of the covariance of some mapped rows minus the identity."""
    rows = np.load(out / "white.npy", mmap_mode="r")
    chosen = np.sort(np.random.default_rng(0).choice(len(rows), SAMPLE, replace=False))
    return float(np.abs(np.cov(rows[chosen].astype(np.float64).T) - np.eye(K)).max())


def main() -> None:
    section = Section("transforms")
    size = f"{ROWS}×{FEATURES} float16 in {SHARDS} shards"
    with TemporaryDirectory() as folder, TemporaryDirectory() as out:
        generate(Path(folder))
        for task in ("fit", "apply"):
            what = f"whitening to {K} of {size}, {task}"
            found = in_fresh_process("transforms.py", folder, out, f"memory-{task}")["MB"]
            section.add(Row(f"{what}: peak memory", found, " MB", high=1000))
        off = white(Path(folder), Path(out))
        # Of a sample of independent rows the entries are off by about 1/√n; float16 adds nothing.
        limit = 6 / SAMPLE**0.5
        section.add(Row(f"covariance of {SAMPLE} of them, furthest from 1", off, "", high=limit))
        for task, peer in (("fit", "chunked X.T @ X"), ("apply", "chunked X @ A")):
            best = in_fresh_process("transforms.py", folder, out, f"speed-{task}")
            what = f"whitening to {K} of {size}, {task}"
            section.faster(what, {"ours": best["ours"], peer: best["bare"]}, peer, low=0.5)
    section.save()


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(report(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3])))
    else:
        main()

"""A pass over a large file of any format takes little memory: that of some chunks."""

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from numpy.typing import NDArray
from safetensors.torch import save_file

FEATURES = 256
ROWS = 300_000  # 293 MiB in float32, and more as text
PIECE = 10_000
EXTRA = 150  # MiB

Rows = NDArray[np.float32]


def pieces() -> Iterator[Rows]:
    generator = np.random.default_rng(0)
    for _ in range(ROWS // PIECE):
        yield generator.standard_normal((PIECE, FEATURES), dtype=np.float32)


def everything() -> Rows:
    return np.concatenate(list(pieces()))


def write_parquet(path: Path, **settings: int) -> None:
    schema = pa.schema({"embedding": pa.list_(pa.float32())})
    with pq.ParquetWriter(path, schema) as writer:
        lists = [
            pa.ListArray.from_arrays(np.arange(PIECE + 1) * FEATURES, piece.ravel())
            for piece in pieces()
        ]
        table = pa.Table.from_arrays([pa.chunked_array(lists)], schema=schema)
        writer.write_table(table, **settings)


def write_wide_parquet(path: Path) -> None:
    """Fewer columns and more rows: reading a page of each column takes some MiB a column."""
    x = everything().reshape(-1, 16)
    table = pa.table({f"x_{j}": x[:, j] for j in range(16)})
    pq.write_table(table, path, row_group_size=len(x))


def write_lines(path: Path, line: Callable[[list[float]], str]) -> None:
    some = next(pieces()).round(4).tolist()
    with path.open("w") as file:
        for _ in range(ROWS // PIECE // 3):
            file.writelines(line(row) for row in some)


# What writes a file of each format, by its name.
WRITERS: dict[str, Callable[[Path], None]] = {
    "x.npy": lambda path: np.save(path, everything()),
    "fortran.npy": lambda path: np.save(path, np.asfortranarray(everything())),
    "x.npz": lambda path: np.savez(path, x=everything()),
    "compressed.npz": lambda path: np.savez_compressed(path, x=everything()),
    "fortran.npz": lambda path: np.savez(path, x=np.asfortranarray(everything())),
    "x.safetensors": lambda path: save_file({"x": torch.from_numpy(everything())}, path),
    "x.pt": lambda path: torch.save({"x": torch.from_numpy(everything())}, path),
    "x.parquet": write_parquet,
    # A row group holds whatever the writer likes, the whole file too.
    "one-group.parquet": lambda path: write_parquet(path, row_group_size=ROWS),
    "wide.parquet": write_wide_parquet,
    "x.jsonl": lambda path: write_lines(path, lambda row: json.dumps({"x": row}) + "\n"),
    "x.csv": lambda path: write_lines(path, lambda row: ",".join(map(str, row)) + "\n"),
}

# In a process of its own, whose peak nothing else has raised. A small file first, so that what
# is only loaded once does not count.
MEASURE = textwrap.dedent("""
    import sys
    from pathlib import Path
    from isotropy.sources import open_source

    def read(path):
        return sum(len(chunk.rows) for chunk in open_source(path).chunks(8192))

    def peak():  # not getrusage's, which begins with that of the process that started this one
        lines = Path("/proc/self/status").read_text().splitlines()
        return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM"))

    small, large = sys.argv[1:]
    read(small)
    before = peak()
    rows = read(large)
    print(rows, peak() - before)
""")


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="Linux tells the peak there")
@pytest.mark.parametrize("name", WRITERS)
def test_a_large_file_is_read_in_little_memory(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, small = tmp_path / name, tmp_path / f"small-{name}"
    WRITERS[name](path)
    assert path.stat().st_size > 150 << 20
    with monkeypatch.context() as patch:
        for setting, value in (("ROWS", 300), ("PIECE", 100)):
            patch.setattr(f"{__name__}.{setting}", value)
        WRITERS[name](small)
    command = [sys.executable, "-c", MEASURE, str(small), str(path)]
    run = subprocess.run(command, capture_output=True, text=True, check=True)
    path.unlink()
    rows, extra = run.stdout.split()
    assert int(rows) in (ROWS, ROWS // 3, ROWS * FEATURES // 16)
    assert float(extra) < EXTRA, f"{name}: {float(extra):.0f} MiB"

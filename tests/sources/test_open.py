import gzip
import io
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from isotropy.errors import SettingError, SourceError
from isotropy.sources import Chunk, open_source

X = np.arange(12, dtype=np.float32).reshape(6, 2)


class Own:
    """A source of a user's own."""

    name = "own"
    n_rows = 6
    features = 2
    columns = ()

    def chunks(self, rows: int, columns: tuple[str, ...] = ()) -> Iterator[Chunk]:
        yield Chunk(torch.from_numpy(X), 0)


def test_a_source_is_returned_as_it_is() -> None:
    own = Own()
    assert open_source(own) is own
    with pytest.raises(SettingError, match="got key='x' for own"):
        open_source(own, key="x")
    with pytest.raises(SettingError, match="got format='npy' for own"):
        open_source(own, format="npy")


@pytest.mark.parametrize(
    "x",
    [
        X[::-1],
        X[::2, ::-1],
        X.astype(">f4"),
        np.asfortranarray(X),
        np.broadcast_to(X[0], (4, 2)),
        torch.from_numpy(X).requires_grad_(),
        torch.from_numpy(X).T,
        torch.nn.Parameter(torch.from_numpy(X)),
    ],
    ids=["reversed", "strided", "big-endian", "fortran", "read-only", "grad", "view", "parameter"],
)
def test_arrays_of_any_layout(x: Any, read: Callable[..., Any]) -> None:
    source = open_source(x)
    found = read(source, 4)
    assert (source.n_rows, source.features) == tuple(x.shape)
    assert not found.rows.requires_grad
    assert found.rows.tolist() == x.tolist()


def test_a_chunk_of_an_array_is_a_view() -> None:
    x = torch.ones(6, 2)
    first = next(open_source(x).chunks(2))
    assert first.rows.data_ptr() == x.data_ptr()


def test_paths_of_every_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[..., Any]
) -> None:
    np.save(tmp_path / "x.npy", X)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path))
    for path in ("x.npy", Path("x.npy"), "./x.npy", "~/x.npy", tmp_path / "x.npy"):
        source = open_source(path)
        assert source.name == str(path)
        assert read(source).rows.tolist() == X.tolist()


def test_format_goes_before_the_ending(tmp_path: Path, read: Callable[..., Any]) -> None:
    np.save(tmp_path / "x.npy", X)
    (tmp_path / "x.npy").rename(tmp_path / "x.bin")
    for format in ("npy", ".NPY"):
        assert read(open_source(tmp_path / "x.bin", format=format)).rows.tolist() == X.tolist()
    (tmp_path / "x.TXT").write_text("[1, 2]\n")
    assert read(open_source(tmp_path / "x.TXT", format="ndjson")).rows.tolist() == [[1.0, 2.0]]


def test_a_chunk_has_a_row_at_least() -> None:
    with pytest.raises(SettingError, match="got rows=0, expected at least 1"):
        open_source(X).chunks(0)


def test_columns_are_checked_before_anything_is_read(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", x=X, label=np.arange(6))
    with pytest.raises(SourceError, match="did you mean 'label'"):
        open_source(tmp_path / "x.npz").chunks(2, ("labl",))


class Terminal(io.BytesIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("stdin", [None, io.StringIO(), SimpleNamespace(buffer=Terminal())])
def test_nothing_is_piped_into_standard_input(stdin: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", stdin)
    with pytest.raises(SourceError, match="got nothing piped into standard input"):
        open_source("-")


def test_the_copy_of_standard_input_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = io.BytesIO()
    np.save(content, X)
    content.seek(0)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=content))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)
    chunks = open_source("-").chunks(4)  # the source itself is gone, its rows are still there
    assert len(list(tmp_path.iterdir())) == 1
    assert sum(len(chunk.rows) for chunk in chunks) == 6
    del chunks
    assert not list(tmp_path.iterdir())


def test_compressed_text_can_be_piped(tmp_path: Path) -> None:
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(b"0.5,1.5\n2.5,3.5\n"))
    code = "from isotropy.sources import open_source; print(next(open_source('-').chunks(9)).rows)"
    unpacked = gzip.decompress((tmp_path / "x.csv.gz").read_bytes())
    run = subprocess.run([sys.executable, "-c", code], input=unpacked, capture_output=True)
    assert b"[2.5000, 3.5000]" in run.stdout, run.stderr


def test_reading_needs_no_optional_package(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.table({"v": pa.array([[1.0, 2.0]]), "label": ["a"]}), tmp_path / "x.parquet")
    code = (
        "import sys, torch; before = set(sys.modules)\n"
        "from isotropy.sources import open_source\n"
        "assert 'pyarrow' not in sys.modules\n"
        f"list(open_source({str(tmp_path / 'x.parquet')!r}).chunks(9, ('label',)))\n"
        "print(*(set(sys.modules) - before) & {'pandas', 'transformers', 'ray', 'matplotlib'})"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert set(run.stdout.split()) <= {"pandas"}  # which pyarrow imports where it is installed

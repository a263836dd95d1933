import tempfile
from pathlib import Path

import numpy as np
import pytest
import torch
from pyarrow import parquet
from safetensors import safe_open
from safetensors.torch import load_file

from isotropy.errors import IsotropyError, SettingError, SourceError
from isotropy.sources import open_source
from isotropy.sources._embedding_writer import EmbeddingWriter

COLUMNS = ("row", "layer")


def blocks(
    features: int, dtype: torch.dtype = torch.float32
) -> list[tuple[torch.Tensor, dict[str, np.ndarray]]]:
    torch.manual_seed(0)
    found = []
    start = 0
    for size in (3, 1, 7):
        row = np.arange(start, start + size)
        found.append(
            (torch.randn(size, features, dtype=dtype), {"row": row, "layer": row % 2, "more": row})
        )
        start += size
    return found


def write(out: Path, features: int, dtype: torch.dtype = torch.float32, **options: bool) -> None:
    with EmbeddingWriter(out, dtype=dtype, columns=COLUMNS, **options) as writer:
        for rows, columns in blocks(features, dtype):
            writer.write(rows, columns)
        writer.finish({"model": "m", "note": "ü" * 10_000})


# 11 rows of 5 half-precision features end at an odd place, where the 8-byte integers then start.
@pytest.mark.parametrize("features", [2, 5, 384])
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32])
@pytest.mark.parametrize("ending", [".safetensors", ".parquet"])
def test_what_is_written_is_read(
    tmp_path: Path, features: int, dtype: torch.dtype, ending: str
) -> None:
    out = tmp_path / f"out{ending}"
    write(out, features, dtype)
    assert [path.name for path in tmp_path.iterdir()] == [out.name]
    source = open_source(out)
    assert set(source.columns) == set(COLUMNS)
    chunks = list(source.chunks(4, COLUMNS))
    rows = torch.cat([chunk.rows for chunk in chunks])
    expected = torch.cat([rows for rows, _ in blocks(features, dtype)])
    assert rows.dtype == dtype
    assert torch.equal(rows, expected)
    assert np.concatenate([chunk.columns["row"] for chunk in chunks]).tolist() == list(range(11))
    layers = np.concatenate([chunk.columns["layer"] for chunk in chunks])
    assert layers.tolist() == [i % 2 for i in range(11)]


def test_the_formats_own_libraries_read_it(tmp_path: Path) -> None:
    write(tmp_path / "out.safetensors", 5)
    write(tmp_path / "out.parquet", 5)
    expected = torch.cat([rows for rows, _ in blocks(5)])
    tensors = load_file(tmp_path / "out.safetensors")
    assert set(tensors) == {"embeddings", "row", "layer"}
    assert torch.equal(tensors["embeddings"], expected)
    assert tensors["row"].tolist() == list(range(11))
    with safe_open(tmp_path / "out.safetensors", "pt") as file:
        metadata = file.metadata()
    assert metadata["model"] == "m"
    assert metadata["note"] == "…" + "ü" * 500

    table = parquet.read_table(tmp_path / "out.parquet")
    assert table.column_names == ["embedding", "row", "layer"]
    assert np.array_equal(np.array(table["embedding"].to_pylist(), dtype="f4"), expected.numpy())
    assert table["row"].to_pylist() == list(range(11))
    assert table.schema.metadata is None or b"model" not in table.schema.metadata
    stored = parquet.read_metadata(tmp_path / "out.parquet").metadata
    assert stored[b"model"] == b"m"


@pytest.mark.parametrize("kind", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("ending", [".safetensors", ".parquet"])
def test_an_interrupted_run_leaves_the_old_file(
    tmp_path: Path, kind: type[BaseException], ending: str
) -> None:
    out = tmp_path / f"out{ending}"
    out.write_text("old")

    def interrupted() -> None:
        with EmbeddingWriter(out, dtype=torch.float32, columns=COLUMNS, overwrite=True) as writer:
            writer.write(*blocks(4)[0])
            assert len(list(tmp_path.iterdir())) == 2
            raise kind

    with pytest.raises(kind):
        interrupted()
    assert out.read_text() == "old"
    assert list(tmp_path.iterdir()) == [out]


def test_an_existing_file_is_replaced_only_if_allowed(tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    write(out, 4)
    with pytest.raises(SettingError, match=r"which exists.*overwrite=True \(--overwrite\)"):
        write(out, 5)
    assert load_file(out)["embeddings"].shape == (11, 4)
    write(out, 5, overwrite=True)
    assert load_file(out)["embeddings"].shape == (11, 5)


def test_a_link_keeps_pointing_to_its_file(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "target.safetensors"
    target.write_text("old")
    link = tmp_path / "link.safetensors"
    link.symlink_to(target)
    write(link, 4, overwrite=True)
    assert link.is_symlink()
    assert load_file(target)["embeddings"].shape == (11, 4)


def test_nothing_written_is_an_error(tmp_path: Path) -> None:
    out = tmp_path / "out.safetensors"
    with (
        EmbeddingWriter(out, dtype=torch.float32, columns=COLUMNS) as writer,
        pytest.raises(SourceError, match="got no embeddings to write"),
    ):
        writer.finish({})
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("out.npy", "expected a name that ends in .safetensors or .parquet"),
        ("out", "expected a name that ends in .safetensors or .parquet"),
        ("folder.parquet", "which is a folder, expected a file"),
        ("no/out.parquet", "that exists; create it"),
    ],
)
def test_an_impossible_place_is_an_error(tmp_path: Path, name: str, message: str) -> None:
    (tmp_path / "folder.parquet").mkdir()
    with pytest.raises(SettingError, match=message):
        EmbeddingWriter(tmp_path / name, dtype=torch.float32, columns=COLUMNS)


def test_a_folder_without_permission_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(*args: object, **kwargs: object) -> None:  # root may write everywhere
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", denied)
    with pytest.raises(SourceError, match=r"cannot be written \(Permission denied\)"):
        write(tmp_path / "out.parquet", 4)


@pytest.mark.parametrize(
    ("name", "message"), [("x" * 300, "File name too long"), ("a\0b", "without a zero byte")]
)
def test_an_impossible_name_is_an_error(tmp_path: Path, name: str, message: str) -> None:
    with pytest.raises(IsotropyError, match=message):
        write(tmp_path / f"{name}.parquet", 4)


def test_a_full_disk_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: object, **kwargs: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tempfile, "TemporaryFile", full)  # where the columns wait
    with pytest.raises(IsotropyError, match=r"cannot be written \(No space left on device\)"):
        write(tmp_path / "out.safetensors", 4)
    assert not list(tmp_path.iterdir())

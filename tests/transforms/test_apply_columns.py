"""What becomes of a Parquet file's other columns, of any type and with rows without a value."""

from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from io import BytesIO, TextIOWrapper
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from safetensors.numpy import load_file

from isotropy import transforms
from isotropy.errors import InputError, SettingError, SourceError

ROWS = 100


@pytest.fixture
def cloud(rng: np.random.Generator) -> np.ndarray:
    return (rng.normal(size=(ROWS, 4)) * np.arange(1, 5)).astype(np.float32)


@pytest.fixture
def others() -> pa.Table:
    """Columns with a gap in the rows 0, 7, 14, …"""
    start = datetime(2024, 1, 1, tzinfo=UTC)

    def gaps(make):
        return [None if i % 7 == 0 else make(i) for i in range(ROWS)]

    return pa.table(
        {
            "large": pa.array(gaps(lambda i: 2**60 + i), pa.int64()),  # no float64 holds it
            "small": pa.array(gaps(lambda i: i), pa.uint8()),
            "score": pa.array(gaps(lambda i: i / 3), pa.float32()),
            "known": pa.array(gaps(lambda i: i % 2 == 0), pa.bool_()),
            "word": pa.array(gaps(lambda i: f"w{i}"), pa.string()),
            "raw": pa.array(gaps(lambda i: bytes([i, 255])), pa.binary()),
            "kind": pa.array(gaps(lambda i: "ab"[i % 2])).dictionary_encode(),
            "day": pa.array(gaps(lambda i: date(2024, 1, 1) + timedelta(i)), pa.date32()),
            "time": pa.array(
                gaps(lambda i: start + timedelta(seconds=i)), pa.timestamp("us", "Europe/Rome")
            ),
            "price": pa.array(gaps(lambda i: Decimal(i) / 4), pa.decimal128(9, 2)),
            "tags": pa.array(gaps(lambda i: ["t"] * (i % 3)), pa.list_(pa.string())),
            "place": pa.array(gaps(lambda i: {"x": i, "y": None})),
            "nothing": pa.nulls(ROWS),
            "id": pa.array(range(ROWS), pa.int32()),
        }
    )


@pytest.fixture
def source(cloud: np.ndarray, others: pa.Table, tmp_path: Path) -> Path:
    path = tmp_path / "x.parquet"
    table = others.append_column("vectors", pa.array(list(cloud)))
    parquet.write_table(table, path, row_group_size=40)
    return path


@pytest.fixture
def whitening(cloud: np.ndarray) -> transforms.Whitening:
    return transforms.Whitening(k=3).fit(cloud)


def same(found: pa.Table, expected: pa.Table) -> None:
    assert found.schema.equals(expected.schema)
    # By values: each block of rows has a dictionary of its own.
    assert found.to_pylist() == expected.to_pylist()


@pytest.mark.parametrize("chunk_rows", [None, 33])
def test_parquet_keeps_every_column_as_it_is(
    source: Path,
    others: pa.Table,
    whitening: transforms.Whitening,
    tmp_path: Path,
    chunk_rows: int | None,
    cloud: np.ndarray,
) -> None:
    done = transforms.apply(whitening, source, tmp_path / "y.parquet", chunk_rows=chunk_rows)
    after = parquet.read_table(tmp_path / "y.parquet")
    same(after.drop_columns("embedding"), others)
    assert (done.columns, done.left_out) == (tuple(others.column_names), ())
    y = np.stack(after["embedding"].to_numpy())
    np.testing.assert_allclose(y, whitening.transform(cloud), atol=1e-6)


def test_columns_of_floats_as_the_embeddings(
    cloud: np.ndarray, others: pa.Table, whitening: transforms.Whitening, tmp_path: Path
) -> None:
    wide = pa.table({f"x_{i}": cloud[:, i] for i in range(4)})
    for name in others.column_names:
        wide = wide.append_column(name, others[name])
    parquet.write_table(wide, tmp_path / "x.parquet")
    transforms.apply(whitening, tmp_path / "x.parquet", tmp_path / "y.parquet")
    after = parquet.read_table(tmp_path / "y.parquet")
    same(after.drop_columns("embedding"), others)


def test_shards_are_joined(
    source: Path, others: pa.Table, whitening: transforms.Whitening, tmp_path: Path
) -> None:
    table = parquet.read_table(source)
    for number in range(10):
        folder = tmp_path / "shards" / f"layer={number}"
        folder.mkdir(parents=True)
        parquet.write_table(table.slice(10 * number, 10), folder / "part.parquet")
    transforms.apply(whitening, tmp_path / "shards", tmp_path / "y.parquet")
    after = parquet.read_table(tmp_path / "y.parquet")
    same(after.select(others.column_names), others)
    assert after["layer"].to_pylist() == np.repeat(np.arange(10), 10).tolist()
    assert after["shard"][99].as_py() == "layer=9/part.parquet"


def test_types_of_shards_are_joined_where_one_holds_the_other(
    cloud: np.ndarray, whitening: transforms.Whitening, tmp_path: Path
) -> None:
    def shards(*columns: pa.Array) -> Path:
        folder = tmp_path / f"{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        for number, column in enumerate(columns):
            table = pa.table({"vectors": list(cloud[:2]), "n": column})
            parquet.write_table(table, folder / f"{number}.parquet")
        return folder

    alike = shards(pa.array([1, None], pa.int32()), pa.array([2**40, 4], pa.int64()), pa.nulls(2))
    transforms.apply(whitening, alike, tmp_path / "y.parquet")
    found = parquet.read_table(tmp_path / "y.parquet")["n"]
    assert found.to_pylist() == [1, None, 2**40, 4, None, None]
    other = shards(pa.array([1, 2]), pa.array(["a", "b"]))
    message = r"got shards with different types of column 'n' \(.*\), expected one; make"
    with pytest.raises(SourceError, match=message):
        transforms.apply(whitening, other, tmp_path / "z.parquet")
    with pytest.raises(SourceError, match="got values of type string in column 'n'"):
        transforms.apply(whitening, other, tmp_path / "z.parquet", chunk_rows=1)
    assert not (tmp_path / "z.parquet").exists()


def test_npy_reads_no_other_column(
    source: Path,
    others: pa.Table,
    whitening: transforms.Whitening,
    tmp_path: Path,
    cloud: np.ndarray,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[list[str]] = []
    read = parquet.ParquetFile.iter_batches

    def iter_batches(self, *arguments, columns, **named):
        asked.append(columns)
        return read(self, *arguments, columns=columns, **named)

    monkeypatch.setattr(parquet.ParquetFile, "iter_batches", iter_batches)
    done = transforms.apply(whitening, source, tmp_path / "y.npy")
    np.testing.assert_allclose(np.load(tmp_path / "y.npy"), whitening.transform(cloud), atol=1e-6)
    assert done.left_out == tuple(others.column_names)
    assert asked
    assert all(columns == ["vectors"] for columns in asked)


@pytest.mark.parametrize("column", ["large", "small", "score", "known"])
def test_safetensors_refuses_a_gap_by_name(
    column: str, source: Path, whitening: transforms.Whitening, tmp_path: Path
) -> None:
    table = parquet.read_table(source).select(["vectors", column, "word", "price", "nothing"])
    parquet.write_table(table.slice(1), tmp_path / "gap.parquet")  # not in the first row
    message = f"no value \\(null\\) for column '{column}' in row 6 of .*gap.parquet"
    for rows in (None, 4):
        with pytest.raises(SourceError, match=message) as caught:
            transforms.apply(
                whitening, tmp_path / "gap.parquet", tmp_path / "y.safetensors", chunk_rows=rows
            )
        assert "\n" not in str(caught.value)
    assert not (tmp_path / "y.safetensors").exists()


def test_safetensors_leaves_out_what_are_no_numbers(
    source: Path, whitening: transforms.Whitening, tmp_path: Path
) -> None:
    gaps = ["large", "small", "score", "known"]
    parquet.write_table(parquet.read_table(source).drop_columns(gaps), source)
    done = transforms.apply(whitening, source, tmp_path / "y.safetensors", chunk_rows=33)
    found = load_file(tmp_path / "y.safetensors")
    assert set(found) == {"embeddings", "id"}
    assert found["id"].dtype == np.int32
    assert found["id"].tolist() == list(range(ROWS))
    assert "left out word, raw, kind, day, time, price, tags, place, nothing, wh" in str(done)


def test_numbers_in_a_dictionary_and_a_name_that_is_taken(
    cloud: np.ndarray, whitening: transforms.Whitening, tmp_path: Path
) -> None:
    numbers = np.arange(ROWS, dtype=np.int16) // 30
    table = pa.table(
        {
            "vectors": list(cloud),
            "n": pa.array(numbers).dictionary_encode(),
            "embedding": numbers,
            "__metadata__": numbers,
        }
    )
    parquet.write_table(table, tmp_path / "x.parquet")
    first = transforms.apply(
        whitening, tmp_path / "x.parquet", tmp_path / "y.safetensors", key="vectors"
    )
    found = load_file(tmp_path / "y.safetensors")
    assert found["n"].tolist() == found["embedding"].tolist() == numbers.tolist()
    assert first.left_out == ("__metadata__",)
    second = transforms.apply(
        whitening, tmp_path / "x.parquet", tmp_path / "y.parquet", key="vectors"
    )
    assert str(second).endswith("left out embedding, as the embeddings are called so")
    assert parquet.read_table(tmp_path / "y.parquet")["n"].to_pylist() == numbers.tolist()


def test_a_gap_in_standard_input(
    source: Path,
    others: pa.Table,
    whitening: transforms.Whitening,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", TextIOWrapper(BytesIO(source.read_bytes())))
    transforms.apply(whitening, "-", tmp_path / "y.parquet")
    after = parquet.read_table(tmp_path / "y.parquet")
    same(after.drop_columns("embedding"), others)


def test_a_gap_in_the_embeddings_is_still_an_error(
    cloud: np.ndarray, whitening: transforms.Whitening, tmp_path: Path
) -> None:
    rows = [None if i == 70 else row for i, row in enumerate(cloud)]
    parquet.write_table(pa.table({"vectors": rows}), tmp_path / "x.parquet")
    with pytest.raises(SourceError, match=r"no value \(null\) for column 'vectors' in row 70"):
        transforms.apply(whitening, tmp_path / "x.parquet", tmp_path / "y.parquet")


@pytest.mark.parametrize("name", ["y.csv", "y", "y.npy.gz"])
def test_the_ending_is_looked_at_before_anything_is_read(name: str, tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"ends in .safetensors, .parquet or .npy"):
        transforms.apply(tmp_path / "no transform", tmp_path / "no source", tmp_path / name)


def test_a_path_of_a_saved_transform(
    source: Path, whitening: transforms.Whitening, tmp_path: Path
) -> None:
    whitening.save(tmp_path / "w.safetensors")
    for number, given in enumerate((whitening, tmp_path / "w.safetensors")):
        transforms.apply(given, source, tmp_path / f"{number}.npy")
    transforms.apply(str(tmp_path / "w.safetensors"), source, tmp_path / "2.npy")
    files = [(tmp_path / f"{number}.npy").read_bytes() for number in range(3)]
    assert files[0] == files[1] == files[2]
    with pytest.raises(SourceError, match=r"none.safetensors, expected an existing file"):
        transforms.apply(tmp_path / "none.safetensors", source, tmp_path / "y.npy")


@pytest.mark.parametrize("given", [transforms.Whitening, None, np.eye(4)])
def test_something_else_than_a_transform(given: object, source: Path, tmp_path: Path) -> None:
    message = "got a transform of type .*, expected a fitted transform or the path of a saved one"
    with pytest.raises(InputError, match=message):
        transforms.apply(given, source, tmp_path / "y.npy")

"""Fitting on whatever can be measured, and mapping files."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch
from pyarrow import parquet
from safetensors.torch import load_file, save_file

from isotropy import transforms
from isotropy.errors import InputError, SettingError, SourceError
from isotropy.sources import open_source

ROWS, FEATURES = 200, 6


@pytest.fixture
def cloud(rng: np.random.Generator) -> np.ndarray:
    return (rng.normal(size=(ROWS, FEATURES)) * np.arange(1, 7) + 5).astype(np.float32)


@pytest.fixture
def table(cloud: np.ndarray, tmp_path: Path) -> Path:
    path = tmp_path / "cloud.parquet"
    columns = {
        "embedding": list(cloud),
        "frequency": 1 / np.arange(1, ROWS + 1),
        "word": [f"w{i}" for i in range(ROWS)],
        "row": np.arange(ROWS),
        "known": np.arange(ROWS) % 2 == 0,
    }
    parquet.write_table(pa.table(columns), path)
    return path


def shards(cloud: np.ndarray, folder: Path) -> Path:
    folder.mkdir()
    for i, part in enumerate(np.array_split(cloud, 3)):
        np.save(folder / f"shard-{i}.npy", part)
    return folder


def test_every_kind_of_source_gives_the_same(
    cloud: np.ndarray, table: Path, tmp_path: Path
) -> None:
    expected = transforms.Whitening().fit(cloud).transform(cloud)
    folder = shards(cloud, tmp_path / "shards")
    for source in (table, str(table), folder, open_source(table), torch.from_numpy(cloud)):
        found = transforms.Whitening().fit(source, chunk_rows=33).transform(cloud)
        np.testing.assert_allclose(found, expected, atol=1e-5)


@pytest.mark.parametrize("name", ["whitening", "cluster-all-but-the-top"])
def test_weights_of_a_column(cloud: np.ndarray, table: Path, name: str) -> None:
    frequency = 1 / np.arange(1, ROWS + 1)
    expected = transforms.make(name).fit(cloud, weights=frequency).transform(cloud)
    found = transforms.make(name).fit(table, weights="frequency", chunk_rows=33).transform(cloud)
    np.testing.assert_allclose(found, expected, atol=1e-4)
    plain = transforms.make(name).fit(table).transform(cloud)
    assert abs(found - plain).max() > 0.1


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        ("word", InputError, "weights='word', a column of .* that holds no numbers"),
        ("frequencies", SourceError, "did you mean 'frequency'"),
        (np.ones(3), InputError, "got 3 weights for 200 rows"),
        (np.ones((200, 1)), InputError, r"got weights with shape \(200, 1\)"),
        (np.full(200, np.nan), InputError, "got weight nan in row 0"),
        (["a"] * 200, InputError, "got weights of dtype <U1"),
    ],
)
def test_bad_weights(table: Path, weights: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        transforms.Whitening().fit(table, weights=weights)


def test_a_row_that_is_not_finite_is_named(cloud: np.ndarray, tmp_path: Path) -> None:
    fitted = transforms.Whitening().fit(cloud)
    cloud[77, 2] = np.nan
    np.save(tmp_path / "x.npy", cloud)
    with pytest.raises(InputError, match=r"got .*x.npy with 1 NaN .*, the first in row 77"):
        transforms.Whitening().fit(tmp_path / "x.npy", chunk_rows=10)
    with pytest.raises(InputError, match=r"got .*x.npy with 1 NaN .*, the first in row 77"):
        transforms.apply(fitted, tmp_path / "x.npy", tmp_path / "y.npy", chunk_rows=10)
    assert [path.name for path in tmp_path.iterdir()] == ["x.npy"]


@pytest.mark.parametrize("chunk_rows", [None, 33])
@pytest.mark.parametrize("ending", ["npy", "safetensors", "parquet"])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_files_are_mapped(
    cloud: np.ndarray, tmp_path: Path, ending: str, dtype: type, chunk_rows: int | None
) -> None:
    x = cloud.astype(dtype)
    fitted = transforms.Whitening(k=4).fit(x)
    out = tmp_path / f"y.{ending}"
    source = shards(x, tmp_path / "shards")
    done = transforms.apply(fitted, source, out, chunk_rows=chunk_rows)
    assert (done.rows, done.features) == (ROWS, 4)
    (chunk,) = open_source(out).chunks(1000)
    assert chunk.rows.numpy().dtype == dtype
    np.testing.assert_allclose(chunk.rows, fitted.transform(x), atol=1e-5)


def test_numpy_reads_what_is_written(cloud: np.ndarray, tmp_path: Path) -> None:
    fitted = transforms.Standardize().fit(cloud)
    transforms.apply(fitted, cloud, tmp_path / "y.npy", chunk_rows=7)
    y = np.load(tmp_path / "y.npy")
    np.testing.assert_array_equal(y, fitted.transform(cloud))
    np.save(tmp_path / "z.npy", y)
    assert (tmp_path / "y.npy").read_bytes() == (tmp_path / "z.npy").read_bytes()


def test_parquet_keeps_all_columns(cloud: np.ndarray, table: Path, tmp_path: Path) -> None:
    fitted = transforms.Whitening(k=2).fit(cloud)
    done = transforms.apply(fitted, table, tmp_path / "y.parquet", chunk_rows=33)
    before, after = parquet.read_table(table), parquet.read_table(tmp_path / "y.parquet")
    columns = ["frequency", "word", "row", "known"]
    assert after.column_names == ["embedding", *columns]
    assert before.select(columns).equals(after.select(columns))
    assert (done.columns, done.left_out) == (tuple(columns), ())


def test_safetensors_keeps_columns_of_numbers(
    cloud: np.ndarray, table: Path, tmp_path: Path
) -> None:
    fitted = transforms.Whitening(k=3).fit(cloud)  # float16 of 3 features end at odd places
    done = transforms.apply(fitted, table, tmp_path / "y.safetensors", chunk_rows=33)
    found = load_file(tmp_path / "y.safetensors")
    assert set(found) == {"embeddings", "frequency", "row", "known"}
    assert found["frequency"].tolist() == (1 / np.arange(1, ROWS + 1)).tolist()
    assert found["row"].tolist() == list(range(ROWS))
    assert found["known"].dtype == torch.bool
    assert done.left_out == ("word",)
    assert str(done).endswith(
        "with frequency, row, known; left out word, which .parquet could hold"
    )


def test_a_thousand_columns_have_room_in_a_header(cloud: np.ndarray, tmp_path: Path) -> None:
    tensors = {f"column with a long name {i}": torch.arange(ROWS) + i for i in range(1000)}
    save_file({"embeddings": torch.from_numpy(cloud), **tensors}, tmp_path / "x.safetensors")
    fitted = transforms.Standardize().fit(cloud)
    transforms.apply(fitted, tmp_path / "x.safetensors", tmp_path / "y.safetensors")
    found = load_file(tmp_path / "y.safetensors")
    assert all(torch.equal(found[name], values) for name, values in tensors.items())
    np.testing.assert_array_equal(found["embeddings"], fitted.transform(cloud))


def test_bfloat16_becomes_float32(cloud: np.ndarray, tmp_path: Path) -> None:
    x = torch.from_numpy(cloud).bfloat16()
    save_file({"embeddings": x}, tmp_path / "x.safetensors")
    fitted = transforms.Standardize().fit(x)
    transforms.apply(fitted, tmp_path / "x.safetensors", tmp_path / "y.parquet")
    (chunk,) = open_source(tmp_path / "y.parquet").chunks(1000)
    assert torch.equal(chunk.rows, fitted.transform(x.float()))


@pytest.mark.parametrize("ending", ["parquet", "safetensors"])
def test_a_column_whose_type_changes_is_an_error(
    cloud: np.ndarray, tmp_path: Path, ending: str
) -> None:
    fields = [
        f'"x": {row.tolist()}, "n": {i if i < 150 else i + 0.5}' for i, row in enumerate(cloud)
    ]
    (tmp_path / "x.jsonl").write_text("\n".join(f"{{{field}}}" for field in fields))
    fitted = transforms.Standardize().fit(cloud)
    with pytest.raises(SourceError, match="got values of type float64 in column 'n'"):
        transforms.apply(fitted, tmp_path / "x.jsonl", tmp_path / f"y.{ending}", chunk_rows=10)
    assert [path.name for path in tmp_path.iterdir()] == ["x.jsonl"]


def test_what_cannot_be_mapped(cloud: np.ndarray, table: Path, tmp_path: Path) -> None:
    fitted = transforms.Whitening().fit(cloud)
    np.save(tmp_path / "five.npy", cloud[:, :5])
    with pytest.raises(InputError, match=r"five.npy with 5 features, expected 6, on which this Wh"):
        transforms.apply(fitted, tmp_path / "five.npy", tmp_path / "y.npy")
    with pytest.raises(SettingError, match="which exists"):
        transforms.apply(fitted, table, table)
    with pytest.raises(SettingError, match=r"ends in .safetensors, .parquet or .npy"):
        transforms.apply(fitted, table, tmp_path / "y.csv")


def test_a_file_can_replace_its_own_source(cloud: np.ndarray, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", cloud)
    fitted = transforms.Standardize().fit(cloud)
    transforms.apply(fitted, tmp_path / "x.npy", tmp_path / "x.npy", overwrite=True, chunk_rows=7)
    np.testing.assert_array_equal(np.load(tmp_path / "x.npy"), fitted.transform(cloud))


def test_progress_is_told(cloud: np.ndarray, tmp_path: Path) -> None:
    told: list[tuple[str, int, int | None]] = []

    def progress(*stage: Any) -> None:
        told.append(stage)

    fitted = transforms.Whitening().fit(cloud, chunk_rows=100, progress=progress)
    transforms.apply(fitted, cloud, tmp_path / "y.npy", chunk_rows=100, progress=progress)
    steps = (0, 100, 200)
    assert told == [(stage, n, 200) for stage in ("reading", "mapping") for n in steps]


def test_a_device_that_is_not_here(cloud: np.ndarray) -> None:
    with pytest.raises(SettingError, match="got device='abacus', expected one that is here"):
        transforms.Whitening().fit(cloud, device="abacus")


def test_an_interruption_leaves_nothing(cloud: np.ndarray, tmp_path: Path) -> None:
    def interrupt(stage: str, done: int, total: int | None) -> None:
        if done == 100:
            assert [path.suffix for path in tmp_path.iterdir()] == [".part"]
            raise KeyboardInterrupt

    fitted = transforms.Standardize().fit(cloud)
    for ending in ("npy", "parquet", "safetensors"):
        out = tmp_path / f"y.{ending}"
        with pytest.raises(KeyboardInterrupt):
            transforms.apply(fitted, cloud, out, chunk_rows=50, progress=interrupt)
        assert list(tmp_path.iterdir()) == []

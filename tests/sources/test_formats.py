"""What is written in any format is read back: every bit, in order, with its columns."""

import csv
import io
import json
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray
from safetensors.torch import save_file

from isotropy.sources import open_source

Array = NDArray[Any]
Labels = list[str]


def write_npy(path: Path, x: Array, labels: Labels) -> None:
    np.save(path, x)


def write_npy_big_endian(path: Path, x: Array, labels: Labels) -> None:
    np.save(path, x.astype(x.dtype.newbyteorder(">")))


def write_npy_fortran(path: Path, x: Array, labels: Labels) -> None:
    np.save(path, np.asfortranarray(x))


def write_npz(path: Path, x: Array, labels: Labels) -> None:
    np.savez(path, embeddings=x, label=np.array(labels), other=x[:1])


def write_npz_compressed(path: Path, x: Array, labels: Labels) -> None:
    label = np.array([label.encode() for label in labels])  # of byte strings
    np.savez_compressed(path, embeddings=x, label=label)


def write_npz_fortran(path: Path, x: Array, labels: Labels) -> None:
    np.savez_compressed(path, embeddings=np.asfortranarray(x), label=np.array(labels))


def write_safetensors(path: Path, x: Array, labels: Labels) -> None:
    names = {label: i for i, label in enumerate(dict.fromkeys(labels))}
    label = torch.tensor([names[label] for label in labels])
    save_file({"embeddings": torch.from_numpy(x.copy()), "label": label}, path)


def write_parquet_lists(path: Path, x: Array, labels: Labels) -> None:
    lists = pa.LargeListArray.from_arrays(np.arange(len(x) + 1) * x.shape[1], pa.array(x.ravel()))
    pq.write_table(pa.table({"embedding": lists, "label": labels}), path, row_group_size=3)


def write_parquet_fixed_size(path: Path, x: Array, labels: Labels) -> None:
    lists = pa.FixedSizeListArray.from_arrays(pa.array(x.ravel()), x.shape[1])
    label = pa.array(labels).dictionary_encode()
    pq.write_table(pa.table({"label": label, "v": lists}), path, row_group_size=3)


def write_parquet_wide(path: Path, x: Array, labels: Labels) -> None:
    columns = {f"x_{j}": pa.array(x[:, j]) for j in range(x.shape[1])}
    pq.write_table(pa.table({"label": labels, **columns}), path, row_group_size=3)


def write_jsonl(path: Path, x: Array, labels: Labels) -> None:
    lines = [
        json.dumps({"label": label, "embedding": row.tolist()})
        for row, label in zip(x.astype(np.float64), labels, strict=True)
    ]
    path.write_text("\n".join(lines), encoding="utf-8")


def write_json_lists(path: Path, x: Array, labels: Labels) -> None:
    lines = [json.dumps(row) + "\n\n" for row in x.astype(np.float64).tolist()]
    path.write_text("".join(lines), encoding="utf-8")


def write_csv(path: Path, x: Array, labels: Labels) -> None:
    write_cells(path, ",", x, labels)


def write_tsv(path: Path, x: Array, labels: Labels) -> None:
    write_cells(path, "\t", x, labels)


def write_csv_without_header(path: Path, x: Array, labels: Labels) -> None:
    rows = [",".join(map(repr, row)) + "\n" for row in x.astype(np.float64).tolist()]
    path.write_text("".join(rows), encoding="utf-8")


def write_tsv_without_header(path: Path, x: Array, labels: Labels) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = zip(map(str, x.astype(np.float64).tolist()), labels, strict=True)
        csv.writer(file, delimiter="\t").writerows(rows)


def write_parquet_views(path: Path, x: Array, labels: Labels) -> None:
    ends = np.arange(len(x)) * x.shape[1]
    lists = pa.ListViewArray.from_arrays(
        pa.array(ends[::-1].copy(), pa.int32()),  # a view may have its lists in any order
        pa.array(np.full(len(x), x.shape[1]), pa.int32()),
        pa.array(np.ascontiguousarray(x[::-1]).ravel()),
    )
    label = pa.array([label.encode() for label in labels])
    pq.write_table(pa.table({"embedding": lists, "label": label}), path, row_group_size=3)


def write_parquet_large_views(path: Path, x: Array, labels: Labels) -> None:
    lists = pa.array(list(x), pa.large_list_view(pa.from_numpy_dtype(x.dtype)))
    label = pa.array([label.encode() for label in labels]).dictionary_encode()
    pq.write_table(pa.table({"embedding": lists, "label": label}), path, row_group_size=3)


def write_cells(path: Path, mark: str, x: Array, labels: Labels) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter=mark)
        writer.writerow([*(f"x_{j}" for j in range(x.shape[1])), "label"])
        for row, label in zip(x.astype(np.float64).tolist(), labels, strict=True):
            writer.writerow([*map(repr, row), label])


def write_csv_lists(path: Path, x: Array, labels: Labels) -> None:
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["label", "embedding"])
        for row, label in zip(x.astype(np.float64).tolist(), labels, strict=True):
            writer.writerow([label, str(row)])


def write_pt(path: Path, x: Array, labels: Labels) -> None:
    torch.save({"embeddings": torch.from_numpy(x), "label": labels}, path)


def write_pt_old(path: Path, x: Array, labels: Labels) -> None:
    torch.save(torch.from_numpy(x), path, _use_new_zipfile_serialization=False)


# File name, writer, dtype it keeps (None: all), the name of its column of labels.
FORMATS: dict[str, tuple[str, Callable[[Path, Array, Labels], None], type | None, str | None]] = {
    "npy": ("x.npy", write_npy, None, None),
    "npy-big-endian": ("x.npy", write_npy_big_endian, None, None),
    "npy-fortran": ("x.npy", write_npy_fortran, None, None),
    "npz": ("x.npz", write_npz, None, "label"),
    "npz-compressed": ("x.npz", write_npz_compressed, None, "label"),
    "npz-fortran": ("x.npz", write_npz_fortran, None, "label"),
    "safetensors": ("x.safetensors", write_safetensors, None, None),
    "parquet-lists": ("x.parquet", write_parquet_lists, None, "label"),
    "parquet-fixed-size": ("x.pq", write_parquet_fixed_size, None, "label"),
    "parquet-views": ("x.parquet", write_parquet_views, None, "label"),
    "parquet-large-views": ("x.parquet", write_parquet_large_views, None, "label"),
    "parquet-wide": ("x.parquet", write_parquet_wide, None, "label"),
    "jsonl": ("x.jsonl", write_jsonl, np.float64, "label"),
    "json-lists": ("x.ndjson", write_json_lists, np.float64, None),
    "csv": ("x.csv", write_csv, np.float64, "label"),
    "csv-lists": ("x.csv", write_csv_lists, np.float64, "label"),
    "csv-without-header": ("x.csv", write_csv_without_header, np.float64, None),
    "tsv": ("x.tsv", write_tsv, np.float64, "label"),
    "tsv-without-header": ("x.tsv", write_tsv_without_header, np.float64, "column_1"),
    "pt": ("x.pt", write_pt, None, "label"),
    "pt-old": ("x.pth", write_pt_old, None, None),
}

DTYPES = st.sampled_from([np.float16, np.float32, np.float64])
SHAPES = st.tuples(st.integers(1, 25), st.integers(2, 5))
ARRAYS = st.tuples(DTYPES, SHAPES).flatmap(
    lambda of: hnp.arrays(*of, elements={"allow_nan": False, "allow_infinity": False})
)
WORDS = st.sampled_from(["a", "two words", 'quo"te', "comma, semi;", "ünï©ode 学", "line\nend"])


def same_bits(x: torch.Tensor, y: Array) -> bool:
    """Also of zeros with a sign."""
    return x.numpy().dtype == y.dtype and x.numpy().tobytes() == np.ascontiguousarray(y).tobytes()


@pytest.mark.parametrize("format", FORMATS)
@given(x=ARRAYS, words=st.lists(WORDS, min_size=3, max_size=3), rows=st.integers(1, 30))
def test_what_is_written_is_read_back(
    format: str, x: Array, words: list[str], rows: int, read: Callable[..., Any]
) -> None:
    name, write, dtype, column = FORMATS[format]
    labels = (words * 9)[: len(x)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / name
        write(path, x, labels)
        source = open_source(path)
        found = read(source, rows, (column,) if column else ())
        again = read(source, 7)
    assert source.n_rows in (None, len(x))
    assert same_bits(found.rows, x if dtype is None else x.astype(dtype))
    assert torch.equal(found.rows, again.rows)
    assert max(found.sizes) <= rows
    assert len(found.sizes) <= 2 * len(x) / rows + 1
    if column:
        assert found.columns[column].tolist() == labels


@pytest.mark.parametrize("format", FORMATS)
def test_a_folder_is_its_shards_one_after_the_other(
    format: str, tmp_path: Path, read: Callable[..., Any]
) -> None:
    name, write, dtype, column = FORMATS[format]
    x = np.random.default_rng(0).normal(size=(22, 3)).astype(np.float32)
    for i in range(11):  # shard-2 comes before shard-10
        write(tmp_path / f"shard-{i}{Path(name).suffix}", x[2 * i : 2 * i + 2], ["a", "b"])
    found = read(open_source(tmp_path), 5, (column, "shard") if column else ("shard",))
    assert same_bits(found.rows, x if dtype is None else x.astype(dtype))
    assert found.sizes == [4, 4, 4, 4, 4, 2]
    shards = [f"shard-{i}{Path(name).suffix}" for i in range(11) for _ in range(2)]
    assert found.columns["shard"].tolist() == shards
    if column:
        assert found.columns[column].tolist() == ["a", "b"] * 11


@pytest.mark.parametrize("format", FORMATS)
def test_standard_input_is_a_file_too(
    format: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: Callable[..., Any]
) -> None:
    name, write, dtype, _ = FORMATS[format]
    x = np.random.default_rng(0).normal(size=(9, 3)).astype(np.float32)
    write(tmp_path / name, x, ["a", "b", "c"] * 3)
    content = (tmp_path / name).read_bytes()
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(content)))
    source = open_source("-", format="tsv" if name.endswith("tsv") else None)
    assert source.name == "standard input"
    for _ in range(2):
        assert same_bits(read(source, 4).rows, x if dtype is None else x.astype(dtype))


def test_bfloat16_stays_bfloat16(tmp_path: Path, read: Callable[..., Any]) -> None:
    x = torch.randn(20, 3, generator=torch.Generator().manual_seed(0)).bfloat16()
    save_file({"x": x}, tmp_path / "x.safetensors")
    torch.save(x, tmp_path / "x.pt")
    for source in (x, tmp_path / "x.safetensors", tmp_path / "x.pt"):
        rows = read(open_source(source), 6).rows
        assert rows.dtype == torch.bfloat16
        assert torch.equal(rows, x)


@pytest.mark.parametrize("format", FORMATS)
def test_values_are_not_looked_at(format: str, tmp_path: Path, read: Callable[..., Any]) -> None:
    name, write, _, _ = FORMATS[format]
    x = np.array([[1.0, np.nan], [np.inf, -np.inf]], dtype=np.float32)
    write(tmp_path / name, x, ["a", "b"])
    found = read(open_source(tmp_path / name)).rows.numpy()
    np.testing.assert_array_equal(found, x)


def test_byte_strings_are_shown_as_text(tmp_path: Path, read: Callable[..., Any]) -> None:
    values = ["café".encode(), b"\xff\xfe", b"plain"]
    labels = ["café", r"\xff\xfe", "plain"]
    x = np.ones((3, 2), dtype=np.float32)
    np.savez(tmp_path / "x.npz", x=x, label=np.array(values))
    np.savez(tmp_path / "f.npz", x=np.asfortranarray(x), label=np.array(values))
    for i, type_ in enumerate((pa.binary(), pa.large_binary(), pa.binary_view())):
        table = pa.table({"v": pa.array(x.tolist()), "label": pa.array(values, type_)})
        pq.write_table(table, tmp_path / f"{i}.parquet")
    paths = sorted(tmp_path.iterdir())
    assert len(paths) == 5
    for path in paths:
        assert read(open_source(path), 2, ("label",)).columns["label"].tolist() == labels
    table = pa.table({"v": pa.array(x.tolist()), "code": pa.array([b"ab"] * 3, pa.binary(2))})
    pq.write_table(table, tmp_path / "fixed.parquet")
    found = read(open_source(tmp_path / "fixed.parquet"), 2, ("code",))
    assert found.columns["code"].tolist() == ["ab"] * 3

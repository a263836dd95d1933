import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from isotropy.errors import SourceError
from isotropy.sources import open_source

X = np.arange(12, dtype=np.float32).reshape(6, 2)


def save(path: Path, x: Any = X) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    np.save(path, x)


def test_what_lies_beside_shards_is_ignored(tmp_path: Path, read: Callable[..., Any]) -> None:
    save(tmp_path / "a.npy")
    for name in (
        "_SUCCESS",
        ".hidden.npy",
        ".a.npy.crc",
        "README.md",
        "model.safetensors.index.json",
        "LICENSE",
    ):
        (tmp_path / name).write_text("x")
    (tmp_path / "plots").mkdir()
    assert read(open_source(tmp_path)).rows.tolist() == X.tolist()


@pytest.mark.parametrize(
    "name",
    [
        "_b.npy",
        "README.npy",
        "license.parquet",
        "sub/b.npy",
        "sub/inner/b.CSV",
        "layer=1/sub/b.npy",
        "sub/layer=1/b.npy",
        "sub/_b.npy",
        "_temporary/b.parquet",
    ],
)
def test_a_shard_is_not_overlooked(name: str, tmp_path: Path) -> None:
    save(tmp_path / "a.npy")
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("x")
    with pytest.raises(SourceError, match=rf"that would be left out \('{name}'\), expected all"):
        open_source(tmp_path)


def test_all_that_is_left_out_is_named(tmp_path: Path) -> None:
    for name in ("sub/b-10.npy", "sub/b-2.npy", "_a.npy"):
        save(tmp_path / name)
    match = r"left out \('_a\.npy', 'sub/b-2\.npy', 'sub/b-10\.npy'\), .* or hide them"
    with pytest.raises(SourceError, match=match):
        open_source(tmp_path)


def test_what_cannot_be_read_may_lie_below(tmp_path: Path, read: Callable[..., Any]) -> None:
    save(tmp_path / "a.npy")
    for name in ("plots/a.png", "_logs/0.json", ".git/a.npy", "plots/.a.npy", "layer=1/_SUCCESS"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "plots" / "loop").symlink_to(tmp_path)
    assert read(open_source(tmp_path)).rows.tolist() == X.tolist()


def test_format_makes_all_files_below_shards_that_are_left_out(tmp_path: Path) -> None:
    save(tmp_path / "a.npy")
    (tmp_path / "sub").mkdir()
    (tmp_path / "a.npy").rename(tmp_path / "part-0")
    (tmp_path / "sub" / "part-1").write_text("x")
    (tmp_path / "sub" / "_SUCCESS").write_text("")
    with pytest.raises(SourceError, match=r"would be left out \('sub/part-1'\)"):
        open_source(tmp_path, format="npy")


def test_columns_of_numbers_have_one_order_in_all_shards(
    tmp_path: Path, read: Callable[..., Any]
) -> None:
    (tmp_path / "a.csv").write_text("0.5,1.5\n")  # without names
    (tmp_path / "b.csv").write_text("label,x_0,x_1\nc,2.5,3.5\n")
    (tmp_path / "c.csv").write_text("x_0,x_1\n4.5,5.5\n")
    assert read(open_source(tmp_path)).rows.tolist() == [[0.5, 1.5], [2.5, 3.5], [4.5, 5.5]]
    (tmp_path / "c.csv").write_text("x_1,x_0\n4.5,5.5\n")
    with pytest.raises(SourceError, match=r"'c\.csv' has 'x_1' where 'b\.csv' has 'x_0', expected"):
        open_source(tmp_path)
    (tmp_path / "pq").mkdir()
    for name in "xy":
        table = pa.table({f"{name}_{i}": [0.5, 1.5] for i in range(3)})
        pq.write_table(table, tmp_path / "pq" / f"{name}.parquet")
    with pytest.raises(SourceError, match=r"different columns .* 'y_0' where .* has 'x_0'"):
        open_source(tmp_path / "pq")


def test_rows_are_known_where_headers_tell(tmp_path: Path) -> None:
    save(tmp_path / "a.npy")
    save(tmp_path / "b.npy", X[:2])
    assert open_source(tmp_path).n_rows == 8
    for path in tmp_path.iterdir():
        path.unlink()
    (tmp_path / "a.jsonl").write_text("[1, 2]\n")
    assert open_source(tmp_path).n_rows is None


def test_shards_without_rows_are_passed_over(tmp_path: Path, read: Callable[..., Any]) -> None:
    empty = pa.table({"v": pa.array([], pa.list_(pa.float32()))})
    pq.write_table(empty, tmp_path / "part-0.parquet")
    pq.write_table(pa.table({"v": pa.array([[1.0, 2.0]])}), tmp_path / "part-1.parquet")
    assert read(open_source(tmp_path)).rows.tolist() == [[1.0, 2.0]]
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.csv").write_text("")
    (tmp_path / "text" / "b.csv").write_text("1.5,2.5\n")
    assert read(open_source(tmp_path / "text")).rows.tolist() == [[1.5, 2.5]]


def test_partitions_are_columns(tmp_path: Path, read: Callable[..., Any]) -> None:
    for layer in (2, 10):
        for split in ("train", "te%20st"):
            save(tmp_path / f"layer={layer}" / f"split={split}" / "0.npy", X[:1] + layer)
    source = open_source(tmp_path)
    assert source.columns == ("layer", "split", "shard")
    found = read(source, 100, source.columns)
    assert found.rows[:, 0].tolist() == [2.0, 2.0, 10.0, 10.0]
    assert found.columns["layer"].tolist() == [2, 2, 10, 10]
    assert found.columns["layer"].dtype.kind == "i"
    assert found.columns["split"].tolist() == ["te st", "train", "te st", "train"]
    assert found.columns["shard"][0] == "layer=2/split=te%20st/0.npy"


def test_partition_values_stay_text_unless_all_are_numbers(
    tmp_path: Path, read: Callable[..., Any]
) -> None:
    save(tmp_path / "fold=1" / "a.npy")
    save(tmp_path / "fold=rest" / "a.npy")
    found = read(open_source(tmp_path), 100, ("fold",))
    assert found.columns["fold"].tolist() == ["1"] * 6 + ["rest"] * 6


def test_shards_beside_partitions_are_an_error(tmp_path: Path) -> None:
    save(tmp_path / "a.npy")
    save(tmp_path / "layer=1" / "a.npy")
    with pytest.raises(SourceError, match=r"different partition columns .* has \['layer'\]"):
        open_source(tmp_path)


def test_a_column_of_the_files_goes_before_the_folder(
    tmp_path: Path, read: Callable[..., Any]
) -> None:
    table = pa.table({"v": pa.array([[1.0, 2.0]]), "shard": ["own"]})
    pq.write_table(table, tmp_path / "part-0.parquet")
    source = open_source(tmp_path)
    assert source.columns == ("shard",)
    assert read(source, 5, ("shard",)).columns["shard"].tolist() == ["own"]


def test_format_makes_shards_of_all_files(tmp_path: Path, read: Callable[..., Any]) -> None:
    save(tmp_path / "part.npy")
    (tmp_path / "part.npy").rename(tmp_path / "part-00000")
    with pytest.raises(SourceError, match=r"with the file 'part-00000', .* or pass format"):
        open_source(tmp_path)
    assert read(open_source(tmp_path, format="npy")).rows.tolist() == X.tolist()


def test_key_is_for_every_shard(tmp_path: Path, read: Callable[..., Any]) -> None:
    for name in "ab":
        torch.save({"x": torch.ones(2, 3), "y": torch.zeros(2, 3)}, tmp_path / f"{name}.pt")
    assert read(open_source(tmp_path, key="y")).rows.tolist() == [[0.0] * 3] * 4


def test_a_pipe_among_shards_does_not_block(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "a.npy")
    with pytest.raises(SourceError, match=r"a\.npy, which is a pipe"):
        open_source(tmp_path)

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isotropy.sources import open_source

ROWS = [[0.5, 1.5], [2.5, 3.5]]


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "text",
    [
        "x_0,x_1\n0.5,1.5\n2.5,3.5\n",
        "0.5,1.5\n2.5,3.5\n",
        "0,1\n0.5,1.5\n2.5,3.5\n",  # pandas without column names
        "1,2\n0.5,1.5\n2.5,3.5\n",
        ",0,1\n0,0.5,1.5\n1,2.5,3.5\n",  # and with its index
        ",x,y\n0,0.5,1.5\n1,2.5,3.5\n",
        "\ufeffx,y\r\n0.5,1.5\r\n\r\n2.5,3.5\r\n",  # as spreadsheets write
        "x;y\n0.5;1.5\n2.5;3.5\n",
        "x\ty\n0.5\t1.5\n2.5\t3.5\n",
        "label,x,y\na,0.5,1.5\nb,2.5,3.5\n",
        "x,label,y\n0.5,1,1.5\n2.5,2,3.5\n",
        "a,0.5,1.5\nb,2.5,3.5\n",
        'label,v\na,"[0.5, 1.5]"\nb,"[2.5, 3.5]"\n',
        'a,"[0.5, 1.5]"\nb,"[2.5, 3.5]"\n',
        '"[0.5, 1.5]",a\n"[2.5, 3.5]",b\n',
        "v;label\n[0.5, 1.5];a\n[2.5, 3.5];b\n",
        'v\n"[0.5 1.5]"\n"[2.5\n 3.5]"\n',  # as numpy prints an array
        "x_0,x_1,note\n0.5,1.5,\n2.5,3.5,late\n",
    ],
)
def test_layouts(text: str, tmp_path: Path, read: Callable[..., Any]) -> None:
    found = read(open_source(write(tmp_path / "x.csv", text)))
    np.testing.assert_array_equal(found.rows.numpy(), ROWS)


def test_a_table_may_begin_with_a_list(tmp_path: Path, read: Callable[..., Any]) -> None:
    path = write(tmp_path / "x.tsv", "[0.5, 1.5]\ta\n[2.5, 3.5]\tb\n")
    source = open_source(path)
    assert source.columns == ("column_1",)
    np.testing.assert_array_equal(read(source).rows.numpy(), ROWS)


def test_columns_are_numbers_or_text(tmp_path: Path, read: Callable[..., Any]) -> None:
    text = "id,x_0,x_1,label,score,word\n7,1,2,0,0.5,a\n8,3,4,1,2,\n"
    source = open_source(write(tmp_path / "x.csv", text))
    assert source.columns == ("id", "label", "score", "word")
    columns = read(source, 1, source.columns).columns
    assert columns["id"].tolist() == [7, 8]
    assert columns["label"].dtype == np.int64
    assert columns["score"].tolist() == [0.5, 2.0]
    assert columns["word"].tolist() == ["a", ""]


def test_key_names_a_column_or_what_columns_begin_with(
    tmp_path: Path, read: Callable[..., Any]
) -> None:
    path = write(tmp_path / "x.csv", 'a_0,a_1,b_0,b_1,v\n0,0,0.5,1.5,"[0.5]"\n0,0,2.5,3.5,"[1]"\n')
    source = open_source(path, key="b_")
    np.testing.assert_array_equal(read(source).rows.numpy(), ROWS)
    assert source.columns == ("a_0", "a_1", "v")


def test_a_cell_can_be_longer_than_the_csv_module_allows(
    tmp_path: Path, read: Callable[..., Any]
) -> None:
    import csv

    limit = csv.field_size_limit()
    x = np.random.default_rng(0).normal(size=(2, 20_000))
    path = write(tmp_path / "x.csv", "".join(f'a,"{row.tolist()}"\n' for row in x))
    np.testing.assert_array_equal(read(open_source(path)).rows.numpy(), x)
    assert csv.field_size_limit() == limit

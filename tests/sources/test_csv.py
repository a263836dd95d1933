from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isotropy.errors import SourceError
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
        "\n\n0.5;1.5\n2.5;3.5\n",
        '"label, or note";x;y\na;0.5;1.5\nb;2.5;3.5\n',
        '"label; or note",x,y\na,0.5,1.5\nb,2.5,3.5\n',
        "x,y,name\n0.5,1.5,a\n2.5,3.5,nan\n",
        "x,y,note\n0.5,1.5,see\n2.5,3.5,[12] and\n",
        "x,y,note\n0.5,1.5,see\n2.5,3.5,[]\n",
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


# What stands in the middle of a table, in its first row and in a later one.
MISPLACED = {
    "na": ("x_0,x_1,x_2", "NA", "the value 'NA' for column 'x_1'"),
    "empty": ("x_0,x_1,x_2", "", "an empty cell for column 'x_1'"),
    "text": ("x_0,x_1,x_2", "four", "the value 'four' for column 'x_1'"),
    "underscore": ("x_0,x_1,x_2", "1_0", "the value '1_0' for column 'x_1'"),
    "decimal-comma": ("x_0,x_1,x_2", '"0,5"', "the value '0,5' for column 'x_1' .* write points"),
    "na-without-a-family": ("a,b,c", "NA", "the value 'NA' for column 'b'"),
    "null-without-a-family": ("a,b,c", "null", "the value 'null' for column 'b'"),
    "empty-without-a-family": ("a,b,c", "", "an empty cell for column 'b'"),
    "underscore-without-a-family": ("a,b,c", "1_0", "the value '1_0' for column 'b'"),
    "headless-na": (None, "NA", "the value 'NA' for column 'column_1' .* without a header"),
    "headless-text": (None, "four", "the value 'four' for column 'column_1' .* without a header"),
    "headless-pair": (None, "0.5|1.5", r"the value '0\.5\|1\.5' for column 'column_1'"),
}


@pytest.mark.parametrize("row", [0, 1, 2])
@pytest.mark.parametrize("kind", MISPLACED)
def test_a_cell_that_is_no_number_is_an_error_in_any_row(
    kind: str, row: int, tmp_path: Path, read: Callable[..., Any]
) -> None:
    header, cell, match = MISPLACED[kind]
    lines = [f"{i}.5,{cell if i == row else i},-0.25" for i in range(3)]
    path = write(tmp_path / "x.csv", "\n".join([header, *lines] if header else lines))
    line = row + 1 + (header is not None)
    with pytest.raises(SourceError, match=f"got {match}") as caught:
        read(open_source(path))
    assert f" in line {line} of " in str(caught.value)


@pytest.mark.parametrize(
    ("text", "match"),
    [
        # Text first, so that the column would be left out, and a number later.
        ("x,y,z\n1,2,four\n3,4,5\n", "got '5' for column 'z' in line 3 of .* expected no number"),
        # A list later, which would have been the embeddings.
        ('x_0,x_1,v\n1,2,bad\n3,4,"[5, 6]"\n', r"got '\[5, 6\]' for column 'v' in line 3"),
        ('v,w\n"[1, 2]",NA\n"[3, 4]","[5]"\n', "got line 3 of .* with 2 columns that could be"),
        ('"[1, 2]",a\n"[3, 4]","[5]"\n', "got line 2 of .* with 2 columns that could be"),
        ("x_0,x_1,t_0,t_1\n1,2,a,b\n3,4,5,6\n", "got line 3 of .* with 2 groups of columns"),
    ],
)
def test_a_later_row_that_would_change_the_choice_is_an_error(
    text: str, match: str, tmp_path: Path, read: Callable[..., Any]
) -> None:
    source = open_source(write(tmp_path / "x.csv", text))
    for _ in range(2):
        with pytest.raises(SourceError, match=match):
            read(source)


def test_a_key_settles_the_choice_for_all_rows(tmp_path: Path, read: Callable[..., Any]) -> None:
    path = write(tmp_path / "x.csv", 'x_0,x_1,v\n0.5,1.5,a\n2.5,3.5,"[5, 6]"\n')
    np.testing.assert_array_equal(read(open_source(path, key="x_")).rows.numpy(), ROWS)


def test_a_later_row_may_hold_what_changes_nothing(
    tmp_path: Path, read: Callable[..., Any]
) -> None:
    text = "embedding,x,title,v\n[0.5 1.5],1,Dune,a\n[2.5 3.5],2,1984,[5 6]\n"
    source = open_source(write(tmp_path / "x.csv", text))
    found = read(source, 5, ("title",))
    np.testing.assert_array_equal(found.rows.numpy(), ROWS)
    assert found.columns["title"].tolist() == ["Dune", "1984"]


@pytest.mark.parametrize("mark", [";", "\t"])
@pytest.mark.parametrize("header", ["", "x_0{0}x_1{0}x_2\n", "a{0}b{0}c\n"])
def test_decimal_commas_are_no_separators(header: str, mark: str, tmp_path: Path) -> None:
    rows = "0,126{0}-0,132{0}0,5\n-0,1{0}0,2{0}1,5e-05\n"
    path = write(tmp_path / "x.csv", (header + rows).format(mark))
    with pytest.raises(SourceError, match=r"'0,126' for .* a decimal point; write points instead"):
        open_source(path)


@pytest.mark.parametrize("name", ["x.csv", "x.tsv"])
def test_other_separators_are_an_error(name: str, tmp_path: Path) -> None:
    np.savetxt(tmp_path / name, np.array(ROWS))
    with pytest.raises(SourceError, match=r"got one cell '5\.0.*e-01 1\.5.*' in line 1 .* a tab;"):
        open_source(tmp_path / name)
    for text in ("x_0|x_1\n0.5|1.5\n", "x_0 x_1\n0.5 1.5\n", "0.5 1.5\n"):
        with pytest.raises(SourceError, match=r"got one cell '.*' in line 1 of .*, expected"):
            open_source(write(tmp_path / name, text))


def test_a_list_has_commas_or_blanks(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", 'v\n"[0,5 1,5]"\n')
    with pytest.raises(SourceError, match=r"line 2 .* than a flat list of numbers .*'5 1'"):
        open_source(path)
    with pytest.raises(SourceError, match=r"line 2 .* than a flat list .* underscore"):
        open_source(write(path, 'v\n"[1_0, 5]"\n'))


def test_a_cell_can_be_longer_than_the_csv_module_allows(
    tmp_path: Path, read: Callable[..., Any]
) -> None:
    import csv

    limit = csv.field_size_limit()
    x = np.random.default_rng(0).normal(size=(2, 20_000))
    path = write(tmp_path / "x.csv", "".join(f'a,"{row.tolist()}"\n' for row in x))
    np.testing.assert_array_equal(read(open_source(path)).rows.numpy(), x)
    assert csv.field_size_limit() == limit

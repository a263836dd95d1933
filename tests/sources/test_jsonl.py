import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isotropy.errors import SourceError
from isotropy.sources import open_source


def write(path: Path, *records: Any) -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return path


def test_columns_keep_their_kind(tmp_path: Path, read: Callable[..., Any]) -> None:
    path = write(
        tmp_path / "x.jsonl",
        {"v": [1, 2], "word": "a", "layer": 1, "score": 1, "kept": True, "more": None},
        {"v": [3, 4.5], "word": "b", "layer": 2, "score": 0.5, "kept": False, "more": {}},
    )
    source = open_source(path)
    assert source.columns == ("word", "layer", "score", "kept")
    found = read(source, 5, source.columns)
    assert found.rows.tolist() == [[1.0, 2.0], [3.0, 4.5]]
    assert found.columns["word"].tolist() == ["a", "b"]
    assert found.columns["layer"].dtype == np.int64
    assert found.columns["score"].tolist() == [1.0, 0.5]
    assert found.columns["kept"].dtype == np.bool_


def test_key_names_the_field(tmp_path: Path, read: Callable[..., Any]) -> None:
    path = write(tmp_path / "x.jsonl", {"embedding": [1, 2], "query": [3, 4, 5]})
    assert read(open_source(path)).rows.tolist() == [[1.0, 2.0]]
    assert read(open_source(path, key="query")).rows.tolist() == [[3.0, 4.0, 5.0]]


@pytest.mark.parametrize(
    ("later", "match"),
    [
        ({"query": [5, 6], "embedding": [7, 8]}, "a list of numbers as 'embedding' in line 2"),
        ({"query": [5, 6], "other": [7, 8]}, "got line 2 of .* with 2 columns that could be"),
        ({"query": [5, 6], "late": [7, 8]}, "got line 2 of .* with 2 columns that could be"),
    ],
)
def test_a_later_line_that_would_change_the_choice_is_an_error(
    later: Any, match: str, tmp_path: Path, read: Callable[..., Any]
) -> None:
    path = write(tmp_path / "x.jsonl", {"query": [1, 2], "other": "a"}, later)
    source = open_source(path)
    for _ in range(2):
        with pytest.raises(SourceError, match=match):
            read(source)
    assert read(open_source(path, key="query")).rows.tolist() == [[1.0, 2.0], [5.0, 6.0]]


def test_a_later_line_may_hold_what_changes_nothing(
    tmp_path: Path, read: Callable[..., Any]
) -> None:
    path = write(
        tmp_path / "x.jsonl",
        {"embedding": [1, 2], "spans": None},
        {"embedding": [3, 4], "spans": [1, 2, 3], "words": ["a"]},
    )
    assert read(open_source(path)).rows.tolist() == [[1.0, 2.0], [3.0, 4.0]]


def test_a_byte_order_mark_is_no_value(tmp_path: Path, read: Callable[..., Any]) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text("\ufeff[1, 2]\n[3, 4]\n", encoding="utf-8")
    assert read(open_source(path)).rows.tolist() == [[1.0, 2.0], [3.0, 4.0]]

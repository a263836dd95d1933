"""JSON Lines: every line an object with a list of numbers, or a bare list of numbers."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from isotropy.errors import SourceError
from isotropy.inputs import check_shape
from isotropy.sources._choose import Kind, choose_columns, no_key
from isotropy.sources._lines import lines_of
from isotropy.sources._messages import one_line, quoted, ragged, reading
from isotropy.sources._source import Chunk
from isotropy.sources._table import Table

ColumnKind = Literal["text", "number", "truth value"]


class JsonlTable(Table):
    """The rows of a file of JSON lines, in float64, which keeps every printed digit.

    The first line tells which field holds the embeddings, how many features they have, and which
    fields are columns: text, numbers and truth values. Without a key, a later line by which another
    field would hold the embeddings is an error.
    """

    def __init__(self, path: Path, name: str, key: str | None) -> None:
        self.name = name
        self._path = path
        self._field: str | None = None
        self._kinds: dict[str, ColumnKind] = {}
        self._lists: dict[str, Kind] = {}
        self._key = key
        self.dtype = torch.float64
        self.n_rows, self.features = 0, None
        first = next(self._records(), None)
        if first is not None:
            number, record = first
            where = f"line {number} of {name}"
            if isinstance(record, dict):
                self._lists = {field: _kind(value) for field, value in record.items()}
                (self._field,) = choose_columns(self._lists, key, where, wide=False)
                self._kinds = {f: k for f, v in record.items() if (k := _column_kind(v))}
            else:
                no_key(key, f"{name}, whose lines are lists,")
            vector = self._vector(record, number)
            check_shape((1, len(vector)), where)
            self.n_rows, self.features = None, len(vector)
        self.columns = tuple(self._kinds)

    def _chunks(self, rows: int, columns: tuple[str, ...]) -> Iterator[Chunk]:
        start = 0
        vectors: list[NDArray[np.float64]] = []
        values: dict[str, list[Any]] = {column: [] for column in columns}

        def chunk() -> Chunk:
            read = {c: _to_array(values[c], self._kinds[c]) for c in columns}
            return Chunk(torch.from_numpy(np.stack(vectors)), start, read)

        lists = dict(self._lists)
        for number, record in self._records():
            vectors.append(self._vector(record, number))
            if self._field is not None and self._key is None:
                self._require_same_choice(record, number, lists)
            for column in columns:
                values[column].append(self._value(record, column, number))
            if len(vectors) == rows:
                yield chunk()
                start += rows
                vectors.clear()
                for column in columns:
                    values[column].clear()
        if vectors:
            yield chunk()

    def _records(self) -> Iterator[tuple[int, Any]]:
        """Every line that is not blank, parsed, with its number counted from 1."""
        with reading(self.name), self._path.open("rb") as file:
            for number, line in enumerate(lines_of(file, self.name), start=1):
                text = self._decoded(line, number)
                if text.strip():
                    yield number, self._parsed(text, number)

    def _decoded(self, line: bytes, number: int) -> str:
        try:
            return line.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as error:
            raise SourceError(
                f"got bytes that are no UTF-8 in line {number} of {self.name}, "
                "expected UTF-8 text; save it in that encoding"
            ) from error

    def _parsed(self, text: str, number: int) -> Any:
        try:
            record = json.loads(text)
        except (ValueError, RecursionError) as error:
            why = (
                f"{error.msg} at character {error.colno}"
                if isinstance(error, json.JSONDecodeError)
                else one_line(error)
            )
            raise SourceError(
                f"got line {number} of {self.name}, which is no valid JSON ({why}), expected one "
                "object or list of numbers a line; repair this line"
            ) from error
        if not isinstance(record, dict | list):
            raise SourceError(
                f"got a single value in line {number} of {self.name}, "
                "expected an object or a list of numbers"
            )
        return record

    def _require_same_choice(
        self, record: dict[str, Any], number: int, kinds: dict[str, Kind]
    ) -> None:
        """Raise a SourceError if another field would be the embeddings, had this line been first.

        `kinds` is what the fields held so far.
        """
        for field, value in record.items():
            if isinstance(value, list) and kinds.get(field) != "list" and _kind(value) == "list":
                kinds[field] = "list"
                where = f"line {number} of {self.name}"
                if choose_columns(kinds, None, where, wide=False) != (self._field,):
                    raise SourceError(
                        f"got a list of numbers as {quoted(field)} in {where}, expected none, as "
                        f"by the first line {quoted(self._field)} holds the embeddings; choose one "
                        "with key (--key on the command line)"
                    )

    def _vector(self, record: Any, number: int) -> NDArray[np.float64]:
        where = f"line {number} of {self.name}"
        if self._field is None:
            what, values = "a list", record
        else:
            what = quoted(self._field)
            if not isinstance(record, dict) or self._field not in record:
                raise SourceError(f"got {where} without {what}, expected it in every line")
            values = record[self._field]
        vector = _as_vector(values)
        if vector is None:
            raise SourceError(
                f"got {where} with something else than a flat list of numbers as {what}, "
                "expected such a list (no null, no text); repair or drop this line"
            )
        if self.features is not None and len(vector) != self.features:
            raise ragged(where, len(vector), self.features)
        return vector

    def _value(self, record: Any, column: str, number: int) -> Any:
        value = record.get(column)
        if _column_kind(value) != self._kinds[column]:
            given = "no value" if value is None else quoted(value)
            raise SourceError(
                f"got {given} for column {quoted(column)} in line {number} of {self.name}, "
                f"expected a {self._kinds[column]} as in the first line"
            )
        return value


def open_jsonl(path: Path, name: str, key: str | None) -> JsonlTable:
    """The embeddings of a file of JSON lines as a table."""
    return JsonlTable(path, name, key)


def _as_vector(values: Any) -> NDArray[np.float64] | None:
    """The list as a vector, or None if it is no flat list of numbers."""
    if not isinstance(values, list) or not {int, float}.issuperset(map(type, values)):
        return None
    try:
        return np.array(values, dtype=np.float64)
    except OverflowError:  # an integer that no float can hold
        return None


def _kind(value: Any) -> Kind:
    return "list" if _as_vector(value) is not None else "other"


def _column_kind(value: Any) -> ColumnKind | None:
    if isinstance(value, bool):
        return "truth value"
    if isinstance(value, int | float):
        return "number"
    return "text" if isinstance(value, str) else None


def _to_array(values: list[Any], kind: ColumnKind) -> NDArray[Any]:
    return np.array(values, dtype=object if kind == "text" else None)

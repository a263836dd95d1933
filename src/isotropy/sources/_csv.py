"""`.csv` and `.tsv` files: numeric columns, or one column of lists such as `"[0.1, 0.2]"`.

The first line is a header if none of its cells is a number, or if those that are count 0, 1, 2, …
or 1, 2, 3, … (the names that pandas gives to columns without one). Without a header the columns are
called `column_0`, `column_1`, …; unless one of them holds lists, every cell must be a number.

A column holds numbers if its first value is one or stands for one (empty, `NA`, `0,5`). Which of
them are the embeddings, `choose_columns` decides by the first row; a later row by which it would
decide otherwise is an error. All other columns can be asked for.
"""

import csv
import re
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from isotropy.errors import SourceError
from isotropy.inputs import check_shape
from isotropy.sources._cells import (
    as_floats,
    as_list,
    as_number,
    evident_kind,
    is_meant_as_number,
    kind_of,
)
from isotropy.sources._choose import Kind, choose_columns
from isotropy.sources._lines import LONGEST_LINE, lines_of
from isotropy.sources._messages import count, one_line, quoted, ragged, reading
from isotropy.sources._source import Chunk
from isotropy.sources._table import Table

# The first that is in the first line: a comma may be a decimal one.
_DELIMITERS = (";", "\t", ",")
_QUOTED = re.compile(r'"[^"]*("|$)')


class Row(NamedTuple):
    """A row of cells and the line of the file on which it ends, counted from 1."""

    line: int
    cells: list[str]


class CsvTable(Table):
    """The rows of a file of separated values, in float64, which keeps every printed digit."""

    def __init__(self, path: Path, name: str, key: str | None, delimiter: str | None) -> None:
        self.name = name
        self._path = path
        self.dtype = torch.float64
        self._delimiter = delimiter or self._guess()
        rows = self._all_rows()
        first = next(rows, None)
        self._header = first is not None and _is_header(first.cells)
        row = next(rows, None) if self._header else first
        rows.close()
        self._require_cells([read for read in (first, row) if read is not None])
        if first is None or row is None:
            self.n_rows, self.features, self.columns = 0, None, ()
            return
        if len(row.cells) != len(first.cells):
            raise self._ragged(row, len(first.cells))
        names = _names(first.cells if self._header else None, len(first.cells), name)
        self._width = len(names)
        self._kinds = {n: self._kind(cell) for n, cell in zip(names, row.cells, strict=True)}
        self._key = key
        self._choice = choose_columns(self._kinds, key, name)
        chosen = set(self._choice)
        self._is_list = self._kinds[self._choice[0]] == "list"
        self._chosen = [i for i, n in enumerate(names) if n in chosen]
        self._names = names
        self._others = {n: i for i, n in enumerate(names) if n not in chosen}
        self.wide = self._choice if self._header and not self._is_list else ()
        self._is_number = {n: as_number(row.cells[i]) is not None for n, i in self._others.items()}
        self.columns = tuple(self._others)
        self.n_rows, self.features = None, None
        self.features = len(self._vector(row))
        check_shape((1, self.features), f"line {row.line} of {name}")

    def _chunks(self, rows: int, columns: tuple[str, ...]) -> Iterator[Chunk]:
        if self.features is None:
            return
        start = 0
        lines = self._all_rows()
        if self._header:
            next(lines, None)
        vectors: list[NDArray[np.float64]] = []
        values: dict[str, list[Any]] = {column: [] for column in columns}
        kinds = dict(self._kinds)
        for row in lines:
            if len(row.cells) != self._width:
                raise self._ragged(row, self._width)
            vectors.append(self._vector(row))
            if self._key is None:
                self._require_same_choice(row, kinds)
            for column in columns:
                values[column].append(self._value(row, column))
            if len(vectors) == rows:
                yield self._chunk(vectors, start, values)
                start += rows
                vectors = []
                values = {column: [] for column in columns}
        if vectors:
            yield self._chunk(vectors, start, values)

    def _chunk(
        self, vectors: list[NDArray[np.float64]], start: int, values: dict[str, list[Any]]
    ) -> Chunk:
        read = {
            column: np.array(found, dtype=None if self._is_number[column] else object)
            for column, found in values.items()
        }
        return Chunk(torch.from_numpy(np.stack(vectors)), start, read)

    def _all_rows(self) -> Generator[Row, None, None]:
        """Every row that is not blank, the header too."""
        line = 0
        with reading(self.name), self._path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(lines_of(file, self.name), delimiter=self._delimiter, strict=True)
            while True:
                try:
                    with _long_cells():
                        cells = next(reader, None)
                except UnicodeDecodeError as error:
                    raise SourceError(
                        f"got bytes that are no UTF-8 near line {line + 1} of {self.name}, "
                        "expected UTF-8 text; save it in that encoding"
                    ) from error
                except csv.Error as error:
                    raise SourceError(
                        f"got line {line + 1} of {self.name}, which is no row of cells "
                        f"({one_line(error)}), expected each quote to be closed; repair this line"
                    ) from error
                if cells is None:
                    return
                line = reader.line_num
                if cells:
                    yield Row(line, cells)

    def _guess(self) -> str:
        """The delimiter by the first line that is not blank, without what is in quotes."""
        with reading(self.name), self._path.open(encoding="utf-8-sig", errors="replace") as file:
            lines = iter(lambda: file.readline(LONGEST_LINE), "")
            first = _QUOTED.sub("", next((line for line in lines if line.strip()), ""))
        return next((mark for mark in _DELIMITERS if mark in first.strip("\r\n")), ",")

    def _kind(self, cell: str) -> Kind:
        kind = kind_of(cell)
        # A name and numbers in the first line: without a header, that is a row like all others.
        return kind if self._header or kind == "list" else "number"

    def _require_cells(self, rows: list[Row]) -> None:
        """Raise a SourceError if the first rows are one cell, as their separator is another."""
        tabs = self._delimiter == "\t"
        other = re.compile(r"[\s|:,;]" if tabs else r"[\s|:]")
        marks = "a tab" if tabs else "',', ';' or a tab"
        advice = "rename it to .csv" if tabs else "use numpy.savetxt(path, x, delimiter=',')"
        if any(len(row.cells) > 1 or kind_of(row.cells[0]) == "list" for row in rows):
            return
        for row in rows:
            if other.search(row.cells[0].strip()):
                raise SourceError(
                    f"got one cell {quoted(row.cells[0])} in line {row.line} of {self.name}, "
                    f"expected cells separated by {marks}; write it again, or {advice}"
                )

    def _require_same_choice(self, row: Row, kinds: dict[str, Kind]) -> None:
        """Raise a SourceError if other columns would be the embeddings, had this row been first.

        `kinds` is what the columns held so far.
        """
        for column, i in self._others.items():
            kind = evident_kind(row.cells[i])
            if kind == "other" or kind == kinds[column]:
                continue
            kinds[column] = kind
            where = f"line {row.line} of {self.name}"
            if choose_columns(kinds, None, where) != self._choice:
                raise SourceError(
                    f"got {quoted(row.cells[i])} for column {quoted(column)} in {where}, expected "
                    f"no {kind} as in the first row, by which this column is none of the "
                    "embeddings; repair or drop this line, or leave this column out"
                )

    def _vector(self, row: Row) -> NDArray[np.float64]:
        where = f"line {row.line} of {self.name}"
        if self._is_list:
            return self._list(row.cells[self._chosen[0]], where)
        try:
            return as_floats([row.cells[i] for i in self._chosen])
        except ValueError as error:
            bad = next(i for i in self._chosen if as_number(row.cells[i]) is None)
            cell = row.cells[bad].strip()
            what = f"the value {quoted(cell)}" if cell else "an empty cell"
            raise SourceError(
                f"got {what} for column {quoted(self._names[bad])} in {where}, "
                f"{self._expected(cell)}"
            ) from error

    def _expected(self, cell: str) -> str:
        """What should stand where this cell stands, and what to do."""
        if "," in cell and is_meant_as_number(cell):
            return "expected a number with a decimal point; write points instead of commas"
        if not self._header:
            return (
                "expected a number, as in every cell of a file without a header; repair or drop "
                "this line, or put a first line of names before the rows"
            )
        return (
            "expected a number; repair or drop this line, or rename the column if it is none of "
            "the embeddings"
        )

    def _list(self, cell: str, where: str) -> NDArray[np.float64]:
        try:
            vector = as_list(cell)
        except ValueError as error:
            raise SourceError(
                f"got {where} with something else than a flat list of numbers as "
                f"{quoted(self._names[self._chosen[0]])} ({one_line(error)}), expected such a "
                "list; repair or drop this line"
            ) from error
        if self.features is not None and len(vector) != self.features:
            raise ragged(where, len(vector), self.features)
        return vector

    def _value(self, row: Row, column: str) -> Any:
        cell = row.cells[self._others[column]]
        if not self._is_number[column]:
            return cell
        value = as_number(cell)
        if value is None:
            raise SourceError(
                f"got the value {quoted(cell)} for column {quoted(column)} in line {row.line} of "
                f"{self.name}, expected a number as in the first row"
            )
        return value

    def _ragged(self, row: Row, expected: int) -> SourceError:
        return SourceError(
            f"got line {row.line} of {self.name} with {count(len(row.cells), 'cell')}, "
            f"expected {expected} as in the first line; "
            "every line needs the same number of cells"
        )


def open_csv(path: Path, name: str, key: str | None) -> CsvTable:
    """The embeddings of a file of comma-separated values as a table."""
    return CsvTable(path, name, key, None)


def open_tsv(path: Path, name: str, key: str | None) -> CsvTable:
    """The embeddings of a file of tab-separated values as a table."""
    return CsvTable(path, name, key, "\t")


@contextmanager
def _long_cells() -> Iterator[None]:
    """Python's csv module has one limit for the whole program; a list can be longer than it."""
    before = csv.field_size_limit(LONGEST_LINE)
    try:
        yield
    finally:
        csv.field_size_limit(before)


def _is_header(cells: list[str]) -> bool:
    numbers = [cell.strip() for cell in cells if is_meant_as_number(cell)]
    if not numbers:
        return not any(cell.strip().startswith("[") for cell in cells)
    counted = [
        [str(i + first) for i in range(len(numbers))] for first in (0, 1) if len(numbers) > 1
    ]
    return numbers in counted


def _names(header: list[str] | None, width: int, name: str) -> list[str]:
    if header is None:
        return [f"column_{i}" for i in range(width)]
    names = [cell.strip() for cell in header]
    column, times = Counter(names).most_common(1)[0]
    if times > 1:
        raise SourceError(
            f"got {name} with several columns named {quoted(column)}, expected different names; "
            "rename them"
        )
    return names

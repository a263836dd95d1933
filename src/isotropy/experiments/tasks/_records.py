"""Records of a user's own file: the named columns of CSV, JSON lines or Parquet."""

import csv
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from isotropy.errors import SourceError
from isotropy.sources._messages import one_line, reading, shown, unknown
from isotropy.sources._parquet import parquet_file
from isotropy.sources._texts import long_fields, text_lines

Record = tuple[str, dict[str, Any]]
"""Where a record is, for messages, and its values by field."""


def records(path: Path, columns: Mapping[str, str]) -> Iterator[Record]:
    """The values of some columns, record by record.

    Args:
        path: a file whose name ends in .csv, .tsv, .jsonl, .ndjson or .parquet.
        columns: by field, the name of its column.

    Raises:
        SourceError: unreadable, of another format, damaged, or without one of the columns.
    """
    name = shown(str(path))
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise SourceError(
            f"got data file {name}, expected a name that ends in {', '.join(_READERS)}; "
            "rename or convert it"
        )
    with reading(name), path.open("rb") as file:
        yield from reader(file, name, columns)


def _csv(file: BinaryIO, name: str, columns: Mapping[str, str]) -> Iterator[Record]:
    # The reader wants line ends, so that a quoted text may hold some.
    lines = (f"{line}\n" for _, line in text_lines(file, name))
    first = next(lines, "")
    delimiter = max(",;\t", key=first.count)
    reader = csv.reader(_again(first, lines), delimiter=delimiter, strict=True)
    try:
        with long_fields():
            header = next(reader, [])
        if len(set(header)) < len(header):
            raise SourceError(
                f"got {name} with several columns of one name, expected different names; "
                "rename them"
            )
        for column in columns.values():
            if column not in header:
                raise unknown("column", column, header, name)
        places = {field: header.index(column) for field, column in columns.items()}
        while True:
            with long_fields():
                cells = next(reader, None)
            if cells is None:
                return
            if not cells:  # a blank line
                continue
            if len(cells) != len(header):
                raise SourceError(
                    f"got {len(cells)} columns in line {reader.line_num} of {name}, expected "
                    f"{len(header)} as in its header; put texts with separators in double quotes"
                )
            where = f"line {reader.line_num} of {name}"
            yield where, {field: cells[place] for field, place in places.items()}
    except csv.Error as error:
        raise SourceError(
            f"got {name} with no valid CSV in line {reader.line_num} ({one_line(error)}), "
            "expected fields in double quotes where they hold quotes, separators or newlines"
        ) from None


def _again(first: str, rest: Iterator[str]) -> Iterator[str]:
    yield first
    yield from rest


def _jsonl(file: BinaryIO, name: str, columns: Mapping[str, str]) -> Iterator[Record]:
    for number, line in text_lines(file, name):
        if not line.strip():
            continue
        where = f"line {number + 1} of {name}"
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SourceError(
                f"got no valid JSON in {where} ({one_line(error)}), expected one object a line"
            ) from None
        if not isinstance(record, dict):
            raise SourceError(
                f"got a JSON {type(record).__name__} in {where}, expected an object with the "
                f"fields {', '.join(columns.values())}"
            )
        for column in columns.values():
            if column not in record:
                raise unknown("column", column, record, where)
        yield where, {field: record[column] for field, column in columns.items()}


def _parquet(file: BinaryIO, name: str, columns: Mapping[str, str]) -> Iterator[Record]:
    with parquet_file(file, name) as table:
        known = table.schema_arrow.names
        for column in columns.values():
            if column not in known:
                raise unknown("column", column, known, name)
        row = 0
        wanted = list(dict.fromkeys(columns.values()))
        for batch in table.iter_batches(batch_size=1024, columns=wanted):
            values = [batch.column(column).to_pylist() for column in columns.values()]
            for one in zip(*values, strict=True):
                yield f"row {row} (from 0) of {name}", dict(zip(columns, one, strict=True))
                row += 1


_READERS: dict[str, Callable[[BinaryIO, str, Mapping[str, str]], Iterator[Record]]] = {
    ".csv": _csv,
    ".tsv": _csv,
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".parquet": _parquet,
}

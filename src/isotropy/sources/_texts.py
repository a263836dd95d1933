"""Texts from files, line by line in bounded memory, with the numbers of their rows."""

import csv
import json
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, TypeAlias

from isotropy.errors import InputError, SourceError
from isotropy.sources._lines import LONGEST_LINE, lines_of
from isotropy.sources._messages import count, one_line, quoted, reading, shown, unknown
from isotropy.sources._parquet import parquet_file

TextSource: TypeAlias = str | os.PathLike[str] | Sequence[str]
"""A text file's path, `-` for standard input, or the texts themselves."""

_STDIN = "-"
_BLOCK = 1 << 20

# A row's number, counted from 0, and its text, which may be blank.
Row: TypeAlias = tuple[int, str]


class Texts:
    """The texts of a file in order, read anew at every iteration.

    `.txt` (or no ending) has one text a line; `.jsonl`, `.csv`, `.tsv` and `.parquet` have it in
    a column. A row's number is that of its line or record, counted from 0, without a header.

    Attributes:
        name: what to call it in messages.
        path: the file, or None for standard input and a list.

    Example:
        >>> list(Texts(["a text", "another"]))
        [(0, 'a text'), (1, 'another')]
    """

    def __init__(self, source: TextSource, column: str = "text") -> None:
        self.path: Path | None = None
        self._column = column
        self._given: Sequence[str] | None = None
        if isinstance(source, str | os.PathLike):
            self._open(os.fspath(source))
        else:
            self._given = _checked(source)
            self.name = f"a list of {count(len(source), 'text')}"

    def _open(self, source: str) -> None:
        if source == _STDIN:
            self.name = "standard input"
            return
        self.path = Path(source)
        self.name = shown(self.path.name)
        if self.path.suffix.lower() not in _READERS:
            raise SourceError(
                f"got text file {self.name}, expected a name that ends in "
                f"{', '.join(ending for ending in _READERS if ending)}; rename it"
            )
        if "\0" in source:
            raise SourceError(
                f"got text file {quoted(source)}, expected a name without a zero byte"
            )
        with reading(self.name):
            if self.path.is_dir():
                raise SourceError(
                    f"got text file {quoted(source)}, which is a folder, expected one file"
                )
            with self.path.open("rb"):
                pass

    @property
    def repeatable(self) -> bool:
        """Whether the texts can be read more than once."""
        return self.path is not None or self._given is not None

    def count(self) -> int | None:
        """How many rows there are, blank ones too, where that is quick to find out."""
        if self._given is not None:
            return len(self._given)
        ending = self.path.suffix.lower() if self.path else ""
        # Whether a pipe has an end cannot be known, and counting would use it up.
        if self.path is None or not self.path.is_file() or ending in (".csv", ".tsv"):
            return None
        with reading(self.name), self.path.open("rb") as file:
            return _parquet_rows(file, self.name) if ending == ".parquet" else _count_lines(file)

    def __iter__(self) -> Iterator[Row]:
        if self._given is not None:
            yield from enumerate(self._given)
        elif self.path is None:
            yield from text_lines(sys.stdin.buffer, self.name)
        else:
            with reading(self.name), self.path.open("rb") as file:
                yield from _READERS[self.path.suffix.lower()](file, self.name, self._column)


def _checked(texts: Sequence[str]) -> Sequence[str]:
    for i, text in enumerate(texts):
        if not isinstance(text, str):
            raise InputError(
                f"got a list of texts with a {type(text).__name__} at position {i}, "
                "expected strings"
            )
    return texts


def _count_lines(file: BinaryIO) -> int:
    lines, last = 0, b"\n"
    while block := file.read(_BLOCK):
        lines += block.count(b"\n")
        last = block
    return lines + (not last.endswith(b"\n"))


def text_lines(file: BinaryIO, name: str) -> Iterator[Row]:
    """Lines without their ends. Only a newline ends one: a text may hold Unicode's separators."""
    for number, line in enumerate(lines_of(file, name)):
        try:
            text = line.decode("utf-8-sig" if number == 0 else "utf-8")
        except UnicodeDecodeError:
            raise SourceError(
                f"got {name} with bytes that are not UTF-8 in line {number + 1}, expected text "
                "in UTF-8; convert it, for instance with: iconv -f latin1 -t utf-8"
            ) from None
        if "\0" in text:
            raise SourceError(
                f"got {name} with a zero byte in line {number + 1}, expected a text file in UTF-8"
            )
        yield number, text.rstrip("\r\n")


def _plain(file: BinaryIO, name: str, column: str) -> Iterator[Row]:
    return text_lines(file, name)


def _jsonl(file: BinaryIO, name: str, column: str) -> Iterator[Row]:
    for number, line in text_lines(file, name):
        if not line.strip():
            yield number, ""
            continue
        try:
            record = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SourceError(
                f"got {name} with no valid JSON in line {number + 1} ({one_line(error)}), "
                "expected one object a line"
            ) from None
        if not isinstance(record, dict):
            raise SourceError(
                f"got {name} with a JSON {type(record).__name__} in line {number + 1}, expected "
                f'an object such as {{"{column}": "..."}}'
            )
        if column not in record:
            raise unknown("column", column, record, f"line {number + 1} of {name}")
        yield number, _text(record[column], number, name, column)


def _csv(file: BinaryIO, name: str, column: str, delimiter: str = ",") -> Iterator[Row]:
    # The reader wants line ends, so that a quoted text may hold some.
    lines = (f"{line}\n" for _, line in text_lines(file, name))
    reader = csv.reader(lines, delimiter=delimiter, strict=True)
    with long_fields():
        try:
            header = next(reader, [])
            if column not in header:
                raise unknown("column", column, header, name)
            place = header.index(column)
            for number, fields in enumerate(reader):
                if fields and len(fields) != len(header):
                    raise SourceError(
                        f"got {name} with {len(fields)} fields in the record that ends in line "
                        f"{reader.line_num}, expected {len(header)} as in its header"
                    )
                yield number, fields[place] if fields else ""
        except csv.Error as error:
            raise SourceError(
                f"got {name} with no valid CSV in line {reader.line_num} ({one_line(error)}), "
                "expected fields in double quotes where they hold quotes, separators or newlines"
            ) from None


@contextmanager
def long_fields() -> Iterator[None]:
    # The csv module's own limit is 128 KiB, which a long document exceeds.
    limit = csv.field_size_limit(LONGEST_LINE)
    try:
        yield
    finally:
        csv.field_size_limit(limit)


def _tsv(file: BinaryIO, name: str, column: str) -> Iterator[Row]:
    return _csv(file, name, column, delimiter="\t")


def _parquet(file: BinaryIO, name: str, column: str) -> Iterator[Row]:
    import pyarrow as pa

    with parquet_file(file, name) as table:
        if column not in table.schema_arrow.names:
            raise unknown("column", column, table.schema_arrow.names, name)
        kind = table.schema_arrow.field(column).type
        plain = kind.value_type if pa.types.is_dictionary(kind) else kind
        if not (pa.types.is_string(plain) or pa.types.is_large_string(plain)):
            raise SourceError(
                f"got column {quoted(column)} of {name} with type {kind}, "
                "expected a column of strings"
            )
        number = 0
        for batch in table.iter_batches(batch_size=1024, columns=[column]):
            for text in batch.column(0).to_pylist():
                yield number, _text(text, number, name, column)
                number += 1


def _parquet_rows(file: BinaryIO, name: str) -> int:
    with parquet_file(file, name) as table:
        return int(table.metadata.num_rows)


def _text(value: Any, number: int, name: str, column: str) -> str:
    if isinstance(value, str):
        return value
    given = "no text" if value is None else f"a {type(value).__name__}"
    raise SourceError(
        f"got {name} with {given} in column {quoted(column)} of row {number} (from 0), "
        "expected a string"
    )


_READERS: dict[str, Callable[[BinaryIO, str, str], Iterator[Row]]] = {
    ".txt": _plain,
    "": _plain,
    ".jsonl": _jsonl,
    ".ndjson": _jsonl,
    ".csv": _csv,
    ".tsv": _tsv,
    ".parquet": _parquet,
}

"""A folder of shards: files of one format that together are one source."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self
from urllib.parse import unquote

import numpy as np
from numpy.typing import NDArray

from isotropy.errors import SourceError
from isotropy.sources._merge import merged
from isotropy.sources._messages import quoted
from isotropy.sources._source import Chunk
from isotropy.sources._table import Table

SHARD = "shard"
"""The column that every folder has: the name of the file that a row is from."""

# What writers and people leave beside the data. Any other unknown file is an error, and so is one
# of these whose ending says that it can be read: an overlooked shard would be a wrong number.
_BESIDE = re.compile(
    r"(_.*|readme.*|license.*|.*\.(crc|json|md|txt|yaml|yml|log|html))", re.IGNORECASE
)
_PARTITION = re.compile(r"([^=]+)=(.*)", re.DOTALL)


class FolderTable(Table):
    """The rows of all shards, one shard after the other.

    Its columns are those that every shard has, `shard`, and one for every level of folders named
    `column=value`, as partitioned Parquet data sets have them.
    """

    def __init__(self, name: str, shards: Sequence[tuple[Path, Table]]) -> None:
        self.name = name
        self._shards = [
            (path.as_posix(), _partitions(path), table)
            for path, table in shards
            if table.n_rows != 0  # Spark writes such files
        ]
        if not self._shards:
            self.n_rows, self.features, self.dtype, self.columns = 0, None, None, ()
            return
        first_path, first_partitions, first = self._shards[0]
        for path, partitions, table in self._shards[1:]:
            for what, given, expected in (
                ("numbers of features", table.features, first.features),
                ("dtypes", _dtype(table), _dtype(first)),
                ("partition columns", list(partitions), list(first_partitions)),
            ):
                if given != expected:
                    raise SourceError(
                        f"got shards with different {what} in {name}: {quoted(path)} has {given} "
                        f"and {quoted(first_path)} has {expected}, expected all alike; "
                        "write them again or measure them apart"
                    )
        self._require_same_names()
        self.features, self.dtype = first.features, first.dtype
        counts = [table.n_rows for _, _, table in self._shards]
        known = [count for count in counts if count is not None]
        self.n_rows = sum(known) if len(known) == len(counts) else None
        own = [c for c in first.columns if all(c in table.columns for _, _, table in self._shards)]
        self._own = set(own)
        self._numeric = {
            column
            for column in first_partitions
            if all(_is_count(partitions[column]) for _, partitions, _ in self._shards)
        }
        self.columns = tuple(dict.fromkeys([*own, *first_partitions, SHARD]))

    def _require_same_names(self) -> None:
        """Features are counted by their place, so they must have the same one in every shard."""
        named = [(path, table.wide) for path, _, table in self._shards if table.wide]
        for path, names in named[1:]:
            first_path, first = named[0]
            for given, expected in zip(names, first, strict=True):
                if given != expected:
                    raise SourceError(
                        f"got shards with different columns in {self.name}: {quoted(path)} has "
                        f"{quoted(given)} where {quoted(first_path)} has {quoted(expected)}, "
                        "expected the same names in the same order; write them again or measure "
                        "them apart"
                    )

    def as_stored(self) -> Self:
        shards = [(Path(path), table.as_stored()) for path, _, table in self._shards]
        return type(self)(self.name, shards)

    def _chunks(self, rows: int, columns: tuple[str, ...]) -> Iterator[Chunk]:
        return merged(self._parts(rows, columns), rows)

    def _parts(self, rows: int, columns: tuple[str, ...]) -> Iterator[Chunk]:
        start = 0
        own = tuple(column for column in columns if column in self._own)
        for path, partitions, table in self._shards:
            for chunk in table.chunks(rows, own):
                k = len(chunk.rows)
                values = dict(chunk.columns)
                for column in columns:
                    if column not in self._own:
                        value = partitions.get(column, path)
                        values[column] = self._repeated(value, column in self._numeric, k)
                yield Chunk(chunk.rows, start, values)
                start += k

    @staticmethod
    def _repeated(value: str, numeric: bool, k: int) -> NDArray[Any]:
        return np.full(k, int(value)) if numeric else np.full(k, value, dtype=object)


class FolderFiles(NamedTuple):
    """The files in and below a folder that are not hidden, relative to it, in natural order.

    Attributes:
        shards: what may be shards: files directly in it or in `column=value` folders.
        others: what lies elsewhere, or is named as what lies beside data.
    """

    shards: list[Path]
    others: list[Path]


def files_of(folder: Path) -> FolderFiles:
    """What is in a folder. Natural order is that of numbers: shard-2 before shard-10.

    Example:
        >>> sorted(map(Path, ["s-10.npy", "s-2.npy"]), key=natural)
        [PosixPath('s-2.npy'), PosixPath('s-10.npy')]
    """
    found = FolderFiles([], [])
    for path, apart in _walk(folder, False, ()):
        other = apart or is_beside(path)
        (found.others if other else found.shards).append(path.relative_to(folder))
    return FolderFiles(sorted(found.shards, key=natural), sorted(found.others, key=natural))


def is_beside(path: Path) -> bool:
    """Whether a file is named as what lies beside data."""
    return _BESIDE.fullmatch(path.name) is not None


def natural(path: Path) -> list[list[str | int]]:
    """A key that sorts paths by their text and the numbers in it."""
    return [
        [int(piece) if i % 2 else piece for i, piece in enumerate(re.split(r"(\d+)", part))]
        for part in path.parts
    ]


def _walk(folder: Path, apart: bool, above: tuple[Path, ...]) -> Iterator[tuple[Path, bool]]:
    """Every file that is not hidden, and whether it is in a folder that is no partition."""
    real = folder.resolve()
    if real in above:  # a link to a folder that it is in
        return
    for path in folder.iterdir():
        if path.name.startswith("."):
            continue
        if path.is_dir():
            plain = _PARTITION.fullmatch(path.name) is None
            yield from _walk(path, apart or plain, (*above, real))
        else:
            yield path, apart


def _partitions(path: Path) -> dict[str, str]:
    matches = [_PARTITION.fullmatch(part) for part in path.parts[:-1]]
    return {unquote(match[1]): unquote(match[2]) for match in matches if match}


def _dtype(table: Table) -> str:
    return str(table.dtype).removeprefix("torch.")


def _is_count(value: str) -> bool:
    return re.fullmatch(r"-?\d+", value) is not None

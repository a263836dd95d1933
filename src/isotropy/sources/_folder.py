"""A folder of shards: files of one format that together are one source."""

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any
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

# What writers and people leave beside the data. Any other unknown file is an error: an overlooked
# shard would be a wrong number.
_BESIDE = re.compile(
    r"(\..*|_.*|readme.*|license.*|.*\.(crc|json|md|txt|yaml|yml|log|html))", re.IGNORECASE
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


def shard_paths(folder: Path) -> list[Path]:
    """The files of a folder and its `column=value` folders that may be shards, in natural order.

    The paths are relative to the folder. Natural order is that of numbers: shard-2 before shard-10.

    Example:
        >>> sorted(map(Path, ["s-10.npy", "s-2.npy"]), key=natural)
        [PosixPath('s-2.npy'), PosixPath('s-10.npy')]
    """
    return sorted((path.relative_to(folder) for path in _walk(folder)), key=natural)


def natural(path: Path) -> list[list[str | int]]:
    """A key that sorts paths by their text and the numbers in it."""
    return [
        [int(piece) if i % 2 else piece for i, piece in enumerate(re.split(r"(\d+)", part))]
        for part in path.parts
    ]


def _walk(folder: Path) -> Iterator[Path]:
    for path in folder.iterdir():
        if path.is_dir():
            if _PARTITION.fullmatch(path.name):
                yield from _walk(path)
        elif not _BESIDE.fullmatch(path.name):
            yield path


def _partitions(path: Path) -> dict[str, str]:
    matches = [_PARTITION.fullmatch(part) for part in path.parts[:-1]]
    return {unquote(match[1]): unquote(match[2]) for match in matches if match}


def _dtype(table: Table) -> str:
    return str(table.dtype).removeprefix("torch.")


def _is_count(value: str) -> bool:
    return re.fullmatch(r"-?\d+", value) is not None

"""Arrays that lie in a file as they would in memory: the bytes of `.npy` and `.safetensors`.

They are read, not mapped: pages of a map stay in the process's memory once touched, so that a pass
over a large file would seem, and on a small machine be, as large as the file.
"""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy.errors import SourceError
from isotropy.sources._messages import reading
from isotropy.sources._source import Chunk
from isotropy.sources._table import Table


@dataclass(frozen=True)
class Block:
    """A two-dimensional array of floating-point numbers in a file.

    Attributes:
        offset: where its first byte is.
        shape: rows and features.
        dtype: dtype of its values.
        swapped: whether their bytes are in the other order than this machine's.
        fortran: whether it lies there column by column.
    """

    offset: int
    shape: tuple[int, int]
    dtype: torch.dtype
    swapped: bool = False
    fortran: bool = False


@dataclass(frozen=True)
class Column:
    """A one-dimensional array in a file."""

    offset: int
    dtype: np.dtype[Any]


class RawTable(Table):
    """The rows of a block of a file."""

    def __init__(
        self, path: Path, name: str, block: Block, columns: Mapping[str, Column] | None = None
    ) -> None:
        self.name = name
        self.n_rows, self.features = block.shape
        self.dtype = block.dtype
        self._path = path
        self._block = block
        self._columns = columns or {}
        self.columns = tuple(self._columns)

    def _chunks(self, rows: int, columns: tuple[str, ...]) -> Iterator[Chunk]:
        n = self._block.shape[0]
        with reading(self.name), FileIO(self._path) as file:
            for start in range(0, n, rows):
                stop = min(start + rows, n)
                values = {c: self._column(file, self._columns[c], start, stop) for c in columns}
                yield Chunk(self._rows(file, start, stop), start, values)

    def _rows(self, file: FileIO, start: int, stop: int) -> Tensor:
        n, d = self._block.shape
        size = self._block.dtype.itemsize
        if self._block.fortran:
            across = torch.empty((d, stop - start), dtype=self._block.dtype)
            for j, feature in enumerate(across):
                self._fill(file, self._block.offset + (j * n + start) * size, feature)
            rows = across.T.contiguous()
        else:
            rows = torch.empty((stop - start, d), dtype=self._block.dtype)
            self._fill(file, self._block.offset + start * d * size, rows)
        if self._block.swapped:
            rows.view(torch.uint8).numpy().view(f"u{size}").byteswap(inplace=True)
        return rows

    def _fill(self, file: FileIO, offset: int, tensor: Tensor) -> None:
        self._read(file, offset, as_bytes(tensor.view(torch.uint8).numpy()))

    def _column(self, file: FileIO, column: Column, start: int, stop: int) -> NDArray[Any]:
        values = np.empty(stop - start, dtype=column.dtype)
        offset = column.offset + start * column.dtype.itemsize
        self._read(file, offset, as_bytes(values))
        return values.astype(column.dtype.newbyteorder("="), copy=False)

    def _read(self, file: FileIO, offset: int, into: memoryview) -> None:
        file.seek(offset)
        while len(into):  # one read gives at most 2 GB
            count = file.readinto(into)
            if not count:
                raise ends_early(self.name)
            into = into[count:]


def as_bytes(array: NDArray[Any]) -> memoryview:
    """The memory of a contiguous array, to be filled byte by byte."""
    return memoryview(array.reshape(-1).view(np.uint8).data)


def check_size(path: Path, name: str, end: int) -> None:
    """Raise a SourceError unless the file ends where its header says."""
    size = path.stat().st_size
    if size < end:
        raise ends_early(name, f"{size} of {end} bytes")
    if size > end:
        raise SourceError(
            f"got {name} with {size - end} bytes after its array, expected none; it is corrupt "
            "or holds several arrays: save it again, several arrays as .npz"
        )


def ends_early(name: str, what: str = "it ends early") -> SourceError:
    """The error for a file with less data than its header says."""
    return SourceError(
        f"got {name}, which is truncated ({what}), expected a whole file; copy or write it again"
    )


def n_bytes(shape: tuple[int, ...], itemsize: int) -> int:
    """How many bytes an array has."""
    return math.prod(shape) * itemsize

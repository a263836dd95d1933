"""`.npz` archives: their arrays are streamed out of the zip file, compressed or not.

Reading through the archive checks the checksum of every array, so damage is noticed.
"""

import shutil
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import IO, Any

import numpy as np
import torch
from numpy.typing import NDArray

from isotropy.errors import SourceError
from isotropy.inputs import NUMPY_DTYPES, check_shape, float_dtype
from isotropy.sources._choose import Entry, choose_array
from isotropy.sources._messages import corrupt, quoted, reading
from isotropy.sources._npy import Header, open_npy, read_header
from isotropy.sources._raw import as_bytes, ends_early, n_bytes
from isotropy.sources._sniff import BROKEN_ZIP
from isotropy.sources._source import Chunk
from isotropy.sources._table import Table
from isotropy.sources._text_values import as_text

_SUFFIX = ".npy"
_ENCRYPTED = 1  # the flag of a member that needs a password
# Columns hold what a row can be grouped by: truth values, numbers, text and dates.
_COLUMN_KINDS = "biufUSmM"
_PIECE = 1 << 20  # bytes taken out of the archive at a time


class NpzTable(Table):
    """The rows of one array of an archive; one-dimensional arrays of its length are columns."""

    def __init__(self, path: Path, name: str, array: str, headers: dict[str, Header]) -> None:
        self.name = name
        self._path = path
        self._array = array
        self._headers = headers
        where = name if len(headers) == 1 else f"{name} (array {quoted(array)})"
        chosen = headers[array]
        self.dtype = float_dtype(chosen.dtype, where)
        check_shape(chosen.shape, where)
        self.n_rows, self.features = chosen.shape
        self.columns = tuple(
            other
            for other, header in headers.items()
            if header.shape == (self.n_rows,) and header.dtype.kind in _COLUMN_KINDS
        )

    def _chunks(self, rows: int, columns: tuple[str, ...]) -> Iterator[Chunk]:
        if self._headers[self._array].fortran:
            return self._chunks_by_column(rows, columns)
        return self._chunks_by_row(rows, columns)

    def _chunks_by_row(self, rows: int, columns: tuple[str, ...]) -> Iterator[Chunk]:
        n, d = self._headers[self._array].shape
        with _archive(self._path, self.name) as archive, ExitStack() as stack:
            stream = stack.enter_context(self._open(archive, self._array))
            others = {c: stack.enter_context(self._open(archive, c)) for c in columns}
            for start in range(0, n, rows):
                k = min(rows, n - start)
                values = self._take(stream, self._array, k * d)
                tensor = torch.from_numpy(values.reshape(k, d))
                yield Chunk(tensor, start, {c: self._take(s, c, k) for c, s in others.items()})
            if stream.read(1):  # the archive checks a compressed array only past its end
                raise SourceError(
                    f"got {self.name} with bytes after the values of array {quoted(self._array)}, "
                    "expected none; write it again"
                )

    def _chunks_by_column(self, rows: int, columns: tuple[str, ...]) -> Iterator[Chunk]:
        """A stream gives one column after the other, so the array is unpacked to a file first."""
        n = self._headers[self._array].shape[0]
        with TemporaryDirectory(prefix="isotropy-") as folder:
            unpacked = Path(folder) / "array.npy"
            with _archive(self._path, self.name) as archive, ExitStack() as stack:
                with archive.open(self._array + _SUFFIX) as stream, unpacked.open("wb") as file:
                    shutil.copyfileobj(stream, file, _PIECE)
                others = {c: stack.enter_context(self._open(archive, c)) for c in columns}
                for chunk in open_npy(unpacked, self.name, None).chunks(rows):
                    k = min(rows, n - chunk.start)
                    values = {c: self._take(s, c, k) for c, s in others.items()}
                    yield Chunk(chunk.rows, chunk.start, values)

    def _open(self, archive: zipfile.ZipFile, array: str) -> IO[bytes]:
        stream = archive.open(array + _SUFFIX)
        read_header(stream, self.name)
        return stream

    def _take(self, stream: IO[bytes], array: str, count: int) -> NDArray[Any]:
        """The next `count` values of an array, in this machine's byte order; bytes as text."""
        dtype = self._headers[array].dtype
        values = np.empty(count, dtype=dtype)
        free = as_bytes(values)
        while len(free):
            piece = stream.read(min(len(free), _PIECE))
            if not piece:
                raise ends_early(self.name, f"array {quoted(array)} ends early")
            free[: len(piece)] = piece
            free = free[len(piece) :]
        return as_text(values.astype(dtype.newbyteorder("="), copy=False))


def open_npz(path: Path, name: str, key: str | None) -> NpzTable:
    """The embeddings of a `.npz` archive as a table."""
    with _archive(path, name) as archive:
        headers = {}
        for member in archive.namelist():
            if archive.getinfo(member).flag_bits & _ENCRYPTED:
                raise SourceError(
                    f"got {name}, which is encrypted, expected an archive without a password; "
                    "unpack it and save it again"
                )
            if member.endswith(_SUFFIX):
                array = member.removesuffix(_SUFFIX)
                where = f"{name} (array {quoted(array)})"
                with archive.open(member) as stream:
                    headers[array] = read_header(stream, where)
                    _check_size(archive.getinfo(member), headers[array], stream.tell(), where)
    entries = {
        array: Entry(header.shape, header.dtype.newbyteorder("=") in NUMPY_DTYPES)
        for array, header in headers.items()
    }
    return NpzTable(path, name, choose_array(entries, key, name), headers)


def _check_size(member: zipfile.ZipInfo, header: Header, start: int, where: str) -> None:
    """A header that asks for more than there is must not reserve memory for it."""
    if header.dtype.hasobject:  # a pickle, of any size; it is refused if it is chosen
        return
    end = start + n_bytes(header.shape, header.dtype.itemsize)
    if member.file_size < end:
        raise ends_early(where, f"{member.file_size} of {end} bytes")


@contextmanager
def _archive(path: Path, name: str) -> Iterator[zipfile.ZipFile]:
    """The open archive; whatever is wrong with it while it is open becomes a SourceError."""
    with reading(name):
        try:
            with zipfile.ZipFile(path) as archive:
                yield archive
        except (*BROKEN_ZIP, zlib.error) as error:
            raise corrupt(name, "a .npz archive", error) from error

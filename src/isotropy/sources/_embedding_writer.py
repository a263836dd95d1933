"""Writes embeddings as they come: to a part file that takes its name when it is whole."""

import json
import os
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Protocol, Self, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy.errors import SettingError, SourceError
from isotropy.sources._messages import one_line

# Room for a safetensors header, which stands first and is known last: for itself and the metadata,
# and for each column beside its name.
_HEADER_BYTES = 1 << 14
_ENTRY_BYTES = 128
_LONGEST_VALUE = 500

_NUMPY_DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float16: np.dtype("<f2"),
    torch.float32: np.dtype("<f4"),
    torch.float64: np.dtype("<f8"),
}
_DTYPE_NAMES = {"f": "F", "i": "I", "u": "U"}

Columns: TypeAlias = Mapping[str, NDArray[Any]]
"""The values of each column for some rows."""


class _Format(Protocol):
    def write(self, rows: NDArray[Any], columns: Columns) -> None:
        """Append k×d rows and the k values of each column."""

    def finish(self, metadata: Mapping[str, str]) -> None:
        """Write whatever can only be known at the end."""


class EmbeddingWriter:
    """A file of embeddings with columns, in bounded memory.

    `.safetensors` holds columns of numbers and booleans, `.parquet` those of text too, `.npy` none.
    The first block tells the columns' types.

    As a context manager: until `finish` the rows are in a hidden file beside the target, which is
    removed if anything goes wrong. So there is never half a file under the target's name.

    Args:
        out: the file to write.
        dtype: float16, float32 or float64.
        columns: names of the columns.
        overwrite: whether an existing file may be replaced.
        endings: which formats may be written.

    Raises:
        SettingError: the file exists, or has another ending.
        SourceError: nothing can be written there.
    """

    def __init__(
        self,
        out: str | os.PathLike[str],
        *,
        dtype: torch.dtype,
        columns: tuple[str, ...],
        overwrite: bool = False,
        endings: tuple[str, ...] = (".safetensors", ".parquet"),
    ) -> None:
        self.out = check_out(out, overwrite=overwrite, endings=endings)
        self._dtype = dtype
        self._columns = columns
        # A link keeps pointing to the file that it names.
        self._target = self.out.resolve()
        self._part = self._target.with_name(f".{self.out.name}.{os.getpid()}.part")
        self._open = ExitStack()
        self._format: _Format | None = None

    def __enter__(self) -> Self:
        with _writing(self.out):
            file = self._part.open("wb")
        self._open.callback(self._part.unlink, missing_ok=True)
        self._file = self._open.enter_context(file)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._open.close()

    def write(self, rows: Tensor, columns: Columns) -> None:
        """Append k×d rows with the k values of each column."""
        with _writing(self.out):
            if self._format is None:
                self._format = self._start(rows.shape[1], columns)
            array = rows.detach().cpu().to(self._dtype).contiguous().numpy()
            self._format.write(array.astype(_NUMPY_DTYPES[self._dtype], copy=False), columns)

    def finish(self, metadata: Mapping[str, str]) -> None:
        """Complete the file and give it its name.

        Raises:
            SourceError: nothing was written, or the disk is full.
        """
        if self._format is None:
            raise SourceError(f"got no embeddings to write to {self.out}, expected at least one")
        with _writing(self.out):
            self._format.finish({key: _shorten(value) for key, value in metadata.items()})
            self._file.flush()
            os.fsync(self._file.fileno())
            self._part.replace(self._target)

    def _start(self, features: int, columns: Columns) -> _Format:
        ending = self.out.suffix.lower()
        if ending == ".npy":
            return _Npy(self._file, features, self._dtype)
        if ending == ".parquet":
            first = {name: columns[name] for name in self._columns}
            parquet = _Parquet(self._file, features, self._dtype, first)
            self._open.callback(parquet.close)
            return parquet
        side: dict[str, IO[bytes]] = {}
        for name in self._columns:
            file = tempfile.TemporaryFile(dir=self._target.parent)  # noqa: SIM115 (the stack closes it)
            side[name] = self._open.enter_context(file)
        return _Safetensors(self._file, features, self._dtype, side)


class _Safetensors:
    """The format is a header's length, the header, and then every tensor without a gap.

    The embeddings come first and go straight to the file. The columns wait in side files.
    """

    def __init__(
        self, file: IO[bytes], features: int, dtype: torch.dtype, side: dict[str, IO[bytes]]
    ) -> None:
        self._file, self._features, self._dtype, self._side = file, features, dtype, side
        self._rows = 0
        self._types: dict[str, np.dtype[Any]] = {}
        entries = sum(len(json.dumps(name)) + _ENTRY_BYTES for name in side)
        self._room = _HEADER_BYTES + -(-entries // 8) * 8
        file.write(bytes(8 + self._room))

    def write(self, rows: NDArray[Any], columns: Columns) -> None:
        self._rows += len(rows)
        self._file.write(rows.data)
        for name, side in self._side.items():
            values = columns[name]
            dtype = self._types.setdefault(name, values.dtype.newbyteorder("<"))
            side.write(_as(values, dtype, name).data)

    def finish(self, metadata: Mapping[str, str]) -> None:
        end = self._rows * self._features * self._dtype.itemsize
        header: dict[str, Any] = {"__metadata__": {"format": "pt", **metadata}}
        header["embeddings"] = {
            "dtype": _dtype_name(_NUMPY_DTYPES[self._dtype]),
            "shape": [self._rows, self._features],
            "data_offsets": [0, end],
        }
        for name, side in self._side.items():
            dtype = self._types[name]
            offsets = [end, end := end + dtype.itemsize * self._rows]
            header[name] = {
                "dtype": _dtype_name(dtype),
                "shape": [self._rows],
                "data_offsets": offsets,
            }
            side.seek(0)
            shutil.copyfileobj(side, self._file, 1 << 20)
        text = json.dumps(header).encode()
        self._file.seek(0)
        # The format allows spaces at the header's end.
        self._file.write(struct.pack("<Q", self._room) + text.ljust(self._room))


class _Npy:
    """numpy's header, which has room for any number of rows, and then the rows."""

    def __init__(self, file: IO[bytes], features: int, dtype: torch.dtype) -> None:
        self._file, self._features = file, features
        self._descr = np.lib.format.dtype_to_descr(_NUMPY_DTYPES[dtype])
        self._rows = 0
        self._write_header()

    def write(self, rows: NDArray[Any], columns: Columns) -> None:
        self._rows += len(rows)
        self._file.write(rows.data)

    def finish(self, metadata: Mapping[str, str]) -> None:
        self._file.seek(0)
        self._write_header()

    def _write_header(self) -> None:
        shape = (self._rows, self._features)
        header = {"descr": self._descr, "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(self._file, header)


class _Parquet:
    """A fixed-size list column `embedding` beside the others; a row group a block."""

    def __init__(self, file: IO[bytes], features: int, dtype: torch.dtype, first: Columns) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        value = pa.from_numpy_dtype(_NUMPY_DTYPES[dtype])
        fields = [(name, _arrow(values, name).type) for name, values in first.items()]
        self._schema = pa.schema([("embedding", pa.list_(value, features)), *fields])
        # Numbers like these hardly repeat, so that neither compression nor dictionaries help.
        self._writer = parquet.ParquetWriter(
            file, self._schema, compression="none", use_dictionary=False
        )

    def write(self, rows: NDArray[Any], columns: Columns) -> None:
        import pyarrow as pa

        embeddings = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
        fields = list(self._schema)[1:]
        arrays = [embeddings, *(_arrow(columns[f.name], f.name, f.type) for f in fields)]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def finish(self, metadata: Mapping[str, str]) -> None:
        self._writer.add_key_value_metadata(dict(metadata))
        self._writer.close()

    def close(self) -> None:
        """Let go of the file, finished or not: the writer else touches it when it is collected."""
        with suppress(OSError, ValueError):
            self._writer.close()


def _as(values: NDArray[Any], dtype: np.dtype[Any], name: str) -> NDArray[Any]:
    """A column's values in the type that its first ones had."""
    if not np.can_cast(values.dtype, dtype):
        raise _other_type(name, values.dtype, dtype)
    return np.ascontiguousarray(values, dtype=dtype)


def _arrow(values: Any, name: str, type_: Any = None) -> Any:
    """A column's values as Arrow has them, which they may be."""
    import pyarrow as pa

    stored = isinstance(values, pa.Array | pa.ChunkedArray)
    try:
        if stored:
            return values if type_ in (None, values.type) else values.cast(type_)
        return pa.array(values, type=type_)
    except (pa.ArrowException, TypeError) as error:
        raise _other_type(name, values.type if stored else values.dtype, type_) from error


def _other_type(name: str, given: object, expected: object) -> SourceError:
    return SourceError(
        f"got values of type {given} in column {name!r}, expected {expected or 'one'} type as in "
        "its first rows; make them alike, or leave the column out"
    )


def _dtype_name(dtype: np.dtype[Any]) -> str:
    """What safetensors calls a dtype of numpy."""
    return "BOOL" if dtype.kind == "b" else f"{_DTYPE_NAMES[dtype.kind]}{8 * dtype.itemsize}"


def check_out(
    out: str | os.PathLike[str], *, overwrite: bool = False, endings: tuple[str, ...]
) -> Path:
    """A path to which embeddings can be written, as far as that can be told beforehand.

    Raises:
        SettingError: another ending, a file that exists, a folder, or no folder to be in.
        SourceError: the folder cannot be looked into.
    """
    with _writing(Path(out)):
        return _checked(Path(out), overwrite, endings)


def _checked(out: Path, overwrite: bool, endings: tuple[str, ...]) -> Path:
    if "\0" in str(out):
        raise SettingError(f"got output file {str(out)!r}, expected a name without a zero byte")
    if out.suffix.lower() not in endings:
        raise SettingError(
            f"got output file {str(out)!r}, expected a name that ends in "
            f"{', '.join(endings[:-1])} or {endings[-1]}"
        )
    if out.is_dir():
        raise SettingError(f"got output file {str(out)!r}, which is a folder, expected a file")
    if out.exists() and not overwrite:
        raise SettingError(
            f"got output file {str(out)!r}, which exists, expected a new name; choose another, or "
            "replace it with overwrite=True (--overwrite)"
        )
    if not out.parent.is_dir():
        raise SettingError(
            f"got output file {str(out)!r}, expected a folder {str(out.parent)!r} that exists; "
            "create it"
        )
    return out


def _shorten(value: str) -> str:
    return value if len(value) <= _LONGEST_VALUE else "…" + value[-_LONGEST_VALUE:]


@contextmanager
def _writing(out: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise SourceError(
            f"got output file {str(out)!r}, which cannot be written "
            f"({error.strerror or one_line(error)}), expected a folder that allows it and has room"
        ) from error

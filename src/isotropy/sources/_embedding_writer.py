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
from typing import IO, Any, Protocol, Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy.errors import SettingError, SourceError
from isotropy.sources._messages import one_line

# Room for a safetensors header, which stands first and is known last.
_HEADER_BYTES = 1 << 14
_LONGEST_VALUE = 500

_DTYPE_NAMES = {torch.float16: "F16", torch.float32: "F32"}
_NUMPY_DTYPES: dict[torch.dtype, np.dtype[Any]] = {
    torch.float16: np.dtype("<f2"),
    torch.float32: np.dtype("<f4"),
}


class _Format(Protocol):
    def write(self, rows: NDArray[Any], columns: Mapping[str, NDArray[np.int64]]) -> None:
        """Append k×d rows and the k values of each column."""

    def finish(self, metadata: Mapping[str, str]) -> None:
        """Write whatever can only be known at the end."""


class EmbeddingWriter:
    """A file of embeddings with int64 columns, `.safetensors` or `.parquet`, in bounded memory.

    As a context manager: until `finish` the rows are in a hidden file beside the target, which is
    removed if anything goes wrong. So there is never half a file under the target's name.

    Args:
        out: the file to write.
        dtype: float16 or float32.
        columns: names of the columns.
        overwrite: whether an existing file may be replaced.

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
    ) -> None:
        with _writing(Path(out)):
            self.out = _checked(Path(out), overwrite)
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

    def write(self, rows: Tensor, columns: Mapping[str, NDArray[np.int64]]) -> None:
        """Append k×d rows with the k values of each column."""
        with _writing(self.out):
            if self._format is None:
                self._format = self._start(rows.shape[1])
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

    def _start(self, features: int) -> _Format:
        if self.out.suffix.lower() == ".parquet":
            parquet = _Parquet(self._file, features, self._dtype, self._columns)
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
        file.write(bytes(8 + _HEADER_BYTES))

    def write(self, rows: NDArray[Any], columns: Mapping[str, NDArray[np.int64]]) -> None:
        self._rows += len(rows)
        self._file.write(rows.data)
        for name, side in self._side.items():
            side.write(columns[name].astype("<i8").data)

    def finish(self, metadata: Mapping[str, str]) -> None:
        end = self._rows * self._features * self._dtype.itemsize
        header: dict[str, Any] = {"__metadata__": {"format": "pt", **metadata}}
        header["embeddings"] = {
            "dtype": _DTYPE_NAMES[self._dtype],
            "shape": [self._rows, self._features],
            "data_offsets": [0, end],
        }
        for name, side in self._side.items():
            offsets = [end, end := end + 8 * self._rows]
            header[name] = {"dtype": "I64", "shape": [self._rows], "data_offsets": offsets}
            side.seek(0)
            shutil.copyfileobj(side, self._file, 1 << 20)
        text = json.dumps(header).encode()
        self._file.seek(0)
        # The format allows spaces at the header's end.
        self._file.write(struct.pack("<Q", _HEADER_BYTES) + text.ljust(_HEADER_BYTES))


class _Parquet:
    """A fixed-size list column `embedding` beside the others; a row group a block."""

    def __init__(
        self, file: IO[bytes], features: int, dtype: torch.dtype, columns: tuple[str, ...]
    ) -> None:
        import pyarrow as pa
        from pyarrow import parquet

        value = pa.float16() if dtype == torch.float16 else pa.float32()
        fields = [("embedding", pa.list_(value, features)), *((c, pa.int64()) for c in columns)]
        self._schema = pa.schema(fields)
        # Numbers like these hardly repeat, so that neither compression nor dictionaries help.
        self._writer = parquet.ParquetWriter(
            file, self._schema, compression="none", use_dictionary=False
        )

    def write(self, rows: NDArray[Any], columns: Mapping[str, NDArray[np.int64]]) -> None:
        import pyarrow as pa

        embeddings = pa.FixedSizeListArray.from_arrays(pa.array(rows.reshape(-1)), rows.shape[1])
        arrays = [embeddings, *(pa.array(columns[name]) for name in self._schema.names[1:])]
        self._writer.write_table(pa.Table.from_arrays(arrays, schema=self._schema))

    def finish(self, metadata: Mapping[str, str]) -> None:
        self._writer.add_key_value_metadata(dict(metadata))
        self._writer.close()

    def close(self) -> None:
        """Let go of the file, finished or not: the writer else touches it when it is collected."""
        with suppress(OSError, ValueError):
            self._writer.close()


def _checked(out: Path, overwrite: bool) -> Path:
    if "\0" in str(out):
        raise SettingError(f"got output file {str(out)!r}, expected a name without a zero byte")
    if out.suffix.lower() not in (".safetensors", ".parquet"):
        raise SettingError(
            f"got output file {str(out)!r}, expected a name that ends in .safetensors or .parquet"
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

"""Parquet files: a column of lists (of any or of fixed size), or several columns of numbers."""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Self

import numpy as np
from numpy.typing import NDArray

from isotropy.errors import SourceError
from isotropy.inputs import check_shape, float_dtype, to_tensor
from isotropy.sources._choose import Kind, choose_columns
from isotropy.sources._merge import merged
from isotropy.sources._messages import corrupt, quoted, ragged, reading
from isotropy.sources._source import Chunk
from isotropy.sources._table import Table
from isotropy.sources._text_values import as_text

# Arrow decodes a batch into several times its size. Small batches, joined to a chunk, keep that
# bounded and are no slower.
_BATCH_VALUES = 1 << 19
# Without a buffer Arrow reads a whole column of a row group at once. Every column has one, and a
# page or two beside it, so that a table of thousands of columns takes gigabytes, however few rows.
_BUFFER_BYTES = 1 << 16

_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}
_INTEGERS = {f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)}


class ParquetTable(Table):
    """The rows of the embedding columns of a file; its other columns of single values are columns.

    The lists of a column are of one length, which its first row tells if its type does not.
    """

    _stored = False

    def __init__(self, path: Path, name: str, key: str | None) -> None:
        self.name = name
        self._path = path
        with self._open() as file:
            fields = list(file.schema_arrow)
            types = {field.name: _storage(field.type) for field in fields}
            if len(types) < len(fields):
                raise SourceError(
                    f"got {name} with several columns of one name, expected different names; "
                    "rename them"
                )
            self._chosen = choose_columns(_kinds(types), key, name)
            first = types[self._chosen[0]]
            self._is_list = _is_list(first)
            if self._is_list:
                self._where = f"{name} (column {quoted(self._chosen[0])})"
                dtype = np.dtype(_FLOATS.get(str(first.value_type), str(first.value_type)))
            else:
                self._where = f"{name} (columns {quoted(self._chosen[0])} …)"
                self._require_floats(types)
                self.wide = self._chosen
                dtype = np.result_type(*(_FLOATS[str(types[c])] for c in self._chosen))
            self.dtype = float_dtype(dtype, self._where)
            self._numpy_dtype = dtype
            self._others = tuple(column for column in types if column not in self._chosen)
            self.columns = tuple(c for c in self._others if _is_single(types[c]))
            self.n_rows = int(file.metadata.num_rows)
            self.features = self._width(file, first) if self.n_rows else None
        if self.features is not None:
            check_shape((self.n_rows, self.features), self._where)

    def as_stored(self) -> Self:
        stored = copy.copy(self)
        stored._stored, stored.columns = True, self._others
        return stored

    def _require_floats(self, types: dict[str, Any]) -> None:
        floats = [column for column in self._chosen if str(types[column]) in _FLOATS]
        example = f" as in {quoted(floats[0])}" if floats else ""
        for column in self._chosen:
            if column not in floats:
                raise SourceError(
                    f"got column {quoted(column)} of {self.name} with the type "
                    f"{quoted(str(types[column]))}, expected floating-point numbers{example}; "
                    "convert it, or rename it if it is none of the embeddings"
                )

    def _chunks(self, rows: int, columns: tuple[str, ...]) -> Iterator[Chunk]:
        return merged(self._batches(rows, columns), rows)

    def _batches(self, rows: int, columns: tuple[str, ...]) -> Iterator[Chunk]:
        start = 0
        size = max(1, min(rows, _BATCH_VALUES // (self.features or 1)))
        with self._open() as file:
            for batch in file.iter_batches(batch_size=size, columns=[*self._chosen, *columns]):
                values = {column: self._column(batch, column, start) for column in columns}
                yield Chunk(to_tensor(self._matrix(batch, start)), start, values)
                start += len(batch)
        if start != self.n_rows:
            raise self._short(start)

    def _matrix(self, batch: Any, start: int) -> NDArray[Any]:
        """The rows of a record batch, of which the first has number `start`."""
        if not self._is_list:
            block = np.empty((len(batch), len(self._chosen)), dtype=self._numpy_dtype)
            for j, column in enumerate(self._chosen):
                array = batch.column(column)
                self._require_no_null(array, f"column {quoted(column)}", start)
                block[:, j] = array.to_numpy()
            return block
        lists = _plain(batch.column(self._chosen[0]))
        self._require_no_null(lists, f"column {quoted(self._chosen[0])}", start)
        lengths = lists.value_lengths().to_numpy()
        d = lengths[0] if self.features is None else self.features
        if (lengths != d).any():
            row = int((lengths != d).argmax())
            raise ragged(f"row {start + row} of {self._where}", int(lengths[row]), int(d))
        values = lists.flatten()
        self._require_no_null(values, "the lists", start, each=int(d))
        numbers: NDArray[Any] = values.to_numpy()
        return numbers.reshape(len(batch), d)

    def _column(self, batch: Any, column: str, start: int) -> NDArray[Any]:
        if self._stored:
            stored: NDArray[Any] = batch.column(column)
            return stored
        array = _plain(batch.column(column))
        self._require_no_null(array, f"column {quoted(column)}", start)
        return as_text(array.to_numpy(zero_copy_only=False))

    def _require_no_null(self, array: Any, what: str, start: int, each: int = 1) -> None:
        if array.null_count:
            row = start + int(array.is_null().to_numpy(zero_copy_only=False).argmax()) // each
            raise SourceError(
                f"got no value (null) for {what} in row {row} of {self.name}, "
                "expected a value in every row; drop or repair these rows"
            )

    def _width(self, file: Any, first: Any) -> int:
        if not self._is_list:
            return len(self._chosen)
        if hasattr(first, "list_size"):
            return int(first.list_size)
        self.features = None
        batch = next(file.iter_batches(batch_size=1, columns=[self._chosen[0]]), None)
        if batch is None:
            raise self._short(0)
        return int(self._matrix(batch, 0).shape[1])

    def _short(self, found: int) -> SourceError:
        return SourceError(
            f"got {self.name} with {found} rows, expected {self.n_rows} as its footer says; "
            "it is corrupt: write it again"
        )

    @contextmanager
    def _open(self) -> Iterator[Any]:
        # Opened by Python, whose errors say whether the file or its content is at fault.
        with reading(self.name):
            stream = self._path.open("rb")
        with stream, parquet_file(stream, self.name) as file:
            yield file


@contextmanager
def parquet_file(stream: IO[bytes], name: str) -> Iterator[Any]:
    """An open Parquet file; whatever Arrow finds wrong with it becomes a SourceError."""
    import pyarrow as pa  # here: it takes a while to load
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(
            stream,
            buffer_size=_BUFFER_BYTES,
            pre_buffer=False,  # newer versions of Arrow would read a whole row group ahead
            page_checksum_verification=True,
        ) as file:
            yield file
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise corrupt(name, "Parquet", error) from error


def open_parquet(path: Path, name: str, key: str | None) -> ParquetTable:
    """The embeddings of a Parquet file as a table."""
    return ParquetTable(path, name, key)


def _storage(type_: Any) -> Any:
    """The type in which an extension type, such as a tensor of fixed shape, is stored."""
    return getattr(type_, "storage_type", type_)


def _plain(array: Any) -> Any:
    """An array without its extension type or dictionary; views of lists as lists."""
    import pyarrow as pa

    if isinstance(array, pa.ExtensionArray):
        array = array.storage
    if _is_view(array.type):
        return array.cast(pa.large_list(array.type.value_type))
    return array.dictionary_decode() if isinstance(array, pa.DictionaryArray) else array


def _is_list(type_: Any) -> bool:
    import pyarrow as pa

    return bool(
        pa.types.is_list(type_)
        or pa.types.is_large_list(type_)
        or pa.types.is_fixed_size_list(type_)
        or _is_view(type_)
    )


def _is_view(type_: Any) -> bool:
    import pyarrow as pa

    return bool(pa.types.is_list_view(type_) or pa.types.is_large_list_view(type_))


def _is_single(type_: Any) -> bool:
    import pyarrow as pa

    return not (pa.types.is_nested(type_) or pa.types.is_null(type_))


def _kinds(types: dict[str, Any]) -> dict[str, Kind]:
    """What each column can be; lists of integers only count where nothing else does.

    Their error then says that they are of the wrong dtype.
    """
    kinds = {column: _kind(type_, set(_FLOATS)) for column, type_ in types.items()}
    if all(kind == "other" for kind in kinds.values()):
        return {column: _kind(type_, _INTEGERS) for column, type_ in types.items()}
    return kinds


def _kind(type_: Any, numbers: set[str]) -> Kind:
    if _is_list(type_):
        return "list" if str(type_.value_type) in numbers else "other"
    return "number" if str(type_) in _FLOATS else "other"

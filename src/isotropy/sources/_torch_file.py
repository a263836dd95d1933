"""`.pt` and `.pth` files: tensors only, loaded by torch with `weights_only`, so nothing is run."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy.errors import SourceError
from isotropy.inputs import COMPUTE_DTYPE, check_shape, check_tensor
from isotropy.sources._choose import Entry, choose_array, no_key
from isotropy.sources._messages import corrupt, quoted, reading
from isotropy.sources._source import Chunk
from isotropy.sources._table import Table

# A map is renewed after this many bytes: pages of a map count as memory once they are touched.
_MAPPED_BYTES = 1 << 26
# How torch has begun its files since it has written zip archives; older ones cannot be mapped.
_ZIP = b"PK\x03\x04"

_COLUMNS = {
    torch.bool,
    torch.uint8,
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    *COMPUTE_DTYPE,
}


class TorchTable(Table):
    """The rows of one tensor of a file, copied chunk by chunk out of a map of it.

    Other one-dimensional tensors of its length are columns, and lists of as many values.
    """

    def __init__(self, path: Path, name: str, key: str | None) -> None:
        self.name = name
        self._path = path
        content = self._load()
        if isinstance(content, Tensor):
            no_key(key, name)
            self._array = None
            where = name
        else:
            self._array = choose_array(_entries(content, name), key, name)
            where = f"{name} (tensor {quoted(self._array)})"
        rows = self._rows(content)
        self.dtype = check_tensor(rows, where)
        check_shape(tuple(rows.shape), where)
        self.n_rows, self.features = rows.shape
        self.columns = (
            ()
            if isinstance(content, Tensor)
            else tuple(c for c in content if type(c) is str and _is_column(content[c], len(rows)))
        )
        # An old file is read whole each time it is loaded, so it is loaded once.
        self._content = None if _is_zip(path) else content

    def _chunks(self, rows: int, columns: tuple[str, ...]) -> Iterator[Chunk]:
        n = self.n_rows or 0
        content = self._content
        mapped = 0
        for start in range(0, n, rows):
            if content is None or (self._content is None and mapped > _MAPPED_BYTES):
                content = None  # the old map goes before the new one comes
                content = self._load()
                mapped = 0
            part = self._rows(content)[start : start + rows].clone(
                memory_format=torch.contiguous_format
            )
            mapped += part.nbytes
            yield Chunk(
                part, start, {c: _values(content[c][start : start + rows]) for c in columns}
            )

    def _rows(self, content: Any) -> Tensor:
        rows: Tensor = content if self._array is None else content[self._array]
        return rows.detach()

    def _load(self) -> Any:
        with reading(self.name):
            is_zip = _is_zip(self._path)
            try:
                with warnings.catch_warnings():  # on the file's age, which its reader cannot change
                    warnings.simplefilter("ignore")
                    content = torch.load(
                        self._path, map_location="cpu", weights_only=True, mmap=is_zip
                    )
            except OSError:
                raise
            except Exception as error:  # a damaged pickle can raise anything at all
                raise _unloadable(self.name, error) from error
        if not isinstance(content, Tensor | Mapping):
            raise SourceError(
                f"got {self.name} that holds a value of type {type(content).__name__}, expected a "
                "tensor or a dict of tensors; save one of these with torch.save"
            )
        return content


def open_torch(path: Path, name: str, key: str | None) -> TorchTable:
    """The embeddings of a file of `torch.save` as a table."""
    return TorchTable(path, name, key)


def _is_zip(path: Path) -> bool:
    with path.open("rb") as file:
        return file.read(len(_ZIP)) == _ZIP


def _unloadable(name: str, error: Exception) -> SourceError:
    text = str(error)
    if "Unsupported global" in text or "Unsupported class" in text or "Unsupported operand" in text:
        return SourceError(
            f"got {name} with Python objects other than tensors, expected a tensor or a dict of "
            "tensors; other objects are refused, as loading them can run code: save tensors only"
        )
    return corrupt(name, "a file of torch.save", error)


def _entries(content: Mapping[Any, Any], name: str) -> dict[str, Entry]:
    return {
        key: Entry(tuple(value.shape), value.dtype in COMPUTE_DTYPE)
        for key, value in content.items()
        if isinstance(key, str) and isinstance(value, Tensor)
    }


def _is_column(value: Any, n: int) -> bool:
    if isinstance(value, Tensor):
        return value.dtype in _COLUMNS and value.layout == torch.strided and value.shape == (n,)
    return (
        isinstance(value, list | tuple)
        and len(value) == n
        and any(all(isinstance(v, kinds) for v in value) for kinds in (str, bool | int | float))
    )


def _values(part: Tensor | Sequence[Any]) -> NDArray[Any]:
    if isinstance(part, Tensor):
        part = part.detach()
        return (part.float() if part.dtype == torch.bfloat16 else part.clone()).numpy()
    return np.array(part, dtype=object if any(isinstance(item, str) for item in part) else None)

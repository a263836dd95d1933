"""`.safetensors` files: their header checked by the library, their bytes read by us."""

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch

from isotropy.inputs import check_shape, wrong_dtype
from isotropy.sources._choose import Entry, choose_array
from isotropy.sources._messages import corrupt, quoted, reading
from isotropy.sources._raw import Block, Column, RawTable

_FLOATS = {
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
}
# The dtypes of a column, all little-endian; the few bytes of an 8-bit float are no column.
_COLUMNS = {
    "BOOL": "?",
    "U8": "u1",
    "I8": "i1",
    "U16": "<u2",
    "I16": "<i2",
    "U32": "<u4",
    "I32": "<i4",
    "U64": "<u8",
    "I64": "<i8",
    "F16": "<f2",
    "F32": "<f4",
    "F64": "<f8",
}


def open_safetensors(path: Path, name: str, key: str | None) -> RawTable:
    """The embeddings of a `.safetensors` file as a table.

    Other one-dimensional tensors of the same length are its columns.
    """
    with reading(name):
        data_start, header = _read_header(path, name)
    shapes = {tensor: tuple(info["shape"]) for tensor, info in header.items()}
    entries = {
        tensor: Entry(shapes[tensor], info["dtype"] in _FLOATS) for tensor, info in header.items()
    }
    chosen = choose_array(entries, key, name)
    info = header[chosen]
    where = name if len(header) == 1 else f"{name} (tensor {quoted(chosen)})"
    if info["dtype"] not in _FLOATS:
        raise wrong_dtype(info["dtype"], where)
    check_shape(shapes[chosen], where)
    n, d = shapes[chosen]
    columns = {
        tensor: Column(data_start + other["data_offsets"][0], np.dtype(_COLUMNS[other["dtype"]]))
        for tensor, other in header.items()
        if shapes[tensor] == (n,) and other["dtype"] in _COLUMNS
    }
    block = Block(
        offset=data_start + info["data_offsets"][0],
        shape=(n, d),
        dtype=_FLOATS[info["dtype"]],
        swapped=sys.byteorder != "little",
    )
    return RawTable(path, name, block, columns)


def _read_header(path: Path, name: str) -> tuple[int, dict[str, Any]]:
    """Where the values start, and what each tensor's entry says."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, framework="np"):  # checks the whole header against the file's size
            pass
    except SafetensorError as error:
        raise corrupt(name, "safetensors", error) from error
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        header = json.loads(file.read(length))
    header.pop("__metadata__", None)
    # The file orders tensors by size; an order by name reads better in messages.
    return 8 + length, dict(sorted(header.items()))

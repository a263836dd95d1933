"""`.npy` files: read by numpy's own header reader, never with pickle."""

import tokenize
import warnings
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np

from isotropy.inputs import check_shape, float_dtype
from isotropy.sources._choose import no_key
from isotropy.sources._messages import corrupt, reading
from isotropy.sources._raw import Block, RawTable, check_size, n_bytes


class Header(NamedTuple):
    """What a `.npy` file says of its array."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]


# All that a damaged header has been seen to raise in numpy's readers, which parse it as Python
# literals (and evaluate nothing).
_BROKEN = (
    ValueError,
    SyntaxError,
    TypeError,
    KeyError,
    OverflowError,
    RecursionError,
    MemoryError,
    tokenize.TokenError,
)


def read_header(stream: IO[bytes], name: str) -> Header:
    """The header at the start of a stream, which is left at the first value.

    Raises:
        SourceError: there is none, or it is damaged.
    """
    try:
        with warnings.catch_warnings():  # of headers written by Python 2, which are fine
            warnings.simplefilter("ignore")
            version = np.lib.format.read_magic(stream)
            if version == (1, 0):
                header = Header(*np.lib.format.read_array_header_1_0(stream))
            elif version == (2, 0):
                header = Header(*np.lib.format.read_array_header_2_0(stream))
            else:  # 3.0 differs in the names of records, and records are no embeddings
                raise ValueError(f"version {version[0]}.{version[1]}, not 1.0 or 2.0")
        if any(length < 0 for length in header.shape):
            raise ValueError(f"shape {header.shape}")
    except _BROKEN as error:
        raise corrupt(name, "a .npy file", error) from error
    return header


def open_npy(path: Path, name: str, key: str | None) -> RawTable:
    """The array of a `.npy` file as a table."""
    no_key(key, name)
    with reading(name), path.open("rb") as file:
        header = read_header(file, name)
        dtype = float_dtype(header.dtype, name)
        check_shape(header.shape, name)
        check_size(path, name, file.tell() + n_bytes(header.shape, header.dtype.itemsize))
        rows, features = header.shape
        block = Block(
            offset=file.tell(),
            shape=(rows, features),
            dtype=dtype,
            swapped=not header.dtype.isnative,
            fortran=header.fortran,
        )
    return RawTable(path, name, block)

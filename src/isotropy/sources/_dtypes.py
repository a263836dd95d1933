"""Which arrays can be embeddings, and numpy arrays as tensors in their own dtype."""

import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy.errors import InputError

TORCH_DTYPES = {
    np.dtype(np.float16): torch.float16,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
}
"""The dtypes of numpy that can be embeddings."""

ACCEPTED = "float16, bfloat16, float32 or float64"

# Columns hold what a row can be grouped by: truth values, numbers, text and dates.
_COLUMN_KINDS = "biufUSmM"


def float_dtype(dtype: np.dtype[Any], name: str) -> torch.dtype:
    """The torch dtype of a numpy dtype in any byte order.

    Raises:
        InputError: it is not a floating-point dtype that torch has.
    """
    found = TORCH_DTYPES.get(dtype.newbyteorder("="))
    if found is not None:
        return found
    if dtype.hasobject:
        raise InputError(
            f"got {name} with dtype object, expected {ACCEPTED}; Python objects are refused, as "
            "loading them can run code: make one array of numbers, such as numpy.stack(rows)"
        )
    raise wrong_dtype(dtype.name if dtype.names is None else "of records", name)


def wrong_dtype(dtype: str, name: str) -> InputError:
    """The error for values that are no floating-point numbers."""
    return InputError(
        f"got {name} with dtype {dtype}, expected {ACCEPTED}; convert it, for instance "
        "with x.astype('float32')"
    )


def is_column(dtype: np.dtype[Any]) -> bool:
    """Whether a 1-D array of this dtype can be a column."""
    return dtype.kind in _COLUMN_KINDS


def check_shape(shape: tuple[int, ...], name: str) -> None:
    """Raise an InputError unless the shape is (rows, at least 2 features)."""
    if len(shape) != 2:
        raise InputError(f"got {name} with shape {shape}, expected two dimensions (rows, features)")
    if shape[1] < 2:
        raise InputError(f"got {name} with shape {shape}, expected at least 2 features (columns)")


def to_tensor(array: NDArray[Any]) -> Tensor:
    """A floating-point array as a tensor of the same dtype, sharing memory where torch can."""
    # torch knows neither byte order nor negative strides.
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    if any(stride < 0 for stride in native.strides):
        native = native.copy()
    with warnings.catch_warnings():  # of read-only arrays: nobody writes into a chunk
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(native)

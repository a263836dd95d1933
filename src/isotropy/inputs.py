"""The only checks of shape, dtype and finiteness: everything that enters becomes a *cloud*.

A cloud is an n×d floating-point tensor, rows are embeddings. Half precision is upcast to float32
here, so that no product is ever taken in half precision.
"""

import math
import warnings
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy.errors import InputError, UndefinedError

ArrayLike: TypeAlias = Tensor | NDArray[Any]
"""What a measure accepts: a tensor or a numpy array of floating-point numbers, n×d."""

COMPUTE_DTYPE = {
    torch.float16: torch.float32,
    torch.bfloat16: torch.float32,
    torch.float32: torch.float32,
    torch.float64: torch.float64,
}
"""The dtype in which a cloud of each accepted dtype is worked on."""

NUMPY_DTYPES = {
    np.dtype(np.float16): torch.float16,
    np.dtype(np.float32): torch.float32,
    np.dtype(np.float64): torch.float64,
}
"""The dtypes of numpy that can be embeddings, as torch's."""

ACCEPTED = "float16, bfloat16, float32 or float64"


def as_tensor(x: ArrayLike, *, name: str = "x") -> Tensor:
    """`x` as a 2-D tensor in its compute dtype, without looking at its values.

    Raises:
        InputError: not an array, not two-dimensional, not floating point, or fewer than 2 columns.
    """
    if isinstance(x, Tensor):
        check_tensor(x, name)
    elif isinstance(x, np.ndarray):
        check_array(x, name)
        x = to_tensor(x)
    else:
        raise InputError(
            f"got {name} of type {type(x).__name__}, expected a torch tensor or a numpy array; "
            "files and folders are read by isotropy.measure"
        )
    check_shape(tuple(x.shape), name)
    return x.to(COMPUTE_DTYPE[x.dtype])


def check_tensor(tensor: Tensor, name: str) -> torch.dtype:
    """The dtype of a dense floating-point tensor that has values.

    Raises:
        InputError: it is sparse, nested, quantized, without data or not floating point.
    """
    if tensor.layout != torch.strided or tensor.is_nested:
        layout = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        raise InputError(
            f"got {name} with layout {layout}, expected a dense tensor; "
            "convert it, for instance with x.to_dense()"
        )
    if tensor.is_meta:
        raise InputError(f"got {name} on the meta device, expected a tensor that holds values")
    if tensor.dtype not in COMPUTE_DTYPE:
        how = "x.dequantize()" if tensor.is_quantized else "x.float()"
        raise InputError(
            f"got {name} with dtype {str(tensor.dtype).removeprefix('torch.')}, "
            f"expected {ACCEPTED}; convert it, for instance with {how}"
        )
    return tensor.dtype


def check_array(array: NDArray[Any], name: str) -> torch.dtype:
    """The torch dtype of a floating-point array without a mask.

    Raises:
        InputError: it has a mask, or is not floating point.
    """
    if np.ma.isMaskedArray(array):
        raise InputError(
            f"got {name} with a mask, expected an array without one; "
            "drop the masked rows, for instance with numpy.ma.compress_rows"
        )
    return float_dtype(array.dtype, name)


def float_dtype(dtype: np.dtype[Any], name: str) -> torch.dtype:
    """The torch dtype of a numpy dtype in any byte order.

    Raises:
        InputError: it is not a floating-point dtype that torch has.
    """
    found = NUMPY_DTYPES.get(dtype.newbyteorder("="))
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


def check_shape(shape: tuple[int, ...], name: str) -> None:
    """Raise an InputError unless the shape is (rows, at least 2 features)."""
    if len(shape) != 2:
        raise InputError(f"got {name} with shape {shape}, expected two dimensions (rows, features)")
    if shape[1] < 2:
        raise InputError(f"got {name} with shape {shape}, expected at least 2 features (columns)")


def to_tensor(array: NDArray[Any]) -> Tensor:
    """A floating-point array as a tensor of the same dtype, sharing memory where torch can."""
    # torch knows neither byte order, nor strides that are negative or no whole number of values.
    native = array.astype(array.dtype.newbyteorder("="), copy=False)
    if any(stride < 0 or stride % native.itemsize for stride in native.strides):
        native = native.copy()
    with warnings.catch_warnings():  # of read-only arrays: nothing here writes into its input
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(native)


class Checked(NamedTuple):
    """A cloud that can be measured, and what checking it brought to light."""

    cloud: Tensor
    bounds: tuple[Tensor, Tensor]
    """Each column's smallest and largest value."""


def as_cloud(x: ArrayLike, *, min_rows: int = 2, name: str = "x") -> Tensor:
    """`x` as a cloud that can be measured: right shape, enough rows, finite, not all rows equal.

    Args:
        x: n×d array of floating-point numbers; a tensor keeps its device and its gradient.
        min_rows: the fewest rows with which the caller's score exists.
        name: how the argument is called in messages.

    Raises:
        InputError: wrong type, shape, dtype, too few rows, NaN or infinity.
        UndefinedError: all rows are equal.

    Example:
        >>> as_cloud(np.eye(3, dtype=np.float16)).dtype
        torch.float32
    """
    return checked(x, min_rows=min_rows, name=name).cloud


def checked(x: ArrayLike, *, min_rows: int = 2, name: str = "x") -> Checked:
    """`as_cloud` with the bounds that it found."""
    cloud = as_tensor(x, name=name)
    require_rows(cloud.shape[0], min_rows, name=name)
    bounds = finite_range(cloud, name=name)
    if torch.equal(*bounds):
        raise equal_rows_error(cloud.shape[0], name=name)
    return Checked(cloud, bounds)


def as_symmetric(x: ArrayLike, *, name: str = "x") -> Tensor:
    """`x` as a d×d symmetric matrix of finite numbers that is not zero, such as a covariance.

    Raises:
        InputError: wrong type, shape, dtype, NaN or infinity, not symmetric, or all zeros.
    """
    matrix = as_tensor(x, name=name)
    if matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"got {name} with shape {tuple(matrix.shape)}, expected a square matrix")
    low, high = finite_range(matrix, name=name)
    largest = torch.maximum(low.abs(), high.abs()).max()
    if largest == 0:
        raise InputError(f"got {name} with zeros only, expected a matrix that is not zero")
    if _asymmetry(matrix) > 1e-4 * largest:
        raise InputError(
            f"got {name} that is not symmetric, expected a covariance matrix; "
            f"pass ({name} + {name}.T) / 2 if it should be one"
        )
    return matrix


def _asymmetry(matrix: Tensor) -> Tensor:
    """By how much S and Sᵀ differ in the row where they differ most, in the root mean square.

    A vector in no special direction tells them apart, in two passes along the rows; comparing the
    entries would take five times as long.
    """
    d = len(matrix)
    v = torch.randn(d, generator=torch.Generator().manual_seed(0)).to(matrix) / d
    with full_precision(matrix):
        off: Tensor = (matrix @ v - matrix.T @ v).abs().max()
    return off * math.sqrt(d)


def require_rows(n: int, min_rows: int, *, name: str = "x") -> None:
    """Raise an InputError unless `n` rows are enough."""
    if n < min_rows:
        rows = "an empty cloud (0 rows)" if n == 0 else f"{name} with {n} row{'s' * (n > 1)}"
        raise InputError(f"got {rows}, expected at least {min_rows} rows")


def finite_range(
    cloud: Tensor, *, name: str = "x", numbers: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """The smallest and the largest value of every column, which are finite.

    Raises:
        InputError: NaN or infinite values: how many, and the first row (by `numbers` if given).
    """
    cloud = cloud.detach()
    low, high = cloud.amin(dim=0), cloud.amax(dim=0)  # both pass NaN on
    if not bool((torch.isfinite(low) & torch.isfinite(high)).all()):
        finite = torch.isfinite(cloud)
        bad = int((~finite).sum())
        rows = (~finite).any(dim=1).nonzero()[:, 0].cpu()
        first = int((rows if numbers is None else numbers[rows]).min())
        read = "" if numbers is None else f" up to row {int(numbers.max())}"  # there may be more
        raise InputError(
            f"got {name} with {bad} NaN or infinite value{'s' * (bad > 1)}{read}, the first in row "
            f"{first}, expected finite numbers; drop or repair these rows"
        )
    return low, high


def equal_rows_error(rows: int, *, name: str = "x") -> UndefinedError:
    """The error for a cloud that is one point."""
    return UndefinedError(
        f"got {name} with {rows} equal rows, expected rows that differ: "
        "the score of a single point is undefined"
    )


def full_precision(x: Tensor) -> AbstractContextManager[Any]:
    """Within it, products on the device of `x` are taken in its dtype, under autocast too."""
    return torch.autocast(x.device.type, enabled=False)


def like(x: ArrayLike, value: Tensor) -> Any:
    """A result in the caller's terms: a tensor for a tensor, a Python float or array for numpy."""
    if isinstance(x, Tensor):
        return value
    value = value.detach()
    return value.item() if value.ndim == 0 else value.numpy()

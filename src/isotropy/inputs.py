"""The only checks of shape, dtype and finiteness: everything that enters becomes a *cloud*.

A cloud is an n×d floating-point tensor, rows are embeddings. Half precision is upcast to float32
here, so that no product is ever taken in half precision.
"""

import warnings
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

_ACCEPTED = "float16, bfloat16, float32 or float64"


def as_tensor(x: ArrayLike, *, name: str = "x") -> Tensor:
    """`x` as a 2-D tensor in its compute dtype, without looking at its values.

    Raises:
        InputError: not an array, not two-dimensional, not floating point, or fewer than 2 columns.
    """
    if isinstance(x, Tensor):
        tensor = x
    elif isinstance(x, np.ndarray):
        if x.dtype not in (np.float16, np.float32, np.float64):
            raise InputError(
                f"got {name} with dtype {x.dtype}, expected {_ACCEPTED}; "
                f"convert it, for instance with {name}.astype('float32')"
            )
        # torch shares memory with numpy, but knows neither byte order nor negative strides.
        native = x.astype(x.dtype.newbyteorder("="), copy=False)
        if any(stride < 0 for stride in native.strides):
            native = native.copy()
        with warnings.catch_warnings():  # of read-only arrays: nothing here writes into its input
            warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
            tensor = torch.from_numpy(native)
    else:
        raise InputError(
            f"got {name} of type {type(x).__name__}, expected a torch tensor or a numpy array; "
            "files and folders are read by isotropy.measure"
        )
    if tensor.dtype not in COMPUTE_DTYPE:
        raise InputError(
            f"got {name} with dtype {str(tensor.dtype).removeprefix('torch.')}, "
            f"expected {_ACCEPTED}; convert it, for instance with {name}.float()"
        )
    if tensor.layout != torch.strided:
        raise InputError(
            f"got {name} with layout {tensor.layout}, expected a dense tensor; "
            f"convert it with {name}.to_dense()"
        )
    if tensor.ndim != 2:
        raise InputError(
            f"got {name} with shape {tuple(tensor.shape)}, expected two dimensions (rows, features)"
        )
    if tensor.shape[1] < 2:
        raise InputError(
            f"got {name} with shape {tuple(tensor.shape)}, expected at least 2 features (columns)"
        )
    return tensor.to(COMPUTE_DTYPE[tensor.dtype])


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
    if not torch.allclose(matrix / largest, matrix.T / largest, rtol=0, atol=1e-4):
        raise InputError(
            f"got {name} that is not symmetric, expected a covariance matrix; "
            f"pass ({name} + {name}.T) / 2 if it should be one"
        )
    return matrix


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
        raise InputError(
            f"got {name} with {bad} NaN or infinite value{'s' * (bad > 1)}, the first in row "
            f"{first}, expected finite numbers; drop or repair these rows"
        )
    return low, high


def equal_rows_error(rows: int, *, name: str = "x") -> UndefinedError:
    """The error for a cloud that is one point."""
    return UndefinedError(
        f"got {name} with {rows} equal rows, expected rows that differ: "
        "the score of a single point is undefined"
    )


def like(x: ArrayLike, value: Tensor) -> Any:
    """A result in the caller's terms: a tensor for a tensor, a Python float or array for numpy."""
    if isinstance(x, Tensor):
        return value
    value = value.detach()
    return value.item() if value.ndim == 0 else value.numpy()

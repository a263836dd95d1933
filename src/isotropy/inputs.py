"""The only checks of shape, dtype and finiteness: everything that enters becomes a *cloud*.

A cloud is an n×d floating-point tensor, rows are embeddings. Half precision is upcast to float32
here, so that no product is ever taken in half precision.
"""

import warnings
from typing import Any, TypeAlias

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
    cloud = as_tensor(x, name=name)
    require_rows(cloud.shape[0], min_rows, name=name)
    require_finite(cloud, name=name)
    if rows_are_equal(cloud.detach()):
        raise UndefinedError(
            f"got {name} with {cloud.shape[0]} equal rows, expected rows that differ: "
            "the score of a single point is undefined"
        )
    return cloud


def require_rows(n: int, min_rows: int, *, name: str = "x") -> None:
    """Raise an InputError unless `n` rows are enough."""
    if n < min_rows:
        rows = "an empty cloud (0 rows)" if n == 0 else f"{name} with {n} row{'s' * (n > 1)}"
        raise InputError(f"got {rows}, expected at least {min_rows} rows")


def require_finite(cloud: Tensor, *, name: str = "x", first_row: int = 0) -> None:
    """Raise an InputError that counts NaN and infinite values and names their first row."""
    # A sum is one fast pass and non-finite if any value is. It can also overflow, so the slow
    # count decides.
    if bool(torch.isfinite(cloud.detach().sum())):
        return
    finite = torch.isfinite(cloud.detach())
    bad = int((~finite).sum())
    if bad:
        row = int((~finite).any(dim=1).nonzero()[0, 0])
        raise InputError(
            f"got {name} with {bad} NaN or infinite value{'s' * (bad > 1)}, the first in row "
            f"{first_row + row}, expected finite numbers; drop or repair these rows"
        )


def rows_are_equal(cloud: Tensor) -> bool:
    """Whether all rows are the same point."""
    # Comparing two rows settles nearly every cloud without a pass over it.
    return torch.equal(cloud[0], cloud[-1]) and bool((cloud == cloud[0]).all())


def like(x: ArrayLike, value: Tensor) -> Any:
    """A result in the caller's terms: a tensor for a tensor, a Python float or array for numpy."""
    if isinstance(x, Tensor):
        return value
    return value.item() if value.ndim == 0 else value.numpy()

"""The directions of rows: x/‖x‖, at any scale."""

import torch
from torch import Tensor

from isotropy.errors import UndefinedError


def unit_rows(x: Tensor) -> Tensor:
    """The n×d rows of unit length, differentiable in `x`.

    Raises:
        UndefinedError: a row is zero.

    Example:
        >>> unit_rows(torch.tensor([[3.0, 4.0]])).tolist()
        [[0.6000000238418579, 0.800000011920929]]
    """
    largest = torch.linalg.vector_norm(x.detach(), torch.inf, dim=1, keepdim=True)
    zero = (largest == 0).nonzero()[:, 0]
    if len(zero):
        raise zero_rows_error(len(zero), int(zero[0]))
    x = x / largest  # squares of the rows as they are could over- or underflow
    norms: Tensor = torch.linalg.vector_norm(x, dim=1, keepdim=True)
    return x / norms


def zero_rows_error(count: int, first: int) -> UndefinedError:
    """The error for rows that have no direction."""
    return UndefinedError(
        f"got {count} row{'s' * (count > 1)} of zeros, the first is row {first}, expected rows "
        "with a direction: a cosine with a row of zeros is undefined; drop these rows"
    )

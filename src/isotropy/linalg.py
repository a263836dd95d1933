"""The one product that everything rests on, XᵀX, as fast as the device does it."""

from functools import cache

import torch
from threadpoolctl import ThreadpoolController
from torch import Tensor


@cache
def _blas() -> ThreadpoolController:
    return ThreadpoolController().select(user_api="blas")


def gram(rows: Tensor, out: Tensor | None = None) -> Tensor:
    """`rowsᵀ · rows` of a k×d matrix, d×d.

    On a CPU numpy's product is used: it sees that both factors are the same matrix and computes
    one triangle only (a rank-k update), which torch does not. It gets as many threads as torch has.

    Example:
        >>> gram(torch.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
        [[10.0, 14.0], [14.0, 20.0]]
    """
    if rows.device.type != "cpu":
        return torch.mm(rows.T, rows, out=out)
    array = rows.numpy()
    with _blas().limit(limits=torch.get_num_threads()):
        product = torch.from_numpy(array.T @ array)
    return product if out is None else out.copy_(product)

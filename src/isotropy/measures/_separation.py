r"""Whether the eigenvalues of a sample can be told apart, without which they have no interval.

Where two eigenvalues of a distribution are equal, those of a sample are not: the larger is always
too large, by an amount that no resampling of rows can see. With n rows, the directions of λ_i and
λ_j turn into each other by about λ_iλ_j/(n(λ_i − λ_j)²), as a squared sine (Anderson 1963); where
that is small, eigenvalues are smooth functions of the rows.
"""

import torch
from torch import Tensor

# With equal eigenvalues a sample's turn by more than this in nearly all samples.
_MOST_TURN = 0.1


def single(values: Tensor, n: int, k: int) -> list[bool]:
    """Which of the first k eigenvalues stand apart from all others.

    Args:
        values: eigenvalues in decreasing order, in any unit.
        n: of how many rows.
        k: how many to look at; there may be fewer.

    Example:
        >>> single(torch.tensor([9.0, 1.01, 1.0]), n=500, k=2)
        [True, False]
    """
    turn = _turns(values, n)
    return (turn.sum(dim=1)[:k] < _MOST_TURN).tolist() + [True] * max(0, k - len(values))


def leading(values: Tensor, n: int, k: int) -> list[bool]:
    """For i = 1…k, whether the first i eigenvalues together stand apart from the rest.

    Example:
        >>> leading(torch.tensor([9.0, 8.99, 1.0]), n=500, k=3)
        [False, True, True]
    """
    turn = _turns(values, n)
    k = min(k, len(values))
    apart = [float(turn[:i, i:].sum()) < _MOST_TURN for i in range(1, k + 1)]
    return apart + [True] * max(0, k - len(apart))


def _turns(values: Tensor, n: int) -> Tensor:
    """λ_iλ_j/(n(λ_i − λ_j)²) of all pairs, 0 of an eigenvalue with itself and of two zeros."""
    products = values[:, None] * values
    turn = products / (n * (values[:, None] - values).square())
    return torch.where(products > 0, turn, 0).fill_diagonal_(0)

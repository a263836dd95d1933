"""Uniformity on the unit sphere, over all pairs of rows."""

from collections.abc import Iterator
from math import log
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isotropy.directions import unit_rows
from isotropy.inputs import ArrayLike, as_cloud, like
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.neighbours import block_values
from isotropy.settings import number


def uniformity(x: ArrayLike, *, t: float = 2.0) -> Any:
    r"""Uniformity: the logarithm of the mean Gaussian potential of all pairs of directions.

    $$\log \frac{2}{n(n-1)} \sum_{i<j} \exp(-t \|\hat x_i - \hat x_j\|^2), \qquad
    \hat x = x / \|x\|$$

    It is 0 where all directions are equal and falls as they spread; −4t, for two opposite rows, is
    the lowest. Many rows spread evenly over the sphere of many features give about −2t.
    Computed over all pairs, block by block: memory is O(nd), in the backward pass too.

    Args:
        x: n×d cloud, n ≥ 2, without rows of zeros. A gradient flows, once.
        t: how fast the potential falls with the distance, above 0.

    Returns:
        The uniformity: a 0-d tensor for a tensor, a float for an array.

    References:
        Wang & Isola 2020, "Understanding contrastive representation learning through alignment
        and uniformity on the hypersphere".

    Example:
        Two directions at a right angle are √2 apart:

        >>> import numpy as np
        >>> uniformity(np.array([[1.0, 0.0], [0.0, 5.0]]))
        -4.0
    """
    number("t", t, low=0, open=True)
    cloud = as_cloud(x)
    points = unit_rows(cloud.double())
    # Distances do not change about the mean, and keep their digits in a narrow cone.
    points = (points - points.detach().mean(dim=0)).to(cloud.dtype)
    value: Tensor = _LogMeanPotential.apply(points, t)  # type: ignore[no-untyped-call]
    return like(x, value.clamp(-4 * t, 0).to(cloud.dtype))


class _LogMeanPotential(torch.autograd.Function):
    """log mean_{i<j} exp(−t‖a_i − a_j‖²) in float64; the backward computes its blocks anew."""

    @staticmethod
    def forward(ctx: Any, points: Tensor, t: float) -> Tensor:
        n = len(points)
        pairs = n * (n - 1) / 2
        # In a narrow cone all potentials are nearly 1, and their differences from 1 are summed.
        narrow = bool(4 * t * points.square().sum(dim=1).max() < 1)
        total = torch.full((), 0 if narrow else -torch.inf, dtype=torch.float64).to(points.device)
        for _, exponents in _blocks(points, t):
            if narrow:
                b = len(exponents)
                # Pairs that do not count have −∞, which gives −1.
                total += exponents.expm1_().sum(dtype=torch.float64) + b * (b + 1) / 2
            else:
                largest = exponents.max()
                block = exponents.sub_(largest).exp_().sum(dtype=torch.float64)
                total = torch.logaddexp(total, block.log() + largest)
        value = torch.log1p(total / pairs) if narrow else total - log(pairs)
        ctx.save_for_backward(points, value + log(pairs))
        ctx.t = t
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_output: Tensor) -> tuple[Tensor, None]:
        # With weights w_ij = exp(−t‖a_i − a_j‖²)/Σ, the gradient is −2t Σ_j w_ij (a_i − a_j).
        points, log_sum = ctx.saved_tensors
        grad = torch.zeros_like(points)
        weight = torch.zeros_like(points[:, :1])
        with torch.autocast(points.device.type, enabled=False):
            for start, exponents in _blocks(points, ctx.t):
                w = exponents.sub_(log_sum.to(exponents.dtype)).exp_()
                stop = start + len(w)
                weight[start:stop] += w.sum(dim=1, keepdim=True)
                weight[start:] += w.sum(dim=0)[:, None]
                grad[start:stop] -= w @ points[start:]
                grad[start:] -= w.T @ points[start:stop]
        grad += weight * points
        return grad * (-2 * ctx.t * grad_output).to(grad.dtype), None


def _blocks(points: Tensor, t: float) -> Iterator[tuple[int, Tensor]]:
    """For blocks of rows from `start` on: −t‖a_i − a_j‖² of all j ≥ start, −∞ where j ≤ i."""
    n = len(points)
    # −t(‖a_i‖² + ‖a_j‖² − 2a_i·a_j) is one product of longer rows.
    squares = -t * points.square().sum(dim=1, keepdim=True)
    ones = torch.ones_like(squares)
    right = torch.cat((points, squares, ones), dim=1)
    step = max(1, block_values(points.device) // (2 * n))
    with torch.autocast(points.device.type, enabled=False):
        for start in range(0, n - 1, step):
            rows = slice(start, min(start + step, n - 1))
            left = torch.cat((2 * t * points[rows], ones[rows], squares[rows]), dim=1)
            exponents = (left @ right[start:].T).clamp_(max=0)
            b = len(exponents)
            lower = torch.ones(b, b, dtype=torch.bool, device=points.device).tril_()
            exponents[:, :b].masked_fill_(lower, -torch.inf)
            yield start, exponents


def _numbers(t: float) -> tuple[Number]:
    return (Number("uniformity", low=-4 * t, high=0, more_isotropic="lower"),)


def _from_rows(rows: Tensor, t: float) -> tuple[float]:
    return (float(uniformity(rows, t=t)),)


SPEC = MeasureSpec(
    name="uniformity",
    function=uniformity,
    numbers=_numbers(2.0),
    numbers_with=_numbers,
    summary="how evenly directions are spread over the sphere",
    invariant_to=frozenset({"rotation", "scale"}),
    differentiable=True,
    min_rows=2,
    trust=(
        "Trust it as a number about directions, where vectors are compared by cosine. It is not "
        "centred: a common offset of all rows makes them look less uniform, and lengths play no "
        "part. Close pairs weigh most, so that many near-duplicates raise it. Compare values with "
        "the same t only; in many features values near −2t mean little beyond a mean cosine near 0."
    ),
    reference=(
        "Wang & Isola 2020, Understanding contrastive representation learning through alignment "
        "and uniformity on the hypersphere"
    ),
    options={"t": 2.0},
    from_rows=_from_rows,
)

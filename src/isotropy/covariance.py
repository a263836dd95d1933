r"""The invariants of a cloud's covariance with two products in all: one forward, one backward.

For rows x_i about their mean, y_i = x_i − μ, and C = Σ y_i y_iᵀ/(n − 1):

    trace = tr C        norm = ‖C‖²        fourth = Σ ‖y_i‖⁴/(n − 1)

Every score of the IsoScore family is a ratio of these, so no eigenvalue is ever computed, and the
gradient exists wherever C ≠ 0:

    ∂trace/∂Y = 2Y/(n − 1)    ∂norm/∂Y = 4YC/(n − 1)    ∂fourth/∂y_i = 4‖y_i‖²y_i/(n − 1)
"""

from typing import Any, NamedTuple, Self

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isotropy.inputs import full_precision

# On a CPU, a block of this many values stays in the cache between the passes over it.
_BLOCK_VALUES = 1 << 20


class Invariants(NamedTuple):
    """Invariants of a covariance: 0-d tensors, all in units of the same unknown scale."""

    trace: Tensor
    norm: Tensor
    fourth: Tensor


def invariants(
    x: Tensor,
    shrinkage: Tensor | None = None,
    zeta: float = 0.0,
    *,
    bounds: tuple[Tensor, Tensor] | None = None,
) -> Invariants:
    r"""The invariants of C, or of Σ = (1 − ζ)·C + ζ·Σ_S, of an n×d cloud, differentiable in `x`.

    They come divided by s², s⁴ and s⁴ for some power of two s near the largest value, so that
    nothing over- or underflows: only ratios of one degree mean something. Without Σ_S and for
    n < d the n×n matrix YYᵀ serves instead of C, as it has the same trace and norm.

    Args:
        x: n×d, float32 or float64, n ≥ 2.
        shrinkage: d×d symmetric Σ_S; no gradient flows to it.
        zeta: its share ζ.
        bounds: each column's smallest and largest value, where they are known.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> trace, norm, _ = invariants(x)
        >>> float(trace**2 / norm)
        2.0
    """
    if shrinkage is not None:
        shrinkage = shrinkage.detach().to(device=x.device, dtype=x.dtype)
    with full_precision(x):
        trace, norm, fourth = _Invariants.apply(  # type: ignore[no-untyped-call] # torch has no types here
            x, shrinkage, zeta, bounds
        )
    return Invariants(trace, norm, fourth)


def spectrum(x: Tensor, *, center: bool) -> Tensor:
    """The min(n, d) squared singular values of X or of Xc over a common scale, in decreasing order.

    In float64, as squares of small singular values drown in float32's rounding; differentiable.
    """
    x = x.double()
    scale = power_of_two(x.detach().abs().max())
    x = x / scale
    if center:
        x = x - x[0].detach()  # exact, and leaves the mean little to round
        x = x - x.mean(dim=0)
        x = x / power_of_two(x.detach().abs().max())
    product = x @ x.T if x.shape[0] < x.shape[1] else x.T @ x
    values: Tensor = torch.linalg.eigvalsh(product)
    return values.flip(0).clamp(min=0)


def power_of_two(largest: Tensor) -> Tensor:
    """The power of two below a non-negative tensor (1 for 0), so that dividing by it is exact.

    Example:
        >>> power_of_two(torch.tensor([0.0, 0.3, 5.0])).tolist()
        [1.0, 0.25, 4.0]
    """
    mantissa, _ = torch.frexp(largest)
    power = largest / (2 * mantissa)  # exact, and unlike ldexp it never waits for the device
    # The reciprocal of a subnormal number overflows.
    return torch.where(largest > 0, power, 1.0).clamp(min=torch.finfo(largest.dtype).tiny)


def blocks(x: Tensor) -> tuple[Tensor, ...]:
    """`x` in blocks of rows that fit the cache; on an accelerator, in one block."""
    if x.device.type != "cpu":
        return (x,)
    return torch.split(x, max(256, _BLOCK_VALUES // x.shape[1]))


class Centring(NamedTuple):
    """The map x → (x − middle)/scale − mean, which centres a cloud exactly and bounds it by 4.

    Subtracting the rounded mean itself would be off by its rounding error, which is all there is
    to see in a cloud very far from the origin.

    Attributes:
        middle: d, halfway between each column's smallest and largest value.
        inverse: 0-d, one over the power of two by which values are divided.
        mean: d, the mean of (x − middle)/scale.
    """

    middle: Tensor
    inverse: Tensor
    mean: Tensor

    @classmethod
    def of(
        cls,
        x: Tensor,
        *,
        bounds: tuple[Tensor, Tensor] | None = None,
        least_scale: Tensor | None = None,
    ) -> Self:
        """The centring of an n×d cloud, whose scale is near its spread.

        Args:
            x: n×d.
            bounds: each column's smallest and largest value, where they are known.
            least_scale: the smallest scale to use.
        """
        low, high = bounds or (x.amin(dim=0), x.amax(dim=0))
        low, high = low / 2, high / 2  # before they are added or subtracted, which may overflow
        largest = (high - low).max()
        if least_scale is not None:
            largest = torch.maximum(largest, least_scale)
        middle, inverse = low + high, power_of_two(largest).reciprocal()
        mean = torch.zeros_like(low)
        for block in blocks(x):
            mean.addmv_((block - middle).T, inverse.expand(len(block)))
        return cls(middle, inverse, mean / len(x))

    def __call__(self, block: Tensor) -> Tensor:
        """Some rows, centred and scaled."""
        return torch.addcmul(-self.mean, block - self.middle, self.inverse)


class _Invariants(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        shrinkage: Tensor | None,
        zeta: float,
        bounds: tuple[Tensor, Tensor] | None,
    ) -> tuple[Tensor, Tensor, Tensor]:
        n, d = x.shape
        least_scale = None if shrinkage is None else shrinkage.abs().max().sqrt()
        centre = Centring.of(x, bounds=bounds, least_scale=least_scale)
        product, cubic, fourth = (_inner_products if n < d else outer_products)(x, centre)
        product /= n - 1
        trace, norm = product.trace(), _dot(product, product)
        mixed = None
        if shrinkage is not None:
            # In two steps: the square of the factor might overflow.
            shrinkage = (shrinkage * centre.inverse).mul_(centre.inverse)
            if n < d:
                y = centre(x)
                mixed = y @ shrinkage
                along = _dot(y, mixed) / (n - 1)
            else:
                along = _dot(product, shrinkage)
            keep = 1 - zeta
            trace = keep * trace + zeta * shrinkage.trace()
            norm = keep**2 * norm + 2 * keep * zeta * along + zeta**2 * _dot(shrinkage, shrinkage)
        ctx.save_for_backward(x, *centre, product, cubic, shrinkage, mixed)
        ctx.zeta = zeta
        ctx.set_materialize_grads(False)
        return trace, norm, fourth / (n - 1)

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, by_trace: Tensor | None, by_norm: Tensor | None, by_fourth: Tensor | None
    ) -> tuple[Tensor, None, None, None]:
        x, middle, inverse, mean, product, cubic, shrinkage, mixed = ctx.saved_tensors
        n, d = x.shape
        centre = Centring(middle, inverse, mean)
        keep = 1.0 if shrinkage is None else 1 - ctx.zeta
        unit = inverse / (n - 1)
        with full_precision(x):
            # Y·matrix, or matrix·Y for the n×n matrix, is the gradient of trace and norm.
            matrix = torch.zeros_like(product)
            if by_norm is not None:
                matrix += (4 * keep**2 * unit * by_norm) * product
                if shrinkage is not None and mixed is None:
                    matrix += (4 * keep * ctx.zeta * unit * by_norm) * shrinkage
            if by_trace is not None:
                matrix.diagonal().add_(2 * keep * unit * by_trace)

            grad = torch.empty_like(x)
            if n < d:
                y = centre(x)
                torch.mm(matrix, y, out=grad)
                if mixed is not None and by_norm is not None:
                    grad += (4 * keep * ctx.zeta * unit * by_norm) * mixed
            else:
                for block, out in zip(blocks(x), blocks(grad), strict=True):
                    torch.mm(centre(block), matrix, out=out)
            if by_fourth is not None:
                # ‖y‖²y has a mean, and centring takes it out of the gradient.
                for block, out in zip(blocks(x), blocks(grad), strict=True):
                    y = centre(block)
                    y *= torch.linalg.vecdot(y, y)[:, None]
                    out += (4 * unit * by_fourth) * (y - cubic / n)
        return grad, None, None, None


def outer_products(x: Tensor, centre: Centring) -> tuple[Tensor, Tensor, Tensor]:
    """YᵀY, Σ‖y‖²y and Σ‖y‖⁴ of the centred and scaled rows."""
    d = x.shape[1]
    product, cubic, fourth = x.new_zeros(d, d), x.new_zeros(d), x.new_zeros(())
    for block in blocks(x):
        y = centre(block)
        squares = torch.linalg.vecdot(y, y)
        product.addmm_(y.T, y)
        cubic += squares @ y
        fourth += squares.square().sum()
    return product, cubic, fourth


def _inner_products(x: Tensor, centre: Centring) -> tuple[Tensor, Tensor, Tensor]:
    """YYᵀ, Σ‖y‖²y and Σ‖y‖⁴ of the centred and scaled rows."""
    y = centre(x)
    product = y @ y.T
    squares = product.diagonal()
    return product, squares @ y, squares.square().sum()


def _dot(a: Tensor, b: Tensor) -> Tensor:
    product: Tensor = torch.linalg.vecdot(a.flatten(), b.flatten())
    return product

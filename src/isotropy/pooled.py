"""The invariants of the covariance of many blocks of rows together, on all ranks.

The same numbers as in `covariance`, for what a training step shows: the states of several layers,
which are never copied together, with rows that do not count, and with the other rows of the batch
on other ranks.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isotropy import ranks
from isotropy.covariance import Centring, Invariants, blocks, power_of_two
from isotropy.inputs import full_precision

Mask = Tensor | None


def pooled_invariants(
    clouds: Sequence[Tensor],
    masks: Sequence[Mask],
    shrinkage: Tensor | None = None,
    zeta: float = 0.0,
    *,
    group: ranks.Group = None,
) -> tuple[Tensor, Invariants]:
    """How many rows count, and the invariants of (1 − ζ)·C + ζ·Σ_S, differentiable in the clouds.

    Nothing is copied to the host. Of fewer than two rows the invariants are not finite.

    Args:
        clouds: n_i×d tensors in float32 or float64, n_i ≥ 1, d alike.
        masks: for each cloud the rows that count, n_i booleans, or None for all.
        shrinkage: d×d symmetric Σ_S; no gradient flows to it.
        zeta: its share ζ.
        group: the ranks whose rows count, too.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> n, (trace, norm, _) = pooled_invariants([x[:2], x[2:]], [None, None])
        >>> float(n), float(trace**2 / norm)
        (4.0, 2.0)
    """
    with full_precision(clouds[0]):
        n, centre = _centring(clouds, masks, shrinkage, group)
        product, fourth = _Products.apply(n, centre, masks, group, *clouds)  # type: ignore[no-untyped-call]
        product, fourth = ranks.total(product, group), ranks.total(fourth, group)
        freedom = (n - 1).clamp(min=0)  # of no row it would be negative, and its quotient finite
        product = product / freedom
        if shrinkage is not None:
            shrinkage = shrinkage.detach().to(device=product.device, dtype=product.dtype)
            product = (1 - zeta) * product + zeta * shrinkage * centre.inverse * centre.inverse
        flat = product.flatten()
        # On an accelerator the derivative of `trace` copies a number to the host.
        return n, Invariants(product.diagonal().sum(), flat @ flat, fourth / freedom)


def _centring(
    clouds: Sequence[Tensor], masks: Sequence[Mask], shrinkage: Tensor | None, group: ranks.Group
) -> tuple[Tensor, Centring]:
    """The number of rows that count, and their centring."""
    with torch.no_grad():
        d = clouds[0].shape[1]
        limit = torch.finfo(clouds[0].dtype).max
        highest = clouds[0].new_full((2, d), -limit)  # of x and of −x
        for x, mask in _pieces(clouds, masks):
            low, high = (x, x) if mask is None else (x.where(mask, limit), x.where(mask, -limit))
            # NaN passes on.
            highest = highest.maximum(torch.stack((high.amax(dim=0), -low.amin(dim=0))))
        high, low = ranks.largest(highest, group) / 2
        low = -low
        size = (high - low).max().clamp(min=0)
        if shrinkage is not None:
            size = size.maximum(shrinkage.abs().max().sqrt().to(size))
        centre = Centring(low + high, power_of_two(size).reciprocal(), torch.zeros_like(low))
        sums = clouds[0].new_zeros(d + 1)
        for x, mask in _pieces(clouds, masks):
            y = _centred(centre, x, mask)
            sums[:-1] += y.sum(dim=0)
            sums[-1] += len(x) if mask is None else mask.sum()
        sums = ranks.total(sums, group)
        return sums[-1], centre._replace(mean=sums[:-1] / sums[-1])


def _pieces(clouds: Sequence[Tensor], masks: Sequence[Mask]) -> Iterator[tuple[Tensor, Mask]]:
    """Pieces that fit the cache, with the masks of their rows as columns."""
    for cloud, mask in zip(clouds, masks, strict=True):
        parts = blocks(cloud)
        if mask is None:
            yield from ((part, None) for part in parts)
        else:
            flags = torch.split(mask[:, None], [len(part) for part in parts])
            yield from zip(parts, flags, strict=True)


def _centred(centre: Centring, x: Tensor, mask: Mask) -> Tensor:
    """Rows centred and scaled, zero where they do not count."""
    y = centre(x)
    return y if mask is None else y.masked_fill_(~mask, 0)


class _Products(torch.autograd.Function):
    """This rank's Σ y yᵀ and Σ ‖y‖⁴ of the centred rows y, whose mean is over all ranks."""

    @staticmethod
    def forward(
        ctx: Any,
        n: Tensor,
        centre: Centring,
        masks: Sequence[Mask],
        group: ranks.Group,
        *clouds: Tensor,
    ) -> tuple[Tensor, Tensor]:
        d = clouds[0].shape[1]
        product, sums = clouds[0].new_zeros(d, d), clouds[0].new_zeros(d + 1)
        for x, mask in _pieces(clouds, masks):
            y = _centred(centre, x, mask)
            squares = torch.linalg.vecdot(y, y)
            product.addmm_(y.T, y)
            sums[:-1] += squares @ y
            sums[-1] += squares @ squares
        fourth = sums[-1].clone()
        ctx.save_for_backward(*clouds, *centre, ranks.total(sums[:-1] / n, group))
        ctx.masks = masks
        ctx.set_materialize_grads(False)
        return product, fourth

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, by_product: Tensor | None, by_fourth: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        *clouds, middle, inverse, mean, cubic = ctx.saved_tensors
        centre = Centring(middle, inverse, mean)
        matrix = None if by_product is None else (by_product + by_product.T) * inverse
        grads = [torch.empty_like(cloud) for cloud in clouds]
        with full_precision(clouds[0]):
            outs = (out for grad in grads for out in blocks(grad))
            for (x, mask), out in zip(_pieces(clouds, ctx.masks), outs, strict=True):
                y = _centred(centre, x, mask)
                if matrix is None:
                    out.zero_()
                else:
                    torch.mm(y, matrix, out=out)
                if by_fourth is not None:
                    # ‖y‖²y has a mean, and centring takes it out of the gradient.
                    y = y * torch.linalg.vecdot(y, y)[:, None] - cubic
                    y = y if mask is None else y.masked_fill_(~mask, 0)
                    out += (4 * inverse * by_fourth) * y
        return None, None, None, None, *grads

"""Sums and rows over all processes of a data-parallel training, with gradients.

A penalty that is written with these sees the global batch. Data-parallel training averages the
gradients of its W ranks; every rank computes the same penalty, and the gradients here come
multiplied by W, so that their average is the gradient of one process with all rows. Without
`torch.distributed`, or with one rank, everything here is the identity.
"""

from typing import Any

import torch
from torch import Tensor, distributed
from torch.autograd.function import once_differentiable

Group = Any
"""A process group, None for all ranks, or `ALONE`."""

ALONE: Group = object()
"""The group of this rank alone, for what every rank has the same of, such as weights."""


def world_size(group: Group = None) -> int:
    """How many ranks there are.

    Example:
        >>> world_size()
        1
    """
    if group is ALONE or not (distributed.is_available() and distributed.is_initialized()):
        return 1
    return distributed.get_world_size(group)


def total(x: Tensor, group: Group = None) -> Tensor:
    """The sum over all ranks; its gradient is that of this rank's part, times the ranks.

    What is made of it must be the same on all ranks: in a gradient that comes back from this rank's
    rows alone, those of the others would be missing.
    """
    if world_size(group) == 1:
        return x
    result: Tensor = _Total.apply(x, group)  # type: ignore[no-untyped-call]
    return result


def largest(x: Tensor, group: Group = None) -> Tensor:
    """The greatest value over all ranks, without gradient."""
    x = x.detach()
    if world_size(group) > 1:
        x = x.clone()
        distributed.all_reduce(x, distributed.ReduceOp.MAX, group)
    return x


def gathered(x: Tensor, group: Group = None) -> Tensor:
    """The rows of all ranks in the order of ranks, who may have different numbers of them.

    Its gradient is that of this rank's rows, times the ranks.
    """
    if world_size(group) == 1:
        return x
    result: Tensor = _Gathered.apply(x, group)  # type: ignore[no-untyped-call]
    return result


class _Total(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ctx.ranks = world_size(group)
        x = x.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(x, group=group)
        return x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad * ctx.ranks, None


class _Gathered(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, group: Group) -> Tensor:
        ranks = world_size(group)
        here = torch.tensor([len(x)], device=x.device)
        counts = [torch.empty_like(here) for _ in range(ranks)]
        distributed.all_gather(counts, here, group)
        sizes = [int(count) for count in counts]
        # Collectives want equal shapes: shorter parts are filled up.
        padded = x.new_zeros((max(sizes), *x.shape[1:]))
        padded[: len(x)] = x
        parts = [torch.empty_like(padded) for _ in range(ranks)]
        distributed.all_gather(parts, padded, group)
        rank = distributed.get_rank(group)
        ctx.ranks = ranks
        ctx.rows = slice(sum(sizes[:rank]), sum(sizes[: rank + 1]))
        return torch.cat([part[:size] for part, size in zip(parts, sizes, strict=True)])

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return grad[ctx.rows] * ctx.ranks, None

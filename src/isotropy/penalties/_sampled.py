"""A random subset of rows for every step, without a look at any value."""

from typing import Any

import numpy as np
import torch
from torch import Tensor

from isotropy.representations import Rows, joined_masks
from isotropy.settings import whole_number


class TokenSample:
    """Draws rows that count, without replacement: others in every step, the same in every run.

    Every row that counts has a random key, and those with the smallest keys are drawn. If fewer
    rows count than are to be drawn, the rest is masked.

    Args:
        size: how many rows.
        seed: of the draws.

    Example:
        >>> rows = Rows((torch.arange(8.0).reshape(4, 2),), (None,))
        >>> TokenSample(2, seed=0)(rows).blocks[0].shape
        torch.Size([2, 2])
    """

    def __init__(self, size: int, seed: int = 0) -> None:
        self.size = whole_number("tokens", size, low=2)
        self.seed = seed
        self.step = 0

    def __call__(self, rows: Rows) -> Rows:
        """Some of the rows, in one block; all of them if there are no more."""
        sizes = [len(block) for block in rows.blocks]
        n, device = sum(sizes), rows.blocks[0].device
        if n <= self.size:
            return rows
        generator = torch.Generator(device)
        # Some generators look at 32 bits of a seed: both numbers have to be in them.
        (mixed,) = np.random.SeedSequence((self.seed, self.step)).generate_state(1)
        generator.manual_seed(int(mixed))
        self.step += 1
        keys = torch.rand(n, generator=generator, device=device)
        counts = joined_masks(rows.blocks, rows.masks)
        if counts is not None:
            keys = torch.where(counts, keys, torch.inf)
        drawn, places = keys.topk(self.size, largest=False)
        return Rows((_Take.apply(places, *rows.blocks),), (drawn.isfinite(),))  # type: ignore[no-untyped-call]


def token_sample(tokens: int | None, seed: int) -> TokenSample | None:
    """The sample that a penalty's settings ask for, none without `tokens`.

    Raises:
        SettingError: there is no such number of tokens, or no such seed.
    """
    seed = whole_number("seed", seed, low=0)
    return None if tokens is None else TokenSample(tokens, seed)


class _Take(torch.autograd.Function):
    """Rows of several blocks by their number in all of them, without copying the blocks together.

    Which block holds a row depends on values, so every block is asked for every row: with as many
    rows as layers that is far less than one copy.
    """

    @staticmethod
    def forward(ctx: Any, places: Tensor, *blocks: Tensor) -> Tensor:
        ctx.save_for_backward(places)
        ctx.sizes = [len(block) for block in blocks]
        result = blocks[0].new_zeros(len(places), blocks[0].shape[1])
        start = 0
        for block in blocks:
            here = (places >= start) & (places < start + len(block))
            rows = block.index_select(0, torch.where(here, places - start, 0))
            torch.where(here[:, None], rows, result, out=result)
            start += len(block)
        return result

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (places,) = ctx.saved_tensors
        grads = []
        start = 0
        for size in ctx.sizes:
            here = (places >= start) & (places < start + size)
            # What is not here goes to a row too many.
            index = torch.where(here, places - start, size)
            into = grad.new_zeros(size + 1, grad.shape[1])
            grads.append(into.index_copy_(0, index, grad)[:size])
            start += size
        return None, *grads

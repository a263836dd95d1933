"""The penalty of several micro-batches as one cloud, in two passes.

The first pass runs all micro-batches without a graph and keeps the rows that the penalty looks at;
the penalty of all of them gives each row's gradient. In the second pass each micro-batch adds the
product of its rows with those gradients to its loss, whose gradient is the same (Gao et al. 2021,
"Scaling deep contrastive learning batch size under memory limited setup").
"""

import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from torch import Tensor

from isotropy.inputs import COMPUTE_DTYPE
from isotropy.penalties import Penalty
from isotropy.representations import Rows, joined_masks


class CachedPenalty:
    """The gradients of a penalty with respect to the rows of several micro-batches.

    Args:
        penalty: which.
        parts: the rows of each micro-batch, without graphs.

    Attributes:
        value: the weighted penalty of all rows together, without a graph.

    Example:
        >>> from isotropy import penalties
        >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> parts = [Rows((x[:2],), (None,)), Rows((x[2:],), (None,))]
        >>> cached = CachedPenalty(penalties.ZeroMean(), parts)
        >>> [len(part.blocks[0]) for part in parts], float(cached.value)
        ([2, 2], 0.0)
    """

    def __init__(self, penalty: Penalty, parts: Sequence[Rows]) -> None:
        with torch.enable_grad():
            # In full precision: half would round small gradients to zero.
            leaves = [
                part._replace(
                    blocks=tuple(
                        block.detach().to(COMPUTE_DTYPE[block.dtype]).requires_grad_()
                        for block in part.blocks
                    )
                )
                for part in parts
            ]
            value = penalty.of(_union(leaves))
            blocks = [block for part in leaves for block in part.blocks]
            gradients = iter(torch.autograd.grad(value, blocks, allow_unused=True))
        self.value = value.detach()
        self._gradients = [[next(gradients) for _ in part.blocks] for part in leaves]
        self._next = 0

    def surrogate(self, rows: Rows) -> Tensor:
        """Of the next micro-batch, 0 with the penalty's gradient."""
        gradients = self._gradients[self._next]
        self._next += 1
        total = self.value.new_zeros(())
        for block, gradient in zip(rows.blocks, gradients, strict=True):
            if gradient is not None:
                full = block.to(COMPUTE_DTYPE[block.dtype])
                total = total + ((full - full.detach()) * gradient).sum()
        return total


def _union(parts: Sequence[Rows]) -> Rows:
    """The rows of all parts, layer by layer."""
    layers = range(len(parts[0].blocks))
    blocks = [[part.blocks[layer] for part in parts] for layer in layers]
    masks = [[part.masks[layer] for part in parts] for layer in layers]
    labels = [part.labels for part in parts if part.labels is not None]
    return Rows(
        tuple(torch.cat(of_layer) for of_layer in blocks),
        tuple(map(joined_masks, blocks, masks)),
        torch.cat(labels) if len(labels) == len(parts) else None,
        parts[0].shared,
    )


@contextmanager
def same_randomness() -> Iterator[None]:
    """Leaves all generators as they were, so that what comes draws the same numbers again."""
    python, arrays = random.getstate(), np.random.get_state()
    try:
        with torch.random.fork_rng(devices=range(torch.cuda.device_count())):
            yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)

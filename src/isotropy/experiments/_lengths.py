"""The order of training rows: texts of alike length share batches."""

from collections.abc import Iterator, Sequence

import torch
from torch.utils.data import Sampler

_POOL_BATCHES = 50
_FEWEST_POOLS = 4


class Order(Sampler[int]):
    """Every row once an epoch, in an order that seed and epoch decide.

    By length: rows are shuffled and dealt into pools of at most 50 batches, each pool is sorted by
    length and cut into batches, and the batches are shuffled. So the rows of a batch change from
    epoch to epoch, and no part of an epoch has long texts only, as it would in the order of
    transformers' `group_by_length`, which goes from long to short within each of its pools.

    Args:
        lengths: of the rows.
        batch_size: rows in a batch.
        grouped: whether by length; otherwise all rows are shuffled.
        seed: of the order.

    Example:
        >>> order = Order([5, 1, 5, 1, 5, 1], batch_size=3, seed=0)
        >>> first = list(order)
        >>> {first[0] % 2, first[1] % 2, first[2] % 2} in ({0}, {1})  # all long, or all short
        True
    """

    def __init__(
        self, lengths: Sequence[int], *, batch_size: int, grouped: bool = True, seed: int = 0
    ) -> None:
        self.lengths = torch.as_tensor(lengths)
        self.batch_size = batch_size
        self.grouped = grouped
        self.generator = torch.Generator().manual_seed(seed)

    def __len__(self) -> int:
        return len(self.lengths)

    def __iter__(self) -> Iterator[int]:
        order = torch.randperm(len(self.lengths), generator=self.generator)
        if self.grouped:
            order = self._by_length(order)
        yield from order.tolist()

    def _by_length(self, order: torch.Tensor) -> torch.Tensor:
        whole = len(order) // self.batch_size
        size = self.batch_size * min(_POOL_BATCHES, max(2, whole // _FEWEST_POOLS))
        pools = [pool[self.lengths[pool].argsort(stable=True)] for pool in torch.split(order, size)]
        batches = list(torch.split(torch.cat(pools), self.batch_size))
        # A last batch with fewer rows stays last, or it would shift where the others are cut.
        rest = [] if len(batches[-1]) == self.batch_size else [batches.pop()]
        shuffled = torch.randperm(len(batches), generator=self.generator).tolist()
        return torch.cat([*(batches[i] for i in shuffled), *rest])


def padding(lengths: Sequence[int], order: Sequence[int], batch_size: int) -> float:
    """How many tokens a batched order feeds to a model for each token that counts.

    Example:
        >>> padding([1, 3, 1, 3], [0, 1, 2, 3], 2), padding([1, 3, 1, 3], [0, 2, 1, 3], 2)
        (1.5, 1.0)
    """
    fed = 0
    for start in range(0, len(order), batch_size):
        batch = [lengths[i] for i in order[start : start + batch_size]]
        fed += max(batch) * len(batch)
    return fed / sum(lengths)

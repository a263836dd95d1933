"""What one pass over a cloud keeps of it: its moments and a sample of its rows."""

from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from isotropy.inputs import finite_range
from isotropy.moments import Moments, merge
from isotropy.sampling import RowSample, random_groups


class CloudStream:
    """A cloud that passes by in chunks.

    Args:
        moments: whether to keep moments.
        groups: into how many groups of rows to divide the moments, for a jackknife.
        sample: of how many rows to keep a random sample, 0 for none.
        seed: of groups and sample.

    Example:
        >>> stream = CloudStream(moments=True, groups=1, sample=3, seed=0)
        >>> stream.update(torch.eye(4), torch.arange(4))
        >>> stream.moments.mean.tolist(), stream.sample.rows().shape
        ([0.25, 0.25, 0.25, 0.25], torch.Size([3, 4]))
    """

    def __init__(self, *, moments: bool, groups: int, sample: int, seed: int) -> None:
        self.rows = 0
        self.sample = RowSample(sample, seed) if sample else None
        self._bounds: tuple[Tensor, Tensor] | None = None
        self._keeps_moments = moments
        self._groups = groups
        self._seed = seed
        self._parts: dict[int, Moments] = {}

    def update(
        self, rows: Tensor, numbers: Tensor, bounds: tuple[Tensor, Tensor] | None = None
    ) -> None:
        """Take in the next rows with their numbers and, where known, each column's bounds.

        Raises:
            InputError: a value is NaN or infinite.
        """
        first, self.rows = self.rows, self.rows + len(rows)
        low, high = bounds or finite_range(rows, numbers=numbers)
        self._widen(low, high)
        if self.sample is not None:
            self.sample.update(rows, numbers)
        if not self._keeps_moments:
            return
        if self._groups == 1:
            self._add(0, Moments.of(rows, numbers=numbers, bounds=(low, high)))
            return
        group = torch.from_numpy(random_groups(first, len(rows), self._groups, self._seed))
        order = group.argsort(stable=True)
        sizes = torch.bincount(group, minlength=self._groups).tolist()
        dealt = torch.split(rows[order.to(rows.device)], sizes)
        dealt_numbers = torch.split(numbers[order], sizes)
        for i, (part, part_numbers) in enumerate(zip(dealt, dealt_numbers, strict=True)):
            if len(part):
                self._add(i, Moments.of(part, numbers=part_numbers))

    def merge(self, other: Self) -> None:
        """Take in another cloud that was read with the same settings."""
        self.rows += other.rows
        if other._bounds is not None:
            self._widen(*other._bounds)
        for group, moments in other._parts.items():
            self._add(group, moments)
        if self.sample is not None and other.sample is not None:
            self.sample.merge(other.sample)

    @property
    def parts(self) -> list[Moments]:
        """The moments of every group that has rows."""
        return list(self._parts.values())

    @cached_property
    def moments(self) -> Moments:
        """The moments of all rows, about their mean."""
        return merge(self.parts).central

    @property
    def nbytes(self) -> int:
        """How much memory it takes, nearly."""
        scatter = sum(moments.scatter.nbytes for moments in self._parts.values())
        return scatter + (self.sample.nbytes if self.sample is not None else 0)

    @property
    def features(self) -> int:
        """How many features the rows have, 0 before there are rows."""
        return 0 if self._bounds is None else len(self._bounds[0])

    @property
    def constant(self) -> bool:
        """Whether all rows are equal."""
        return self._bounds is not None and torch.equal(*self._bounds)

    def _widen(self, low: Tensor, high: Tensor) -> None:
        if self._bounds is not None:
            low, high = torch.minimum(low, self._bounds[0]), torch.maximum(high, self._bounds[1])
        self._bounds = low, high

    def _add(self, group: int, moments: Moments) -> None:
        known = self._parts.get(group)
        self._parts[group] = moments if known is None else known + moments

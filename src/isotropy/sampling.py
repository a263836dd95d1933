"""Random choices by row number: the same rows however a source is cut into chunks and shards."""

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


class RowSample:
    """A random sample of at most `size` rows of a stream, without replacement.

    Every row number has a random key; the rows with the smallest keys are the sample. Samples of
    parts of a cloud so merge into the sample of the whole.

    Example:
        >>> sample = RowSample(size=10, seed=0)
        >>> sample.update(torch.eye(4), numbers=torch.arange(4))
        >>> sample.rows().shape
        torch.Size([4, 4])
    """

    def __init__(self, size: int, seed: int) -> None:
        self.size = size
        self.seed = seed
        self.seen = 0
        self._limit = np.uint64(2**64 - 1)
        self._parts: list[tuple[NDArray[np.uint64], Tensor, Tensor]] = []

    def update(self, rows: Tensor, numbers: Tensor) -> None:
        """Take in rows with their numbers."""
        self.seen += len(rows)
        keys = _random_keys(numbers.numpy(), self.seed)
        self._add(keys, numbers, rows)

    def merge(self, other: "RowSample") -> None:
        """Take in another part's sample."""
        self.seen += other.seen
        for keys, numbers, rows in other._parts:
            self._add(keys, numbers, rows)

    @property
    def complete(self) -> bool:
        """Whether the sample is all rows."""
        return self.seen <= self.size

    @property
    def nbytes(self) -> int:
        """How much memory the rows take."""
        return sum(rows.nbytes for _, _, rows in self._parts)

    def rows(self) -> Tensor:
        """The sample, in the order of the row numbers."""
        self._cut()
        _, numbers, rows = self._joined()
        return rows[numbers.argsort()]

    def _add(self, keys: NDArray[np.uint64], numbers: Tensor, rows: Tensor) -> None:
        chosen = torch.from_numpy(np.flatnonzero(keys <= self._limit))
        self._parts.append((keys[chosen.numpy()], numbers[chosen], rows[chosen.to(rows.device)]))
        if sum(len(part[0]) for part in self._parts) > 2 * self.size:
            self._cut()

    def _cut(self) -> None:
        keys, numbers, rows = self._joined()
        if len(keys) > self.size:
            chosen = np.argpartition(keys, self.size - 1)[: self.size]
            self._limit = keys[chosen].max()
            index = torch.from_numpy(chosen)
            keys, numbers, rows = keys[chosen], numbers[index], rows[index.to(rows.device)]
        self._parts = [(keys, numbers, rows)]

    def _joined(self) -> tuple[NDArray[np.uint64], Tensor, Tensor]:
        keys, numbers, rows = zip(*self._parts, strict=True)
        return np.concatenate(keys), torch.cat(numbers), torch.cat(rows)


def random_groups(first: int, count: int, groups: int, seed: int) -> NDArray[np.int64]:
    """A random group for each of the rows number `first` to `first + count - 1`.

    Every run of `groups` rows is dealt out to all groups in a random order, so that sizes differ
    by one at the most.

    Example:
        >>> sorted(random_groups(first=0, count=5, groups=5, seed=1).tolist())
        [0, 1, 2, 3, 4]
    """
    start = first // groups
    stop = -(-(first + count) // groups)
    keys = _random_keys(np.arange(start * groups, stop * groups), seed).reshape(-1, groups)
    dealt = keys.argsort(axis=1).reshape(-1)
    return dealt[first - start * groups :][:count]


def _random_keys(numbers: NDArray[np.int64], seed: int) -> NDArray[np.uint64]:
    """A random number for every row number, by the mixing steps of SplitMix64."""
    # Seeds that differ by one must not give the same numbers some rows later.
    (offset,) = np.random.SeedSequence(seed).generate_state(1, np.uint64)
    with np.errstate(over="ignore"):
        z = numbers.astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15) + offset
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(z ^ (z >> np.uint64(31)))

"""The choice of prominent bars with tensor operations only: many sets, and no look at a value.

`_prominent` goes from round to round until one changes nothing. Here every round that any set could
come to is taken at once: a round knows of its set only how many bars are kept, and says how many to
keep next. Following that map to its fixed point takes as many doublings as the number of bars has
digits.
"""

from math import ceil, log2

import torch
from torch import Tensor

from isotropy._prominent import NEAR_ONE, TOLERANCE

# A block of rounds holds at most this many sums.
_BLOCK_SUMS = 1 << 22


def count_prominent_tensors(lengths: Tensor, *, at_most: int | None = None) -> Tensor:
    """How many of the longest bars of each set are prominent: `count_prominent` of every row.

    How many kernels run depends on shapes alone. Work is O(N²), memory O(N) times a constant.

    Args:
        lengths: k×m, in float64, each row in descending order, finite and not negative.
        at_most: N, how many lengths there can be in all rows together that are not zero, if that
            is known to be fewer than k·m.

    Returns:
        k integers.

    Example:
        >>> count_prominent_tensors(torch.tensor([[9.0, 8.0, 1.0, 1.0, 1.0, 0.1]]).double())
        tensor([2])
    """
    k, m = lengths.shape
    size = min(k * m, k * m if at_most is None else at_most)
    if size == 0:
        return torch.zeros(k, dtype=torch.int64, device=lengths.device)
    longest = lengths[:, :1]
    bars = lengths / torch.where(longest > 0, longest, 1)
    number = (bars > 0).sum(dim=1)
    shortest = bars.gather(1, (number - 1).clamp(min=0)[:, None])[:, 0]
    shortest = torch.where(shortest > 0, shortest, 1)
    # Of few bars all but the shortest, or the only one.
    few = torch.maximum(number - 1, number.clamp(max=1))

    # The bars l_1…l_{m−2} of all sets in one line, each set's in a run; the last place is for all
    # that is no such bar.
    column = torch.arange(m, device=lengths.device)
    middle = (column > 0) & (column < number[:, None] - 1)
    place = torch.where(middle, middle.flatten().cumsum(0).view(k, m) - 1, size).clamp(max=size)
    width = (number - 2).clamp(min=0)
    start = width.cumsum(0) - width

    def line(values: Tensor) -> Tensor:
        spread = values.expand(k, m).flatten()
        return spread.new_zeros(size + 1).index_put((place.flatten(),), spread)[:size]

    length, order = line(bars), line(column - 1)
    owner = line(torch.arange(k, device=lengths.device)[:, None])
    after, last = _rounds(length, order, start[owner], shortest[owner])
    for _ in range(ceil(log2(m)) + 1):
        after = after[after]
    first_round = (start + width - 1).clamp(min=0, max=size - 1)  # keeps all bars of its set
    return torch.where(number < 4, few, last[after[first_round]] + 1)


def _rounds(
    length: Tensor, order: Tensor, start: Tensor, shortest: Tensor
) -> tuple[Tensor, Tensor]:
    """Of every round its i*, and which round follows: itself where it is the last.

    Args:
        length: N, the bars l_1…l_{m−2} of all sets. The round at a bar's place keeps the bars of
            its set up to it.
        order: N, their numbers in their sets, from 0.
        start: N, the place of the first bar of their sets.
        shortest: N, the shortest bar of their sets.
    """
    places = torch.arange(len(length), device=length.device)
    shares = _features_per_bar(shortest)
    logs = length * torch.where(length > 0, length, 1).log()
    after, last = [], []
    for here in torch.split(places, max(1, _BLOCK_SUMS // len(length))):
        inside = (places >= start[here, None]) & (places <= here[:, None])
        least = shortest[here, None]
        sums = _suffix_sums(torch.where(inside, length, 0)) + (1 + least)
        entropies = _suffix_sums(torch.where(inside, logs, 0)) + least * least.log()
        neutralised = sums + order * (entropies / sums).exp()
        grows = neutralised > neutralised.roll(1, dims=1) * TOLERANCE
        grows &= inside & (places > start[here, None])
        end = torch.where(grows, order, order[here, None]).amin(dim=1)
        bound = (shares[here] * (order[here] + 3)).ceil()
        last.append(end)
        after.append(torch.where(bound >= end, here, start[here] + end - 1))
    return torch.cat(after), torch.cat(last)


def _suffix_sums(x: Tensor) -> Tensor:
    """Sums from each entry to the row's end: added up from there, small bars first."""
    return x.flip(1).cumsum(dim=1).flip(1)


def _features_per_bar(alpha: Tensor) -> Tensor:
    """α(α − 1 − log α)/(α − 1)², by its power series near 1."""
    gap = 1 - alpha
    safe = torch.where(gap > NEAR_ONE, gap, 1)
    series = 0.5 - sum((gap**k / ((k + 1) * (k + 2)) for k in range(1, 10)), torch.zeros_like(gap))
    return torch.where(gap > NEAR_ONE, alpha * (-gap - alpha.log()) / safe**2, series)

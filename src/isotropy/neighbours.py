r"""Exact nearest neighbours in blocks: as fast as one float32 product, as right as float64.

For rows y about their mean, half a squared distance is ‖y_i‖²/2 + ‖y_j‖²/2 − y_i·y_j. One float32
product gives it for a block of rows against all rows, with a rounding error that is known in
advance; subtracting that error makes it a lower bound. The few rows with the smallest bounds are
measured again in float64 from their differences. Where the k-th of these distances does not exceed
the bound of any row left out, the search is proven right; the other rows, such as those in very
tight clusters or with many ties, are searched again with bounds in float64.
"""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from isotropy.errors import IsotropyWarning, SettingError, UndefinedError
from isotropy.inputs import equal_rows_error, require_rows

# Candidates beyond k: they set the k-th distance apart from the bounds of the rows left out.
_SPARE = 4
# Keys are looked through in groups of this many: the k smallest lie in the k groups with the
# smallest minima, and a minimum costs far less than a selection.
_GROUP = 32
# Values in one block of the product. On a CPU it stays near the processor's cache.
_BLOCK_VALUES = 1 << 22
_BLOCK_VALUES_ON_ACCELERATOR = 1 << 27
_MIN_BLOCK_ROWS = 64
# Enough rows for a product to be taken as that of a block.
_FEW_ROWS = 32
# Squares of distances between these are safe in float64.
_SAFE_SCALES = (2.0**-300, 2.0**300)


@dataclass(frozen=True)
class Neighbours:
    """The k nearest other rows of every row of a cloud.

    Attributes:
        cloud: n×d, the rows that were searched.
        distances: n×k Euclidean distances, ascending, in float64.
        indices: n×k row numbers.
    """

    cloud: Tensor
    distances: Tensor
    indices: Tensor

    @property
    def k(self) -> int:
        """How many neighbours each row has."""
        return self.distances.shape[1]

    def first(self, k: int) -> "Neighbours":
        """Only the k nearest of them.

        Raises:
            SettingError: there are fewer than k.
        """
        if not 1 <= k <= self.k:
            raise SettingError(f"got k={k}, expected 1 to {self.k}, as many as were searched")
        if k == self.k:
            return self
        return Neighbours(self.cloud, self.distances[:, :k], self.indices[:, :k])

    @cached_property
    def distinct(self) -> "Neighbours":
        """The same search among rows that differ: of equal rows only the first one stays.

        Where fewer than k + 1 rows differ, each has all the others as its neighbours.

        Raises:
            UndefinedError: all rows are equal.
        """
        with_twin = self.distances[:, 0] == 0
        rows = with_twin.nonzero()[:, 0]
        if not len(rows):
            return self
        # Adding 0 makes −0 and 0 the same value.
        _, group = torch.unique(self.cloud[rows] + 0.0, dim=0, return_inverse=True)
        first = torch.full_like(rows, len(with_twin))[: int(group.max()) + 1]
        first.scatter_reduce_(0, group, rows, "amin")
        kept = ~with_twin
        kept[first] = True
        cloud = self.cloud[kept]
        if len(cloud) == 1:
            raise equal_rows_error(len(self.cloud))
        return nearest_neighbours(cloud, min(self.k, len(cloud) - 1))


def nearest_neighbours(cloud: Tensor, k: int) -> Neighbours:
    """The k nearest other rows of every row, as brute force in float64 finds them.

    A row is never its own neighbour; an equal row is one at distance 0. Which of equally distant
    rows are taken is arbitrary.

    Args:
        cloud: n×d tensor in float32 or float64 with finite values, on any device. No gradient
            flows.
        k: how many neighbours, from 1 to n − 1.

    Returns:
        Distances in float64, and indices, n×k. The memory beside them is a copy of the cloud and
        one block of rows against all rows.

    Example:
        >>> found = nearest_neighbours(torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 3.0]]), k=1)
        >>> found.distances.tolist(), found.indices.tolist()
        ([[1.0], [1.0], [2.0]], [[1], [0], [1]])
    """
    if k < 1:
        raise SettingError(f"got k={k}, expected at least 1 neighbour")
    cloud = cloud.detach()
    n = len(cloud)
    require_rows(n, k + 1)
    about = centre_and_scale(cloud)
    _, scale = about
    if not _SAFE_SCALES[0] < scale < _SAFE_SCALES[1]:
        found = nearest_neighbours(cloud / scale, k)
        return Neighbours(cloud, found.distances * scale, found.indices)

    bounds = distance_bounds(cloud, about)
    distances = torch.empty(n, k, dtype=torch.float64, device=cloud.device)
    indices = torch.empty(n, k, dtype=torch.int64, device=cloud.device)
    proven = torch.empty(n, dtype=torch.bool, device=cloud.device)
    for rows in bounds.blocks():
        distances[rows], indices[rows], proven[rows] = _search(bounds, rows, k)
    open_rows = (~proven).nonzero()[:, 0]
    if len(open_rows):
        bounds = DistanceBounds(cloud, torch.float64, about)
        for rows in torch.split(open_rows, bounds.block_rows):
            distances[rows], indices[rows] = _search_within(bounds, rows, distances[rows])
    return Neighbours(cloud, distances, indices)


def without_duplicates(neighbours: Neighbours, k: int, measure: str) -> Neighbours:
    """The k nearest neighbours among rows that differ; rows left out are counted in a warning.

    Raises:
        UndefinedError: fewer than k + 1 rows differ.
    """
    found = neighbours.distinct
    rows, left = len(neighbours.cloud), len(found.cloud)
    if found.k < min(k, neighbours.k):
        raise UndefinedError(
            f"got {rows} rows of which only {left} differ, expected at least {k + 1} for "
            f"{measure} with {k} neighbour{'s' * (k > 1)} of each"
        )
    if left < rows:
        warnings.warn(
            f"{measure} left out {rows - left} of {rows} rows, as each equals another row",
            IsotropyWarning,
            stacklevel=2,
        )
    return found.first(k)


def distance_bounds(cloud: Tensor, about: tuple[Tensor, float]) -> "DistanceBounds":
    """Distance bounds by the fastest product that can be trusted on the cloud's device."""
    bounds = DistanceBounds(cloud, torch.float32, about)
    return bounds if bounds.has_full_products() else DistanceBounds(cloud, torch.float64, about)


class DistanceBounds:
    """Lower bounds of the distances from blocks of rows to all rows, by one product a block.

    In units of `scale`, and with h_i = ‖y_i‖²/2 about the mean, half the squared distance of rows i
    and j is at least `keys`_ij + `floor`_i, where keys_ij ≈ h_j − y_i·y_j and floor_i ≈ h_i. The
    smallest keys of a row thus belong to its nearest rows, with no further pass over the block.

    Args:
        cloud: n×d, in float32 or float64.
        dtype: the dtype of the product.
        about: the cloud's `centre_and_scale`.

    Attributes:
        cloud: the same.
        scale: a power of two near the largest coordinate about the mean.
        floor: n, in float64.
        block_rows: the number of rows with which a block is fast and small.
    """

    def __init__(self, cloud: Tensor, dtype: torch.dtype, about: tuple[Tensor, float]) -> None:
        n, d = cloud.shape
        self.cloud = cloud
        centre, self.scale = about

        # In any order of summation, a sum of t = d + 1 products is off by at most tu/(1 − tu) of
        # the sum of their sizes, where u is the unit of rounding; rounding y and h first adds 3u.
        # Here the sizes sum to at most |y_i|·|y_j| + h_j ≤ h_i + 2h_j.
        product, wide = torch.finfo(dtype), torch.finfo(torch.float64)
        terms = (d + 8) * product.eps / 2
        error = terms / (1 - terms) + (d + 8) * wide.eps
        # A product that underflows is off by at most the smallest normal number.
        tiny = 2 * (d + 8) * product.tiny

        width = -(-n // _GROUP) * _GROUP
        self._right = torch.zeros(width, d + 1, dtype=dtype, device=cloud.device)
        half = torch.empty(n, dtype=torch.float64, device=cloud.device)
        values = block_values(cloud.device)
        step = max(1, values // (4 * d))
        for start in range(0, n, step):
            part = slice(start, min(start + step, n))
            y = (cloud[part].to(torch.float64) - centre) / self.scale
            half[part] = y.square().sum(dim=1) / 2
            self._right[part, :d] = y
        self._right[:n, d] = half * (1 - 2 * error)
        self._right[n:, d] = product.max / 4  # fillers, never near anything
        self.floor = half * (1 - error) - tiny

        self.block_rows = min(n, max(_MIN_BLOCK_ROWS, values // width))
        self._block = torch.empty(self.block_rows, width, dtype=dtype, device=cloud.device)

    def blocks(self) -> Iterator[Tensor]:
        """All row numbers, `block_rows` at a time."""
        numbers = torch.arange(len(self.cloud), device=self.cloud.device)
        return iter(torch.split(numbers, self.block_rows))

    def keys(self, rows: Tensor) -> Tensor:
        """The keys of at most `block_rows` rows; the next call overwrites them.

        Args:
            rows: b row numbers.

        Returns:
            b×w: columns from n on are fillers with very large keys, and so is each row itself.
        """
        left = self._right[rows].neg_()
        left[:, -1] = 1
        out = self._multiply(left)
        return out.scatter_(1, rows[:, None], torch.finfo(out.dtype).max / 4)

    def has_full_products(self) -> bool:
        """Whether the device multiplies in the dtype's full precision, as the bounds assume.

        Settings can make it round float32 to TensorFloat32 or bfloat16 for speed.
        """
        left = torch.zeros_like(self._right[: min(_FEW_ROWS, self.block_rows)])
        left[:, -1] = 1 + 2.0**-20  # in fewer bits this would be 1
        expected = left[0, -1] * self._right[:, -1]
        return torch.equal(self._multiply(left), expected.expand(len(left), -1))

    def exact(self, rows: Tensor, columns: Tensor) -> Tensor:
        """Distances in float64 from differences of rows, not in units of `scale`.

        Args:
            rows: b row numbers.
            columns: b×m row numbers, for each of these rows.

        Returns:
            b×m.
        """
        d = self.cloud.shape[1]
        m = columns.shape[1]
        out = torch.empty(columns.shape, dtype=torch.float64, device=columns.device)
        step = max(1, block_values(columns.device) // (4 * m * d))
        for start in range(0, len(rows), step):
            part = slice(start, start + step)
            difference = self.cloud[columns[part].flatten()].to(torch.float64).view(-1, m, d)
            difference -= self.cloud[rows[part]][:, None]
            torch.linalg.vector_norm(difference, dim=2, out=out[part])
        return out

    def _multiply(self, left: Tensor) -> Tensor:
        with torch.autocast(left.device.type, enabled=False):
            return torch.mm(left, self._right.T, out=self._block[: len(left)])


def block_values(device: torch.device) -> int:
    """How many values a block of pairs should have to be fast and small."""
    return _BLOCK_VALUES if device.type == "cpu" else _BLOCK_VALUES_ON_ACCELERATOR


def centre_and_scale(cloud: Tensor) -> tuple[Tensor, float]:
    """The mean in float64, and a power of two near the largest coordinate about it."""
    centre = cloud.mean(dim=0, dtype=torch.float64)
    low, high = torch.aminmax(cloud, dim=0)
    reach = torch.maximum(high - centre, centre - low).max()
    return centre, 2.0 ** reach.log2().floor().item() if reach > 0 else 1.0


def _search(bounds: DistanceBounds, rows: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
    """Distances and indices of the k nearest rows, b×k, and for which rows they are proven."""
    n, d = bounds.cloud.shape
    candidates = min(k + _SPARE, n - 1)
    keys = bounds.keys(rows)
    minima = keys.view(len(rows), _GROUP, -1).amin(dim=1)
    groups = minima.shape[1]
    group = minima.topk(min(candidates, groups), largest=False, sorted=False).indices
    steps = torch.arange(0, keys.shape[1], groups, device=keys.device)
    columns = (group[:, None, :] + steps[:, None]).flatten(1)
    smallest, place = keys.gather(1, columns).topk(candidates, largest=False)
    # In ascending order, so that of equally distant candidates the first is taken.
    columns = columns.gather(1, place).sort(dim=1).values
    distances, order = bounds.exact(rows, columns).sort(dim=1, stable=True)

    last = distances[:, k - 1]
    limit = (last / bounds.scale).square() / 2 * _rounding(d)
    # All rows left out have at least the largest key of the candidates. Nothing is nearer than 0.
    proven = (smallest[:, -1].to(torch.float64) + bounds.floor[rows] >= limit) | (last == 0)
    if candidates == n - 1:
        proven[:] = True
    return distances[:, :k], columns.gather(1, order[:, :k]), proven


def _search_within(bounds: DistanceBounds, rows: Tensor, reached: Tensor) -> tuple[Tensor, Tensor]:
    """The k nearest rows, b×k, where for each row some k rows were found at distances `reached`.

    Every row whose bound is not beyond the k-th of them is measured.
    """
    n, d = bounds.cloud.shape
    k = reached.shape[1]
    limit = (reached[:, -1:] / bounds.scale).square() / 2 * _rounding(d) - bounds.floor[rows, None]
    place, column = (bounds.keys(rows)[:, :n] <= limit).nonzero(as_tuple=True)
    distance = bounds.exact(rows[place], column[:, None])[:, 0]
    order = distance.argsort(stable=True)
    order = order[place[order].argsort(stable=True)]
    counts = torch.bincount(place, minlength=len(rows))
    start = counts.cumsum(0) - counts
    nearest = order[start[:, None] + torch.arange(k, device=rows.device)]
    return distance[nearest], column[nearest]


def _rounding(d: int) -> float:
    """A factor that a computed square of a distance is not off by."""
    return 1 + (d + 8) * torch.finfo(torch.float64).eps

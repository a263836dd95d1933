r"""Exact nearest neighbours in blocks: as fast as one float32 product, as right as float64.

For rows y about their mean, half a squared distance is ‖y_i‖²/2 + ‖y_j‖²/2 − y_i·y_j. One float32
product gives it for a tile of pairs, with a rounding error that is known in advance; subtracting
that error makes it a lower bound. A pair has one bound, so the tiles on and above the diagonal are
enough: each serves its rows and its columns. The few rows with the smallest bounds are measured
again in float64 from their differences. Where the k-th of these distances does not exceed the bound
of any row left out, the search is proven right; the other rows, such as those in very tight
clusters or with many ties, are searched again with bounds in float64.
"""

import warnings
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from isotropy._factor import Factor
from isotropy.errors import IsotropyWarning, SettingError, UndefinedError
from isotropy.inputs import equal_rows_error, require_rows

# Candidates beyond k: they set the k-th distance apart from the bounds of the rows left out.
_SPARE = 4
# Keys are looked through in groups of this many: the k smallest lie in the k groups with the
# smallest minima, and a minimum costs far less than a selection.
_GROUP = 32
# Values in one block of pairs. On a CPU it stays near the processor's cache.
_BLOCK_VALUES = 1 << 22
_BLOCK_VALUES_ON_ACCELERATOR = 1 << 27
# Rows and columns of a tile: small ones waste less below the diagonal, but each call waits for the
# last of its threads, and on a busy machine that is long.
_SIDE = 2048
_SIDE_ON_ACCELERATOR = 8192
# Enough rows for a product to be taken as that of a tile.
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
        Distances in float64, and indices, n×k. The memory beside them is a copy of the cloud, a
        few candidates more than k for each row, and a tile of pairs.

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
    distances, indices, proven = _measured(bounds, _candidates(bounds, min(k + _SPARE, n - 1)), k)
    open_rows = (~proven).nonzero()[:, 0]
    if len(open_rows):
        bounds = DistanceBounds(cloud, torch.float64, about)
        for rows in torch.split(open_rows, max(1, block_values(cloud.device) // n)):
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
    """Lower bounds of the distances between rows, by one product for a tile of pairs.

    In units of `scale`, and with h_i = ‖y_i‖²/2 about the mean, half the squared distance of rows i
    and j is at least keys_ij − `slack`, where keys_ij = keys_ji ≈ h_i + h_j − y_i·y_j.

    Args:
        cloud: n×d, in float32 or float64.
        dtype: the dtype of the product.
        about: the cloud's `centre_and_scale`.

    Attributes:
        cloud: the same.
        dtype: the same.
        scale: a power of two near the largest coordinate about the mean.
        slack: how far products that underflow can be off.
        width: n rounded up, as fillers with very large keys make it a multiple of `_GROUP`.
        far: a very large key.
    """

    def __init__(self, cloud: Tensor, dtype: torch.dtype, about: tuple[Tensor, float]) -> None:
        n, d = cloud.shape
        self.cloud, self.dtype = cloud, dtype
        centre, self.scale = about

        # In any order of summation, a sum of t = d + 2 products is off by at most tu/(1 − tu) of
        # the sum of their sizes, where u is the unit of rounding; rounding y and h first adds 3u.
        # Here the sizes sum to at most |y_i|·|y_j| + h_i + h_j ≤ 2(h_i + h_j).
        product, wide = torch.finfo(dtype), torch.finfo(torch.float64)
        terms = (d + 8) * product.eps / 2
        error = terms / (1 - terms) + (d + 8) * wide.eps
        # A product that underflows is off by at most the smallest normal number.
        self.slack = 2 * (d + 8) * product.tiny
        self.far = product.max / 4

        self.width = -(-n // _GROUP) * _GROUP
        # Columns y, h and 1; those of a `factor` are −y, 1 and h.
        self._rows = torch.zeros(self.width, d + 2, dtype=dtype, device=cloud.device)
        self._rows[:, -1] = 1
        self._rows[n:, -2] = self.far
        step = max(1, block_values(cloud.device) // (4 * d))
        for start in range(0, n, step):
            part = slice(start, min(start + step, n))
            y = (cloud[part].to(torch.float64) - centre) / self.scale
            self._rows[part, :d] = y
            self._rows[part, d] = y.square().sum(dim=1) / 2 * (1 - 2 * error)

    def factor(self, rows: slice | Tensor) -> Factor:
        """What `keys` takes as columns."""
        own = self._rows[rows]
        left = -own
        left[:, -2], left[:, -1] = 1, own[:, -2]
        return Factor(left)

    def keys(self, rows: slice, columns: Factor) -> Tensor:
        """The keys of rows and columns; those of a row with itself are without meaning."""
        return columns.times(self._rows[rows])

    def has_full_products(self) -> bool:
        """Whether the device multiplies in the dtype's full precision, as the bounds assume.

        Settings can make it round float32 to TensorFloat32 or bfloat16 for speed.
        """
        rows = slice(_side(self.cloud.device))
        one = torch.zeros_like(self._rows[:_FEW_ROWS])
        one[:, -2] = 1 + 2.0**-20  # in fewer bits this would be 1
        expected = self._rows[rows, -2:-1] * one[:, -2]
        return torch.equal(self.keys(rows, Factor(one)), expected)

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


def block_values(device: torch.device) -> int:
    """How many values a block of pairs should have to be fast and small."""
    return _BLOCK_VALUES if device.type == "cpu" else _BLOCK_VALUES_ON_ACCELERATOR


def centre_and_scale(cloud: Tensor) -> tuple[Tensor, float]:
    """The mean in float64, and a power of two near the largest coordinate about it."""
    centre = cloud.mean(dim=0, dtype=torch.float64)
    low, high = cloud.amin(dim=0), cloud.amax(dim=0)  # together they would take six times as long
    reach = torch.maximum(high - centre, centre - low).max()
    return centre, 2.0 ** reach.log2().floor().item() if reach > 0 else 1.0


def _side(device: torch.device) -> int:
    return _SIDE if device.type == "cpu" else _SIDE_ON_ACCELERATOR


def _candidates(bounds: DistanceBounds, count: int) -> tuple[Tensor, Tensor]:
    """The smallest keys of each row with others, in ascending order, and these others; n×count."""
    n, device = len(bounds.cloud), bounds.cloud.device
    keys = torch.full((bounds.width, count), torch.inf, dtype=bounds.dtype, device=device)
    others = torch.zeros(bounds.width, count, dtype=torch.int64, device=device)
    side = max(_side(device), -(-count // _GROUP) * _GROUP)
    tiles = [
        slice(start, min(start + side, bounds.width)) for start in range(0, bounds.width, side)
    ]
    for i, right in enumerate(tiles):
        factor = bounds.factor(right)
        tile = bounds.keys(right, factor).fill_diagonal_(bounds.far)
        found, column = _smallest(tile, count)
        keys[right, : found.shape[1]], others[right, : found.shape[1]] = found, column + right.start
        for left in tiles[:i]:
            tile = bounds.keys(left, factor)
            _improve(keys[left], others[left], tile, _minima(tile), right.start)
            # Minima along the rows of a transpose would take ten times as long.
            minima = tile.view(_GROUP, -1, tile.shape[1]).amin(dim=0).T
            _improve(keys[right], others[right], tile.T, minima, left.start)
    return keys[:n], others[:n]


def _smallest(tile: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The smallest keys of each of a tile's rows, ascending, and their columns; r×count at most."""
    minima = _minima(tile)
    groups = minima.shape[1]
    group = minima.topk(min(count, groups), largest=False, sorted=False).indices
    columns = _members(group, groups).flatten(1)
    keys, place = tile.gather(1, columns).topk(min(count, tile.shape[1]), largest=False)
    return keys, columns.gather(1, place)


def _improve(keys: Tensor, others: Tensor, tile: Tensor, minima: Tensor, start: int) -> None:
    """Merge a tile into its rows' smallest keys so far, both r×count and overwritten.

    With every tile fewer of its keys are among the smallest, so the few that are get picked out.

    Args:
        keys: the smallest so far, in ascending order.
        others: whose they are.
        tile: r×m.
        minima: the smallest key in each row's groups of columns.
        start: the number of its first column.
    """
    largest = keys[:, -1:]
    row, group = (minima < largest).nonzero(as_tuple=True)
    column = _members(group, minima.shape[1])
    key = tile[row[:, None], column]
    hit, member = (key < largest[row]).nonzero(as_tuple=True)
    if not len(hit):
        return
    row, column, key = row[hit], column[hit, member], key[hit, member]
    # They come in the order of their rows: move each to its row's next free place.
    counts = torch.bincount(row, minlength=len(keys))
    place = torch.arange(len(row), device=row.device) - (counts.cumsum(0) - counts)[row]
    shape = len(keys), int(counts.max())
    more = keys.new_full(shape, torch.inf).index_put_((row, place), key)
    whose = others.new_zeros(shape).index_put_((row, place), column + start)
    smallest = torch.cat((keys, more), dim=1).topk(keys.shape[1], largest=False)
    keys.copy_(smallest.values)
    others.copy_(torch.cat((others, whose), dim=1).gather(1, smallest.indices))


def _minima(tile: Tensor) -> Tensor:
    """The smallest key in each row's groups of columns."""
    return tile.view(len(tile), _GROUP, -1).amin(dim=1)


def _members(group: Tensor, groups: int) -> Tensor:
    """The columns in each group, … × _GROUP: every `groups`-th from the group's own number on."""
    return group[..., None] + torch.arange(_GROUP, device=group.device) * groups


def _measured(
    bounds: DistanceBounds, candidates: tuple[Tensor, Tensor], k: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Distances and indices of the k nearest candidates, n×k; for which rows they are proven."""
    n, d = bounds.cloud.shape
    keys, others = candidates
    # In ascending order, so that of equally distant candidates the first is taken.
    others = others.sort(dim=1).values
    rows = torch.arange(n, device=others.device)
    distances, order = bounds.exact(rows, others).sort(dim=1, stable=True)
    last = distances[:, k - 1]
    limit = (last / bounds.scale).square() / 2 * _rounding(d)
    # All rows left out have at least the largest key of the candidates. Nothing is nearer than 0.
    proven = (keys[:, -1].to(torch.float64) - bounds.slack >= limit) | (last == 0)
    if keys.shape[1] == n - 1:
        proven[:] = True
    return distances[:, :k], others.gather(1, order[:, :k]), proven


def _search_within(bounds: DistanceBounds, rows: Tensor, reached: Tensor) -> tuple[Tensor, Tensor]:
    """The k nearest rows, b×k, where for each row some k rows were found at distances `reached`.

    Every row whose bound is not beyond the k-th of them is measured.
    """
    n, d = bounds.cloud.shape
    k = reached.shape[1]
    limit = (reached[:, -1:] / bounds.scale).square() / 2 * _rounding(d) + bounds.slack
    keys = bounds.keys(slice(n), bounds.factor(rows)).T.scatter(1, rows[:, None], bounds.far)
    place, column = (keys <= limit).nonzero(as_tuple=True)
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

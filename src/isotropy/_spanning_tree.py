"""Euclidean minimum spanning trees and forests, found without gradient."""

from collections.abc import Callable, Iterator
from itertools import combinations, pairwise
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree
from torch import Tensor

from isotropy._boruvka import boruvka

Floats: TypeAlias = NDArray[np.floating]
Rows: TypeAlias = NDArray[np.int64]

# Squares of coordinates between these are safe in float32.
_SAFE = (1e-9, 1e9)
# The products of this many rows with as many others are held at once: 64 MB, or 128 in float64.
_BLOCK_ROWS = 4096
# From this many rows on float32 is tried first.
_MANY_ROWS = 512
# What float32 may cost: by how much of its total length a tree may be longer than the shortest.
_EXCESS = 1e-5
# How many edges tell the error of float32's distances.
_PROBES = 1024


class _Edges(NamedTuple):
    left: Rows
    right: Rows
    weights: Floats


def spanning_forest(cloud: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Both ends of the edges of the minimum spanning tree, or of one tree for each label.

    On an accelerator everything stays there (Borůvka); on a CPU numpy is faster (Prim).

    Args:
        cloud: n×d, float32 or float64, without gradient.
        labels: n integers; rows join rows with the same label only.

    Returns:
        Two tensors of at most n row numbers. Besides the trees' edges there may be edges of a row
        to itself.

    Example:
        >>> left, right = spanning_forest(torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 5.0]]))
        >>> left.tolist(), right.tolist()
        ([0, 1, 2], [0, 0, 1])
    """
    if cloud.device.type != "cpu":
        return boruvka(cloud, labels)
    names = None if labels is None else labels.numpy()
    if names is None or len(cloud) <= _BLOCK_ROWS:
        trees = [_tree_of_cloud(cloud, names)]
    else:
        members = [np.flatnonzero(names == name) for name in np.unique(names)]
        trees = [_renumbered(_tree_of_cloud(cloud[rows]), rows) for rows in members]
    edges = _union(trees)
    return torch.from_numpy(edges.left), torch.from_numpy(edges.right)


def _tree_of_cloud(cloud: Tensor, labels: Rows | None = None) -> _Edges:
    """The tree by float32 distances if it is shown to be short enough, else by float64's.

    About the mean ‖a‖² + ‖b‖² − 2ab is right in float64 for edges down to 1e-7 of the cloud's
    width, which is as far as float32 coordinates tell points apart.
    """
    points = cloud - cloud.mean(dim=0, dtype=torch.float64)
    low, high = torch.aminmax(points)
    largest = max(-float(low), float(high))
    if not _SAFE[0] < largest < _SAFE[1] and largest > 0:
        points /= largest
    if len(points) >= _MANY_ROWS:
        edges = _tree(points.float(), labels)
        if _is_short(edges, points):
            return edges
    return _tree(points, labels)


def _is_short(edges: _Edges, points: Tensor) -> bool:
    """Whether errors of the weights cannot have made the tree much longer than the shortest.

    Errors up to δ move each of the shortest tree's weights, in order, by δ at most, and those that
    the chosen edges truly have by δ again. With weights l²/2 that is 2δ/l for an edge of length l.
    """
    left, right, weights = (column[edges.left != edges.right] for column in edges)
    some = slice(None, None, len(weights) // _PROBES + 1)
    steps = points[left[some]] - points[right[some]]
    exact = torch.linalg.vector_norm(steps, dim=1).square().div(2).numpy()
    # Chosen edges are those whose errors made them short, so this is near the largest error of all.
    error = 2 * np.abs(weights[some] - exact).max(initial=0)
    lengths = np.sqrt(2 * np.maximum(weights.astype(np.float64), error))
    return bool((2 * error / lengths).sum() <= _EXCESS * lengths.sum())


def _tree(points: Tensor, labels: Rows | None = None) -> _Edges:
    if len(points) > _BLOCK_ROWS:
        return _minimal(_union(list(_forests(points))), len(points))
    halves = _half_squares(points)
    products = torch.mm(points, points.T).numpy()
    if labels is not None:
        products[labels[:, None] != labels] = -np.inf
    return _prim(halves, lambda row: (slice(None), products[row]))


def _half_squares(points: Tensor) -> Floats:
    halves: Floats = torch.linalg.vector_norm(points, dim=1).square().div(2).numpy()
    return halves


def _prim(halves: Floats, products_of: Callable[[int], tuple[slice, Floats]]) -> _Edges:
    """Prim's algorithm on half the squared distances, ‖a‖²/2 + ‖b‖²/2 − ab, which order likewise.

    Args:
        halves: n, half the squared norm of each row.
        products_of: given a row, the slice of the rows that it may join and its products with
            them; a product of −∞ forbids.

    Returns:
        n edges, from each row to the one that it joined; the first row of a tree joins itself.
    """
    n = len(halves)
    waiting = halves.copy()  # infinite once a row is in a tree, as then are the distances to it
    nearest = np.full_like(halves, np.inf)
    joined = np.arange(n)
    weights = np.zeros_like(halves)
    row = 0
    for _ in range(n - 1):
        waiting[row] = nearest[row] = np.inf
        part, products = products_of(row)
        distances = waiting[part] - products
        distances += halves[row]
        rest = nearest[part]
        joined[part][distances < rest] = row
        np.minimum(rest, distances, out=rest)
        row = int(nearest.argmin())
        if nearest[row] < np.inf:
            weights[row] = nearest[row]
        else:  # this tree is complete: start the next
            row = int(np.isfinite(waiting).argmax())
    return _Edges(np.arange(n), joined, weights)


def _forests(points: Tensor) -> Iterator[_Edges]:
    """The minimum spanning forest of each block of rows, and between each pair of blocks.

    An edge of the whole tree is in the minimum spanning forest of any part of the graph that holds
    it, so all of them are among these.
    """
    n = len(points)
    starts = np.linspace(0, n, -(-n // _BLOCK_ROWS) + 1).astype(int)
    blocks = [(points[start:end], np.arange(start, end)) for start, end in pairwise(starts)]
    for block, rows in blocks:
        yield _renumbered(_tree(block), rows)
    for (above, above_rows), (below, below_rows) in combinations(blocks, 2):
        yield _renumbered(_tree_between(above, below), np.concatenate((above_rows, below_rows)))


def _tree_between(above: Tensor, below: Tensor) -> _Edges:
    """The minimum spanning tree of the edges between two blocks of rows."""
    k = len(above)
    across = torch.mm(above, below.T)
    down, up = across.numpy(), across.T.contiguous().numpy()
    halves = np.concatenate((_half_squares(above), _half_squares(below)))
    return _prim(
        halves,
        lambda row: (slice(k, None), down[row]) if row < k else (slice(k), up[row - k]),
    )


def _minimal(edges: _Edges, n: int) -> _Edges:
    """The minimum spanning tree of a graph of n rows, without edges of a row to itself."""
    real = edges.left != edges.right
    left, right, weights = (column[real] for column in edges)
    # To scipy a zero is no edge, so edges weigh as much as their rank: only their order matters.
    order = weights.argsort(kind="stable")
    ranks = np.empty(len(order))
    ranks[order] = np.arange(1, len(order) + 1)
    graph = coo_array((ranks, (left, right)), shape=(n, n))
    tree = minimum_spanning_tree(graph.tocsr()).tocoo()
    chosen = order[tree.data.astype(np.int64) - 1]
    return _Edges(left[chosen], right[chosen], weights[chosen])


def _renumbered(edges: _Edges, rows: Rows) -> _Edges:
    return _Edges(rows[edges.left], rows[edges.right], edges.weights)


def _union(parts: list[_Edges]) -> _Edges:
    return _Edges(*(np.concatenate(column) for column in zip(*parts, strict=True)))

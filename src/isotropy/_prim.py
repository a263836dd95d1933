"""Prim's algorithm in numpy, and the edges that rounding could have kept out of its tree."""

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Floats: TypeAlias = NDArray[np.floating]
Rows: TypeAlias = NDArray[np.int64]

# OpenBLAS starts no thread for a product of this many multiplications.
_ONE_THREAD = 1 << 18


class Edges(NamedTuple):
    """Edges between rows; an edge weighs half its squared length."""

    left: Rows
    right: Rows
    weights: Floats


class Graph(NamedTuple):
    """A graph whose edge between the rows a and b weighs ‖a‖²/2 + ‖b‖²/2 − ab.

    Attributes:
        halves: n, half the squared norm of each row.
        products_of: given a row, the slice of the rows that it may join and its products with
            them; a product of −∞ forbids.
    """

    halves: Floats
    products_of: Callable[[int], tuple[slice, Floats]]


def complete(points: Tensor, labels: Rows | None = None) -> Graph:
    """The graph of all edges, or of those between rows of the same label."""
    products = torch.mm(points, points.T).numpy()
    if labels is not None:
        products[labels[:, None] != labels] = -np.inf
    everything = slice(None)
    return Graph(_half_squares(points), lambda row: (everything, products[row]))


def between(above: Tensor, below: Tensor) -> Graph:
    """The graph of the edges between two sets of rows, which are numbered one after the other."""
    k = len(above)
    products = torch.mm(above, below.T)
    down, up = products.numpy(), products.T.contiguous().numpy()
    first, second = slice(k), slice(k, None)
    return Graph(
        np.concatenate((_half_squares(above), _half_squares(below))),
        lambda row: (second, down[row]) if row < k else (first, up[row - k]),
    )


def _half_squares(points: Tensor) -> Floats:
    norms = torch.linalg.vector_norm(points, dim=1, dtype=torch.float64)
    halves: Floats = norms.square().div(2).to(points.dtype).numpy()
    return halves


def prim(graph: Graph) -> Edges:
    """The minimum spanning forest, in the order in which it grows.

    Returns:
        n edges, from each row to the row that it joined; the first row of a tree joins itself.

    Example:
        >>> prim(complete(torch.tensor([[0.0, 0.0], [3.0, 0.0], [2.0, 0.0]])))
        Edges(left=array([0, 2, 1]), right=array([0, 0, 2]), weights=array([0. , 2. , 0.5], ...
    """
    halves, products_of = graph
    n = len(halves)
    waiting = halves.copy()  # infinite once a row is in a tree, as then are the distances to it
    nearest = np.full_like(halves, np.inf)
    joined = np.arange(n)
    order = np.zeros(n, dtype=np.int64)
    weights = np.zeros_like(halves)
    row = 0
    for step in range(1, n):
        waiting[row] = nearest[row] = np.inf
        part, products = products_of(row)
        distances = waiting[part] - products
        distances += halves[row]
        rest = nearest[part]
        joined[part][distances < rest] = row
        np.minimum(rest, distances, out=rest)
        row = int(nearest.argmin())
        if nearest[row] < np.inf:
            weights[step] = nearest[row]
        else:  # this tree is complete: start the next
            row = int(np.isfinite(waiting).argmax())
        order[step] = row
    return Edges(order, joined[order], weights)


def few_rows_tree(points: Floats, labels: Rows | None = None) -> Edges:
    """What `prim` finds in the complete graph, in half the time where rows are few.

    The order in which the tree grows tells which row each one joined, so steps need not keep it.
    """
    n = len(points)
    products = _few_products(points)
    halves = products.diagonal() / 2
    weights = halves[:, None] + halves - products
    if labels is not None:
        weights[labels[:, None] != labels] = np.inf
    left = weights.copy()  # columns of rows in a tree become infinite
    nearest = np.full(n, np.inf, dtype=weights.dtype)
    order = np.zeros(n, dtype=np.int64)
    row = 0
    for step in range(1, n):
        left[:, row] = np.inf
        np.minimum(nearest, left[row], out=nearest)
        nearest[row] = np.inf
        row = int(nearest.argmin())
        if nearest[row] == np.inf:  # this tree is complete: start the next
            row = int(np.setdiff1d(np.arange(n), order[:step])[0])
        order[step] = row
    grown = weights[np.ix_(order, order)]
    grown[~np.tri(n, k=-1, dtype=bool)] = np.inf
    place = grown.argmin(axis=1)
    least = grown[np.arange(n), place]
    joins = least < np.inf
    return Edges(order, np.where(joins, order[place], order), np.where(joins, least, 0))


def _few_products(points: Floats) -> Floats:
    """All products of rows, in steps so small that numpy takes them without a second thread.

    Where another library's threads are still spinning, waking one takes longer than all the rest.
    """
    n, d = points.shape
    step = max(1, _ONE_THREAD // n**2)
    products = np.zeros((n, n), dtype=points.dtype)
    for start in range(0, d, step):
        part = points[:, start : start + step]
        products += part @ part.T
    return products


def near_ties(
    graph: Graph, tree: Edges, slack: float, error: float, limit: int
) -> tuple[Rows, Rows] | None:
    """The edges outside of Prim's tree that could be in the true tree.

    An edge that is heavier than all on the tree's path between its ends is not in the true tree.
    In the order in which the tree grew, the heaviest on the path from a row to an earlier one
    weighs as much as the heaviest that was added after the earlier one, up to the row itself.

    Args:
        graph: the graph, with weights that are wrong by up to slack·(‖a‖² + ‖b‖²)/2.
        tree: what `prim` found in it.
        slack: see above.
        error: by how much any edge of `tree` may be heavier than it says.
        limit: with more edges than this the search is given up.

    Returns:
        Both ends of these edges, or None if there are too many.
    """
    halves, products_of = graph
    reduced = halves * halves.dtype.type(1 - slack)
    seen = np.full_like(halves, np.inf)  # what is reduced of the rows so far, infinite for others
    heaviest = np.zeros_like(halves)  # on the way from the present row to each earlier one
    # Between trees there is no way. The largest number stands for that, as ∞ − ∞ is not one.
    added = np.where(tree.left == tree.right, np.finfo(halves.dtype).max, tree.weights)
    rows, ends, found = [], [], 0
    for row, step in zip(tree.left.tolist(), added, strict=True):
        np.maximum(heaviest, step, out=heaviest)
        part, products = products_of(row)
        least = seen[part] - products
        least -= heaviest[part]
        near = (least <= error - reduced[row]).nonzero()[0]
        seen[row], heaviest[row] = reduced[row], 0
        found += len(near)
        if found > limit + len(halves):  # the tree's own edges are among them
            return None
        rows.append(np.full(len(near), row))
        ends.append(near + (part.start or 0))
    left, right = np.concatenate(rows), np.concatenate(ends)
    joined = np.empty_like(tree.left)
    joined[tree.left] = tree.right
    new = joined[left] != right
    return left[new], right[new]

"""Euclidean minimum spanning trees and forests, found without gradient.

Half the squared distance of two rows is ‖a‖²/2 + ‖b‖²/2 − ab: a matrix product gives all of them.
About the mean, float64 is right for edges down to 1e-7 of the cloud's width, as far as float32
coordinates tell points apart. float32 is twice as fast and wrong by a bound that is known, so many
rows are searched in float32 for every edge that might be in the tree, and float64 decides.
"""

from collections.abc import Iterator
from itertools import combinations, pairwise

import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import minimum_spanning_tree
from torch import Tensor

from isotropy._boruvka import boruvka
from isotropy._prim import (
    Edges,
    Floats,
    Graph,
    Rows,
    between,
    complete,
    few_rows_tree,
    near_ties,
    prim,
)

# The products of this many rows with as many others are held at once: 64 MB, or 128 in float64.
_BLOCK_ROWS = 4096
# From this many rows on the search in float32 pays.
_MANY_ROWS = 2048
# Up to this many rows a tree is found faster on one thread.
_FEW_ROWS = 96
# Squares of coordinates between these are safe in float32.
_SAFE = (1e-9, 1e9)
# With more near ties than this many a row, float64 is faster.
_TIES_PER_ROW = 4
# How many edges' rows are gathered at once: this many coordinates stay in the cache. Larger arrays,
# given back between small ones that are kept, would also leave the heap full of holes.
_CHUNK_VALUES = 1 << 15


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
        edges = _tree(_centred(cloud), names)
    else:
        members = [np.flatnonzero(names == name) for name in np.unique(names)]
        edges = _union([_renumbered(_tree(_centred(cloud[rows])), rows) for rows in members])
    return torch.from_numpy(edges.left), torch.from_numpy(edges.right)


def _centred(cloud: Tensor) -> Tensor:
    """The cloud about its mean, in float64 and at a scale where squares are safe."""
    # In numpy, as of a small cloud the work is less than waking a second thread.
    rows = cloud.numpy()
    with np.errstate(over="ignore", invalid="ignore"):  # in the last decade of float64
        points = rows - rows.mean(axis=0, dtype=np.float64)
        largest = max(-points.min(), points.max())
        if largest > 0 and not _SAFE[0] < largest < _SAFE[1]:
            points /= largest
    return torch.from_numpy(points)


def _tree(points: Tensor, labels: Rows | None = None) -> Edges:
    n = len(points)
    # At a lower precision torch may round the factors of float32 products.
    if n >= _MANY_ROWS and torch.get_float32_matmul_precision() == "highest":
        candidates = _candidates(points, labels)
        if candidates is not None:
            return _minimal(candidates, n)
    if n <= min(_FEW_ROWS, _BLOCK_ROWS):
        return few_rows_tree(points.numpy(), labels)
    forests = [_renumbered(prim(graph), rows) for graph, rows in _parts(points, labels)]
    return forests[0] if len(forests) == 1 else _minimal(_union(forests), n)


def _parts(points: Tensor, labels: Rows | None = None) -> Iterator[tuple[Graph, Rows]]:
    """The graph of the edges in each block of rows and between each pair, with its rows' numbers.

    An edge of a graph's minimum spanning tree is also in that of any part that holds it. So the
    whole tree is among the edges of the parts' trees.
    """
    n = len(points)
    if n <= _BLOCK_ROWS:
        yield complete(points, labels), np.arange(n)
        return
    starts = np.linspace(0, n, -(-n // _BLOCK_ROWS) + 1).astype(int)
    blocks = [(points[start:end], np.arange(start, end)) for start, end in pairwise(starts)]
    for block, rows in blocks:
        yield complete(block), rows
    for (above, upper), (below, lower) in combinations(blocks, 2):
        yield between(above, below), np.concatenate((upper, lower))


def _candidates(points: Tensor, labels: Rows | None) -> Edges | None:
    """All edges that may be in the tree, found in float32, with their weights in float64.

    None if the rows are too near to each other for float32 to tell many edges apart.
    """
    # Of a product of d terms the error is at most d·2⁻²⁴‖a‖‖b‖, of all other steps less than 16.
    slack = (points.shape[1] + 16) * 2.0**-24
    found = []
    for graph, rows in _parts(points.float(), labels):
        tree = prim(graph)
        exact = _weights(points, rows[tree.left], rows[tree.right])
        error = float((exact - tree.weights).max())
        ties = near_ties(graph, tree, slack, error, limit=_TIES_PER_ROW * len(rows))
        if ties is None:
            return None
        left, right = (rows[ends] for ends in ties)
        found.append(Edges(rows[tree.left], rows[tree.right], exact))
        found.append(Edges(left, right, _weights(points, left, right)))
    return _union(found)


def _weights(points: Tensor, left: Rows, right: Rows) -> Floats:
    """The weights of edges, from differences."""
    size = max(1, _CHUNK_VALUES // points.shape[1])
    pieces = [
        torch.linalg.vector_norm(points[left[k : k + size]] - points[right[k : k + size]], dim=1)
        for k in range(0, len(left), size)
    ]
    weights: Floats = torch.cat(pieces).square().div(2).numpy() if pieces else np.zeros(0)
    return weights


def _minimal(edges: Edges, n: int) -> Edges:
    """The minimum spanning forest of n rows' edges, without those of a row to itself."""
    real = edges.left != edges.right
    left, right, weights = (column[real] for column in edges)
    # To scipy a zero is no edge, so edges weigh as much as their rank: only their order matters.
    order = weights.argsort(kind="stable")
    ranks = np.empty(len(order))
    ranks[order] = np.arange(1, len(order) + 1)
    graph = coo_array((ranks, (left, right)), shape=(n, n))
    tree = minimum_spanning_tree(graph.tocsr()).tocoo()
    chosen = order[tree.data.astype(np.int64) - 1]
    return Edges(left[chosen], right[chosen], weights[chosen])


def _renumbered(edges: Edges, rows: Rows) -> Edges:
    return Edges(rows[edges.left], rows[edges.right], edges.weights)


def _union(parts: list[Edges]) -> Edges:
    return Edges(*(np.concatenate(column) for column in zip(*parts, strict=True)))

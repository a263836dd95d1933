"""Spanning forests with tensor operations only: many clouds at once, and nothing leaves the device.

Borůvka's rounds with static shapes: how many rounds, blocks and kernels run depends on the number
of rows alone, so nothing is ever read back to decide what comes next.
"""

from collections.abc import Iterator
from math import ceil, log2

import torch
from torch import Tensor

# A block of rows holds at most this many distances.
_BLOCK_DISTANCES = 1 << 25


def boruvka(cloud: Tensor, labels: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """The edges of the minimum spanning forest, one tree for each label.

    In every round each tree takes the lightest edge that leaves it and hooks onto the tree at its
    other end. A tree that hooks on gives up its representative row for good, and that row's slot
    keeps the edge; the slots of the last representatives keep an edge of a row to itself.

    Distances are those of differences, not of a product: far from the origin and between near
    points they stay exact to rounding.

    Args:
        cloud: n×d, without gradient.
        labels: n integers; rows join rows with the same label only.

    Returns:
        Both ends of the n edges.

    Reference: Borůvka (1926); Vineet et al., Fast minimum spanning tree for large graphs on the
    GPU (2009), for the rounds.

    Example:
        >>> left, right = boruvka(torch.tensor([[0.0, 0.0], [0.0, 1.0], [0.0, 5.0]]))
        >>> left.tolist(), right.tolist()
        ([0, 0, 1], [0, 1, 2])
    """
    n = len(cloud)
    rows = torch.arange(n, device=cloud.device)
    tree, left, right = rows, rows, rows
    doublings = ceil(log2(max(n, 1)))
    whole = list(_distances(cloud)) if n * n <= _BLOCK_DISTANCES else None
    for _ in range(doublings):
        length, edge = _lightest_edges(whole or _distances(cloud), tree, labels)
        found = length < torch.inf
        edge = torch.where(found, edge, 0)
        low, high = edge // n, edge % n
        # `tree` names a tree by its representative row, so other slots found nothing.
        parent = torch.where(found, torch.where(tree[low] == rows, tree[high], tree[low]), rows)
        # Of two trees that hook onto each other the first stays.
        parent = torch.where((parent[parent] == rows) & (rows < parent), rows, parent)
        hooked = parent != rows
        left, right = torch.where(hooked, low, left), torch.where(hooked, high, right)
        for _ in range(doublings):
            parent = parent[parent]
        tree = parent[tree]
    return left, right


def _distances(cloud: Tensor) -> Iterator[Tensor]:
    """All rows' distances to all rows, a block of rows at a time."""
    for block in torch.split(cloud, max(1, _BLOCK_DISTANCES // len(cloud))):
        yield torch.cdist(block, cloud, compute_mode="donot_use_mm_for_euclid_dist")


def _lightest_edges(
    blocks: Iterator[Tensor] | list[Tensor], tree: Tensor, labels: Tensor | None
) -> tuple[Tensor, Tensor]:
    """For each tree the length and the number of the lightest edge that leaves it.

    The number of an edge between rows a < b is a·n + b. Among edges of equal length the lowest
    number wins: without one order for all trees, ties could close a circle.
    """
    n = len(tree)
    rows = torch.arange(n, device=tree.device)
    none = n * n
    lengths, edges, start = [], [], 0
    for distances in blocks:
        here = slice(start, start + len(distances))
        start += len(distances)
        outside = tree[here, None] != tree
        if labels is not None:
            outside &= labels[here, None] == labels
        # NaN compares false: a row that is not finite stays alone.
        distances = torch.where(outside & (distances < torch.inf), distances, torch.inf)
        length = distances.amin(dim=1)
        number = torch.minimum(rows[here, None], rows) * n + torch.maximum(rows[here, None], rows)
        ties = distances == length[:, None]
        lengths.append(length)
        edges.append(torch.where(ties, number, none).amin(dim=1))
    length, edge = torch.cat(lengths), torch.cat(edges)
    best = torch.full_like(length, torch.inf).scatter_reduce(0, tree, length, "amin")
    edge = torch.where(length == best[tree], edge, none)
    return best, torch.full_like(edge, none).scatter_reduce(0, tree, edge, "amin")

"""Exact blocked nearest neighbours."""

from dataclasses import dataclass

from torch import Tensor


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


def nearest_neighbours(cloud: Tensor, k: int) -> Neighbours:
    """The k nearest other rows of every row."""
    ...

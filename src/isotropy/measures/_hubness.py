"""Hubness: whether few rows are among the nearest neighbours of most others."""

from typing import Any, NamedTuple

import torch
from torch import Tensor

from isotropy.inputs import ArrayLike, as_cloud, like
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.neighbours import Neighbours, nearest_neighbours, without_duplicates
from isotropy.settings import whole_number


class Hubness(NamedTuple):
    """What `hubness` gives.

    Attributes:
        skewness: of the numbers of occurrences.
        robin_hood: the share of them that would have to move for all rows to have the same.
    """

    skewness: Any
    robin_hood: Any


def hubness(x: ArrayLike, *, k: int = 10) -> Hubness:
    r"""How unevenly rows occur among the k nearest neighbours of other rows.

    With N_j the number of rows that have row j among their k nearest, whose mean is k,

    $$\text{skewness} = \frac{\frac1n \sum_j (N_j - k)^3}{(\frac1n \sum_j (N_j - k)^2)^{3/2}}
    \qquad \text{Robin Hood index} = \frac{\sum_j |N_j - k|}{2nk}$$

    A skewness far above 0 means hubs, rows that every query finds. Where all N_j are equal it is
    set to 0. Of rows that are equal only one is kept, as duplicates are each other's neighbours.

    Args:
        x: n×d cloud with at least k + 1 rows that differ. No gradient flows.
        k: neighbours of each row.

    Returns:
        Skewness and Robin Hood index: 0-d tensors for a tensor, floats for an array.

    References:
        Radovanović et al. 2010, "Hubs in space: popular nearest neighbors in high-dimensional
        data"; Feldbauer et al. 2018, "Fast approximate hubness reduction for large
        high-dimensional data" (Robin Hood index).

    Example:
        The middle one of three points is the nearest of both others:

        >>> import numpy as np
        >>> hubness(np.array([[0.0, 0.0], [1.0, 0.0], [2.5, 0.0]]), k=1).robin_hood
        0.3333333333333333
    """
    whole_number("k", k, low=1)
    cloud = as_cloud(x, min_rows=k + 1)
    skewness, robin_hood = _unevenness(nearest_neighbours(cloud, k), k).to(cloud.dtype)
    return Hubness(like(x, skewness), like(x, robin_hood))


def _unevenness(neighbours: Neighbours, k: int) -> Tensor:
    """Skewness and Robin Hood index, 2."""
    indices = without_duplicates(neighbours, k, "hubness").indices
    n = len(indices)
    excess = torch.bincount(indices.flatten(), minlength=n).to(torch.float64) - k
    variance = excess.square().mean()
    skewness = excess.pow(3).mean() / variance.clamp(min=1 / n).pow(1.5)
    return torch.stack((skewness, excess.abs().sum() / (2 * n * k)))


def _from_neighbours(neighbours: Neighbours, k: int) -> list[float]:
    values: list[float] = _unevenness(neighbours, k).tolist()
    return values


SPEC = MeasureSpec(
    name="hubness",
    function=hubness,
    numbers=(
        Number("hubness_skewness"),
        Number("hubness_robin_hood", low=0, high=1),
    ),
    summary="whether few rows are the neighbours of most others",
    invariant_to=frozenset({"rotation", "scale", "translation"}),
    differentiable=False,
    min_rows=11,
    trust=(
        "The skewness rests on a few rows and grows with the number of rows; the Robin Hood index "
        "is steadier and has a meaning of its own. Compare clouds of the same number of rows and "
        "with the same k. Hubs appear in any cloud of high intrinsic dimension, isotropic or not. "
        "Both numbers jump where distances tie, as on rows rounded to few bits. Equal rows are "
        "left out."
    ),
    reference=(
        "Radovanović et al. 2010, Hubs in space: popular nearest neighbors in high-dimensional data"
    ),
    options={"k": 10},
    from_neighbours=_from_neighbours,
)

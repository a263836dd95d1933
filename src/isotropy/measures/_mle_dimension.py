"""Intrinsic dimension by maximum likelihood over k nearest neighbours."""

from typing import Any

from torch import Tensor

from isotropy.errors import UndefinedError
from isotropy.inputs import ArrayLike, as_cloud, like
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.neighbours import Neighbours, nearest_neighbours, without_duplicates
from isotropy.settings import whole_number


def mle_dimension(x: ArrayLike, *, k: int = 20) -> Any:
    r"""Levina–Bickel: the dimension of the manifold that the rows lie on, from k neighbours.

    With T_j(i) the distance of row i to its j-th nearest other row,

    $$\frac{1}{d} = \frac{1}{n (k - 1)} \sum_{i=1}^n \sum_{j=1}^{k-1} \log \frac{T_k(i)}{T_j(i)}$$

    The inverses of the rows' estimates are averaged, as MacKay and Ghahramani showed to be the
    maximum-likelihood estimate of all rows together. Levina and Bickel's own mean of the rows'
    estimates is larger by a factor of about (k − 1)/(k − 2), and one row with k equally distant
    neighbours makes it infinite. Of rows that are equal only one is kept.

    Args:
        x: n×d cloud with at least k + 1 rows that differ. No gradient flows.
        k: neighbours of each row, at least 2.

    Returns:
        The dimension, positive: a 0-d tensor for a tensor, a float for an array.

    References:
        Levina & Bickel 2004, "Maximum likelihood estimation of intrinsic dimension"; MacKay &
        Ghahramani 2005, "Comments on" it.

    Example:
        A plane in ten dimensions:

        >>> import torch
        >>> plane = torch.rand(2000, 2, generator=torch.Generator().manual_seed(0))
        >>> round(mle_dimension(plane @ torch.eye(2, 10)).item(), 1)
        2.0
    """
    _require_k(k)
    cloud = as_cloud(x, min_rows=k + 1)
    return like(x, _dimension(nearest_neighbours(cloud, k), k).to(cloud.dtype))


def _require_k(k: int) -> None:
    whole_number("k", k, low=2)


def _dimension(neighbours: Neighbours, k: int) -> Tensor:
    _require_k(k)
    logs = without_duplicates(neighbours, k, "mle_dimension").distances.log()
    # Distances of float64 rows can underflow to 0 although the rows differ.
    logs = logs[logs[:, 0].isfinite()]
    total = (logs[:, -1:] - logs[:, :-1]).sum()
    if not total > 0:
        raise UndefinedError(
            f"got {len(logs)} rows whose {k} nearest rows are equally far, expected rows in "
            "general position: mle_dimension is undefined on regular grids"
        )
    return len(logs) * (k - 1) / total


def _from_neighbours(neighbours: Neighbours, k: int) -> tuple[float]:
    return (float(_dimension(neighbours, k)),)


SPEC = MeasureSpec(
    name="mle_dimension",
    function=mle_dimension,
    numbers=(Number("mle_dimension", low=0),),
    summary="intrinsic dimension by maximum likelihood over k neighbours",
    invariant_to=frozenset({"rotation", "scale", "translation"}),
    differentiable=False,
    min_rows=21,
    trust=(
        "Steadier than two_nn, as it looks at k neighbours, but it assumes that the density is "
        "constant among them. Trust it up to a dimension of about 10; above, it is too low, the "
        "more so the fewer rows there are: compare clouds of the same number of rows and with the "
        "same k. Equal rows are left out; rows that are nearly equal lower it."
    ),
    reference="Levina & Bickel 2004, Maximum likelihood estimation of intrinsic dimension",
    options={"k": 20},
    from_neighbours=_from_neighbours,
)

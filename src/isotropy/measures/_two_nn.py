"""Intrinsic dimension from the two nearest neighbours of every row."""

from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from isotropy.errors import UndefinedError
from isotropy.inputs import ArrayLike, as_cloud, like
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.neighbours import Neighbours, nearest_neighbours, without_duplicates
from isotropy.settings import choice

Method: TypeAlias = Literal["linear", "mle"]


def two_nn(x: ArrayLike, *, method: Method = "linear") -> Any:
    r"""TwoNN: the dimension of the manifold that the rows lie on, from r₂/r₁ of each row.

    With r₁ and r₂ the distances to the nearest and the second nearest other row, and N rows,
    log(r₂/r₁) is exponentially distributed with the dimension as its rate. The largest 10 % are
    discarded; of the others, in ascending order μ₁ ≤ … ≤ μ_m,

    - `"linear"` fits the line through the origin to the points (log μ_i, −log(1 − i/N)):
      $d = -\sum_i \log\mu_i \log(1 - i/N) / \sum_i \log^2 \mu_i$;
    - `"mle"` is the unbiased maximum-likelihood estimate where the N − m others are only known to
      be larger: $d = (m - 1) / (\sum_i \log\mu_i + (N - m) \log\mu_m)$.

    Of rows that are equal only one is kept; N counts those kept.

    Args:
        x: n×d cloud with at least 3 rows that differ. No gradient flows.
        method: `"linear"`, as published, or `"mle"`.

    Returns:
        The dimension, positive: a 0-d tensor for a tensor, a float for an array.

    References:
        Facco et al. 2017, "Estimating the intrinsic dimension of datasets by a minimal
        neighborhood information".

    Example:
        A plane in ten dimensions:

        >>> import torch
        >>> plane = torch.rand(2000, 2, generator=torch.Generator().manual_seed(0))
        >>> round(two_nn(plane @ torch.eye(2, 10)).item(), 1)
        2.0
    """
    cloud = as_cloud(x, min_rows=3)
    return like(x, _dimension(nearest_neighbours(cloud, 2), method).to(cloud.dtype))


def _dimension(neighbours: Neighbours, method: str) -> Tensor:
    choice("method", method, ("linear", "mle"))
    distances = without_duplicates(neighbours, 2, "two_nn").distances
    # Distances of float64 rows can underflow to 0 although the rows differ.
    nearest, second = distances[distances[:, 0] > 0].T
    log_ratios = torch.log1p((second - nearest) / nearest).sort().values
    n = len(log_ratios)
    kept = n * 9 // 10
    fitted = log_ratios[:kept]
    if method == "linear":
        steps = torch.arange(1, kept + 1, dtype=torch.float64, device=fitted.device)
        numerator, denominator = -(fitted @ torch.log1p(-steps / n)), fitted @ fitted
    else:
        numerator = fitted.new_tensor(max(kept - 1, 0))
        denominator = fitted.sum() + (n - kept) * fitted[-1:].sum()
    if not (numerator > 0 and denominator > 0):
        raise UndefinedError(
            f"got {n} rows whose nearest two rows are equally far, expected rows in general "
            "position: two_nn is undefined on regular grids"
        )
    return numerator / denominator


def _from_neighbours(neighbours: Neighbours, method: str) -> tuple[float]:
    return (float(_dimension(neighbours, method)),)


SPEC = MeasureSpec(
    name="two_nn",
    function=two_nn,
    numbers=(Number("two_nn", low=0),),
    summary="intrinsic dimension from the two nearest neighbours",
    invariant_to=frozenset({"rotation", "scale", "translation"}),
    differentiable=False,
    min_rows=3,
    trust=(
        "Trust it up to a dimension of about 10; above, it is too low, the more so the fewer rows "
        "there are, as the rows cannot fill a high-dimensional manifold: compare clouds of the "
        "same number of rows. It sees the scale of the nearest rows only, so that noise there "
        "raises it. Equal rows are left out; rows that are nearly equal, or rounded to few bits, "
        "distort it."
    ),
    reference=(
        "Facco et al. 2017, Estimating the intrinsic dimension of datasets by a minimal "
        "neighborhood information"
    ),
    options={"method": "linear"},
    k=2,
    from_neighbours=_from_neighbours,
)

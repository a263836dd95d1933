"""IsoScore in closed form."""

from typing import Any

from torch import Tensor

from isotropy.covariance import invariants
from isotropy.inputs import ArrayLike, as_symmetric, checked, like
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.moments import Moments


def iso_score(x: ArrayLike) -> Any:
    r"""IsoScore: how evenly the variance is spread over all directions, from 0 to 1.

    $$\text{IsoScore}(X) = \frac{(\operatorname{tr} C)^2 / \|C\|^2 - 1}{d - 1}$$

    with C the covariance. This closed form equals the nine published steps exactly: no
    eigendecomposition, smooth wherever C ≠ 0. It is 0 for rows on a line and 1 where C is a
    multiple of the identity.

    Args:
        x: n×d cloud, n ≥ 2. For n < d the n×n Gram matrix is used, at a cost of O(n²d).

    Returns:
        The score: a 0-d tensor for a tensor, a float for an array.

    References:
        Rudman et al. 2022, "IsoScore: Measuring the uniformity of embedding space utilization".

    Example:
        >>> iso_score(torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
        tensor(1.)
    """
    cloud, bounds = checked(x)
    trace, norm, _ = invariants(cloud, bounds=bounds)
    return like(x, score(trace, norm, cloud.shape[1]))


def iso_score_from_covariance(covariance: ArrayLike) -> Any:
    r"""IsoScore of a known d×d covariance matrix C.

    Args:
        covariance: d×d, symmetric, not zero.

    Example:
        >>> round(iso_score_from_covariance(np.diag([10.0, 6, 4, 4] + [1.0] * 764)), 6)
        0.867339
    """
    matrix = as_symmetric(covariance, name="covariance")
    c = matrix.double()
    c = c / c.detach().abs().max()
    return like(covariance, score(c.trace(), c.square().sum(), len(c)).to(matrix.dtype))


def score(trace: Tensor, norm: Tensor, features: int) -> Tensor:
    """IsoScore from tr C, ‖C‖² and d, without what rounding puts outside of its bounds."""
    return ((trace.square() / norm - 1) / (features - 1)).clamp(0, 1)


def _from_moments(moments: Moments) -> tuple[float]:
    trace, norm, _ = moments.invariants
    return (float(score(trace, norm, moments.d)),)


def _too_few(rows: int, features: int) -> str | None:
    if rows >= features:
        return None
    return (
        f"iso_score of {rows} rows with {features} features is too low: it cannot exceed about "
        f"rows/features; iso_score_unbiased is made for this"
    )


SPEC = MeasureSpec(
    name="iso_score",
    function=iso_score,
    numbers=(Number("iso_score", low=0, high=1, isotropic=1, more_isotropic="higher"),),
    summary="how evenly the variance is spread over directions",
    invariant_to=frozenset({"rotation", "scale", "translation"}),
    differentiable=True,
    min_rows=2,
    trust=(
        "Trust it when there are many more rows than features. Of n rows of a perfectly isotropic "
        "cloud it says about n/(n + d), so that it is too low on small samples: compare clouds "
        "of the same number of rows, or use iso_score_unbiased."
    ),
    reference=(
        "Rudman et al. 2022, IsoScore: Measuring the uniformity of embedding space utilization"
    ),
    warn=_too_few,
    from_moments=_from_moments,
    leaves_out_pairs=True,
)

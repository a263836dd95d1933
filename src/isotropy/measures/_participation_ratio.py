"""Participation ratio: how many directions share the variance."""

from typing import Any

from isotropy.covariance import invariants
from isotropy.inputs import ArrayLike, checked, like
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.moments import Moments


def participation_ratio(x: ArrayLike) -> Any:
    r"""The squared sum of the covariance's eigenvalues over the sum of their squares.

    $$\frac{(\operatorname{tr} C)^2}{\|C\|^2}$$

    It is 1 for rows on a line, d where C is a multiple of the identity, and otherwise
    1 + (d − 1)·IsoScore.

    Args:
        x: n×d cloud, n ≥ 2.

    Returns:
        The ratio: a 0-d tensor for a tensor, a float for an array.

    References:
        Gao et al. 2017, "A theory of multineuronal dimensionality, dynamics and measurement".

    Example:
        >>> participation_ratio(np.array([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]))
        2.0
    """
    cloud, bounds = checked(x)
    trace, norm, _ = invariants(cloud, bounds=bounds)
    return like(x, (trace.square() / norm).clamp(1, cloud.shape[1]))


def _from_moments(moments: Moments) -> tuple[float]:
    trace, norm, _ = moments.invariants
    return (float((trace.square() / norm).clamp(1, moments.d)),)


SPEC = MeasureSpec(
    name="participation_ratio",
    function=participation_ratio,
    numbers=(Number("participation_ratio", low=1, more_isotropic="higher", at_most_d=True),),
    summary="number of directions that share the variance",
    invariant_to=frozenset({"rotation", "scale", "translation"}),
    differentiable=True,
    min_rows=2,
    trust=(
        "Trust it when there are many more rows than features: it is at most min(n - 1, d), and "
        "too low in small samples, as iso_score is, of which it is another scale."
    ),
    reference="Gao et al. 2017, A theory of multineuronal dimensionality, dynamics and measurement",
    from_moments=_from_moments,
    leaves_out_pairs=True,
)

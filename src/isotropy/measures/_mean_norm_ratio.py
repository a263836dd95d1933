"""How much of the squared length of the rows is their mean's."""

from typing import Any

from torch import Tensor

from isotropy.covariance import power_of_two
from isotropy.inputs import ArrayLike, as_cloud, like
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.moments import Moments


def mean_norm_ratio(x: ArrayLike) -> Any:
    r"""The squared norm of the mean row over the mean squared norm of the rows.

    $$\frac{\|\mu\|^2}{\tfrac1n \sum_i \|x_i\|^2}$$

    Args:
        x: n×d cloud, n ≥ 2.

    Returns:
        The ratio, 0 for a centred cloud and near 1 for a narrow cone far from the origin: a 0-d
        tensor for a tensor, a float for an array.

    References:
        Mu & Viswanath 2018, "All-but-the-top", who look at the same two norms.

    Example:
        >>> mean_norm_ratio(np.array([[1.0, 0.0], [0.0, 1.0]]))
        0.5
    """
    cloud = as_cloud(x)
    y = (cloud / power_of_two(cloud.detach().abs().max())).double()
    return like(x, _ratio(y.mean(dim=0), y.square().sum() / len(y)).to(cloud.dtype))


def _ratio(mean: Tensor, mean_square: Tensor) -> Tensor:
    return (mean.square().sum() / mean_square).clamp(0, 1)


def _from_moments(moments: Moments) -> tuple[float]:
    return (float(_ratio(moments.mean, moments.mean_square)),)


SPEC = MeasureSpec(
    name="mean_norm_ratio",
    function=mean_norm_ratio,
    numbers=(Number("mean_norm_ratio", low=0, high=1, isotropic=0, more_isotropic="lower"),),
    summary="share of the mean in the squared norm of the rows",
    invariant_to=frozenset({"rotation", "scale"}),
    differentiable=True,
    min_rows=2,
    trust=(
        "Trust it to tell a narrow cone (near 1) from a centred cloud (near 0). A centred "
        "distribution shows about 1/n in a sample of n rows; the interval takes that out. It says "
        "nothing on how the variance is spread about the mean."
    ),
    reference="Mu & Viswanath 2018, All-but-the-top",
    from_moments=_from_moments,
    leaves_out_pairs=True,
)

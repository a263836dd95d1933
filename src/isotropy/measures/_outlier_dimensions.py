"""Outlier dimensions: features whose variance or mean stands out from all others."""

from math import inf
from typing import Any, NamedTuple

import torch
from torch import Tensor

from isotropy.covariance import Centring, blocks, power_of_two
from isotropy.inputs import ArrayLike, as_cloud, like
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.moments import Moments
from isotropy.settings import number


class OutlierDimensions(NamedTuple):
    """What `outlier_dimensions` gives.

    Attributes:
        by_variance: how many dimensions have an outlying variance.
        by_mean: how many have an outlying absolute mean.
        variance_share: the share of those outlying by variance in the whole variance.
    """

    by_variance: Any
    by_mean: Any
    variance_share: Any


def outlier_dimensions(x: ArrayLike, threshold: float = 3.0) -> OutlierDimensions:
    r"""How many dimensions stand out, and how much of the variance they hold.

    Dimension j stands out where its variance v_j (or its |μ_j|) exceeds the mean over all
    dimensions by more than `threshold` standard deviations over all dimensions:

    $$v_j > \bar v + \theta \cdot \sqrt{\tfrac1d \textstyle\sum_i (v_i - \bar v)^2}$$

    Args:
        x: n×d cloud, n ≥ 2.
        threshold: θ, in standard deviations. No dimension of fewer than θ² + 1 can exceed it.

    Returns:
        Three numbers: tensors for a tensor, floats for an array.

    References:
        Kovaleva et al. 2021, "BERT busters: outlier dimensions that disrupt transformers".

    Example:
        >>> x = np.diag([50.0] + [1.0] * 19)
        >>> outlier_dimensions(x).by_variance
        1.0
    """
    number("threshold", threshold, low=0, open=True)
    cloud = as_cloud(x).detach()
    y = cloud.double()
    # Each on a scale of its own: a small spread would vanish beside a mean far away.
    centre = Centring.of(y)
    variance = torch.stack([centre(block).square().sum(dim=0) for block in blocks(y)]).sum(dim=0)
    mean = (y / power_of_two(y.abs().max())).mean(dim=0)
    numbers = _outliers(variance, mean, threshold)
    return OutlierDimensions(*(like(x, number.to(cloud.dtype)) for number in numbers))


def _outliers(variance: Tensor, mean: Tensor, threshold: float) -> tuple[Tensor, Tensor, Tensor]:
    by_variance, by_mean = _stands_out(variance, threshold), _stands_out(mean.abs(), threshold)
    share = variance[by_variance].sum() / variance.sum()
    return by_variance.sum(), by_mean.sum(), share


def _stands_out(values: Tensor, threshold: float) -> Tensor:
    values = values / power_of_two(values.max())
    # Rounding makes one of several equal values exceed their mean.
    spread = values.std(correction=0).clamp(min=1e-9)
    result: Tensor = values > values.mean() + threshold * spread
    return result


def _from_moments(moments: Moments, *, threshold: float) -> list[float]:
    variance = moments.central.scatter.diagonal() / (moments.n - 1)
    return [float(number) for number in _outliers(variance, moments.mean, threshold)]


def _number(key: str, high: float = inf) -> Number:
    # A feature stands out or does not: what the jackknife needs is a number that moves smoothly.
    return Number(key, 0, high, isotropic=0, more_isotropic="lower", has_interval=False)


SPEC = MeasureSpec(
    name="outlier_dimensions",
    function=outlier_dimensions,
    numbers=(
        _number("outlier_dimensions"),
        _number("outlier_dimensions_by_mean"),
        _number("outlier_variance_share", high=1),
    ),
    summary="features whose variance or mean stands out",
    invariant_to=frozenset({"scale"}),
    differentiable=False,
    min_rows=2,
    trust=(
        "Trust it where the features have a meaning of their own, as in a transformer's hidden "
        "states; a rotation of the cloud changes it. With 10 features or fewer nothing can stand "
        "out by three standard deviations. Some distributions without any special feature show "
        "one or two in a thousand."
    ),
    reference="Kovaleva et al. 2021, BERT busters: outlier dimensions that disrupt transformers",
    options={"threshold": 3.0},
    from_moments=_from_moments,
)

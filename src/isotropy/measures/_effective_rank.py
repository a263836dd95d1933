"""Effective rank: how many directions there are, by the entropy of the singular values."""

from typing import Any

import torch
from torch import Tensor

from isotropy.covariance import spectrum
from isotropy.inputs import ArrayLike, as_cloud, like
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.moments import Moments


def effective_rank(x: ArrayLike) -> Any:
    r"""The exponential of the entropy of the singular values of the centred cloud.

    $$\exp\Big(-\sum_i p_i \log p_i\Big), \qquad p_i = \sigma_i \Big/ \sum_j \sigma_j$$

    It is 1 for rows on a line and at most min(n − 1, d). Computed in float64, as the squares of
    small singular values drown in float32's rounding.

    Args:
        x: n×d cloud, n ≥ 2.

    Returns:
        The rank: a 0-d tensor for a tensor, a float for an array.

    References:
        Roy & Vetterli 2007, "The effective rank: a measure of effective dimensionality".

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> round(float(effective_rank(x)), 6)
        2.0
    """
    cloud = as_cloud(x)
    return like(x, _rank(spectrum(cloud, center=True), cloud.shape).to(cloud.dtype))


def _rank(squares: Tensor, shape: tuple[int, ...]) -> Tensor:
    # Rounding leaves squares of zero singular values near eps·σ_1²; their roots would count, and
    # the root has no gradient at 0.
    floor = torch.finfo(squares.dtype).eps * max(shape) * squares.detach()[0]
    sigma = squares[squares > floor].sqrt()
    share = sigma / sigma.sum()
    entropy: Tensor = torch.special.entr(share).sum()
    return entropy.exp().clamp(min=1)


def _from_moments(moments: Moments) -> tuple[float]:
    return (float(_rank(moments.centred_spectrum, (moments.n, moments.d))),)


SPEC = MeasureSpec(
    name="effective_rank",
    function=effective_rank,
    numbers=(Number("effective_rank", low=1, more_isotropic="higher", at_most_d=True),),
    summary="number of directions, by entropy of singular values",
    invariant_to=frozenset({"rotation", "scale", "translation"}),
    differentiable=True,
    min_rows=2,
    trust=(
        "Trust it when there are many more rows than features: it is at most min(n - 1, d), and "
        "too low in small samples. It counts weak directions generously; participation_ratio "
        "counts strong ones. Above some 10 gigaflops of work `measure()` takes its products in "
        "float32, whose rounding adds a little to the rank of a cloud that lies in few dimensions."
    ),
    reference="Roy & Vetterli 2007, The effective rank: a measure of effective dimensionality",
    from_moments=_from_moments,
)

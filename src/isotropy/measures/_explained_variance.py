"""The share of variance that the first principal components explain together."""

from typing import Any

from torch import Tensor

from isotropy.covariance import spectrum
from isotropy.inputs import ArrayLike, as_cloud, like
from isotropy.measures._anisotropy import require_shares, shares
from isotropy.measures._separation import leading
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.moments import Moments
from isotropy.settings import flag


def explained_variance(x: ArrayLike, k: int = 3, center: bool = True) -> Any:
    r"""The cumulative share of the k largest squared singular values in their sum.

    $$\text{EV}_k = \sum_{i \le k} \sigma_i^2 \Big/ \sum_i \sigma_i^2$$

    of Xc = X − μ, as principal components have it, or of X itself without `center`, which is the
    formula as the paper prints it.

    Args:
        x: n×d cloud, n ≥ 2.
        k: up to which component; beyond min(n, d) the share is 1.
        center: whether to subtract the mean first.

    Returns:
        EV_1 to EV_k: a tensor for a tensor, an array for an array.

    References:
        "Optimizing the performance of text classification models by improving the isotropy of
        the embeddings using a joint loss function", equation 1.

    Example:
        >>> x = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> [round(share, 6) for share in explained_variance(x, k=2).tolist()]
        [0.9, 1.0]
    """
    require_shares(k)
    flag("center", center)
    cloud = as_cloud(x)
    values = shares(spectrum(cloud, center=center), k)
    return like(x, values.cumsum(dim=0).clamp(max=1).to(cloud.dtype))


def _numbers(k: int, center: bool = True) -> tuple[Number, ...]:
    require_shares(k)
    return tuple(
        Number(f"explained_variance_{i}", low=0, high=1, more_isotropic="lower")
        for i in range(1, k + 1)
    )


def _spectrum(moments: Moments, center: bool) -> Tensor:
    return moments.centred_spectrum if center else moments.spectrum


def _from_moments(moments: Moments, *, k: int, center: bool) -> list[float]:
    return list(shares(_spectrum(moments, center), k).cumsum(dim=0).clamp(max=1).tolist())


def _smooth(moments: Moments, *, k: int, center: bool) -> list[bool]:
    return leading(_spectrum(moments, center), moments.n, k)


SPEC = MeasureSpec(
    name="explained_variance",
    function=explained_variance,
    numbers=_numbers(3),
    numbers_with=_numbers,
    summary="cumulative share of the first principal components",
    invariant_to=frozenset({"rotation", "scale", "translation"}),
    differentiable=True,
    min_rows=2,
    trust=(
        "Trust it when there are many more rows than features: with few rows the first components "
        "explain too much, up to all of the variance with k + 1 rows. It gets no interval where "
        "the next component comes too close to be told apart by so many rows. The smallest value "
        "EV_k can take is k/d, so that clouds of different dimension do not compare."
    ),
    reference=(
        "Optimizing the performance of text classification models by improving the isotropy of "
        "the embeddings using a joint loss function, equation 1"
    ),
    options={"k": 3, "center": True},
    from_moments=_from_moments,
    smooth=_smooth,
)

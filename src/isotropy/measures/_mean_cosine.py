"""The mean cosine over all pairs of rows."""

from typing import Any

from isotropy.directions import unit_rows
from isotropy.inputs import ArrayLike, as_cloud, like
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.moments import Moments


def mean_cosine(x: ArrayLike) -> Any:
    r"""The mean cosine similarity over all pairs of different rows, exactly and in O(nd).

    $$\frac{\|\sum_i \hat x_i\|^2 - n}{n (n - 1)}, \qquad \hat x = x / \|x\|$$

    Args:
        x: n×d cloud, n ≥ 2, no row zero.

    Returns:
        The mean: a 0-d tensor for a tensor, a float for an array.

    References:
        Ethayarajh 2019, "How contextual are contextualized word representations?", who samples
        pairs; no sampling is needed.

    Example:
        >>> mean_cosine(np.array([[1.0, 0.0], [0.0, 1.0], [2.0, 0.0]]))
        0.3333333333333333
    """
    cloud = as_cloud(x)
    total = unit_rows(cloud.double()).sum(dim=0)
    return like(x, _mean(total.square().sum(), len(cloud)).to(cloud.dtype))


def _mean(squared: Any, n: int) -> Any:
    return ((squared - n) / (n * (n - 1))).clamp(-1, 1)


def _from_moments(moments: Moments) -> tuple[float]:
    moments.require_directions()
    return (float(_mean(moments.directions.square().sum(), moments.n)),)


SPEC = MeasureSpec(
    name="mean_cosine",
    function=mean_cosine,
    numbers=(Number("mean_cosine", low=-1, high=1, isotropic=0, more_isotropic="lower"),),
    summary="mean cosine over all pairs",
    invariant_to=frozenset({"rotation", "scale"}),
    differentiable=True,
    min_rows=2,
    trust=(
        "Trust it for what it is: it sees the mean of the directions and nothing else. Subtracting "
        "the mean row makes it about 0 for any cloud, however few directions hold the variance, "
        "so read it beside iso_score. It needs no sampling and has no bias."
    ),
    reference="Ethayarajh 2019, How contextual are contextualized word representations?",
    from_moments=_from_moments,
    leaves_out_pairs=True,
)

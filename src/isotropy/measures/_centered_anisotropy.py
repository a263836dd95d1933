"""The share of the largest singular values of the centred cloud."""

from typing import Any

from isotropy.inputs import ArrayLike
from isotropy.measures._anisotropy import TRUST, anisotropy, share_numbers, shares
from isotropy.measures._separation import single
from isotropy.measures._spec import MeasureSpec
from isotropy.moments import Moments


def centered_anisotropy(x: ArrayLike, k: int = 3) -> Any:
    r"""The share of each of the k largest squared singular values of Xc = X − μ in their sum.

    $$a_k = \sigma_k^2 \Big/ \sum_i \sigma_i^2$$

    The same as `anisotropy(x, k, center=True)`.

    Args:
        x: n×d cloud, n ≥ 2.
        k: how many shares; those beyond min(n, d) are 0.

    Returns:
        The k shares, in decreasing order: a tensor for a tensor, an array for an array.

    References:
        Kudrjashov et al., "Shrink the longest: improving latent space isotropy with simplicial
        geometry".

    Example:
        >>> x = torch.tensor([[5.0, 0.0], [5.0, 2.0], [5.0, 4.0]])
        >>> centered_anisotropy(x, k=2)
        tensor([1., 0.])
    """
    return anisotropy(x, k, center=True)


def _from_moments(moments: Moments, *, k: int) -> list[float]:
    return list(shares(moments.centred_spectrum, k).tolist())


SPEC = MeasureSpec(
    name="centered_anisotropy",
    function=centered_anisotropy,
    numbers=share_numbers("centered_anisotropy", 3),
    numbers_with=lambda k: share_numbers("centered_anisotropy", k),
    summary="shares of the largest singular values, centred",
    invariant_to=frozenset({"rotation", "scale", "translation"}),
    differentiable=True,
    min_rows=2,
    trust=TRUST,
    reference=(
        "Kudrjashov et al., Shrink the longest: improving latent space isotropy with simplicial "
        "geometry"
    ),
    options={"k": 3},
    from_moments=_from_moments,
    smooth=lambda moments, k: single(moments.centred_spectrum, moments.n, k),
)

"""The share of the largest singular values."""

from typing import Any

import torch
from torch import Tensor

from isotropy.covariance import spectrum
from isotropy.inputs import ArrayLike, as_cloud, like
from isotropy.measures._separation import single
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.moments import Moments
from isotropy.settings import flag, whole_number

# More than this is a mistake, and a table of so many numbers would help nobody.
_MOST_SHARES = 10_000


def anisotropy(x: ArrayLike, k: int = 3, center: bool = False) -> Any:
    r"""The share of each of the k largest squared singular values in their sum.

    $$a_k = \sigma_k^2 \Big/ \sum_i \sigma_i^2$$

    of X, or of Xc = X − μ with `center`. Without centring a far mean makes the first share large.

    Args:
        x: n×d cloud, n ≥ 2.
        k: how many shares; those beyond min(n, d) are 0.
        center: whether to subtract the mean first.

    Returns:
        The k shares, in decreasing order: a tensor for a tensor, an array for an array.

    References:
        Kudrjashov et al., "Shrink the longest: improving latent space isotropy with simplicial
        geometry".

    Example:
        >>> x = torch.tensor([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
        >>> a1, a2 = anisotropy(x, k=2)
        >>> round(float(a1), 6), round(float(a2), 6)
        (0.9, 0.1)
    """
    require_shares(k)
    flag("center", center)
    cloud = as_cloud(x)
    return like(x, shares(spectrum(cloud, center=center), k).to(cloud.dtype))


def shares(values: Tensor, k: int) -> Tensor:
    """The first k of some non-negative values over their sum, filled up with zeros."""
    missing = max(0, k - len(values))
    return torch.cat((values[:k] / values.sum(), values.new_zeros(missing))).clamp(0, 1)


def require_shares(k: int) -> None:
    """Raise a SettingError unless k is a number of shares."""
    whole_number("k", k, low=1, high=_MOST_SHARES)


def share_numbers(prefix: str, k: int) -> tuple[Number, ...]:
    """The numbers of a measure that gives k shares in decreasing order."""
    require_shares(k)
    return tuple(
        Number(f"{prefix}_{i}", low=0, high=1, more_isotropic="lower" if i == 1 else None)
        for i in range(1, k + 1)
    )


def _plain(moments: Moments, *, k: int) -> list[float]:
    return list(shares(moments.spectrum, k).tolist())


TRUST = (
    "Trust the first share where it is well above the second; the share of a singular value that "
    "others come close to is too high in a small sample, and it gets no interval. The smallest "
    "value it can take is 1/d, so that clouds of different dimension do not compare. "
)

SPEC = MeasureSpec(
    name="anisotropy",
    function=anisotropy,
    numbers=share_numbers("anisotropy", 3),
    numbers_with=lambda k: share_numbers("anisotropy", k),
    summary="shares of the largest singular values, not centred",
    invariant_to=frozenset({"rotation", "scale"}),
    differentiable=True,
    min_rows=2,
    trust=TRUST + "A mean far from the origin alone makes it large: see mean_norm_ratio.",
    reference=(
        "Kudrjashov et al., Shrink the longest: improving latent space isotropy with simplicial "
        "geometry"
    ),
    options={"k": 3},
    from_moments=_plain,
    smooth=lambda moments, k: single(moments.spectrum, moments.n, k),
)

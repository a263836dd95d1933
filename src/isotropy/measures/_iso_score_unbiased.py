"""IsoScore from unbiased estimates: right on small samples too."""

from typing import Any

import torch
from torch import Tensor

from isotropy.covariance import invariants
from isotropy.errors import UndefinedError
from isotropy.inputs import ArrayLike, checked, like
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.moments import Moments


def iso_score_unbiased(x: ArrayLike) -> Any:
    r"""IsoScore of the distribution that the rows were drawn from, estimated without its bias.

    $$\frac{\widehat{(\operatorname{tr} \Sigma)^2} / \widehat{\operatorname{tr}(\Sigma^2)} - 1}
      {d - 1}$$

    With H = XcXcᵀ, q = Σ_i H_ii²/(n − 1), f = ‖C‖² and t = tr C, both estimates are averages over
    four different rows, and unbiased for any distribution with independent rows:

    $$\widehat{\operatorname{tr}(\Sigma^2)} = \tfrac{n-1}{n(n-2)(n-3)}
      \left((n-1)(n-2) f + t^2 - n q\right)$$
    $$\widehat{(\operatorname{tr} \Sigma)^2} = \tfrac{n-1}{n(n-2)(n-3)}
      \left(2 f + (n^2 - 3n + 1) t^2 - n q\right)$$

    Args:
        x: n×d cloud, n ≥ 4.

    Returns:
        The score: a 0-d tensor for a tensor, a float for an array. It is not clipped: at tiny n
        it can exceed 1. It cannot fall below 0: the two estimates are averages of
        ((x_i − x_j)·(x_k − x_l))² and ‖x_i − x_j‖²‖x_k − x_l‖² over the same four rows, and by
        Cauchy and Schwarz no first term exceeds its second.

    References:
        Himeno & Yamada 2014, "Estimations for some functions of covariance matrix in high
        dimension under non-normality and its applications".

    Example:
        >>> x = torch.randn(50, 200, generator=torch.Generator().manual_seed(0))
        >>> 0.9 < float(iso_score_unbiased(x)) < 1.1  # iso_score says 0.2
        True
    """
    cloud, bounds = checked(x, min_rows=4)
    # In float64, as few rows, or one far from all others, leave little of terms that cancel.
    low, high = bounds
    moments = invariants(cloud.double(), bounds=(low.double(), high.double()))
    value = score_unbiased(len(cloud), cloud.shape[1], *moments)
    if not bool(torch.isfinite(value.detach())):
        raise _undefined(len(cloud))
    return like(x, value.to(cloud.dtype))


def score_unbiased(
    n: int | Tensor, features: int, trace: Tensor, norm: Tensor, fourth: Tensor
) -> Tensor:
    """The score from n, d, tr C, ‖C‖² and q; infinite where tr(Σ²) is estimated as zero."""
    t, f, q = trace.double(), norm.double(), fourth.double()
    of_square = (n - 1) * (n - 2) * f + t.square() - n * q
    square_of = 2 * f + (n**2 - 3 * n + 1) * t.square() - n * q
    # An average of squares is zero only for simplex-like clouds; what is below the rounding of
    # its terms is zero. In a simplex that grows with n, as all n² inner products round alike; in
    # float32 it must not, or much of what is no simplex would go.
    eps = 4 * torch.finfo(norm.dtype).eps + 32 * n * torch.finfo(f.dtype).eps
    rounding = eps * (t.square() + n * q)
    ratio = torch.where(of_square > rounding, square_of / of_square, torch.inf)
    score = ((ratio - 1) / (features - 1)).clamp(min=0)  # below 0 is rounding
    return score.to(norm.dtype)


def _undefined(n: int) -> UndefinedError:
    return UndefinedError(
        f"got {n} rows whose differences are all at right angles, so that the squared covariance "
        "is estimated as zero and the unbiased score is undefined; measure more rows"
    )


def _from_moments(moments: Moments) -> tuple[float]:
    value = score_unbiased(moments.n, moments.d, *moments.invariants)
    if not bool(torch.isfinite(value)):
        raise _undefined(moments.n)
    return (float(value),)


SPEC = MeasureSpec(
    name="iso_score_unbiased",
    function=iso_score_unbiased,
    numbers=(Number("iso_score_unbiased", low=0, isotropic=1, more_isotropic="higher"),),
    summary="IsoScore of the distribution, unbiased on small samples",
    invariant_to=frozenset({"rotation", "scale", "translation"}),
    differentiable=True,
    min_rows=4,
    trust=(
        "Trust it on samples of any size whose rows are independent; it is the one to compare "
        "clouds of different sizes by. Below some 30 rows it scatters widely and can exceed 1: "
        "look at the interval. Rows that depend on each other (tokens of one sentence, frames of "
        "one film) count as fewer rows than there are."
    ),
    reference=(
        "Himeno & Yamada 2014, Estimations for some functions of covariance matrix in high "
        "dimension under non-normality and its applications"
    ),
    from_moments=_from_moments,
    leaves_out_pairs=True,
)

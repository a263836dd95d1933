"""IsoScore*: IsoScore of a covariance that is mixed with a known one."""

from typing import Any, Literal

import torch
from torch import Tensor

from isotropy.covariance import invariants
from isotropy.errors import InputError, SettingError
from isotropy.inputs import ArrayLike, as_symmetric, checked, like
from isotropy.measures._iso_score import score
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.moments import Moments
from isotropy.settings import number


def iso_score_star(
    x: ArrayLike, shrinkage: ArrayLike | Literal["identity"] = "identity", zeta: float = 0.2
) -> Any:
    r"""IsoScore of the cloud's covariance after shrinkage towards a given one.

    $$\Sigma_\zeta = (1 - \zeta)\, C + \zeta\, \Sigma_S \qquad
      \text{IsoScore}^*(X) = \frac{(\operatorname{tr} \Sigma_\zeta)^2 /
      \|\Sigma_\zeta\|^2 - 1}{d - 1}$$

    It is smooth and stable on small batches. One product forward and one backward is all it takes.

    Args:
        x: n×d cloud, n ≥ 2.
        shrinkage: Σ_S, d×d symmetric, such as the covariance of a large sample of the same
            embeddings; or `"identity"`, the authors' advice where there is no such sample. No
            gradient flows to it.
        zeta: the share ζ of Σ_S, from 0 (IsoScore) to 1. The paper's algorithm and code have it
            this way round; its prose prints the reverse.

    Returns:
        The score: a 0-d tensor for a tensor, a float for an array.

    References:
        Rudman & Eickhoff 2024, "Stable anisotropic regularization", algorithm 1.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
        >>> round(float(iso_score_star(x, torch.diag(torch.tensor([0.0, 2.0])), zeta=0.5)), 6)
        1.0
    """
    zeta = number("zeta", zeta, low=0, high=1)
    cloud: Tensor
    bounds: tuple[Tensor, Tensor] | None
    cloud, bounds = checked(x)
    matrix = _shrinkage_matrix(shrinkage, cloud)
    if zeta == 1:  # a cloud without weight must not set the scale: Σ_S could vanish beside it
        cloud, bounds, matrix = 0 * cloud, None, matrix / matrix.abs().max()
    trace, norm, _ = invariants(cloud, matrix if zeta else None, zeta, bounds=bounds)
    return like(x, score(trace, norm, cloud.shape[1]))


def _shrinkage_matrix(shrinkage: ArrayLike | str, cloud: Tensor) -> Tensor:
    d = cloud.shape[1]
    if isinstance(shrinkage, str):
        if shrinkage != "identity":
            raise SettingError(f"got shrinkage={shrinkage!r}, expected 'identity' or a d×d matrix")
        return torch.eye(d, dtype=cloud.dtype, device=cloud.device)
    matrix = as_symmetric(shrinkage, name="shrinkage")
    if len(matrix) != d:
        raise InputError(
            f"got shrinkage with shape {tuple(matrix.shape)} for a cloud of {d} features, "
            f"expected {(d, d)}"
        )
    return matrix


def _from_moments(moments: Moments, *, zeta: float) -> tuple[float]:
    sigma = (1 - zeta) * moments.covariance
    sigma.diagonal().add_(zeta)
    sigma = sigma / sigma.diagonal().max()
    return (float(score(sigma.trace(), sigma.square().sum(), moments.d)),)


SPEC = MeasureSpec(
    name="iso_score_star",
    function=iso_score_star,
    numbers=(Number("iso_score_star", low=0, high=1, isotropic=1, more_isotropic="higher"),),
    summary="IsoScore after shrinkage of the covariance",
    invariant_to=frozenset({"rotation", "translation"}),
    differentiable=True,
    min_rows=2,
    trust=(
        "Trust it to rank clouds that were measured with the same shrinkage matrix and the same "
        "zeta; its value means little on its own. `measure()` shrinks towards the identity, so "
        "that the number depends on the scale of the embeddings: small ones look isotropic. With "
        "the covariance of a large sample as shrinkage matrix it is stable on small batches."
    ),
    reference="Rudman & Eickhoff 2024, Stable anisotropic regularization",
    default=False,
    options={"zeta": 0.2},
    from_moments=_from_moments,
)

"""Squared correlations between features as a penalty."""

from typing import Any

import torch
from torch import Tensor

from isotropy.method import MethodSpec
from isotropy.penalties._penalty import Penalty, covariance
from isotropy.representations import Rows


class Decorrelation(Penalty):
    r"""Makes features uncorrelated, whatever their scales: the redundancy term of Barlow Twins.

    $$\frac{\lambda}{d} \sum_{i \ne j} \rho_{ij}^2,
      \qquad \rho_{ij} = C_{ij} / \sqrt{C_{ii} C_{jj}}$$

    A feature that does not vary has no correlation and counts as 0.

    Args:
        weight: λ.
        site: which rows.
        settings: see `Penalty`.

    References:
        Zbontar et al. 2021, "Barlow Twins: self-supervised learning via redundancy reduction".

    Example:
        >>> from isotropy import Representations
        >>> line = Representations.from_cloud(torch.tensor([[0.0, 0.0], [1.0, -2.0]]))
        >>> Decorrelation()(line)
        tensor(1.)
    """

    def __init__(self, weight: float = 1.0, *, site: str = "cls@last", **settings: Any) -> None:
        super().__init__(weight=weight, site=site, **settings)

    def value(self, rows: Rows) -> Tensor:
        """The mean over features of their squared correlations with all others."""
        c = covariance(self, rows)
        variances = c.diagonal()
        varies = variances > 0
        scale = torch.where(varies, torch.where(varies, variances, 1).rsqrt(), 0)
        correlation = scale[:, None] * c * scale
        correlation = correlation - torch.diag(correlation.diagonal())
        return correlation.square().sum() / rows.d


SPEC = MethodSpec(
    name="decorrelation",
    kind="penalty",
    component=Decorrelation,
    summary="squared correlations of different features",
    reference=(
        "Zbontar et al. 2021, Barlow Twins: self-supervised learning via redundancy reduction"
    ),
    differs=(
        "Barlow Twins correlates two views; with one view its diagonal term is constant and left "
        "out, and the sum is divided by d so that weights carry over between models."
    ),
    measure="iso_score",
    moves="up",
)

"""The variance and covariance terms of VICReg as a penalty."""

from typing import Any

import torch
from torch import Tensor

from isotropy.method import MethodSpec
from isotropy.penalties._penalty import Penalty, covariance
from isotropy.representations import Rows
from isotropy.settings import number

_EPSILON = 1e-4  # as published: keeps the root's gradient finite


class Vicreg(Penalty):
    r"""Keeps every feature's spread above a floor, and features uncorrelated.

    $$\lambda \Big(\frac{\mu}{d} \sum_j \max(0, \gamma - \sqrt{C_{jj} + \epsilon})
      + \frac{\nu}{d} \sum_{i \ne j} C_{ij}^2 \Big)$$

    with C the covariance of the batch. The third term of VICReg, the invariance between two views,
    is the task's: there is one view here.

    Args:
        weight: λ.
        variance: μ, 25 as published.
        covariance: ν, 1 as published.
        floor: γ, the standard deviation that every feature should have.
        site: which rows.
        settings: see `Penalty`.

    References:
        Bardes et al. 2022, "VICReg: variance-invariance-covariance regularization for
        self-supervised learning".

    Example:
        >>> from isotropy import Representations
        >>> spread = 9 * torch.tensor([[1.0, 1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, -1.0]])
        >>> Vicreg()(Representations.from_cloud(spread))
        tensor(0.)
    """

    def __init__(
        self,
        weight: float = 1.0,
        *,
        variance: float = 25.0,
        covariance: float = 1.0,
        floor: float = 1.0,
        site: str = "cls@last",
        **settings: Any,
    ) -> None:
        super().__init__(weight=weight, site=site, **settings)
        self.variance = number("variance", variance, low=0)
        self.covariance = number("covariance", covariance, low=0)
        self.floor = number("floor", floor, low=0)

    def value(self, rows: Rows) -> Tensor:
        """Both terms with their factors."""
        c = covariance(self, rows)
        variances = c.diagonal()
        short = torch.relu(self.floor - (variances + _EPSILON).sqrt()).mean()
        crossed = (c - torch.diag(variances)).square().sum() / rows.d
        return self.variance * short + self.covariance * crossed


SPEC = MethodSpec(
    name="vicreg",
    kind="penalty",
    component=Vicreg,
    summary="variance floor and covariance term of VICReg",
    reference=(
        "Bardes et al. 2022, VICReg: variance-invariance-covariance regularization for "
        "self-supervised learning"
    ),
    differs="The invariance between two views is left out: there is one view of a batch here.",
    measure="iso_score",
    moves="up",
)

"""Uniformity on the sphere as a penalty."""

from typing import Any

import torch
from torch import Tensor

from isotropy.method import MethodSpec
from isotropy.penalties._penalty import Penalty, directions
from isotropy.representations import Rows
from isotropy.settings import number


class Uniformity(Penalty):
    r"""Spreads directions over the sphere: the logarithm of the pairs' mean Gaussian potential.

    $$\lambda \log \operatorname{mean}_{i < j} \exp(-t \|\hat x_i - \hat x_j\|^2),
      \qquad \hat x = x / \|x\|$$

    All pairs of the global batch, in float64: memory is O(n²). Rows of zeros do not count.

    Args:
        weight: λ.
        t: how fast the potential falls with the distance.
        site: which rows.
        settings: see `Penalty`.

    References:
        Wang & Isola 2020, "Understanding contrastive representation learning through alignment and
        uniformity on the hypersphere".

    Example:
        >>> from isotropy import Representations
        >>> Uniformity()(Representations.from_cloud(torch.eye(2)))
        tensor(-4.)
    """

    def __init__(
        self, weight: float = 1.0, *, t: float = 2.0, site: str = "cls@last", **settings: Any
    ) -> None:
        super().__init__(weight=weight, site=site, **settings)
        self.t = number("t", t, low=0, open=True)

    def value(self, rows: Rows) -> Tensor:
        """The log of the mean over pairs of rows that count."""
        x, mask, _ = self.everyones(rows)
        x, counts = directions(x.double(), mask)
        distances = (2 - 2 * x @ x.T).clamp(min=0)
        pairs = (counts[:, None] & counts).triu(diagonal=1)
        # Summed as differences from 1: in a narrow cone all potentials are nearly 1.
        differences = torch.where(pairs, torch.expm1(-self.t * distances), 0)
        return torch.log1p(differences.sum() / pairs.sum())


SPEC = MethodSpec(
    name="uniformity",
    kind="penalty",
    component=Uniformity,
    summary="log mean Gaussian potential of all pairs of directions",
    reference=(
        "Wang & Isola 2020, Understanding contrastive representation learning through alignment "
        "and uniformity on the hypersphere"
    ),
    measure="uniformity",
    moves="down",
)

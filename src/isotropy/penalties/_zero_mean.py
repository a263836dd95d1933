"""The mean row as a penalty."""

from typing import Any

import torch
from torch import Tensor

from isotropy.method import MethodSpec
from isotropy.penalties._penalty import Penalty, count, kept
from isotropy.representations import Rows


class ZeroMean(Penalty):
    r"""Pulls the mean of the rows to the origin.

    $$\lambda \, \frac{\|\mu\|^2}{\tfrac1n \sum_i \|x_i\|^2}$$

    The ratio, as the plain ‖μ‖² would be met by shrinking all rows. It is the softest of these
    penalties: it changes nothing about the mean. Subtracting the mean is what the literature does;
    what the cosine penalty does is found to be much the same.

    Args:
        weight: λ.
        site: which rows.
        settings: see `Penalty`.

    References:
        Biś et al. 2021, "Too much in common: shifting of embeddings in transformer language models
        and its implications"; Rudman & Eickhoff 2024, "Stable anisotropic regularization".

    Example:
        >>> from isotropy import Representations
        >>> ZeroMean()(Representations.from_cloud(torch.tensor([[1.0, 0.0], [0.0, 1.0]])))
        tensor(0.5000)
    """

    def __init__(self, weight: float = 1.0, *, site: str = "cls@last", **settings: Any) -> None:
        super().__init__(weight=weight, site=site, **settings)

    def value(self, rows: Rows) -> Tensor:
        """‖Σx‖²/(n·Σ‖x‖²)."""
        sums = [
            torch.cat((y.sum(dim=0), y.square().sum()[None], count(y, mask)[None]))
            for y, mask in ((kept(x, m), m) for x, m in zip(rows.blocks, rows.masks, strict=True))
        ]
        both = self.total(torch.stack(sums).sum(dim=0), rows)
        return both[:-2].square().sum() / (both[-2] * both[-1])


SPEC = MethodSpec(
    name="zero-mean",
    kind="penalty",
    component=ZeroMean,
    summary="squared mean row over the mean squared length",
    reference=(
        "Biś et al. 2021, Too much in common: shifting of embeddings in transformer language "
        "models and its implications"
    ),
    differs="Published as a transform (subtract the mean); the penalty is this project's.",
    measure="mean_norm_ratio",
    moves="down",
)

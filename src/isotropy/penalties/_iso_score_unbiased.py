"""The unbiased IsoScore of the batch as a penalty."""

from typing import Any

import torch
from torch import Tensor

from isotropy import ranks
from isotropy.measures._iso_score_unbiased import score_unbiased
from isotropy.method import MethodSpec
from isotropy.penalties._penalty import Penalty
from isotropy.penalties._sampled import token_sample
from isotropy.pooled import pooled_invariants
from isotropy.representations import Rows

# Of few rows float32 leaves little of terms that cancel, and float64 costs nothing.
_FEW_VALUES = 1 << 20


class IsoScoreUnbiased(Penalty):
    r"""Moves isotropy without a shrinkage matrix: the estimate is unbiased on batches of any size.

    $$\lambda \, (1 - \widehat{\text{IsoScore}}(X))$$

    Args:
        weight: λ, positive for more isotropic rows.
        tokens: how many rows to draw at random in every step and on every rank; all by default.
        seed: of the draw.
        site: which rows.
        settings: see `Penalty`.

    References:
        Himeno & Yamada 2014, "Estimations for some functions of covariance matrix in high
        dimension under non-normality and its applications", for the estimates.

    Example:
        >>> from isotropy import Representations
        >>> x = torch.randn(100, 8, generator=torch.Generator().manual_seed(0))
        >>> bool(IsoScoreUnbiased()(Representations.from_cloud(x)) < 0.1)
        True
    """

    def __init__(
        self,
        weight: float = 1.0,
        *,
        tokens: int | None = None,
        seed: int = 0,
        site: str = "tokens@all",
        **settings: Any,
    ) -> None:
        super().__init__(weight=weight, site=site, **settings)
        self.tokens, self.seed = tokens, seed
        self.sample = token_sample(tokens, seed)

    def value(self, rows: Rows) -> Tensor:
        """1 − the unbiased score, in the rows' units and not clipped."""
        if self.sample is not None and not rows.shared:
            rows = self.sample(rows)
        blocks = rows.blocks
        if sum(block.numel() for block in blocks) <= _FEW_VALUES:
            blocks = tuple(block.double() for block in blocks)
        group = ranks.ALONE if rows.shared else self.group
        n, (trace, norm, fourth) = pooled_invariants(blocks, rows.masks, group=group)
        score = score_unbiased(n, rows.d, trace, norm, fourth)
        # Of fewer than four rows there is no estimate; infinite where tr(Σ²) is estimated as zero.
        return torch.where(n >= 4, 1 - score, torch.nan)


SPEC = MethodSpec(
    name="iso-score-unbiased",
    kind="penalty",
    component=IsoScoreUnbiased,
    summary="unbiased IsoScore, without a shrinkage matrix",
    reference=(
        "Himeno & Yamada 2014, Estimations for some functions of covariance matrix in high "
        "dimension under non-normality and its applications"
    ),
    differs="No paper has it: IsoScore* without its shrinkage matrix, by unbiased estimates.",
    measure="iso_score_unbiased",
    moves="up",
)

"""The logarithm of the inverse IsoScore as a penalty."""

from typing import Any

from torch import Tensor

from isotropy import ranks
from isotropy.method import MethodSpec
from isotropy.penalties._penalty import Penalty
from isotropy.pooled import pooled_invariants
from isotropy.representations import Rows
from isotropy.settings import number


class LogIsoScore(Penalty):
    r"""Raises the IsoScore of the batch.

    $$\lambda \log \frac{1}{\max(\text{IsoScore}(X), \epsilon)}$$

    The second of the two losses of the isotropy layer.

    Args:
        weight: λ.
        floor: ε, under which the score counts as ε and has no gradient.
        site: which rows.
        settings: see `Penalty`.

    References:
        "Optimizing the performance of text classification models by improving the isotropy of the
        embeddings using a joint loss function".

    Example:
        >>> import torch
        >>> from isotropy import Representations
        >>> line = Representations.from_cloud(torch.tensor([[0.0, 0.0], [1.0, 1.0]]))
        >>> LogIsoScore(floor=0.01)(line)  # log 100
        tensor(4.6052)
    """

    def __init__(
        self,
        weight: float = 1.0,
        *,
        floor: float = 1e-6,
        site: str = "cls@last",
        **settings: Any,
    ) -> None:
        super().__init__(weight=weight, site=site, **settings)
        self.floor = number("floor", floor, low=0, high=1, open=True)

    def value(self, rows: Rows) -> Tensor:
        """−log max(IsoScore, ε)."""
        group = ranks.ALONE if rows.shared else self.group
        _, (trace, norm, _) = pooled_invariants(rows.blocks, rows.masks, group=group)
        score = (trace.square() / norm - 1) / (rows.d - 1)
        return -score.clamp(min=self.floor).log()


SPEC = MethodSpec(
    name="log-iso-score",
    kind="penalty",
    component=LogIsoScore,
    summary="logarithm of the inverse IsoScore",
    reference=(
        "Optimizing the performance of text classification models by improving the isotropy of "
        "the embeddings using a joint loss function"
    ),
    differs=(
        "The paper's loss grows without bound as the score falls to 0, as it does on a line; here "
        "the score is clamped from below."
    ),
    measure="iso_score",
    moves="up",
)

"""The mean cosine of all pairs of rows as a penalty."""

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isotropy.method import MethodSpec
from isotropy.penalties._penalty import Penalty, kept
from isotropy.representations import Rows


class Cosine(Penalty):
    r"""Pushes directions apart: the mean cosine of pairs of rows, in O(Md) and without a pair.

    $$\frac{\lambda}{M^2} \sum_{i \ne j} \cos(w_i, w_j)
      = \lambda \frac{\|\sum_i \hat w_i\|^2 - M}{M^2}, \qquad \hat w = w / \|w\|$$

    Rows of zeros, such as the padding's in a vocabulary, have no direction and do not count.

    Args:
        weight: λ; Rudman & Eickhoff take 1, and −1 in one figure.
        site: `tokens@last` as they have it, `vocabulary` as Gao et al. have it, or `head`, which
            fits what Ding et al. printed.
        settings: see `Penalty`.

    References:
        Gao et al. 2019, "Representation degeneration problem in training natural language
        generation models"; Rudman & Eickhoff 2024, "Stable anisotropic regularization".

    Example:
        >>> from isotropy import Representations
        >>> opposite = Representations.from_cloud(torch.tensor([[1.0, 0.0], [-3.0, 0.0]]))
        >>> Cosine()(opposite)
        tensor(-0.5000)
    """

    def __init__(self, weight: float = 1.0, *, site: str = "tokens@last", **settings: Any) -> None:
        super().__init__(weight=weight, site=site, **settings)

    def value(self, rows: Rows) -> Tensor:
        """(‖Σŵ‖² − M)/M²."""
        sums = torch.stack(
            [
                _direction_sum(block, mask)
                for block, mask in zip(rows.blocks, rows.masks, strict=True)
            ]
        ).sum(dim=0)
        sums = self.total(sums, rows)
        total, m = sums[:-1], sums[-1]
        return (total.square().sum() - m) / m.square()


def _direction_sum(x: Tensor, mask: Tensor | None) -> Tensor:
    """Σ x̂ in float64, and as one entry more the number of rows that have a direction."""
    result: Tensor = _DirectionSum.apply(x, mask)  # type: ignore[no-untyped-call]
    return result


class _DirectionSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, mask: Tensor | None) -> Tensor:
        x = kept(x, mask)
        size = torch.linalg.vector_norm(x, torch.inf, dim=1)
        counts = size != 0  # NaN too, which then shows in the sum
        size = torch.where(counts, size, 1)
        # Next to its largest value a row's squares neither overflow nor vanish.
        norms = torch.linalg.vector_norm(x / size[:, None], dim=1) * size
        inverse = torch.where(counts, norms.reciprocal(), 0)
        ctx.save_for_backward(x, inverse)
        return torch.cat((x.T @ inverse, counts.sum(dtype=x.dtype)[None])).double()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        # ∂(g·x̂)/∂x = (g − (g·x̂)x̂)/‖x‖
        x, inverse = ctx.saved_tensors
        g = grad[:-1].to(x.dtype)
        along = (x @ g) * inverse.square()
        return torch.addcmul(g, -along[:, None], x) * inverse[:, None], None


SPEC = MethodSpec(
    name="cosine",
    kind="penalty",
    component=Cosine,
    summary="mean cosine of all pairs, in closed form",
    reference=(
        "Gao et al. 2019, Representation degeneration problem in training natural language "
        "generation models"
    ),
    differs=(
        "Gao et al. look at the vocabulary, Rudman & Eickhoff at the last hidden states. Ding et "
        "al. say the vocabulary, while the isotropy that they print fits the classifier's head."
    ),
    measure="mean_cosine",
    moves="down",
)

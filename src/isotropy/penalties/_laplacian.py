"""Cosines between near rows of a vocabulary as a penalty."""

import math
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import embedding_bag

from isotropy.method import MethodSpec
from isotropy.neighbours import nearest_neighbours
from isotropy.penalties._penalty import Penalty, directions
from isotropy.representations import Rows
from isotropy.settings import whole_number

# Beyond this many rows their cosines are not held at once.
_MANY_ROWS = 8192


class Laplacian(Penalty):
    r"""Pushes apart the words that are used alike, rather than all words as the cosine penalty.

    $$\lambda \operatorname{mean}_i \operatorname{mean}_{j \in N_k(i)} \cos(w_i, w_j)
      = \lambda \Big(1 - \frac{\operatorname{tr} \hat W^\top L \hat W}{nk}\Big)$$

    with N_k(i) the k nearest rows by cosine, and L the Laplacian of the graph that joins them. In
    a language model with tied weights, words in similar contexts have similar rows. The graph of
    weights is found at the first batch after each `refresh`, that of a batch's rows anew.

    Args:
        weight: λ.
        k: neighbours of each row.
        site: which rows.
        settings: see `Penalty`.

    References:
        Zhang et al. 2020, "Revisiting representation degeneration problem in language modeling".

    Example:
        >>> from isotropy import Representations
        >>> x = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 2.0]])
        >>> Laplacian(k=1)(Representations.from_cloud(x))
        tensor(1.)
    """

    neighbours: Tensor | None

    def __init__(
        self,
        weight: float = 1.0,
        *,
        k: int = 10,
        site: str = "vocabulary",
        **settings: Any,
    ) -> None:
        super().__init__(weight=weight, site=site, **settings)
        self.k = whole_number("k", k, low=1)
        self.register_buffer("neighbours", None, persistent=False)

    def value(self, rows: Rows) -> Tensor:
        """The mean cosine of rows that the graph joins."""
        x, mask, _ = self.everyones(rows)
        x, counts = directions(x, mask)
        if not rows.shared:
            graph = _graph(x.detach(), counts, self.k)
        else:
            if self.neighbours is None or len(self.neighbours) != len(x):
                self.neighbours = _graph(x.detach(), counts, self.k)
            graph = self.neighbours.to(x.device)
        # Where fewer than k other rows count, the rest of the k may be any, the row itself too.
        others = graph != torch.arange(len(x), device=x.device)[:, None]
        joined = counts[:, None] & counts[graph] & others
        # The sum of each row's neighbours, without a copy of every neighbour.
        near = embedding_bag(graph, x, mode="sum", per_sample_weights=joined.to(x.dtype))
        return (x * near).sum() / joined.sum()

    def refresh(self, model: nn.Module, batches: Iterable[Any], points: int = 250_000) -> None:
        """Find the graph anew at the next batch."""
        self.neighbours = None


def _graph(x: Tensor, counts: Tensor, k: int) -> Tensor:
    """n×k, the rows with the greatest cosines to each, in ascending order."""
    k = min(k, len(x) - 1)
    if len(x) > _MANY_ROWS:
        # Rows that do not count are put farther away than any direction is from another.
        far = x.new_full((), 4 / math.sqrt(x.shape[1]))
        x = torch.where(counts[:, None], torch.where(x.isfinite(), x, 0), far)
        return nearest_neighbours(x, k).indices.sort(dim=1).values
    cosines = (x @ x.T).masked_fill_(~counts, -torch.inf).fill_diagonal_(-torch.inf)
    return cosines.topk(max(0, k), dim=1).indices.sort(dim=1).values


SPEC = MethodSpec(
    name="laplacian",
    kind="penalty",
    component=Laplacian,
    summary="mean cosine of each row to its nearest rows",
    reference=(
        "Zhang et al. 2020, Revisiting representation degeneration problem in language modeling"
    ),
    differs=(
        "Written from what later papers say of it, that it lowers the similarity of embeddings "
        "with similar contexts; the weights of its graph are not known to us, and are all 1 here."
    ),
    measure="uniformity",
    moves="down",
)

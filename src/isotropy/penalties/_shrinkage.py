"""The covariance of a model's states over many batches: I-STAR's shrinkage matrix."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from isotropy import ranks
from isotropy.errors import SettingError
from isotropy.moments import Moments
from isotropy.representations import Rows
from isotropy.settings import whole_number
from isotropy.sites import Site
from isotropy.states import rows_of


@torch.no_grad()
def sample_covariance(
    model: nn.Module,
    batches: Iterable[Any],
    site: Site,
    points: int,
    include_padding: bool = False,
    group: ranks.Group = None,
    seed: int = 0,
) -> Tensor:
    """d×d in float32, the covariance of a site's rows over the batches of all ranks.

    All layers of the site give the same tokens. Of a batch with more of them than are still wanted
    some are drawn at random. To take a few of each batch instead would cost as many more forward
    passes, and so would a larger share of the training data.

    Args:
        model: a Hugging Face model.
        batches: its inputs, as dicts of tensors, in random order; read until there are enough rows.
        site: which rows.
        points: how many rows, over all ranks and all layers; of each layer one at least.
        include_padding: whether padding counts.
        group: the ranks.
        seed: of the draw.

    Raises:
        SettingError: fewer than two rows.
    """
    points = whole_number("points", points, low=2)
    here = -(-points // ranks.world_size(group))
    generator = torch.Generator().manual_seed(seed)
    moments: Moments | None = None
    tokens = 0
    for batch in batches:
        rows = rows_of(model, batch, site, include_padding=include_padding)
        wanted = max(1, here // len(rows.blocks)) - tokens
        drawn = _drawn(rows, wanted, generator)
        tokens += len(drawn)
        for block in rows.blocks if len(drawn) else ():
            part = Moments.of(block[drawn])
            moments = part if moments is None else moments + part
        if len(drawn) == wanted:
            break
    device = next(model.parameters()).device
    return _everyones_covariance(moments, device, group).float()


def _drawn(rows: Rows, wanted: int, generator: torch.Generator) -> Tensor:
    """The places of the tokens that are taken of every layer, in order."""
    block, mask = rows.blocks[0], rows.masks[0]  # the mask is that of all layers
    counts = torch.ones_like(block[:, 0], dtype=torch.bool) if mask is None else mask
    places = counts.nonzero()[:, 0]
    if len(places) <= wanted:
        return places
    order = torch.randperm(len(places), generator=generator)[:wanted].sort().values
    return places[order.to(places.device)]


def _everyones_covariance(
    moments: Moments | None, device: torch.device, group: ranks.Group
) -> Tensor:
    """The covariance of all ranks' rows, of which some may have none."""
    features = torch.tensor(0 if moments is None else moments.d, device=device)
    d = int(ranks.largest(features, group))
    zeros = torch.zeros(d, dtype=torch.float64, device=device)
    n = torch.tensor(0.0 if moments is None else moments.n, dtype=torch.float64, device=device)
    n = ranks.total(n, group)
    if n < 2:
        raise SettingError(
            f"got {int(n)} rows for the shrinkage matrix, expected at least 2; give `refresh` "
            "batches with tokens"
        )
    sums = zeros if moments is None else moments.mean * moments.n
    mean = ranks.total(sums, group) / n
    scatter = torch.diag(zeros) if moments is None else moments.about(mean).scatter
    return ranks.total(scatter, group) / (n - 1)

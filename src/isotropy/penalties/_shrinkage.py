"""The covariance of a model's states over many batches: I-STAR's shrinkage matrix."""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from isotropy import ranks
from isotropy.errors import SettingError
from isotropy.moments import Moments
from isotropy.sites import Site
from isotropy.states import states


@torch.no_grad()
def sample_covariance(
    model: nn.Module,
    batches: Iterable[Any],
    site: Site,
    points: int,
    include_padding: bool = False,
    group: ranks.Group = None,
) -> Tensor:
    """d×d in float32, the covariance of a site's rows over the batches of all ranks.

    Args:
        model: a Hugging Face model.
        batches: its inputs, as dicts of tensors; taken until there are enough rows.
        site: which rows.
        points: how many rows, over all ranks.
        include_padding: whether padding counts.
        group: the ranks.

    Raises:
        SettingError: fewer than two rows.
    """
    if points < 2:
        raise SettingError(f"got points={points!r}, expected at least 2")
    here = -(-points // ranks.world_size(group))
    moments: Moments | None = None
    taken = 0
    for batch in batches:
        for rows in states(model, batch, site, include_padding=include_padding):
            if taken < here and len(rows):
                part = Moments.of(rows[: here - taken])
                moments = part if moments is None else moments + part
                taken = moments.n
        if taken >= here:
            break
    device = next(model.parameters()).device
    return _everyones_covariance(moments, device, group).float()


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

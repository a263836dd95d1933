"""The covariance of a model's states over many batches: I-STAR's shrinkage matrix."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from isotropy import ranks
from isotropy.errors import SettingError
from isotropy.moments import Moments
from isotropy.representations import Representations
from isotropy.sites import Site


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
    device = next(model.parameters()).device
    parts: list[Moments] = []
    taken = 0
    with _evaluation(model):
        for batch in batches:
            for rows in _rows(model, batch, site, include_padding, device):
                if taken < here and len(rows):
                    parts.append(Moments.of(rows[: here - taken]))
                    taken += parts[-1].n
                    parts = [parts[0] + parts[1]] if len(parts) > 1 else parts
            if taken >= here:
                break
    return _everyones_covariance(parts[0] if parts else None, device, group).float()


def _rows(
    model: nn.Module, batch: Any, site: Site, include_padding: bool, device: torch.device
) -> Iterator[Tensor]:
    inputs = {
        key: value.to(device)
        for key, value in batch.items()
        if isinstance(value, Tensor) and key not in ("labels", "start_positions", "end_positions")
    }
    output = model(**inputs, output_hidden_states=True)
    shown = Representations.from_output(
        output,
        inputs.get("attention_mask"),
        model=model,
        decoder_attention_mask=inputs.get("decoder_attention_mask"),
    )
    rows = shown.rows(site, include_padding=include_padding)
    for block, mask in zip(rows.blocks, rows.masks, strict=True):
        yield block if mask is None else block[mask]


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


@contextmanager
def _evaluation(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, and afterwards each part in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training

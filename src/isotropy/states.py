"""A Hugging Face model's states on a batch, outside of training."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from isotropy.representations import Representations, Rows
from isotropy.sites import Site

# A model computes its loss from these; its states do not depend on them, except a decoder's.
_LABELS = ("labels", "label", "label_ids", "start_positions", "end_positions")


@torch.no_grad()
def states(
    model: nn.Module, batch: Mapping[str, Any], site: Site, *, include_padding: bool = False
) -> Iterator[Tensor]:
    """The rows of a site that count, block by block, in evaluation mode.

    Args:
        model: a Hugging Face model, or one that returns representations; it is left in the mode
            that it was in.
        batch: its inputs; labels are not looked at.
        site: which rows.
        include_padding: whether padding counts.
    """
    rows = rows_of(model, batch, site, include_padding=include_padding)
    for block, mask in zip(rows.blocks, rows.masks, strict=True):
        yield block if mask is None else block[mask]


@torch.no_grad()
def rows_of(
    model: nn.Module, batch: Mapping[str, Any], site: Site, *, include_padding: bool = False
) -> Rows:
    """The rows of a site with those that do not count; see `states`."""
    device = next(model.parameters()).device
    has_decoder = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    inputs = {
        key: value.to(device) if isinstance(value, Tensor) else value
        for key, value in batch.items()
        if has_decoder or key not in _LABELS
    }
    with evaluation(model):
        output = model(**inputs, output_hidden_states=True)
    if isinstance(output, Representations):
        shown = output
    else:
        shown = Representations.from_output(
            output,
            inputs.get("attention_mask"),
            model=model,
            decoder_attention_mask=inputs.get("decoder_attention_mask"),
        )
    return shown.rows(site, include_padding=include_padding)


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, and afterwards each part in the mode that it was in."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training

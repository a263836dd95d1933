"""Batches of a Hugging Face trainer's data, outside of its own loop."""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from isotropy import ranks
from isotropy.errors import SettingError

Batch = dict[str, Any]


def fixed_batches(trainer: Any, dataset: Any, rows: int, seed: int) -> list[Batch]:
    """The same rows of a data set whenever it is called with the same seed, in batches.

    Args:
        trainer: whose collator and batch size for evaluation are used.
        dataset: with a length, of which rows are drawn at random; without one, its first rows.
        rows: how many, at most.
        seed: of the draw.

    Raises:
        SettingError: no rows.
    """
    if hasattr(dataset, "__len__"):
        order = _order(len(dataset), seed)[:rows].sort().values
        batches = list(_batches(trainer, dataset, trainer.args.eval_batch_size, order))
    else:
        size = min(rows, trainer.args.eval_batch_size)
        batches = list(islice(_batches(trainer, dataset, size), max(1, rows // size)))
    if not batches:
        raise SettingError("got no rows to track measures on, expected at least one")
    return batches


def this_ranks_batches(trainer: Any, seed: int) -> Iterator[Batch]:
    """This rank's share of the training data in a random order, in batches."""
    dataset, size = trainer.train_dataset, trainer.args.train_batch_size
    rank, world = trainer.args.process_index, ranks.world_size()
    if hasattr(dataset, "__len__"):
        yield from _batches(trainer, dataset, size, _order(len(dataset), seed)[rank::world])
    else:
        yield from islice(_batches(trainer, dataset, size), rank, None, world)


def decoder_mask(inputs: Mapping[str, Any]) -> Tensor | None:
    """Which of a decoder's tokens count: without a mask, those that have a label."""
    mask: Tensor | None = inputs.get("decoder_attention_mask")
    labels = inputs.get("labels")
    if mask is None and isinstance(labels, Tensor) and labels.ndim == 2:
        return labels != -100
    return mask


def with_decoder_mask(batch: Batch, model: Any) -> Batch:
    """The batch of a model with a decoder, with the mask of the decoder's tokens."""
    has_decoder = getattr(getattr(model, "config", None), "is_encoder_decoder", False)
    mask = decoder_mask(batch) if has_decoder else None
    return batch if mask is None else {**batch, "decoder_attention_mask": mask.long()}


def _order(n: int, seed: int) -> Tensor:
    return torch.randperm(n, generator=torch.Generator().manual_seed(seed))


def _batches(trainer: Any, dataset: Any, size: int, rows: Tensor | None = None) -> Iterator[Batch]:
    collate = trainer._get_collator_with_removed_columns(trainer.data_collator)
    sampler = None if rows is None else rows.tolist()
    for batch in DataLoader(dataset, batch_size=size, sampler=sampler, collate_fn=collate):
        yield with_decoder_mask(dict(batch), trainer.model)

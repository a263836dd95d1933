"""The trainers of runs: those of the integration, with an order of rows and a look at each loss."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn

from isotropy.errors import TrainingError
from isotropy.experiments._embeddings import EMBEDDING, reads_embedding
from isotropy.integrations.huggingface import IsotropySeq2SeqTrainer, IsotropyTrainer
from isotropy.layers import layer_of
from isotropy.layers._places import place_in_classifier
from isotropy.representations import Representations
from isotropy.sites import Site


class _OfRuns:
    """What both trainers have in common.

    Args:
        arguments: the trainer's.
        order: the sampler of training rows.
        settings: the trainer's.
    """

    def __init__(self, *arguments: Any, order: Any, **settings: Any) -> None:
        self.order = order
        self.batch_rows: BatchRows | None = None
        super().__init__(*arguments, **settings)

    def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
        return self.order

    def training_step(self, model: nn.Module, inputs: Any, *rest: Any, **named: Any) -> Tensor:
        """One micro-batch.

        Raises:
            TrainingError: the loss is not a finite number.
        """
        loss: Tensor = super().training_step(model, inputs, *rest, **named)  # type: ignore[misc]
        if not bool(torch.isfinite(loss)):
            arguments = self.args  # type: ignore[attr-defined]
            half = "float16" if arguments.fp16 else "bfloat16" if arguments.bf16 else ""
            raise TrainingError(
                f"got a loss of {float(loss)} at step {self.state.global_step + 1} with "  # type: ignore[attr-defined]
                f"learning_rate={arguments.learning_rate:g}, expected a finite number; lower the "
                f"learning rate{f', or use float32 instead of {half}' if half else ''}"
            )
        return loss

    def compute_loss(
        self,
        model: Any,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """The loss; where the batch itself is measured, its states are kept on the way."""
        keeper = self.batch_rows
        if keeper is not None and keeper.is_due and model.training:
            inputs = {**inputs, **keeper.asked}
            with keeper.keeping():
                return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)  # type: ignore[misc]
        return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)  # type: ignore[misc]


class RunTrainer(_OfRuns, IsotropyTrainer):
    """Of models with one output a text or a token."""


class RunSeq2SeqTrainer(_OfRuns, IsotropySeq2SeqTrainer):
    """Of models that generate."""


class BatchRows:
    """The states of the batch of a step, taken from the forward pass that trains on it.

    Args:
        model: whose states, with a layer or without.
        site: which rows; `cls@last` of a classifier with a layer is what its head reads.
        is_due_at: whether a step's batch is wanted.
        step: the step that comes next.
    """

    def __init__(
        self,
        model: nn.Module,
        site: str,
        *,
        is_due_at: Callable[[int], bool],
        step: Callable[[], int],
    ) -> None:
        self.model = model
        self.embedding = reads_embedding(site, model)
        self.site = Site("cls") if site == EMBEDDING else Site.parse(site)
        self._is_due_at, self._step = is_due_at, step
        self._parts: list[Tensor] = []

    @property
    def is_due(self) -> bool:
        """Whether the next step's batch is wanted."""
        return self._is_due_at(self._step())

    @property
    def asked(self) -> dict[str, bool]:
        """What the model is asked for besides its loss."""
        return {} if self.embedding else {"output_hidden_states": True}

    def taken(self) -> Tensor | None:
        """The rows of the last step, of all its micro-batches, if there are any."""
        parts, self._parts = self._parts, []
        return torch.cat(parts) if parts else None

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """While a micro-batch goes through the model."""
        if not self.embedding:
            handle: Any = self.model.register_forward_hook(self._keep_states, with_kwargs=True)
        elif (layer := layer_of(self.model)) is not None:
            handle = layer.register_forward_hook(self._keep_output)
        else:
            handle = self._before_head()
        try:
            yield
        finally:
            handle.remove()

    def _keep_states(self, _: Any, __: Any, inputs: dict[str, Any], output: Any) -> None:
        if not torch.is_grad_enabled():  # the first of the two passes of `accumulate="cached"`
            return
        shown = Representations.from_output(
            output,
            inputs.get("attention_mask"),
            model=self.model,
            decoder_attention_mask=inputs.get("decoder_attention_mask"),
        )
        rows = shown.rows(self.site)
        for block, mask in zip(rows.blocks, rows.masks, strict=True):
            self._add(block if mask is None else block[mask])

    def _keep_output(self, _: Any, __: Any, output: Tensor) -> None:
        if torch.is_grad_enabled():
            self._add(output)

    def _before_head(self) -> Any:
        place, _ = place_in_classifier(self.model)
        inputs: dict[str, Any] = {}

        def seen(rows: Tensor) -> Tensor:
            if torch.is_grad_enabled():
                self._add(rows)
            return rows

        def keep(_: Any, given: tuple[Any, ...]) -> None:
            place.mapped(given[0], seen, inputs, self.model)

        def remember(_: Any, __: Any, named: dict[str, Any]) -> None:
            inputs.update(input_ids=named.get("input_ids"))

        first = self.model.register_forward_pre_hook(remember, with_kwargs=True)
        second = place.reader(self.model).register_forward_pre_hook(keep)
        return _Both(first, second)

    def _add(self, rows: Tensor) -> None:
        self._parts.append(rows.detach().float())


class _Both:
    """Two handles of hooks as one."""

    def __init__(self, *handles: Any) -> None:
        self.handles = handles

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in self.handles:
            handle.remove()

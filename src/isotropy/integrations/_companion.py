"""What accompanies a Hugging Face trainer: more terms in its loss, and numbers in its logs."""

import inspect
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn

from isotropy.errors import SettingError, unknown_name
from isotropy.integrations._cached import CachedPenalty, same_randomness
from isotropy.integrations._checks import (
    as_penalty,
    as_steps,
    needs_refresh,
    require_one_device,
)
from isotropy.integrations._item_count import ignores_item_count
from isotropy.integrations._samples import (
    decoder_mask,
    fixed_batches,
    this_ranks_batches,
    with_decoder_mask,
)
from isotropy.integrations._saved import load_penalty, save_penalty
from isotropy.integrations._terms import Terms
from isotropy.integrations._tracking import Tracker
from isotropy.layers._rates import learning_by_themselves, own_loss, set_apart
from isotropy.penalties import Penalty
from isotropy.representations import Representations
from isotropy.settings import whole_number

Accumulate = Literal["separate", "cached"]
Inputs = Mapping[str, Any]
Loss = Callable[..., Any]
"""A trainer's `compute_loss`."""

_STATES = ("hidden_states", "encoder_hidden_states", "decoder_hidden_states")


class Companion:
    """Adds a penalty, and what layers learn from by themselves, to one trainer's loss.

    It measures and refreshes at the right times.

    Each method stands around one of the trainer's, which is handed to it as `inner`. The arguments
    are described in `isotropy.integrations.huggingface.IsotropyTrainer`.

    Args:
        trainer: the trainer.
        penalty: the penalty, its weight included.
        accumulate: what is one cloud.
        compare_steps: how often gradients are compared.
        refresh_points: how many rows a refresh looks at.
        track: names of measures.
        track_steps: how often they are measured.
        track_dataset: on which data.
        track_rows: on how many of its rows.
        track_site: which rows of states are measured.
        averages: whether to see to it that the loss of a step is the mean over its micro-batches,
            where there is neither a penalty nor a layer with a loss.

    Raises:
        SettingError: a setting that makes no sense.
    """

    def __init__(
        self,
        trainer: Any,
        *,
        penalty: Penalty | None = None,
        accumulate: Accumulate = "separate",
        compare_steps: int | None = 100,
        refresh_points: int = 250_000,
        track: Sequence[str] | str = (),
        track_steps: int | None = None,
        track_dataset: Any = None,
        track_rows: int = 512,
        track_site: str = "cls@last",
        averages: bool = True,
    ) -> None:
        if accumulate not in get_args(Accumulate):
            raise unknown_name("accumulate", str(accumulate), get_args(Accumulate))
        self.trainer = trainer
        self.penalty = None if penalty is None else as_penalty(penalty).to(trainer.args.device)
        self.terms = Terms(penalty)
        self.accumulate = accumulate
        self.compare_steps = as_steps("compare_steps", compare_steps)
        self.refresh_points = whole_number("refresh_points", refresh_points, low=2)
        self.track_steps = as_steps("track_steps", track_steps)
        self.tracker = None
        if track:
            as_steps("track_rows", track_rows)
            dataset = _to_track(trainer, track_dataset)
            with same_randomness():
                batches = fixed_batches(trainer, dataset, track_rows, trainer.args.seed)
            self.tracker = Tracker(track, batches, site=track_site, seed=trainer.args.seed)
        self._needs_states = penalty is not None and not penalty.site.is_weight
        if self._needs_states:
            _require_states(trainer.model)
        self._batches: list[Inputs] = []
        self._next = 0
        self._cached: CachedPenalty | None = None
        adds = penalty is not None or bool(learning_by_themselves(trainer.model))
        if adds:
            require_one_device(trainer.args.n_gpu)
        self._knows_reduction = not (averages or adds)
        self._restored = False
        self._last_tracked: int | None = None

    # ---- The loss ----

    def get_batch_samples(self, inner: Callable[..., Any], *arguments: Any) -> Any:
        """The micro-batches of the next step; they are remembered."""
        found = inner(*arguments)
        self._batches, self._next, self._cached = found[0], 0, None
        if self._has_to_average(found[0]):
            self.trainer.model_accepts_loss_kwargs = False
            return found[0], None
        return found

    def compute_loss(
        self,
        inner: Loss,
        model: nn.Module,
        inputs: Inputs,
        return_outputs: bool,
        num_items: Any,
    ) -> Any:
        """The task's loss with all that is added to it; in evaluation the task's."""
        adds = self.penalty is not None or bool(learning_by_themselves(self.trainer.model))
        if not adds or not model.training:
            return inner(model, inputs, return_outputs=return_outputs, num_items_in_batch=num_items)
        is_first = self._next == 0
        if is_first:
            self._look_ahead(inner, model, num_items)
        self._next += 1

        task, outputs, shown = self._forward(inner, model, inputs, num_items)
        steps = self.trainer.current_gradient_accumulation_steps
        share = 1 / steps if self._is_scaled(num_items) else 1.0
        self.terms.keep(task_loss=task.mean() / share)
        loss = task
        if self.penalty is not None:
            term = self._term(self.penalty, shown, steps)
            self.terms.keep(penalty=term)
            term = share * term
            at = self.trainer.state.global_step
            if is_first and self.compare_steps is not None and at % self.compare_steps == 0:
                self.terms.compare(task.mean(), term, self.trainer.model.parameters())
            loss = loss + term.to(task.dtype)
        own = own_loss(self.trainer.model)
        if own is not None:
            self.terms.keep(layer_loss=own)
            loss = loss + (share * own).to(task.dtype)
        return (loss, self._without_states(outputs)) if return_outputs else loss

    def _term(self, penalty: Penalty, shown: Representations, steps: int) -> Tensor:
        """The weighted penalty of a micro-batch, or its part of that of all of them."""
        if self._cached is None:
            term: Tensor = penalty(shown)
            return term
        return self._cached.value + steps * self._cached.surrogate(penalty.rows(shown))

    def _forward(
        self, inner: Loss, model: nn.Module, inputs: Inputs, num_items: Any
    ) -> tuple[Tensor, Any, Representations]:
        """The task's loss, the model's output and what it shows."""
        inputs = dict(inputs)
        labels = inputs.get("labels")  # smoothing takes them away
        asked = {**inputs, "output_hidden_states": True} if self._needs_states else dict(inputs)
        if self.trainer.label_smoother is not None and learning_by_themselves(self.trainer.model):
            # A layer at a decoder's tokens has no labels to tell which are padding.
            asked = with_decoder_mask(asked, self.trainer.model)
        task, outputs = inner(model, asked, return_outputs=True, num_items_in_batch=num_items)
        if not self._needs_states:
            return task, outputs, Representations.from_weights(self.trainer.model)
        shown = Representations.from_output(
            outputs,
            inputs.get("attention_mask"),
            labels if isinstance(labels, Tensor) else None,
            self.trainer.model,
            decoder_attention_mask=decoder_mask(inputs),
        )
        return task, outputs, shown

    def _look_ahead(self, inner: Loss, model: nn.Module, num_items: Any) -> None:
        """Where the micro-batches of a step are one cloud, take the penalty of all of them."""
        is_cached = self.accumulate == "cached" and self._needs_states and len(self._batches) > 1
        if self.penalty is not None and is_cached:
            ahead = self._shown_ahead(inner, model, num_items)
            self._cached = CachedPenalty(self.penalty, [self.penalty.rows(s) for s in ahead])

    def _shown_ahead(
        self, inner: Loss, model: nn.Module, num_items: Any
    ) -> Iterator[Representations]:
        """What all micro-batches of this step show, as the second pass will find it."""
        with torch.no_grad(), same_randomness():
            for batch in self._batches:
                inputs = self.trainer._prepare_inputs(dict(batch))
                yield self._forward(inner, model, inputs, num_items)[2]

    def _is_scaled(self, num_items: Any) -> bool:
        """Whether losses of micro-batches are added up, or otherwise averaged by the trainer."""
        trainer = self.trainer
        said = getattr(trainer, "loss_is_scaled_for_ga", None)
        if said is not None:
            return bool(said)
        by_model = trainer.model_accepts_loss_kwargs and num_items is not None
        return by_model or trainer.compute_loss_func is not None

    def _without_states(self, outputs: Any) -> Any:
        """The output as it would be if nobody had asked for states."""
        config = getattr(self.trainer.model, "config", None)
        if getattr(config, "output_hidden_states", False) or not isinstance(outputs, dict):
            return outputs
        return type(outputs)(**{k: v for k, v in outputs.items() if k not in _STATES})

    def _has_to_average(self, batches: list[Inputs]) -> bool:
        """Whether the trainer adds up losses that it should average; looked at once."""
        trainer = self.trainer
        is_divided = len(batches) > 1 or trainer.args.world_size > 1 or trainer.args.n_gpu > 1
        if self._knows_reduction or not batches or not is_divided:
            return False
        self._knows_reduction = True
        if not trainer.model_accepts_loss_kwargs or trainer.compute_loss_func is not None:
            return False
        if trainer.label_smoother is not None or "labels" not in batches[0]:
            return False
        with same_randomness():
            return ignores_item_count(trainer.model, trainer._prepare_inputs(dict(batches[0])))

    # ---- The optimizer ----

    def create_optimizer(self, inner: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
        """The trainer's optimizer, in which layers have their own rates; one's own stays so."""
        is_given = self.trainer.optimizer is not None
        optimizer = inner(*arguments, **named)
        if not is_given:
            set_apart(optimizer, self.trainer.model)
        return optimizer

    def clip(self, inner: Callable[..., Any], model: nn.Module) -> Any:
        """Clip gradients: those of layers' own losses by themselves, as they are of another scale.

        Otherwise a steep likelihood would make the steps of encoder and head smaller.
        """
        layers = learning_by_themselves(self.trainer.model)
        if not layers:
            return inner(model)
        own = [parameter for layer in layers for parameter in layer.parameters()]
        apart = {id(parameter) for parameter in own}
        rest = [parameter for parameter in model.parameters() if id(parameter) not in apart]
        norm = inner(SimpleNamespace(parameters=lambda: iter(rest)))
        nn.utils.clip_grad_norm_(own, self.trainer.args.max_grad_norm)
        return norm

    # ---- The times ----

    def on_train_begin(self) -> None:
        """Refuse what would lose gradients, and measure a training's start."""
        self._refuse_reentrant_checkpointing()
        self._last_tracked = None
        if self.trainer.state.global_step == 0:
            self._log_tracked()

    def on_epoch_begin(self) -> None:
        """Refresh the penalty, unless a checkpoint has brought what it knew in this epoch."""
        epoch = self.trainer.state.epoch or 0.0
        restored, self._restored = self._restored, False
        if self.penalty is None or not needs_refresh(self.penalty) or (restored and epoch % 1):
            return
        start = time.perf_counter()
        with same_randomness():
            self.penalty.refresh(
                self.trainer.model,
                this_ranks_batches(self.trainer, self.trainer.args.seed + int(epoch)),
                points=self.refresh_points,
            )
        self.trainer.log({"penalty_refresh_seconds": time.perf_counter() - start})

    def on_step_end(self) -> None:
        """Measure after every so many steps."""
        steps = self.track_steps
        if steps is not None and self.trainer.state.global_step % steps == 0:
            self._log_tracked()

    def on_train_end(self) -> None:
        """Measure a training's end."""
        self._log_tracked()

    def log(self, inner: Callable[..., Any], logs: dict[str, float], *arguments: Any) -> None:
        """Log, and with a training's loss what belongs to it."""
        if "loss" in logs:
            logs.update(self.terms.logs())
            if self.track_steps is None:
                logs.update(self._tracked())
        inner(logs, *arguments)

    def _log_tracked(self) -> None:
        found = self._tracked()
        if found:
            self.trainer.log(found)

    def _tracked(self) -> dict[str, float]:
        """The tracked numbers of this step, if there are none yet."""
        step = self.trainer.state.global_step
        if self.tracker is None or step == self._last_tracked:
            return {}
        self._last_tracked = step
        with same_randomness():
            return self.tracker(self.trainer.model)

    # ---- Checkpoints ----

    def save(self, inner: Callable[..., Any], folder: str) -> None:
        """Save the penalty's state beside the optimizer's."""
        inner(folder)
        if self.penalty is not None and self.trainer.args.should_save:
            save_penalty(self.penalty, Path(folder))

    def load(self, inner: Callable[..., Any], folder: str | None) -> None:
        """Load the penalty's state with the optimizer's."""
        inner(folder)
        if self.penalty is not None and folder is not None:
            self._restored = load_penalty(self.penalty, Path(folder))

    def _refuse_reentrant_checkpointing(self) -> None:
        if not self._needs_states:
            return
        for module in self.trainer.model.modules():
            function = getattr(module, "_gradient_checkpointing_func", None)
            keywords = getattr(function, "keywords", None) or {}
            if getattr(module, "gradient_checkpointing", False) and keywords.get("use_reentrant"):
                raise SettingError(
                    "got gradient checkpointing with use_reentrant=True, whose states have no "
                    "gradient, expected use_reentrant=False, which is the default"
                )


def _require_states(model: nn.Module) -> None:
    """Raise a SettingError if a model cannot be asked for its states."""
    parameters = inspect.signature(model.forward).parameters
    if "output_hidden_states" not in parameters and not any(
        parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()
    ):
        raise SettingError(
            f"got a model of type {type(model).__name__} whose forward takes no "
            "output_hidden_states, expected one that can return its states, as Hugging Face's do"
        )


def _to_track(trainer: Any, dataset: Any) -> Any:
    """The data on which measures are tracked.

    Raises:
        SettingError: there is none, or several.
    """
    dataset = trainer.eval_dataset if dataset is None else dataset
    if dataset is None:
        raise SettingError(
            "got measures to track but neither track_dataset nor eval_dataset, expected data to "
            "measure on; pass track_dataset="
        )
    if isinstance(dataset, dict):
        names = ", ".join(map(repr, dataset))
        raise SettingError(
            f"got several data sets to track measures on ({names}), expected one; pass one of "
            "them as track_dataset="
        )
    return dataset

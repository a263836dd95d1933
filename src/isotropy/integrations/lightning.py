"""Penalties, layers and measures in Lightning's `Trainer`, by one callback and a small protocol.

The module shows what it computes:

- `training_step` returns a dict with `"loss"` and `"representations"`: the loss gets the penalty
  of the latter, which are taken out before Lightning sees them;
- a method `representations(batch)` returns the same for any batch: tracked measures, and the
  refresh of a penalty that has one, call it in evaluation mode.

Representations are an `isotropy.Representations`, or an n×d tensor, a cloud. Without a penalty
`training_step` may return what it likes, also where there is a layer with a loss of its own.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import wraps
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler

from isotropy import ranks
from isotropy.errors import MissingExtraError, SettingError
from isotropy.integrations._adapter import Adapter, as_representations
from isotropy.integrations._cached import same_randomness
from isotropy.integrations._checks import as_penalty, as_steps, needs_refresh
from isotropy.integrations._saved import penalty_state, set_penalty_state
from isotropy.integrations._terms import Terms
from isotropy.integrations._tracking import Tracker, as_measures
from isotropy.layers._rates import (
    layers_in,
    learning_by_themselves,
    mixed_groups,
    own_loss,
    set_apart,
)
from isotropy.penalties import Penalty
from isotropy.representations import Representations
from isotropy.settings import whole_number
from isotropy.sites import Site

try:
    from lightning.pytorch import Callback, LightningModule, Trainer
except ImportError:
    raise MissingExtraError("lightning", "lightning") from None

_SHOWN = "representations"
_VALIDATION_BATCHES = 8


class IsotropyCallback(Callback):
    """Adds a penalty and what layers learn from to a module's loss, and measures to its logs.

    Logged are `task_loss`, `penalty`, `layer_loss`, `penalty_gradient_ratio`,
    `penalty_refresh_seconds` and the tracked measures. Each micro-batch of accumulated gradients is
    a cloud of its own. The penalty's state goes into Lightning's checkpoints.

    Where a layer in the module has a loss of its own (`layers.Flow`), that is added. Where it asks
    for a `learning_rate`, it gets that in a group of its own in the module's optimizer, unless
    there is a schedule already, which knows the groups that there are: then write
    `AdamW(layers.parameter_groups(self), lr=...)`. Lightning clips all gradients together.

    Args:
        penalty: the penalty, its weight included; without one, all else is done all the same.
        compare_steps: after how many steps the gradients of task and penalty are compared, which
            costs two backward passes; None for never.
        refresh_points: how many rows `penalty.refresh` looks at, at every epoch's start.
        track: names of measures.
        track_steps: after how many steps they are measured; None for whenever the trainer logs.
            They are measured at the start, too.
        track_batches: on which batches, the same on every rank; by default the first eight for
            validation of every rank.
        track_site: which rows are measured, where representations have several.

    Raises:
        SettingError: a setting that makes no sense.

    Example:
        >>> import warnings
        >>> from lightning.pytorch import LightningModule, Trainer
        >>> from isotropy import penalties
        >>> class Classifier(LightningModule):
        ...     def __init__(self):
        ...         super().__init__()
        ...         self.hidden, self.head = torch.nn.Linear(4, 3), torch.nn.Linear(3, 2)
        ...
        ...     def representations(self, batch):
        ...         return self.hidden(batch[0])
        ...
        ...     def training_step(self, batch):
        ...         x = self.representations(batch)
        ...         loss = torch.nn.functional.cross_entropy(self.head(x), batch[1])
        ...         return {"loss": loss, "representations": x}
        ...
        ...     def configure_optimizers(self):
        ...         return torch.optim.SGD(self.parameters(), lr=0.1)
        >>> data = [(torch.randn(8, 4), torch.arange(8) % 2) for _ in range(4)]
        >>> callback = IsotropyCallback(
        ...     penalties.Cosine(), track=["iso_score"], track_batches=data[:1]
        ... )
        >>> with warnings.catch_warnings(action="ignore"):  # Lightning's, on the few workers
        ...     trainer = Trainer(
        ...         max_epochs=1,
        ...         accelerator="cpu",
        ...         logger=False,
        ...         callbacks=callback,
        ...         log_every_n_steps=1,
        ...         enable_progress_bar=False,
        ...         enable_model_summary=False,
        ...         enable_checkpointing=False,
        ...     )
        ...     trainer.fit(Classifier(), torch.utils.data.DataLoader(data, batch_size=None))
        >>> sorted(trainer.logged_metrics)
        ['penalty', 'task_loss']
        >>> sorted(trainer.callback_metrics)
        ['iso_score', 'penalty', 'penalty_gradient_ratio', 'task_loss']
    """

    def __init__(
        self,
        penalty: Penalty | None = None,
        *,
        compare_steps: int | None = 100,
        refresh_points: int = 250_000,
        track: Sequence[str] | str = (),
        track_steps: int | None = None,
        track_batches: Iterable[Any] | None = None,
        track_site: str = "cls@last",
    ) -> None:
        self.penalty = None if penalty is None else as_penalty(penalty)
        self.terms = None if penalty is None else Terms(penalty)
        self.compare_steps = as_steps("compare_steps", compare_steps)
        self.refresh_points = whole_number("refresh_points", refresh_points, low=2)
        self.track = as_measures(track) if track else []
        self.track_steps = as_steps("track_steps", track_steps)
        self.track_batches = None if track_batches is None else list(track_batches)
        self.track_site = str(Site.parse(track_site))
        self._tracker: Tracker | None = None
        self._last_tracked: int | None = None
        self._last_compared: int | None = None
        self._refreshed_epoch: int | None = None

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Stand around `training_step` for as long as the module is trained."""
        if stage != "fit":
            return
        if needs_refresh(self.penalty) or self.track:
            _require_protocol(pl_module)
        if self.penalty is None and not learning_by_themselves(pl_module):
            return
        if not pl_module.automatic_optimization:
            raise SettingError(
                "got a module that optimizes by itself, expected automatic_optimization=True; or "
                "add the penalty, and the layer's own_loss(), to your own loss"
            )
        inner: Callable[..., Any] = pl_module.training_step

        @wraps(inner)
        def training_step(*arguments: Any, **named: Any) -> Any:
            output = self._with_penalty(trainer, pl_module, inner(*arguments, **named))
            return self._with_own_loss(pl_module, output)

        pl_module.training_step = training_step  # type: ignore[method-assign]

    def teardown(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Give the module its own `training_step` back."""
        vars(pl_module).pop("training_step", None)
        self._refreshed_epoch = self._last_compared = None

    def _with_penalty(self, trainer: Trainer, module: LightningModule, output: Any) -> Any:
        """What `training_step` returned, with the penalty in its loss."""
        if output is None or self.penalty is None or self.terms is None:
            return output  # None: Lightning's way to skip a batch
        if not isinstance(output, Mapping) or not {"loss", _SHOWN} <= set(output):
            given = sorted(output) if isinstance(output, Mapping) else type(output).__name__
            raise SettingError(
                f"got a training_step that returns {given}, expected a dict with 'loss' and "
                f"'{_SHOWN}'; without the latter there is nothing to take the penalty of"
            )
        task: Tensor = output["loss"]
        term = self.penalty(as_representations(output[_SHOWN]))
        step = trainer.global_step
        if (
            self.compare_steps is not None
            and step % self.compare_steps == 0
            and step != self._last_compared
        ):
            self._last_compared = step
            self.terms.compare(task, term, module.parameters())
            self._log(trainer, self.terms.logs())
        module.log_dict(_everyones(task_loss=task, penalty=term), batch_size=1)
        rest = {key: value for key, value in output.items() if key != _SHOWN}
        return {**rest, "loss": task + term.to(task.dtype)}

    def _with_own_loss(self, module: LightningModule, output: Any) -> Any:
        """What `training_step` returned, with the layers' own losses in its loss."""
        own = None if output is None else own_loss(module)
        if own is None:
            return output
        is_dict = isinstance(output, Mapping)
        loss: Tensor = output["loss"] if is_dict else output
        task = {"task_loss": loss} if self.penalty is None else {}
        module.log_dict(_everyones(layer_loss=own, **task), batch_size=1)
        loss = loss + own.to(loss.dtype)
        return {**output, "loss": loss} if is_dict else loss

    # ---- The times ----

    def on_fit_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Give layers their own rates in optimizers that have made no step yet."""
        for optimizer in trainer.optimizers:
            if not mixed_groups(optimizer, pl_module):
                continue
            if any(
                config.scheduler.optimizer is optimizer for config in trainer.lr_scheduler_configs
            ):
                names = sorted({type(layer).__name__ for layer in layers_in(pl_module)})
                raise SettingError(
                    f"got a schedule for an optimizer without a group of its own for {names}, "
                    "expected one; write the optimizer as AdamW(layers.parameter_groups(self), ...)"
                )
            set_apart(optimizer, pl_module, alone=False)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Measure a training's start."""
        if self.penalty is not None:
            self.penalty.to(pl_module.device)
        if not self.track:
            return
        batches = self.track_batches
        if batches is None:
            if trainer.val_dataloaders is None:
                raise SettingError(
                    "got measures to track but neither track_batches nor data for validation, "
                    "expected data to measure on; pass track_batches="
                )
            with same_randomness():
                batches = _validation_batches(trainer.val_dataloaders, trainer.world_size)
        self._tracker = Tracker(
            self.track, [{"batch": batch} for batch in batches], site=self.track_site
        )
        self._last_tracked = None
        if trainer.global_step == 0:
            self._track(trainer, pl_module)

    def on_train_epoch_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Refresh the penalty, once an epoch."""
        self._refresh(trainer, pl_module)

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any
    ) -> None:
        """Refresh the penalty where Lightning resumes at an epoch's end, and skips a start."""
        self._refresh(trainer, pl_module)

    def _refresh(self, trainer: Trainer, pl_module: LightningModule) -> None:
        if self.penalty is None or not needs_refresh(self.penalty):
            return
        if self._refreshed_epoch == trainer.current_epoch:
            return
        self._refreshed_epoch = trainer.current_epoch
        start = time.perf_counter()
        with same_randomness():
            self.penalty.refresh(
                _adapter(trainer, pl_module), _batches(trainer), points=self.refresh_points
            )
        seconds = {"penalty_refresh_seconds": time.perf_counter() - start}
        for logger in trainer.loggers:
            logger.log_metrics(seconds, step=trainer.global_step)

    def on_train_batch_end(
        self, trainer: Trainer, pl_module: LightningModule, *_: Any, **__: Any
    ) -> None:
        """Measure after every so many steps."""
        every = self.track_steps or getattr(trainer, "log_every_n_steps", 1) or 1
        if trainer.global_step % every == 0:
            self._track(trainer, pl_module)

    def _track(self, trainer: Trainer, module: LightningModule) -> None:
        step = trainer.global_step
        if self._tracker is None or step == self._last_tracked:
            return
        self._last_tracked = step
        with same_randomness():
            found = self._tracker(_adapter(trainer, module))
        # Whatever batches the others were given: what waits for a number must find the same one.
        self._log(trainer, trainer.strategy.broadcast(found))

    @staticmethod
    def _log(trainer: Trainer, found: dict[str, float]) -> None:
        # To the loggers at once, as Lightning leaves out steps between its own; and to Lightning,
        # for other callbacks that wait for these numbers.
        for logger in trainer.loggers:
            logger.log_metrics(found, step=trainer.global_step)
        trainer.callback_metrics.update({key: torch.tensor(value) for key, value in found.items()})

    # ---- Checkpoints ----

    def state_dict(self) -> dict[str, Any]:
        """The penalty's state."""
        if self.penalty is None:
            return {}
        return {"penalty": penalty_state(self.penalty), "refreshed_epoch": self._refreshed_epoch}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Put the penalty where it was."""
        if self.penalty is not None and "penalty" in state_dict:
            set_penalty_state(self.penalty, state_dict["penalty"])
            self._refreshed_epoch = state_dict["refreshed_epoch"]


def _require_protocol(module: LightningModule) -> None:
    if not callable(getattr(module, _SHOWN, None)):
        raise SettingError(
            f"got a module of type {type(module).__name__} without a method {_SHOWN}(batch), "
            "expected one that returns isotropy.Representations or a cloud; it is needed to track "
            "measures and to refresh a penalty"
        )


def _adapter(trainer: Trainer, module: LightningModule) -> Adapter:
    def show(batch: Any) -> Representations | Tensor:
        shown: Representations | Tensor = getattr(module, _SHOWN)(
            trainer.strategy.batch_to_device(batch)
        )
        return shown

    return Adapter(module, show)


def _everyones(**values: Tensor) -> dict[str, Tensor]:
    """The means over all ranks, each of which logs them. Lightning's `sync_dist` makes all wait."""
    found = {key: value.detach() for key, value in values.items()}
    if (world := ranks.world_size()) == 1:
        return found
    means = ranks.total(torch.stack([value.double() for value in found.values()])) / world
    return dict(zip(found, means.unbind(), strict=True))


def _validation_batches(loader: Any, world: int) -> list[Any]:
    """The first batches for validation: those of all ranks, for each of them."""
    batches = getattr(loader, "batch_sampler", None)
    dealt = getattr(loader if batches is None else batches, "sampler", None)
    if not isinstance(dealt, DistributedSampler):
        return list(islice(loader, _VALIDATION_BATCHES))
    whole = copy(dealt)
    whole.num_replicas, whole.rank = 1, 0
    whole.num_samples = whole.total_size = len(whole.dataset)  # type: ignore[arg-type]
    size = None if batches is None else batches.batch_size
    loader = DataLoader(
        loader.dataset, batch_size=size, sampler=whole, collate_fn=loader.collate_fn
    )
    return list(islice(loader, world * _VALIDATION_BATCHES))


def _batches(trainer: Trainer) -> Iterator[dict[str, Any]]:
    """Batches of training data, as the loader gives them to this rank."""
    loader: Any = trainer.train_dataloader
    if isinstance(loader, DataLoader):
        # With workers that persist, two iterations of one loader would disturb each other.
        loader = copy(loader)
        loader._iterator = None
    for batch in loader:
        yield {"batch": batch}

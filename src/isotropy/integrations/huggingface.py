"""Penalties, layers and measures in Hugging Face's `Trainer`.

A trainer of one's own class takes `IsotropyCallback`; otherwise `IsotropyTrainer` and
`IsotropySeq2SeqTrainer` are Hugging Face's with a penalty. All three log with every training loss:

- `task_loss`, `penalty` and `layer_loss`: the terms of the loss, means since the last log;
- `penalty_gradient_ratio`: the norm of the penalty's gradient over that of the task's;
- `penalty_skipped`: how many batches the penalty could say nothing of, if there were any;
- `penalty_refresh_seconds`: the time of a refresh, at every epoch's start;
- the tracked measures.
"""

from collections.abc import Sequence
from functools import partial
from importlib.util import find_spec
from typing import Any

from isotropy.errors import MissingExtraError, SettingError
from isotropy.integrations._companion import Accumulate, Companion
from isotropy.penalties import Penalty

try:
    from transformers import Seq2SeqTrainer, Trainer, TrainerCallback
except ImportError:
    raise MissingExtraError("transformers", "train") from None
if find_spec("accelerate") is None:  # the trainer itself asks for it only later
    raise MissingExtraError("accelerate", "train")


class _WithPenalty:
    """What `IsotropyTrainer` and `IsotropySeq2SeqTrainer` have in common."""

    def __init__(
        self,
        *arguments: Any,
        penalty: Penalty | None = None,
        accumulate: Accumulate = "separate",
        compare_steps: int | None = 100,
        refresh_points: int = 250_000,
        track: Sequence[str] | str = (),
        track_steps: int | None = None,
        track_dataset: Any = None,
        track_rows: int = 512,
        track_site: str = "cls@last",
        **settings: Any,
    ) -> None:
        super().__init__(*arguments, **settings)
        self.companion = Companion(
            self,
            penalty=penalty,
            accumulate=accumulate,
            compare_steps=compare_steps,
            refresh_points=refresh_points,
            track=track,
            track_steps=track_steps,
            track_dataset=track_dataset,
            track_rows=track_rows,
            track_site=track_site,
        )
        self.add_callback(_Times(self.companion))  # type: ignore[attr-defined]

    def compute_loss(
        self,
        model: Any,
        inputs: Any,
        return_outputs: bool = False,
        num_items_in_batch: Any = None,
    ) -> Any:
        """The task's loss with the penalty; in evaluation the task's alone."""
        inner = super().compute_loss  # type: ignore[misc]
        return self.companion.compute_loss(inner, model, inputs, return_outputs, num_items_in_batch)

    def get_batch_samples(self, *arguments: Any) -> Any:
        """The micro-batches of the next step."""
        return self.companion.get_batch_samples(super().get_batch_samples, *arguments)  # type: ignore[misc]

    def create_optimizer(self, *arguments: Any, **named: Any) -> Any:
        """The optimizer, in which layers have their own rates."""
        inner = super().create_optimizer  # type: ignore[misc]
        return self.companion.create_optimizer(inner, *arguments, **named)

    def _clip_grad_norm(self, model: Any) -> Any:
        return self.companion.clip(super()._clip_grad_norm, model)  # type: ignore[misc]

    def log(self, logs: dict[str, float], *arguments: Any) -> None:
        """Log, and with a training's loss its terms and the tracked measures."""
        self.companion.log(super().log, logs, *arguments)  # type: ignore[misc]

    def _save_optimizer_and_scheduler(self, output_dir: str) -> None:
        self.companion.save(super()._save_optimizer_and_scheduler, output_dir)  # type: ignore[misc]

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        self.companion.load(super()._load_optimizer_and_scheduler, checkpoint)  # type: ignore[misc]


class IsotropyTrainer(_WithPenalty, Trainer):
    """Hugging Face's `Trainer` with a penalty or a layer in the loss and measures in the logs.

    Everything else is the `Trainer`'s: mixed precision, gradient accumulation and checkpointing,
    label smoothing, `torchrun`, resuming, `report_to`. The penalty looks at the states of the
    forward pass that the loss comes from. Evaluation and prediction are untouched, so that
    `eval_loss` is the task's. Checkpoints hold the penalty's state.

    With gradient accumulation, a step's loss is the mean over its micro-batches, as that of the
    undivided batch is. `Trainer` adds the losses of many models up instead, BERT's among them,
    which accept its count of items and ignore it: they are recognised by their first batch.

    What a layer in the model adds to the loss (`layers.Flow` its likelihood) is added, a mean over
    micro-batches as the task's loss is, and logged as `layer_loss`. The parameters of a layer with
    a `learning_rate` are trained with that, in groups of their own in the optimizer that the
    trainer makes, under the same schedule and weight decay; gradients of such a layer are clipped
    by themselves. An optimizer of your own stays as it is: see `layers.parameter_groups`.

    Several GPUs need a process each, as `torchrun` starts them: `torch.nn.DataParallel`, which
    `Trainer` takes otherwise, is refused. Weights that are sharded over ranks (FSDP, DeepSpeed)
    have not been tried with this trainer; a penalty on such a weight matrix is refused.

    Args:
        arguments: the `Trainer`'s.
        penalty: the penalty, its weight included; without one, measures are tracked all the same.
            Its site `cls` is the last token of decoder-only models: for a model of one's own,
            `model.config.is_causal` says whether it is one.
        accumulate: with gradient accumulation, `separate`: each micro-batch is a cloud, and the
            penalties are averaged; `cached`: the micro-batches of a step are one cloud, at the
            price of a second forward pass and of keeping the rows of all of them. Layers that
            count batches, such as batch normalisation, count twice then.
        compare_steps: after how many steps the gradients of task and penalty are compared, which
            costs two backward passes; None for never.
        refresh_points: how many rows `penalty.refresh` looks at, at every epoch's start.
        track: names of measures.
        track_steps: after how many steps they are measured; None for whenever the loss is logged.
            They are measured at the start and the end, too.
        track_dataset: on which data; the `eval_dataset` by default.
        track_rows: on how many of its rows, drawn once.
        track_site: which rows of states are measured; see `isotropy.sites.Site`.
        settings: the `Trainer`'s.

    Raises:
        SettingError: a setting that makes no sense, or no data to track measures on.

    Example:
        >>> import tempfile
        >>> from transformers import BertConfig, BertForSequenceClassification, TrainingArguments
        >>> from isotropy import penalties
        >>> config = BertConfig(
        ...     vocab_size=20,
        ...     hidden_size=8,
        ...     num_hidden_layers=2,
        ...     num_attention_heads=2,
        ...     intermediate_size=8,
        ... )
        >>> data = [{"input_ids": [2, n, 3], "labels": n % 2} for n in range(4, 20)]
        >>> arguments = TrainingArguments(
        ...     tempfile.mkdtemp(),
        ...     max_steps=2,
        ...     logging_steps=1,
        ...     report_to="none",
        ...     disable_tqdm=True,
        ...     dataloader_pin_memory=False,
        ... )
        >>> trainer = IsotropyTrainer(
        ...     BertForSequenceClassification(config),
        ...     arguments,
        ...     train_dataset=data,
        ...     eval_dataset=data,
        ...     penalty=penalties.PersistentEntropy(),
        ...     track=["iso_score"],
        ... )
        >>> _ = trainer.train()
        {'iso_score': ...}
        {'loss': ..., 'task_loss': ..., 'penalty': ..., 'iso_score': ...}
        ...
    """


class IsotropySeq2SeqTrainer(_WithPenalty, Seq2SeqTrainer):
    """Hugging Face's `Seq2SeqTrainer` with a penalty; see `IsotropyTrainer`.

    The states are the encoder's unless the penalty's site names the decoder, of which those tokens
    count that `decoder_attention_mask` names, or that have a label.

    Args:
        arguments: the `Seq2SeqTrainer`'s.
        settings: its own, and those of `IsotropyTrainer`.
    """


class _Times(TrainerCallback):
    """Calls a companion at the times of a training."""

    def __init__(self, companion: Companion) -> None:
        self.companion = companion

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """A training begins."""
        self.companion.on_train_begin()

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        """An epoch begins."""
        self.companion.on_epoch_begin()

    def on_step_end(self, *_: Any, **__: Any) -> None:
        """The weights have changed."""
        self.companion.on_step_end()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """A training ends."""
        self.companion.on_train_end()


class IsotropyCallback(_Times):
    """Adds a penalty, a layer's own loss and tracked measures to a trainer that is there already.

    It stands around the trainer's `compute_loss`, `log`, and what makes, saves and loads the
    optimizer, so that it does all that `IsotropyTrainer` does for any subclass of `Trainer` whose
    `training_step` calls `compute_loss` once for each micro-batch. Those of sentence-transformers
    are some of them: a layer in their model needs this callback. It cannot do without the trainer
    (hence the argument), be used for a second one, be taken off again by `remove_callback`, or have
    its methods called by a trainer that computes its loss elsewhere.

    Args:
        trainer: the trainer.
        settings: `penalty`, `track` and the others of `IsotropyTrainer`.

    Raises:
        SettingError: no trainer, or a setting that makes no sense.

    Example:
        >>> IsotropyCallback("bert", track=["iso_score"])
        Traceback (most recent call last):
        ...
        isotropy.errors.SettingError: got a trainer of type str, expected ...
    """

    def __init__(self, trainer: Any, **settings: Any) -> None:
        if not isinstance(trainer, Trainer):
            raise SettingError(
                f"got a trainer of type {type(trainer).__name__}, expected a transformers.Trainer; "
                "write trainer.add_callback(IsotropyCallback(trainer, ...))"
            )
        super().__init__(Companion(trainer, **settings, averages=False))
        inner = trainer.compute_loss

        def compute_loss(
            model: Any, inputs: Any, return_outputs: bool = False, num_items_in_batch: Any = None
        ) -> Any:
            return self.companion.compute_loss(
                inner, model, inputs, return_outputs, num_items_in_batch
            )

        trainer.compute_loss = compute_loss  # type: ignore[method-assign]
        for name, method in (
            ("get_batch_samples", self.companion.get_batch_samples),
            ("create_optimizer", self.companion.create_optimizer),
            ("_clip_grad_norm", self.companion.clip),
            ("log", self.companion.log),
            ("_save_optimizer_and_scheduler", self.companion.save),
            ("_load_optimizer_and_scheduler", self.companion.load),
        ):
            if hasattr(trainer, name):  # what is private need not be in every version
                setattr(trainer, name, partial(method, getattr(trainer, name)))

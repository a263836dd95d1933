"""A run's training settings in the words of Hugging Face's trainer."""

import math
from dataclasses import dataclass
from typing import Any

import torch

from isotropy.experiments.spec import RunSpec, TrainSettings

_SERIES_POINTS = 200


@dataclass(frozen=True)
class Steps:
    """How long a training is, in optimizer steps.

    Attributes:
        total: all of them.
        epoch: those of an epoch.
        evaluations: after which the model is evaluated; the last is among them.
        log: after how many steps losses are written down.
    """

    total: int
    epoch: int
    evaluations: frozenset[int]
    log: int

    @classmethod
    def of(cls, rows: int, settings: TrainSettings) -> "Steps":
        """The steps of a training on so many rows.

        Example:
            >>> steps = Steps.of(100, TrainSettings(batch_size=8, epochs=2, evaluations=2))
            >>> steps.total, steps.epoch, sorted(steps.evaluations)
            (26, 13, [6, 13, 19, 26])
        """
        batches = math.ceil(rows / settings.batch_size)
        epoch = math.ceil(batches / settings.accumulation)
        total = settings.max_steps or math.ceil(settings.epochs * epoch)
        # In whole numbers, so that no rounding decides which step it is; halves go down.
        parts = settings.evaluations
        due = {
            max(1, (2 * k * epoch + parts - 1) // (2 * parts))
            for k in range(1, parts * math.ceil(total / epoch) + 1)
        }
        evaluations = frozenset({step for step in due if step <= total} | {total})
        return cls(total, epoch, evaluations, max(1, math.ceil(total / _SERIES_POINTS)))


def arguments(spec: RunSpec, steps: Steps, folder: str, *, generates: bool) -> Any:
    """The trainer's arguments; nothing is saved, printed or sent anywhere.

    Args:
        spec: the run.
        steps: how long it is.
        folder: what the trainer may write to.
        generates: whether the task's answers are generated.
    """
    from transformers import Seq2SeqTrainingArguments, TrainingArguments

    train = spec.train
    checkpointing = "activation_checkpointing"
    if checkpointing not in TrainingArguments.__dataclass_fields__:  # before transformers 5.20
        checkpointing = "gradient_checkpointing"
    common: dict[str, Any] = {
        "output_dir": folder,
        "max_steps": steps.total,
        "per_device_train_batch_size": train.batch_size,
        "per_device_eval_batch_size": train.eval_batch_size,
        "gradient_accumulation_steps": train.accumulation,
        "learning_rate": train.learning_rate,
        "weight_decay": train.weight_decay,
        "lr_scheduler_type": _SCHEDULES[train.schedule],
        # At least one step at the full rate, and none of the schedules divides by zero.
        "warmup_steps": min(math.ceil(train.warmup * steps.total), steps.total - 1),
        "max_grad_norm": train.max_grad_norm,
        "label_smoothing_factor": train.label_smoothing,
        "optim": "sgd" if train.optimizer == "sgd" else "adamw_torch_fused",
        "bf16": train.precision == "bfloat16",
        "fp16": train.precision == "float16",
        checkpointing: train.gradient_checkpointing,
        "seed": spec.seed,
        "data_seed": spec.seed,
        "use_cpu": spec.device == "cpu",
        "dataloader_pin_memory": spec.device == "cuda",
        "eval_strategy": "no",
        "save_strategy": "no",
        "logging_strategy": "steps",
        "logging_steps": steps.log,
        "logging_nan_inf_filter": False,  # the run's trainer looks at every loss itself
        "report_to": "none",
        "disable_tqdm": True,
    }
    if train.schedule == "polynomial":  # the trainer's end, unless the rate is below it already
        common["lr_scheduler_kwargs"] = {"lr_end": min(1e-7, train.learning_rate / 10)}
    if not generates:
        return TrainingArguments(**common)
    return Seq2SeqTrainingArguments(**common, predict_with_generate=True)


_SCHEDULES = {
    "constant": "constant_with_warmup",
    "linear": "linear",
    "cosine": "cosine",
    "polynomial": "polynomial",
}


def optimizer(train: TrainSettings) -> tuple[Any, dict[str, Any]] | None:
    """An optimizer that is not among the trainer's: Adam, whose weight decay is a squared norm.

    Its groups of parameters, without decay for biases and norms, are the trainer's.
    """
    if train.optimizer != "adam":
        return None
    return torch.optim.Adam, {"lr": train.learning_rate, "betas": (0.9, 0.999), "eps": 1e-8}

"""Trains a model on a task, with a penalty or a layer, and looks at it on the way."""

import time
from collections.abc import Sequence
from typing import Any

import torch

from isotropy import layers
from isotropy.errors import SettingError
from isotropy.experiments import _arguments, methods
from isotropy.experiments._embeddings import Batch, Sample
from isotropy.experiments._evaluation import Evaluation, Evaluator, best_of, late_means
from isotropy.experiments._lengths import Order
from isotropy.experiments._outcome import Outcome, Setting
from isotropy.experiments._second_stage import second_stage
from isotropy.experiments._splits import drawn
from isotropy.experiments._trainer import RunSeq2SeqTrainer, RunTrainer
from isotropy.experiments._watch import Watch
from isotropy.integrations._cached import same_randomness
from isotropy.integrations._samples import fixed_batches
from isotropy.layers._places import size_of


def fine_tuned(setting: Setting) -> Outcome:
    """Train, evaluate and measure.

    Of a method in two stages, the scores are those after the second; its first is in the series.
    Where training may stop early, the second stage and what is measured at the end are of the model
    that was best on the tuning split, as the best scores are.

    Raises:
        TrainingError: the loss is not a finite number.
        SettingError: the model has no place for the method.
    """
    spec, task = setting.spec, setting.task
    encoded = task.encode(setting.rows.train, setting.tokenizer, setting.data, training=True)
    if not encoded:
        raise SettingError(f"got task {task.name!r} whose training rows give no inputs")
    kind = methods.kind_of(spec.method)
    if kind == "layer" and spec.method.name != methods.TWO_STAGES:
        layer = methods.make_layer(spec.method, size_of(setting.model), seed=spec.seed)
        layers.attach(setting.model, layer)
    steps = _arguments.Steps.of(len(encoded), spec.train)
    trainer = _trainer(setting, encoded, steps, has_penalty=kind == "penalty")
    evaluator = Evaluator(task, setting.rows, setting.tokenizer, setting.data)
    sample = _sample(setting, trainer) if spec.measure.track else None
    watch = Watch(spec, steps, evaluator, sample, task.metric, setting.progress)
    watch.join(trainer)

    start = time.perf_counter()
    trainer.train()
    if spec.device == "cuda":
        torch.cuda.synchronize()
    seconds = time.perf_counter() - start - watch.aside

    taken = int(trainer.state.global_step)
    counted: Sequence[Evaluation] = watch.evaluations
    notes: dict[str, None] = {}
    if watch.back_to_best(taken):
        notes[f"measured at step {watch.best_step}, the best on the tuning split"] = None
    if spec.method.name == methods.TWO_STAGES:
        stage = second_stage(setting, trainer, encoded)
        seconds += stage.seconds
        watch.series += stage.series
        notes[stage.note] = None
        counted = [watch.evaluate(taken)]
    outcome = _scored(counted, taken, task.metric)
    outcome.train_seconds = seconds
    outcome.epochs = taken / steps.epoch
    if spec.train.patience is not None and taken < steps.total:
        notes[f"stopped early, at step {taken} of {steps.total}"] = None

    setting.progress("measure", 0, 1)
    measured = _measured(setting, trainer)
    outcome.measures, outcome.arrays = measured.final(trainer.model)
    setting.progress("measure", 1, 1)
    outcome.series = watch.series
    seen = {} if sample is None else sample.notes
    outcome.notes = list({**dict.fromkeys(outcome.notes), **notes, **seen, **measured.notes})
    return outcome


def _trainer(
    setting: Setting, encoded: list[dict[str, Any]], steps: _arguments.Steps, *, has_penalty: bool
) -> Any:
    from transformers import PrinterCallback

    spec, task = setting.spec, setting.task
    penalty = methods.make_penalty(spec.method, seed=spec.seed) if has_penalty else None
    order = Order(
        [len(example["input_ids"]) for example in encoded],
        batch_size=spec.train.batch_size,
        grouped=spec.train.group_by_length,
        seed=spec.seed,
    )
    kind = RunSeq2SeqTrainer if task.generates else RunTrainer
    trainer = kind(
        setting.model,
        _arguments.arguments(spec, steps, setting.folder, generates=task.generates),
        order=order,
        train_dataset=encoded,
        data_collator=task.collator(setting.tokenizer, setting.model),
        penalty=penalty,
        accumulate=spec.method.accumulate,
        refresh_points=spec.method.refresh_points,
    )
    # Only one of the two trainers has an argument for it.
    trainer.optimizer_cls_and_kwargs = _arguments.optimizer(spec.train)
    trainer.remove_callback(PrinterCallback)
    return trainer


def _scored(evaluations: Sequence[Evaluation], steps: int, metric: str) -> Outcome:
    """The scores of a run by its evaluations."""
    last, best = evaluations[-1], best_of(evaluations, metric)
    late, notes = late_means(evaluations, steps)
    return Outcome(
        last=last.scores,
        best={} if best is None else best.scores,
        tuning={} if best is None else dict(best.tuning),
        late=late,
        notes=[*last.notes, *notes],
        steps=steps,
    )


def _sample(setting: Setting, trainer: Any) -> Sample:
    """What is measured along training."""
    measures = setting.spec.measure
    batches = [] if measures.on == "batch" else _batches(setting, trainer, measures.rows)
    return Sample(batches, measures, setting.spec.seed)


def _measured(setting: Setting, trainer: Any) -> Sample:
    """What is measured after training."""
    measures = setting.spec.measure
    wanted = bool(measures.final or measures.each_layer or measures.arrays)
    batches = _batches(setting, trainer, measures.final_rows) if wanted else []
    return Sample(batches, measures, setting.spec.seed)


def _batches(setting: Setting, trainer: Any, count: int) -> list[Batch]:
    """So many rows of the main evaluation set as batches, the longest first."""
    rows = drawn(setting.main, count, setting.data.split_seed)
    # A decoder has states only where it is told what to write.
    encoded = setting.task.encode(
        rows, setting.tokenizer, setting.data, training=setting.task.generates
    )
    encoded.sort(key=lambda example: -len(example["input_ids"]))
    with same_randomness():  # a loader draws a number of its own
        found: list[Batch] = list(fixed_batches(trainer, encoded, len(encoded), seed=0))
    return found

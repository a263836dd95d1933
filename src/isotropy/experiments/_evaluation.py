"""Predictions and scores of the model of a run, along training and after it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from isotropy.errors import TrainingError
from isotropy.experiments._splits import TUNING, Rows
from isotropy.experiments.spec import DataSettings
from isotropy.experiments.tasks._task import Row, Scores, Task

# What a model's output may hold besides its answer.
_NO_ANSWERS = [
    "past_key_values", "hidden_states", "attentions", "cross_attentions",
    "encoder_last_hidden_state", "encoder_hidden_states", "encoder_attentions",
    "decoder_hidden_states", "decoder_attentions",
]  # fmt: skip


@dataclass(frozen=True)
class Evaluation:
    """The scores at one step.

    Attributes:
        step: after which.
        sets: scores of each evaluation set by its name, the main one first.
        tuning: scores on the tuning split; empty without one.
        notes: what the task says of the predictions.
    """

    step: int
    sets: Mapping[str, Scores]
    tuning: Scores
    notes: tuple[str, ...] = ()

    @property
    def scores(self) -> Scores:
        """Scores by metric; those of a second set have its name before them."""
        main, *others = self.sets
        found = dict(self.sets[main])
        for name in others:
            found |= {f"{name}/{metric}": value for metric, value in self.sets[name].items()}
        return found


@dataclass
class Evaluator:
    """Predicts a run's evaluation sets and its tuning split, and scores the answers.

    Args:
        task: whose metrics.
        rows: of the run.
        tokenizer: of the model.
        data: the settings that `encode` and `predict` are given.
    """

    task: Task
    rows: Rows
    tokenizer: Any
    data: DataSettings
    _encoded: dict[str, tuple[list[dict[str, Any]], list[int]]] = field(default_factory=dict)

    def __call__(self, trainer: Any, step: int) -> Evaluation:
        """The scores of the trainer's model as it is.

        Raises:
            TrainingError: the model's outputs are not finite numbers.
        """
        notes: dict[str, None] = {}
        sets = {}
        for name, rows in self.rows.evaluations.items():
            sets[name], said = self._scores(trainer, name, rows)
            notes |= dict.fromkeys(f"{name}: {note}" for note in said)
        tuning: Scores = sets.get(TUNING, {})  # where nothing else is looked at
        if self.rows.tuning and not tuning:
            tuning, said = self._scores(trainer, TUNING, self.rows.tuning)
            notes |= dict.fromkeys(f"{TUNING}: {note}" for note in said)
        return Evaluation(step, sets, tuning, tuple(notes))

    def batches(self, trainer: Any) -> int:
        """How many batches one evaluation has, for progress."""
        size = trainer.args.eval_batch_size
        parts = {
            **self.rows.evaluations,
            **({TUNING: self.rows.tuning} if self.rows.tuning else {}),
        }
        return sum(-(-len(self._inputs(name, rows)[0]) // size) for name, rows in parts.items())

    def _scores(
        self, trainer: Any, name: str, rows: Sequence[Row]
    ) -> tuple[Scores, tuple[str, ...]]:
        encoded, order = self._inputs(name, rows)
        generation = self.task.generation(self.tokenizer, self.data) if self.task.generates else {}
        outputs = trainer.predict(
            [encoded[i] for i in order], ignore_keys=_NO_ANSWERS, **generation
        ).predictions
        outputs = _in_order(outputs, order)
        predictions = self.task.predict(rows, encoded, outputs, self.tokenizer, self.data)
        scores = self.task.score(predictions, rows)
        return {key: defined(value) for key, value in scores.items()}, predictions.notes

    def _inputs(self, name: str, rows: Sequence[Row]) -> tuple[list[dict[str, Any]], list[int]]:
        """The encoded rows, made once, and their numbers from the longest to the shortest.

        Texts of alike length share batches, and what does not fit into memory fails at once.
        """
        if name not in self._encoded:
            encoded = self.task.encode(rows, self.tokenizer, self.data, training=False)
            lengths = [len(example["input_ids"]) for example in encoded]
            order = sorted(range(len(encoded)), key=lambda i: (-lengths[i], i))
            self._encoded[name] = encoded, order
        return self._encoded[name]


def _in_order(outputs: Any, order: Sequence[int]) -> Any:
    """Outputs of sorted rows in the rows' own order.

    Raises:
        TrainingError: they are not finite.
    """
    if isinstance(outputs, tuple | list):
        return tuple(_in_order(part, order) for part in outputs)
    array = np.asarray(outputs)
    if np.issubdtype(array.dtype, np.floating) and not np.isfinite(array).all():
        raise TrainingError(
            "got predictions that are not finite numbers, expected finite ones; lower the learning "
            "rate, or use train.precision='float32'"
        )
    found = np.empty_like(array)
    found[np.asarray(order)] = array
    return found


def defined(value: float | None) -> float | None:
    """A score as JSON can hold it: NaN is undefined too."""
    return None if value is None or not np.isfinite(value) else float(value)


def best_of(evaluations: Sequence[Evaluation], metric: str) -> Evaluation | None:
    """The evaluation whose score on the tuning split is best, the first of equals.

    None without a tuning split; where the score is undefined throughout, the last one.
    """
    if not evaluations or not evaluations[-1].tuning:
        return None
    defined = [found for found in evaluations if found.tuning.get(metric) is not None]
    return max(defined, key=lambda found: found.tuning[metric] or 0, default=evaluations[-1])


def late_means(evaluations: Sequence[Evaluation], steps: int) -> tuple[Scores, tuple[str, ...]]:
    """The mean scores of the evaluations in the last 30 % of training, at least of the last one.

    A mean with an undefined score among its parts is undefined, and noted.

    Example:
        >>> parts = [Evaluation(n, {"dev": {"f1": n / 10}}, {}) for n in range(1, 11)]
        >>> late_means(parts, 10)[0]
        {'f1': 0.9}
    """
    if not evaluations:
        return {}, ()
    late = [found for found in evaluations if 10 * found.step > 7 * steps] or [evaluations[-1]]
    means: Scores = {}
    notes = []
    for key in late[-1].scores:
        values = [found.scores[key] for found in late]
        known = [value for value in values if value is not None]
        means[key] = float(np.mean(known)) if len(known) == len(values) else None
        if len(known) < len(values):
            notes.append(
                f"late {key} is undefined, as it is at {len(values) - len(known)} of "
                f"{len(values)} evaluations"
            )
    return means, tuple(notes)

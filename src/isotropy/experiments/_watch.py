"""What happens beside the steps of a run's training: evaluations, measures, series, stopping."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import TrainerCallback

from isotropy.experiments._arguments import Steps
from isotropy.experiments._embeddings import Sample
from isotropy.experiments._evaluation import Evaluation, Evaluator
from isotropy.experiments._splits import TUNING
from isotropy.experiments._trainer import BatchRows
from isotropy.experiments.spec import Point, RunSpec
from isotropy.integrations._cached import same_randomness
from isotropy.output import Progress

_LOGGED = (
    "loss", "task_loss", "penalty", "layer_loss", "penalty_gradient_ratio", "penalty_skipped",
    "learning_rate",
)  # fmt: skip


class Watch(TrainerCallback):
    """Looks at a training from outside: nothing that it does changes the training's numbers.

    Args:
        spec: the run.
        steps: the steps of the training.
        evaluator: scores the model.
        sample: measures it; None where nothing is tracked.
        metric: the task's main one, by whose score on the tuning split training may stop.
        progress: is told how far it is.

    Attributes:
        series: all that was seen, in order.
        evaluations: all of them, in order.
        aside: seconds that were spent beside training.
        best_state: of the model at the evaluation that was best on the tuning split, and
            `best_step` when that was; kept only where training may stop early.
    """

    def __init__(
        self,
        spec: RunSpec,
        steps: Steps,
        evaluator: Evaluator,
        sample: Sample | None,
        metric: str,
        progress: Progress,
    ) -> None:
        self.spec = spec
        self.steps = steps
        self.evaluator = evaluator
        self.sample = sample
        self.metric = metric
        self.progress = progress
        self.trainer: Any = None
        self.series: list[Point] = []
        self.evaluations: list[Evaluation] = []
        self.aside = 0.0
        self.best_state: dict[str, Any] | None = None
        self.best_step = 0
        self._without_better = 0
        self._best: float | None = None
        self._predicted: int | None = None
        self._last_tracked: int | None = None

    def join(self, trainer: Any) -> None:
        """Watch this trainer."""
        self.trainer = trainer
        trainer.add_callback(self)
        measures = self.spec.measure
        if self.sample is not None and measures.on == "batch":
            trainer.batch_rows = BatchRows(
                trainer.model,
                measures.site,
                is_due_at=self._tracks_at,
                step=lambda: int(trainer.state.global_step) + 1,
            )

    # ---- The times ----

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Measure what a training begins with."""
        self.progress("train", 0, self.steps.total)
        if self.sample is not None and self.spec.measure.on == "held-out":
            self._track(0)

    def on_log(self, *_: Any, logs: dict[str, float] | None = None, **__: Any) -> None:
        """Keep what the trainer logs of a step."""
        if logs is not None and "loss" in logs:
            for name in _LOGGED:
                if name in logs:
                    self._add(name, int(self.trainer.state.global_step), logs[name])

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Evaluate and measure where it is due; stop where nothing gets better."""
        step = int(state.global_step)
        self.progress("train", step, self.steps.total)
        if self.sample is not None and self._tracks_at(step):
            self._track(step)
        if step in self.steps.evaluations:
            self.evaluate(step)
            patience = self.spec.train.patience
            if patience is not None and not self._without_better:
                self._keep(step)
            if patience is not None and self._without_better >= patience:
                control.should_training_stop = True
                if self.sample is not None and self.spec.measure.on == "held-out":
                    self._track(step)

    def on_prediction_step(self, *_: Any, **__: Any) -> None:
        """One batch of an evaluation is done."""
        if self._predicted is not None:
            self._predicted += 1
            self.progress("evaluate", self._predicted, self.evaluator.batches(self.trainer))

    # ---- What is done then ----

    def evaluate(self, step: int) -> Evaluation:
        """Score the model as it is."""
        with self._beside():
            self._predicted = 0
            found = self.evaluator(self.trainer, step)
            self._predicted = None
        self.evaluations.append(found)
        for name, scores in {**found.sets, TUNING: found.tuning}.items():
            for metric, value in scores.items():
                self._add(f"{name}/{metric}", step, value)
        self._look_for_better(found.tuning.get(self.metric))
        return found

    def _look_for_better(self, score: float | None) -> None:
        if score is not None and (self._best is None or score > self._best):
            self._best, self._without_better = score, 0
        else:
            self._without_better += 1

    def _keep(self, step: int) -> None:
        """A copy of the model, off the GPU."""
        with self._beside():
            state = self.trainer.model.state_dict()
            self.best_state = {
                name: value.detach().to("cpu", copy=True) if torch.is_tensor(value) else value
                for name, value in state.items()
            }
            self.best_step = step

    def back_to_best(self, taken: int) -> bool:
        """Give the model back what it was when it was best; whether that was before its end."""
        if self.best_state is None or self.best_step == taken:
            return False
        self.trainer.model.load_state_dict(self.best_state)
        return True

    def _tracks_at(self, step: int) -> bool:
        every = self.spec.measure.every
        due = step in self.steps.evaluations if every is None else step % every == 0
        return due or step == self.steps.total

    def _track(self, step: int) -> None:
        if self.sample is None or step == self._last_tracked:
            return
        self._last_tracked = step
        with self._beside():
            if self.trainer.batch_rows is None:
                found = self.sample.tracked(self.trainer.model)
            else:
                rows = self.trainer.batch_rows.taken()
                found = {} if rows is None else self.sample.of_batch(rows)
        for key, value in found.items():
            self._add(key, step, value)

    def _add(self, name: str, step: int, value: float | None) -> None:
        """A point of a series; what is undefined at a step has none there."""
        if value is not None:
            self.series.append(Point(name=name, step=step, value=float(value)))

    @contextmanager
    def _beside(self) -> Iterator[None]:
        """Time that is not the training's, and random numbers that are not either."""
        self._wait()
        start = time.perf_counter()
        try:
            with same_randomness():
                yield
        finally:
            self._wait()
            self.aside += time.perf_counter() - start

    def _wait(self) -> None:
        """Until the GPU has done what it was told, so that the time is that of the work."""
        if self.spec.device == "cuda":
            torch.cuda.synchronize()

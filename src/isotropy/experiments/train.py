"""One run: from its spec to its result."""

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from isotropy.errors import MissingExtraError, SettingError
from isotropy.experiments import models, validation
from isotropy.experiments._machine import PeakMemory, machine, prepared, versions
from isotropy.experiments._outcome import Outcome, Setting
from isotropy.experiments._splits import rows_of
from isotropy.experiments.spec import Place, RunResult, RunSpec
from isotropy.experiments.tasks import find_task
from isotropy.output import Progress
from isotropy.sources._pretrained import _quiet

_HERE = Place()


def _silent(stage: str, done: int, total: int | None) -> None:
    pass


def train(spec: RunSpec, place: Place = _HERE, progress: Progress = _silent) -> RunResult:
    """Do one run in this process: train, evaluate, measure.

    Equal specs give bit-equal scores on one machine, alone or after others in one process: all that
    is random depends on the spec's seeds, and the threads are the spec's. Afterwards threads and
    generators are as they were.

    The model is evaluated `train.evaluations` times an epoch and at the end, on the tuning split
    and the evaluation sets. `last` are the scores at the end, `best` those at the evaluation with
    the best score on the tuning split, `late` means over the evaluations in the last 30 % of the
    steps. Isotropy is measured on rows of the main evaluation set at `measure.site`, or along
    training of the very batch that a step trains on (in training mode, with dropout, and before the
    step). Where a layer stands between encoder and head of a classifier, `cls@last` is the
    embedding after the layer, which the head reads; the site `embedding` is what the head reads
    without one too.

    The isotropy layer is trained in a second stage, after everything else; `last`, `best` and
    `late` are then all of the model with its layer. Its epochs are in the series `stage/...`.
    It stops early by the tuning split, where there is one.

    With `train.patience`, what follows on training (the second stage, the final measures) is of the
    model as it was at its best evaluation; `last` stays what it was at the end. Without it they are
    of the model at the end, and so is the `best` of a method in two stages, which a plan therefore
    does not report.

    Of a task of similarity nothing is trained: embeddings are scored as they are, or after a
    transform.

    Args:
        spec: what to do.
        place: where its data are, and where to write meanwhile; nothing is left there.
        progress: is called with a stage (`load`, `train`, `evaluate`, `measure`, `embed`), how much
            of it is done, and how much there is.

    Returns:
        The scores, measures, series and costs. The peak of memory is that of the whole process on a
        processor, where it counts what was there before.

    Raises:
        SettingError: a setting that makes no sense, or does not go with another.
        SourceError: a model or data that cannot be read.
        TrainingError: the loss is not a finite number.
        MissingExtraError: a package is missing.
    """
    start = time.perf_counter()
    task = find_task(spec.task)
    validation.check(spec, task)
    validation.check_device(spec)
    with prepared(spec) as device, _folder(place) as folder, _quiet():
        memory = PeakMemory(spec.device)
        progress("load", 0, 2)
        _require_revision(spec)
        splits = task.load(spec.data, place)
        task = task.settled(splits)
        validation.check(spec, task)  # only its data tell what some tasks are
        rows = rows_of(task, splits, spec.data)
        progress("load", 1, 2)
        model, tokenizer = models.load(spec, task, splits)
        setting = Setting(
            spec=spec,
            task=task,
            rows=rows,
            model=model,
            tokenizer=tokenizer,
            data=task.adapted(spec.data, model),
            device=device,
            folder=folder,
            progress=progress,
        )
        progress("load", 2, 2)
        outcome = _outcome(setting)
        del setting, model
        return RunResult(
            metric=task.metric,
            last=outcome.last,
            best=outcome.best,
            late=outcome.late,
            tuning=outcome.tuning,
            measures=outcome.measures,
            arrays=outcome.arrays,
            series=tuple(outcome.series),
            notes=(*outcome.notes, *(rows.repeated() if task.trains else ())),
            steps=outcome.steps,
            epochs=outcome.epochs,
            seconds=time.perf_counter() - start,
            train_seconds=outcome.train_seconds,
            seconds_per_epoch=outcome.train_seconds / outcome.epochs if outcome.epochs else None,
            peak_memory=memory.bytes(),
            versions=versions(*(["peft"] if spec.train.peft else [])),
            machine=machine(spec),
            data=rows.hashes(),
        )


def _outcome(setting: Setting) -> Outcome:
    if not setting.task.trains:
        from isotropy.experiments._similarity_run import embedded

        return embedded(setting)
    try:
        from isotropy.experiments._fine_tuning import fine_tuned
    except ImportError as error:
        raise MissingExtraError(error.name or "transformers", "train") from None
    return fine_tuned(setting)


def _require_revision(spec: RunSpec) -> None:
    """Raise a SettingError if the model is not the one that the spec names any more."""
    found = models.model_revision(spec.model)
    if found and spec.model_revision and found != spec.model_revision:
        raise SettingError(
            f"got model {spec.model!r} with revision {found}, expected {spec.model_revision}; its "
            "files have changed since the run was planned: plan it anew"
        )


@contextmanager
def _folder(place: Place) -> Iterator[str]:
    """A folder of the run's own, which is removed at its end.

    Raises:
        SettingError: nothing can be written there.
    """
    try:
        if place.scratch is not None:
            Path(place.scratch).mkdir(parents=True, exist_ok=True)
        made = tempfile.TemporaryDirectory(
            prefix="isotropy-", dir=place.scratch, ignore_cleanup_errors=True
        )
    except OSError as error:
        raise SettingError(
            f"got scratch folder {place.scratch or tempfile.gettempdir()!r}, in which nothing can "
            f"be written ({error.strerror or error}), expected a folder that allows it"
        ) from error
    with made as folder:
        yield folder

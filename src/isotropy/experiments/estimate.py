"""How long a plan will take, from short probes: what `isotropy run --dry-run` says."""

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from time import monotonic

from isotropy.errors import IsotropyError, SettingError, SourceError
from isotropy.experiments.spec import MeasureSettings, Place, RunResult, RunSpec
from isotropy.output import Progress

Train = Callable[[RunSpec, Place], RunResult]

MOST_PROBES = 12
PROBE_SECONDS = 120.0
# Two probes that differ in steps and in evaluated rows tell what each of them costs.
_STEPS = (2, 6)
_ROWS = (16, 80)
# So much of train is enough for the refresh of a shrinkage matrix to be as long as in a real run.
_TRAIN_ROWS = 2000


@dataclass(frozen=True)
class Costs:
    """Seconds of the parts of a run.

    Attributes:
        fixed: of loading and of everything else that is there once.
        start: of what a method does before its first step, such as the refresh of a matrix.
        step: of an optimizer's step.
        row: of evaluating a row.
    """

    fixed: float
    start: float
    step: float
    row: float

    @classmethod
    def of(cls, small: RunResult, large: RunResult) -> "Costs":
        """What follows from two runs with `_STEPS` and `_ROWS`."""
        step = max(0.0, (large.train_seconds - small.train_seconds) / (_STEPS[1] - _STEPS[0]))
        rest = [run.seconds - run.train_seconds for run in (small, large)]
        row = max(0.0, (rest[1] - rest[0]) / (_ROWS[1] - _ROWS[0]))
        return cls(
            fixed=max(0.0, rest[0] - _ROWS[0] * row),
            start=max(0.0, small.train_seconds - _STEPS[0] * step),
            step=step,
            row=row,
        )


@dataclass(frozen=True)
class Size:
    """How much there is to do in a run."""

    steps: int
    epochs: float
    evaluations: int
    rows: int

    @classmethod
    def of(cls, spec: RunSpec, train_rows: int, eval_rows: int) -> "Size":
        """The size of a run on data with so many rows.

        Example:
            >>> spec = RunSpec(model="minilm", task="cola", train={"epochs": 2, "batch_size": 10})
            >>> Size.of(spec, 95, 30)
            Size(steps=20, epochs=2.0, evaluations=2, rows=30)
        """
        train, data = spec.train, spec.data
        n = min(train_rows, data.train_rows or train_rows)
        tuned = round(n * data.tune)
        in_epoch = max(1, ceil(ceil((n - tuned) / train.batch_size) / train.accumulation))
        steps = train.max_steps or ceil(in_epoch * train.epochs)
        epochs = steps / in_epoch
        return cls(
            steps=steps,
            epochs=epochs,
            evaluations=max(1, round(train.evaluations * epochs)),
            rows=min(eval_rows, data.eval_rows or eval_rows) + tuned,
        )


@dataclass(frozen=True)
class Estimate:
    """The runs of a plan with the time that they will take.

    Attributes:
        specs: the runs.
        seconds: of each, by its id; those of which nothing is known are not there.
        steps: of each, by its id.
        workers: how many run at a time.
        probed: what was tried, in words.
        not_here: what is missing, a line each.
        limits: what was not tried, where it was not all.
    """

    specs: tuple[RunSpec, ...]
    seconds: Mapping[str, float]
    steps: Mapping[str, int]
    workers: int
    probed: tuple[str, ...] = ()
    not_here: tuple[str, ...] = ()
    limits: str = ""

    @property
    def total(self) -> float:
        """Seconds of all runs of which something is known, so many at a time."""
        each = list(self.seconds.values())
        return max(sum(each) / self.workers, max(each, default=0.0))

    def __str__(self) -> str:
        """The runs, a line for all seeds of a cell, and the time."""
        from isotropy import tables

        cells: dict[tuple[str, str, str], list[RunSpec]] = {}
        for spec in self.specs:
            cells.setdefault((spec.model, spec.task, spec.method.label), []).append(spec)
        rows = [
            [f"{model} {task} {method}", str(len(specs)), self._steps(specs), self._each(specs)]
            for (model, task, method), specs in cells.items()
        ]
        parts = [tables.table(["run", "seeds", "steps", "each"], rows)] if rows else []
        return "\n\n".join([*parts, "\n".join(map(tables.wrapped, self._said()))])

    def _steps(self, specs: Iterable[RunSpec]) -> str:
        found = sorted({self.steps[spec.id] for spec in specs if spec.id in self.steps})
        return "–".join(map(str, [found[0], found[-1]][: len(found)])) if found else "?"

    def _each(self, specs: Iterable[RunSpec]) -> str:
        found = [self.seconds[spec.id] for spec in specs if spec.id in self.seconds]
        return duration(sum(found) / len(found)) if found else "?"

    def _said(self) -> list[str]:
        unknown = len(self.specs) - len(self.seconds)
        lines = [
            f"{len(self.specs)} runs, {self.workers} at a time: about {duration(self.total)}"
            + (f", and {unknown} runs of which nothing is known" if unknown else "")
        ]
        if self.probed:
            lines.append(f"from {len(self.probed)} probes: {'; '.join(self.probed)}")
            lines.append("measures along training and at its end come on top")
        if self.limits:
            lines.append(self.limits)
        return lines + [f"not here: {line}" for line in self.not_here]


def duration(seconds: float) -> str:
    """A time in words.

    Example:
        >>> [duration(s) for s in (0.4, 50, 125, 7300, 200000)]
        ['1 s', '50 s', '2 min 5 s', '2 h 1 min', '2 d 7 h']
    """
    whole = max(1, round(seconds))
    days, hours = divmod(whole // 3600, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {whole % 3600 // 60} min"
    minutes, rest = divmod(whole, 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"


def estimate(
    specs: Sequence[RunSpec],
    place: Place,
    *,
    workers: int | None = None,
    missing: Iterable[str] = (),
    progress: Progress | None = None,
    train: Train | None = None,
) -> Estimate:
    """Try a few steps of each kind of run, and say how long all of them will take.

    Runs of one model, task, method and batch are of one kind. At most `MOST_PROBES` kinds are
    tried, and none any more after `PROBE_SECONDS`: the others are taken to be as fast as the
    nearest that was tried.

    Args:
        specs: the runs.
        place: where data is.
        workers: how many run at a time; by default as many as the processor has cores for.
        missing: what is known to be missing, a line each.
        progress: told of each probe.
        train: what carries out a run; that of `train` by default.
    """
    if train is None:
        from isotropy.experiments.train import train as train_here

        train = train_here
    prober = _Prober(place, train, progress or _silent)
    prober.run(specs)
    seconds, steps = {}, {}
    for spec in specs:
        size, costs = prober.size(spec), prober.costs(spec)
        if size is not None:
            steps[spec.id] = size.steps
        if size is not None and costs is not None:
            seconds[spec.id] = _seconds(spec, size, costs)
    cores = (os.cpu_count() or 1) // max((spec.threads for spec in specs), default=1)
    return Estimate(
        tuple(specs),
        seconds,
        steps,
        workers or max(1, cores),
        tuple(prober.probed),
        (*missing, *prober.failures.values()),
        prober.limits,
    )


def _seconds(spec: RunSpec, size: Size, costs: Costs) -> float:
    starts = size.epochs if _refreshes(spec) else 1
    evaluated = size.evaluations * size.rows
    return costs.fixed + starts * costs.start + size.steps * costs.step + evaluated * costs.row


def _refreshes(spec: RunSpec) -> bool:
    """Whether the method has something to do at the start of each epoch."""
    from isotropy.experiments.methods import METHODS
    from isotropy.penalties import Penalty

    component = METHODS[spec.method.name].component if spec.method.name in METHODS else None
    return (
        component is not None
        and issubclass(component, Penalty)
        and component.refresh is not Penalty.refresh
    )


def _silent(stage: str, done: int, total: int | None) -> None:
    pass


Kind = tuple[str, ...]


class _Prober:
    """Tries kinds of runs, each once."""

    def __init__(self, place: Place, train: Train, progress: Progress) -> None:
        self.place = place
        self.probed: list[str] = []
        self.failures: dict[str, str] = {}
        self.limits = ""
        self._train = train
        self._progress = progress
        self._costs: dict[Kind, Costs] = {}
        self._failed: set[Kind] = set()
        self._rows: dict[str, tuple[int, int] | None] = {}

    def run(self, specs: Sequence[RunSpec]) -> None:
        """Try the kinds: first one method of each model and task, then the others."""
        kinds: dict[Kind, RunSpec] = {}
        for spec in specs:
            if self._counted(spec) is not None:
                kinds.setdefault(_kind(spec), spec)
        firsts: dict[Kind, Kind] = {}
        for kind in kinds:
            firsts.setdefault(kind[:2], kind)
        order = sorted(kinds, key=lambda kind: firsts[kind[:2]] != kind)
        end = monotonic() + PROBE_SECONDS
        for i, kind in enumerate(order):
            if i >= MOST_PROBES or monotonic() > end:
                self.limits = (
                    f"{len(order) - i} of {len(order)} kinds of runs were not tried, and are taken "
                    "to be as fast as the nearest that was"
                )
                return
            self._progress("probes", i, min(len(order), MOST_PROBES))
            self._probe(kind, kinds[kind])
        self._progress("probes", len(order), len(order))

    def costs(self, spec: RunSpec) -> Costs | None:
        """Those of the run's kind, or of the nearest that was tried."""
        kind = _kind(spec)
        if kind in self._failed:
            return None
        # From the same kind down to the same model: the more parts agree, the nearer it is.
        for agreeing in range(len(kind), 0, -1):
            for known, costs in self._costs.items():
                if known[:agreeing] == kind[:agreeing]:
                    return costs
        return None

    def size(self, spec: RunSpec) -> Size | None:
        """How much the run has to do, if its data are here."""
        rows = self._counted(spec)
        return None if rows is None else Size.of(spec, *rows)

    def _probe(self, kind: Kind, spec: RunSpec) -> None:
        try:
            small, large = (
                self._train(_short(spec, steps, rows), self.place)
                for steps, rows in zip(_STEPS, _ROWS, strict=True)
            )
        except IsotropyError as error:
            self._failed.add(kind)
            self.failures[f"{kind}"] = f"{spec.label}: {error}"
            return
        self._costs[kind] = Costs.of(small, large)
        self.probed.append(f"{spec.model} {spec.task} {spec.method.name}")

    def _counted(self, spec: RunSpec) -> tuple[int, int] | None:
        """The rows of train and of all evaluation sets."""
        from isotropy.experiments.tasks import find_task

        key = f"{spec.task} {spec.data.model_dump_json(include={'revision', 'columns', 'options'})}"
        if key not in self._rows:
            self._rows[key] = None
            try:
                splits = find_task(spec.task).load(spec.data, self.place)
            except (SourceError, SettingError) as error:
                self.failures[spec.task] = f"data of {spec.task}: {error}"
            else:
                evaluated = sum(len(rows) for rows in splits.evaluations.values())
                self._rows[key] = len(splits.train), evaluated
        return self._rows[key]


def _kind(spec: RunSpec) -> Kind:
    """What makes runs as fast as each other, the most telling first."""
    train = spec.train
    shape = (train.batch_size, train.accumulation, spec.data.max_length, train.precision)
    return (
        spec.model,
        spec.task,
        spec.method.name,
        " ".join(map(str, (*shape, train.peft, train.gradient_checkpointing))),
        f"{spec.method.settings.get('site', '')} {spec.method.accumulate}",
        f"{spec.threads} {spec.device}",
    )


def _short(spec: RunSpec, steps: int, rows: int) -> RunSpec:
    """A run of a few steps that evaluates a few rows and measures nothing."""
    train_rows = min(spec.data.train_rows or _TRAIN_ROWS, _TRAIN_ROWS)
    return spec.model_copy(
        update={
            "train": spec.train.model_copy(
                update={"max_steps": steps, "evaluations": 1, "patience": None}
            ),
            "data": spec.data.model_copy(
                update={"train_rows": train_rows, "eval_rows": rows, "tune": 0.0}
            ),
            "measure": MeasureSettings(site=spec.measure.site, final=()),
        }
    )

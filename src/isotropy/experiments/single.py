"""One run by itself: made like a plan of one cell, done in this process, told in a few lines."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from isotropy import tables
from isotropy.errors import SettingError, StoreError
from isotropy.experiments import _toml
from isotropy.experiments.plan import Plan
from isotropy.experiments.spec import Place, RunResult, RunSpec
from isotropy.output import Progress

_NAME = "train"


@dataclass(frozen=True)
class Single:
    """A run and what came out of it.

    Attributes:
        spec: what was done.
        result: what came out.
        repeated: False where the store had the result already.
    """

    spec: RunSpec
    result: RunResult
    repeated: bool = True

    @property
    def summary(self) -> str:
        """The scores, measures and costs as text in 80 columns."""
        result = self.result
        kinds = {"last": result.last, "best": result.best, "late": result.late}
        shown = [kind for kind, scores in kinds.items() if scores]
        scores = tables.table(
            ["score", *shown],
            [[name, *(_score(kinds[kind], name) for kind in shown)] for name in result.last],
        )
        measured = [[name, tables.number(value)] for name, value in result.measures.items()]
        parts = [tables.wrapped(self.spec.label), scores]
        if measured:
            parts.append(tables.table(["measure", "value"], measured))
        parts.append("\n".join([*self._costs(), *map(tables.wrapped, self._notes())]))
        return "\n\n".join(parts)

    def _costs(self) -> list[str]:
        result = self.result
        parts = [f"{result.seconds:.1f} s"]
        if result.steps:
            parts = [
                f"{result.steps} steps in {result.train_seconds:.1f} s of training",
                f"{result.seconds:.1f} s in all",
            ]
        return [f"{', '.join(parts)}; peak of memory {result.peak_memory / 1e9:.2f} GB"]

    def _notes(self) -> list[str]:
        notes = [f"note: {note}" for note in self.result.notes]
        return notes if self.repeated else [*notes, "note: the store had this run already"]


def train_one(
    *,
    model: str,
    task: str,
    method: str,
    seed: int = 0,
    settings: Mapping[str, Any] | None = None,
    data_dir: str | None = None,
    files: Mapping[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
    threads: int | None = None,
    device: str = "auto",
    store: str | Path | None = None,
    progress: Progress | None = None,
) -> Single:
    """Do one run in this process.

    Args:
        model: `minilm`, a hub name or a local folder.
        task: its name.
        method: its name, or `none`.
        seed: of everything random.
        settings: dotted names of a plan's settings to values, such as `train.max_steps`,
            `method.refresh_points` or `stage.epochs`; a name without a dot is the method's own.
        data_dir: the folder of data sets.
        files: files of splits.
        columns: of a user's own files.
        threads: of the processor; by default all that this process may use.
        device: `auto`, `cpu` or `cuda`.
        store: where the run is kept; a run that is done there already is only read.
        progress: is told what is going on.

    Raises:
        SettingError: a setting that makes no sense.
        SourceError: data or a model that cannot be read.
        StoreError: the store cannot be used, or another process is doing the same run.
    """
    from isotropy.experiments.engines.local import cores, worker_count
    from isotropy.experiments.train import train

    place = Place(data_dir=data_dir, files=dict(files or {}))
    changes: dict[str, Any] = {
        name if "." in name else f"settings.{name}": value
        for name, value in (settings or {}).items()
    }
    if columns:
        changes["data.columns"] = dict(columns)
    if method == "none" and (own := [name for name in changes if name.startswith("settings.")]):
        raise SettingError(
            f"got {own[0].removeprefix('settings.')!r} for the method none, expected a setting "
            "with a dot, such as train.max_steps, or another method"
        )
    table = {
        "name": _NAME,
        "models": [model],
        "tasks": [task],
        "methods": [method],
        "seeds": [seed],
    }
    plan = Plan.parse(_toml.write(table), where=_NAME).override(changes)
    wanted = cores() if threads is None else threads
    if wanted >= 1:  # less is not a run's
        worker_count(None, wanted)
    [spec] = plan.runs(place, device=device, threads=wanted)
    told = progress or _silent
    if store is None:
        return Single(spec, train(spec, place, told))
    return _kept(plan, spec, place, Path(store), told)


def _kept(plan: Plan, spec: RunSpec, place: Place, path: Path, progress: Progress) -> Single:
    """The run, in a store."""
    from isotropy.experiments._owner import at_work
    from isotropy.experiments._rescue import rescue
    from isotropy.experiments.store import Store
    from isotropy.experiments.train import train

    with Store(path) as store, at_work() as owner:
        store.add([spec])
        store.adopt()
        store.retry([spec.id])
        if store.claim(owner, [spec.id]) is None:
            [run] = store.runs(ids=[spec.id])
            if run.result is None:
                raise StoreError(
                    f"got a run that another process is doing in {str(path)!r}, expected one that "
                    "nobody does; wait for it"
                )
            return Single(spec, run.result, repeated=False)
        try:
            result = train(spec, place, progress)
        except Exception as error:
            store.fail(owner, spec.id, f"{type(error).__name__}: {error}")
            raise
        except BaseException:
            store.release(owner, spec.id)
            raise
        try:
            store.finish(owner, spec.id, result)
        except StoreError as error:
            if (file := rescue(path, spec.id, result)) is None:
                raise
            raise StoreError(
                f"{error}; the result is kept in {file} until the next start takes it in"
            ) from None
    return Single(spec, result)


def _score(scores: Mapping[str, float | None], name: str) -> str:
    value = scores.get(name)
    return "undefined" if value is None else f"{value:.4f}"


def _silent(stage: str, done: int, total: int | None) -> None:
    pass

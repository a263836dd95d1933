"""Searches for the settings of a plan's methods, on a part of train that nothing is reported on."""

import tomllib
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from isotropy.errors import MissingExtraError, SettingError, TrainingError
from isotropy.experiments import _toml
from isotropy.experiments._search import Trial, Trials
from isotropy.experiments._search_storage import opened
from isotropy.experiments._search_work import Work
from isotropy.experiments._searches import searches_of
from isotropy.experiments.engines._engine import Engine
from isotropy.experiments.plan import Plan
from isotropy.experiments.spec import Place, RunSpec
from isotropy.output import Progress
from isotropy.settings import number, seed_number, whole_number

if TYPE_CHECKING:
    import pandas as pd

TRIALS = 20
"""How many trials a search has where nothing else is said."""
_HERE = Place()


def _silent(stage: str, done: int, total: int | None) -> None:
    pass


@dataclass(frozen=True)
class Found:
    """What a search has found.

    Attributes:
        model: the model.
        task: the task.
        method: what the plan calls it.
        grids: those of the plan for which it holds.
        metric: by which trials are compared.
        trials: all that was tried.
    """

    model: str
    task: str
    method: str
    grids: tuple[str, ...]
    metric: str
    trials: tuple[Trial, ...]

    @property
    def best(self) -> Trial | None:
        """The trial with the highest score, the first of equals; None if none has a score."""
        scored = [trial for trial in self.trials if trial.score is not None]
        return max(scored, key=lambda trial: trial.score or 0, default=None)


@dataclass(frozen=True)
class Tuned:
    """What all searches of a plan have found.

    Attributes:
        plan: the plan with the best settings in it.
        found: a search each, in the plan's order.
        overrides: the best settings as the plan has them, in TOML.
    """

    plan: Plan
    found: tuple[Found, ...]
    overrides: str

    def table(self) -> "pd.DataFrame":
        """Every trial, a row each; a column for each setting."""
        try:
            import pandas as pd
        except ImportError:
            raise MissingExtraError("pandas", "train") from None
        rows = [
            {
                "model": one.model,
                "task": one.task,
                "method": one.method,
                "metric": one.metric,
                "score": trial.score,
                "best": trial is one.best,
                **trial.settings,
                "reason": trial.reason,
            }
            for one in self.found
            for trial in one.trials
        ]
        return pd.DataFrame(rows)

    def __str__(self) -> str:
        return "\n".join([*(_line(one) for one in self.found), "", self.overrides])


def tune(
    plan: Plan | str,
    *,
    trials: int | None = None,
    seconds: float | None = None,
    seeds: int = 1,
    share: float = 0.2,
    seed: int = 0,
    space: Mapping[str, Mapping[str, Any]] | None = None,
    store: str | Path = "tuning.db",
    engine: str | Engine = "local",
    workers: int | None = None,
    threads: int | None = None,
    place: Place = _HERE,
    device: str = "auto",
    address: str | None = None,
    progress: Progress = _silent,
) -> Tuned:
    """Search for the best settings of a plan's methods, for each model and task by itself.

    A trial trains on a part of train and is scored on the rest of it (`data.tune` of the plan, or
    else `share`). What is reported on, the evaluation sets, is not even predicted. Seeds are others
    than the plan's. Where a plan names choices only and the budget has room for all combinations,
    each of them is tried; else Optuna's tree-structured Parzen estimator chooses.

    All that was tried stays in the store: the same call goes on where the last one stopped, a trial
    that was interrupted is done again, and a larger budget adds trials. With one worker the result
    depends on nothing else than the arguments.

    Args:
        plan: a plan, its name or its file, with a table `tuning`.
        trials: at most so many for each search; 20 where no seconds are given either.
        seconds: after so many no trial is begun; those that are begun are finished.
        seeds: runs of a trial, whose mean score counts.
        share: of train that is split off where the plan has no `data.tune`.
        seed: of what is chosen.
        space: what is searched, in place of the plan's `tuning`.
        store: a file of searches; it is made if it is not there.
        engine: `local`, `ray`, or an engine, which is stopped at the end.
        workers: how many runs at a time; as many as there are cores for, by default.
        threads: of each run.
        place: where data are.
        device: `auto`, `cpu` or `cuda`.
        address: of a Ray cluster.
        progress: is called with how many trials have ended.

    Returns:
        The best settings, a plan that has them, and all that was tried.

    Raises:
        SettingError: something in the plan, its `tuning` or the arguments makes no sense.
        SourceError: data or a model that is not here.
        StoreError: the store cannot be used; what is in it is intact.
        TrainingError: no trial of any search has a score.
    """
    chosen = Plan.load(plan) if isinstance(plan, str) else plan
    if space is not None:
        table = {**_table(chosen), "tuning": {name: dict(one) for name, one in space.items()}}
        chosen = Plan.parse(_toml.write(table), where=chosen.where)
    if trials is not None:
        whole_number("trials", trials, low=1)
    if seconds is not None:
        number("seconds", seconds, low=0, open=True)
    elif trials is None:
        trials = TRIALS
    whole_number("seeds", seeds, low=1)
    number("share", share, low=0.01, high=0.9)
    seed_number("seed", seed)
    searches = searches_of(
        chosen, place, seeds=seeds, share=share, seed=seed, device=device, threads=threads
    )
    with ExitStack() as stack:
        storage = stack.enter_context(opened(Path(store)))
        books = [Trials(search, storage, trials) for search in searches]
        if any(book.limit is None or book.ended < book.limit for book in books):
            specs = [search.base for search in searches for _ in range((trials or 100) * seeds)]
            used = _engine(engine, specs, workers, address)
            stack.callback(used.stop)
            end = None if seconds is None else monotonic() + seconds
            Work(books, used, place, end, progress).to_the_end()
        found = tuple(_found(book) for book in books)
    if not any(one.best for one in found):
        reason = next((trial.reason for one in found for trial in one.trials), "the time was out")
        raise TrainingError(
            f"got no trial with a score ({reason}), expected one; mend what the trials ended with, "
            "or give them more time"
        )
    overrides = "\n".join(filter(None, (_override(one) for one in found)))
    return Tuned(_with_overrides(chosen, overrides), found, overrides)


def _engine(
    engine: str | Engine, specs: Sequence[RunSpec], workers: int | None, address: str | None
) -> Engine:
    from isotropy.experiments.execution import _engine as make

    return make(engine, specs, workers, address)


def _found(book: Trials) -> Found:
    search = book.search
    return Found(
        model=search.base.model,
        task=search.base.task,
        method=search.method,
        grids=search.grids,
        metric=book.metric,
        trials=book.found(),
    )


def _line(found: Found) -> str:
    where = f"{found.model} {found.task} {found.method}"
    tried = f"{len(found.trials)} trials"
    if found.best is None:
        reason = found.trials[0].reason if found.trials else "the time was out"
        return f"{where}: {tried}, none with a score ({reason})"
    settings = ", ".join(f"{name}={value}" for name, value in found.best.settings.items())
    return f"{where}: {found.metric} {found.best.score:.4f} with {settings} ({tried})"


def _override(found: Found) -> str:
    """The best settings as an override of the plan."""
    if found.best is None:
        return ""
    changed: dict[str, Any] = {
        "when": {
            "grid": [escape(grid) for grid in found.grids],
            "model": escape(found.model),
            "task": escape(found.task),
            "method": escape(found.method),
        }
    }
    for name, value in found.best.settings.items():
        part, _, setting = name.partition(".")
        changed.setdefault(part, {})[setting] = value
    comment = f"# {found.metric} {found.best.score:.4f} on a part of train\n"
    return comment + _toml.write({"override": [changed]})


def _with_overrides(plan: Plan, overrides: str) -> Plan:
    """The plan with more overrides behind its own, and otherwise as it is written."""
    text = f"{plan.text.rstrip()}\n\n{overrides}"
    try:
        return Plan.parse(text, where=plan.where)
    except SettingError:  # its own overrides are written as one list, to which none can be added
        table = _table(plan)
        table["override"] = [*table.get("override", ()), *tomllib.loads(overrides)["override"]]
        return Plan.parse(_toml.write(table), where=plan.where)


def _table(plan: Plan) -> dict[str, Any]:
    return {"name": plan.name, **tomllib.loads(plan.text)}

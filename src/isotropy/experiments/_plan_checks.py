"""What can be wrong with a plan although each of its settings makes sense by itself."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from isotropy.errors import MissingExtraError, SettingError, unknown_name
from isotropy.experiments._plan_file import PARTS, Grid, Override, PlanFile, Report
from isotropy.experiments.spec import (
    DataSettings,
    MeasureSettings,
    Record,
    RunSpec,
    TrainSettings,
)

_NAME = re.compile(r"[a-z0-9]+([-.][a-z0-9]+)*")
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*(/[A-Za-z0-9][\w.-]*)?")
_FOLDER = re.compile(r"(\.{0,2}/|~/|[A-Za-z0-9][\w.-]*/[^/]+/)[^\0]*|\.{1,2}")
_WORDS = ("models", "tasks", "methods", "seeds", *PARTS, "report", "stability")
_RECORDS: Mapping[str, type[Record]] = {
    "train": TrainSettings,
    "data": DataSettings,
    "measure": MeasureSettings,
}


def check_file(file: PlanFile) -> None:
    """Look at what the file says, before its cells are made.

    Raises:
        SettingError: something makes no sense.
    """
    if not _NAME.fullmatch(file.name):
        raise SettingError(
            f"got name={file.name!r}, expected lower-case words with hyphens, such as 'my-plan'"
        )
    _once("grid", [grid.name for grid in file.grid])
    if (study := file.stability) is not None and len(study.variances) > study.features:
        raise SettingError(
            f"stability: got {len(study.variances)} variances for {study.features} features, "
            "expected at most one for each"
        )
    grids = file.grids
    for grid in grids:
        _check_grid(grid, f"grid {grid.name!r}: " if file.grid else "")
    for i, override in enumerate(file.override, start=1):
        _check_override(override, grids, f"override {i}: ")
    _check_tuning(file.tuning, grids)
    for part in ("from_code", "inferred", "ours"):
        for name, why in getattr(file, part).items():
            _check_marked(part, name, why, grids)


def check_cells(cells: Iterable[tuple[str, str, RunSpec]], *, installed: bool = True) -> None:
    """Look at every cell: (its grid, what the plan calls its method, its run).

    Args:
        cells: all of a plan.
        installed: whether the packages of all methods must be there.

    Raises:
        SettingError: a combination that cannot run, or that is there twice.
        MissingExtraError: a package is missing.
    """
    seen: dict[str, set[str]] = {}
    looked_at = set()
    for grid, called, spec in cells:
        if spec.id in seen.setdefault(grid, set()):
            raise SettingError(
                f"got the run {spec.label!r} twice, once as method {called!r}, expected it once; "
                "leave one out"
            )
        seen[grid].add(spec.id)
        alike = spec.model_dump_json(exclude={"seed", "model"})
        if alike not in looked_at:
            looked_at.add(alike)
            try:
                _check_spec(spec, f"{spec.task} × {called}: ")
            except MissingExtraError:
                if installed:
                    raise


def check_report(file: PlanFile, specs: Sequence[RunSpec]) -> None:
    """Look at how the runs will be reported.

    Raises:
        SettingError: a score, metric, baseline or table that these runs do not have.
    """
    from isotropy.experiments.tasks import find_task

    report = file.report
    untuned = next((spec.task for spec in specs if spec.data.tune == 0), None)
    if report.score == "best" and untuned is not None:
        raise SettingError(
            f"got report.score='best' and no data.tune for {untuned}, expected a share of train to "
            "choose on; set data.tune = 0.1, or score = 'last'"
        )
    _check_best_of_stages(report, specs)
    tasks = list(dict.fromkeys(spec.task for spec in specs))
    for name, metric in report.metrics.items():
        if name not in tasks:
            raise unknown_name("task in report.metrics", name, tasks)
        known = find_task(name).metrics
        # A custom task has its metrics from its data, which nobody has looked at yet.
        if metric not in known and name != "custom":
            raise unknown_name(f"metric of {name}", metric, known)
    called = {method.called for grid in file.grids for method in grid.methods or ()}
    labels = {spec.method.label for spec in specs} | {spec.method.name for spec in specs}
    # A plan of one method has nothing to be compared with, unless it says so.
    if "baseline" in report.model_fields_set and report.baseline not in called | labels:
        raise unknown_name("method as report.baseline", report.baseline, called)
    grids = [grid.name for grid in file.grids]
    _check_choices_of_methods(file, specs)
    for table in report.tables:
        if table.grid is not None and table.grid not in grids:
            raise unknown_name(f"grid of {table.where}", table.grid, grids)


def _check_best_of_stages(report: Report, specs: Sequence[RunSpec]) -> None:
    """Raise a SettingError where a best score would be of a stage that begins at no best model."""
    from isotropy.experiments.methods import TWO_STAGES

    for spec in specs:
        if (
            report.score == "best"
            and spec.method.name == TWO_STAGES
            and spec.train.patience is None
        ):
            raise SettingError(
                f"got report.score='best' and no train.patience for {TWO_STAGES} on {spec.task}, "
                "whose second stage then begins at the last model and has no best, expected it to "
                "begin at the best; set train.patience = 3, or score = 'last'"
            )


def _check_grid(grid: Grid, at: str) -> None:
    for part in ("models", "tasks", "methods", "seeds"):
        values = getattr(grid, part)
        if not values:
            raise SettingError(f"{at}got no {part}, expected at least one; add {part} = [...]")
        names = [method.called for method in values] if part == "methods" else list(values)
        _once(part.removesuffix("s"), names, at)
    for model in grid.models or ():
        if not (_HUB_NAME.fullmatch(model) or _FOLDER.fullmatch(model)):
            raise SettingError(
                f"{at}got model {model!r}, expected 'minilm', a hub name such as 'org/name', or a "
                "folder such as './my-bert'"
            )
    from isotropy.experiments.methods import METHODS
    from isotropy.experiments.tasks import TASKS

    for task in grid.tasks or ():
        if task not in TASKS:
            raise _at(at, unknown_name("task", task, TASKS))
    for method in grid.methods or ():
        if method.name != "none" and method.name not in METHODS:
            raise _at(at, unknown_name("method", method.name, ["none", *METHODS]))


def _check_override(override: Override, grids: Sequence[Grid], at: str) -> None:
    if not override.when.model_fields_set:
        raise SettingError(
            f"{at}got no pattern in when, expected one of grid, model, task, method; what holds "
            "for all runs stands in [train], [data] or [measure]"
        )
    if override.model_fields_set == {"when"}:
        raise SettingError(f"{at}got nothing to change, expected train, data, measure or settings")
    if not override.when.is_of(grids):
        given = ", ".join(f"{name}={', '.join(value)}" for name, value in override.when if value)
        raise SettingError(
            f"{at}got when {given}, which no run of the plan matches; expected names of its "
            "grids, models, tasks and methods"
        )


def _check_spec(spec: RunSpec, at: str) -> None:
    from isotropy.experiments import validation
    from isotropy.experiments.tasks import find_task

    try:
        validation.check(spec, find_task(spec.task))
    except SettingError as error:
        raise _at(at, error) from None


def _check_tuning(tuning: Mapping[str, Mapping[str, Any]], grids: Sequence[Grid]) -> None:
    called = {method.called for grid in grids for method in grid.methods or ()}
    for method, searched in tuning.items():
        if method not in called:
            raise unknown_name("method in tuning", method, called)
        if not searched:
            raise SettingError(f"tuning.{method}: got nothing to search, expected settings")
        for name, choices in searched.items():
            at = f"tuning.{method}: "
            _check_path(name, at)
            _check_choices(name, choices, at)


def _check_path(name: str, at: str) -> None:
    part, _, rest = name.partition(".")
    if part in ("settings", "stage") and rest:
        return  # whether the method has it is seen when it is made with a choice
    if part in ("train", "data") and rest:
        if rest not in _RECORDS[part].model_fields:
            known = [f"{part}.{field}" for field in _RECORDS[part].model_fields]
            raise _at(at, unknown_name("setting", name, known))
        return
    raise SettingError(
        f"{at}got {name!r}, expected a setting such as 'settings.weight' or 'train.learning_rate'"
    )


def _check_choices(name: str, choices: Any, at: str) -> None:
    if isinstance(choices, list):
        if not choices:
            raise SettingError(f"{at}got no choices for {name}, expected at least one")
        return
    if not isinstance(choices, Mapping) or not {"low", "high"} <= choices.keys():
        raise SettingError(
            f"{at}got {name}={choices!r}, expected a list of choices or a range such as "
            "{low = 1e-5, high = 1e-4, log = true}"
        )
    for key in choices:
        if key not in ("low", "high", "log"):
            raise _at(at, unknown_name(f"key of the range of {name}", key, ("low", "high", "log")))
    low, high = choices["low"], choices["high"]
    if not all(isinstance(end, int | float) and not isinstance(end, bool) for end in (low, high)):
        raise SettingError(f"{at}got {name} from {low!r} to {high!r}, expected two numbers")
    if not low < high:
        raise SettingError(f"{at}got {name} from {low!r} to {high!r}, expected low below high")
    if choices.get("log") and low <= 0:
        raise SettingError(f"{at}got {name} from {low!r} on a log scale, expected it above 0")


def _check_choices_of_methods(file: PlanFile, specs: Sequence[RunSpec]) -> None:
    """Make each tuned method with each choice, or end of a range, of its settings."""
    from isotropy.experiments import methods
    from isotropy.experiments.tasks import find_task

    called = {method.called: method for grid in file.grids for method in grid.methods or ()}
    for name, searched in file.tuning.items():
        method = called[name]
        spec = next(spec for spec in specs if spec.method.name == method.name)
        for path, choices in searched.items():
            part, _, setting = path.partition(".")
            ends = choices if isinstance(choices, list) else [choices["low"], choices["high"]]
            for value in ends:
                of_method = {
                    "settings": {setting: value} if part == "settings" else {},
                    "stage": {setting: value} if part == "stage" else {},
                }
                try:
                    if part in ("settings", "stage"):
                        tried = method.with_settings(**of_method).of_a_run
                        methods.check(tried, find_task(spec.task), spec.train)
                    else:
                        _RECORDS[part].read({setting: value})
                except SettingError as error:
                    raise _at(f"tuning.{name}: ", error) from None


def _check_marked(part: str, name: str, why: str, grids: Sequence[Grid]) -> None:
    """A mark is of a setting that exists, and says why."""
    first, _, rest = name.partition(".")
    methods = sorted({method.name for grid in grids for method in grid.methods or ()})
    if first not in (*_WORDS, *methods):
        raise _at(f"{part}: ", unknown_name("setting", name, [*_WORDS, *methods]))
    if first in PARTS and rest.split(".")[0] not in _RECORDS[first].model_fields:
        known = [f"{first}.{field}" for field in _RECORDS[first].model_fields]
        raise _at(f"{part}: ", unknown_name("setting", name, known))
    if not why.strip():
        raise SettingError(f"{part}: got no word why for {name!r}, expected a reason")


def _once(kind: str, names: Sequence[Any], at: str = "") -> None:
    for name, times in Counter(names).items():
        if times > 1:
            raise SettingError(
                f"{at}got {kind} {name!r} {times} times, expected it once; leave the others out"
                + (", or give methods labels" if kind == "method" else "")
            )


def _at(at: str, error: SettingError) -> SettingError:
    return SettingError(f"{at}{error}")

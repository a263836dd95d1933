"""Changes of a plan from outside, as `--set` makes them: a plan's table to another."""

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from isotropy.errors import SettingError, unknown_name
from isotropy.experiments._plan_file import PARTS, PlanFile
from isotropy.experiments.spec import DataSettings, MeasureSettings, Record, TrainSettings

_LISTS = ("models", "tasks", "methods", "seeds")
_WORDS = (*_LISTS, *PARTS, "report", "stability")
_METHOD_PARTS = ("settings", "stage")
_RECORDS: Mapping[str, type[Record]] = {
    "train": TrainSettings,
    "data": DataSettings,
    "measure": MeasureSettings,
}
_METHOD_FIELDS = ("accumulate", "refresh_points")
_EXPECTED = (
    "models, tasks, methods, seeds, or a setting such as train.max_steps, data.train_rows, "
    "measure.final, settings.weight or report.score"
)


def changed(table: Mapping[str, Any], pairs: Mapping[str, Any]) -> dict[str, Any]:
    """A plan's table in which some things hold everywhere, whatever its grids and overrides say.

    Args:
        table: of the plan, as TOML has it.
        pairs: a dotted name to its value; None for a setting takes it out.

    Raises:
        SettingError: there is no such setting, or nothing of the plan is left.
    """
    new: dict[str, Any] = copy.deepcopy(dict(table))
    for name, value in pairs.items():
        part, dot, path = name.partition(".")
        if part in _LISTS and not dot:
            _choose(new, part, value)
        elif part in PARTS and path:
            _set(new, part, path.split("."), value)
        elif part in _METHOD_PARTS and path:
            _set_of_methods(new, part, path, value)
        elif part == "method" and path:
            _set_field_of_methods(new, path, value)
        elif part == "report" and path:
            new.setdefault("report", {})[path] = value
        else:
            raise SettingError(f"got {name!r} to change, expected {_EXPECTED}")
    return _pruned(new)


def _choose(table: dict[str, Any], part: str, wanted: Any) -> None:
    """Other models, tasks, methods or seeds.

    Where all that is wanted is in the plan, every grid keeps what it has of it, and a grid that is
    left with nothing goes. Where something is new, every grid gets all of it.
    """
    wanted = [wanted] if isinstance(wanted, str) else wanted
    if not isinstance(wanted, list | tuple):
        if part != "seeds":
            raise SettingError(f"got {part}={wanted!r}, expected a list of names")
        wanted = [wanted] if wanted == 0 or isinstance(wanted, bool) else wanted
    if wanted in ([], ()):
        raise SettingError(f"got {part}={wanted!r}, expected at least one")
    places = [place for place in (table, *table.get("grid", ())) if part in place]
    known = [_called(value) for place in places if part != "seeds" for value in place[part]]
    if part == "seeds" or any(not isinstance(one, str) or one not in known for one in wanted):
        for place in places:
            del place[part]
        table[part] = wanted if isinstance(wanted, int) else list(wanted)
        return
    for place in places:
        place[part] = [value for value in place[part] if _called(value) in wanted]
    grids = [grid for grid in table.get("grid", ()) if grid.get(part, True)]
    if "grid" in table:
        table["grid"] = [grid for grid in grids if part in grid or table.get(part)]
        if not table["grid"]:
            raise SettingError(f"got {part}={wanted!r}, which leaves no runs; choose others")


def _called(value: Any) -> Any:
    return value.get("label", value.get("name")) if isinstance(value, Mapping) else value


def _set(table: dict[str, Any], part: str, path: list[str], value: Any) -> None:
    """A setting of training, data or measures, for all runs."""
    name, *inside = path
    known = _RECORDS[part].model_fields
    if name not in known:
        raise unknown_name("setting", f"{part}.{name}", [f"{part}.{field}" for field in known])
    top = table.setdefault(part, {})
    for place in _places(table, part):
        if inside:
            _set_inside(place, path, value, always=place is top)
        else:
            place.pop(name, None)
    if not inside and value is not None:
        top[name] = value


def _set_inside(place: dict[str, Any], path: list[str], value: Any, *, always: bool) -> None:
    """A setting that is a table, such as `data.options.stride`: there, and wherever one is said."""
    name, *rest = path
    if len(rest) != 1 or not isinstance(place.get(name, {}), dict):
        raise SettingError(f"got {'.'.join(path)!r} to change, expected {_EXPECTED}")
    if name not in place and (not always or value is None):
        return
    inner = place.setdefault(name, {})
    inner.pop(rest[0], None)
    if value is not None:
        inner[rest[0]] = value


def _set_of_methods(table: dict[str, Any], part: str, name: str, value: Any) -> None:
    """A setting of all methods, but of none."""
    for override in table.get("override", ()):
        override.get(part, {}).pop(name, None)
    for method in _methods(table, f"{part}.{name}"):
        inner = method.setdefault(part, {})
        inner.pop(name, None)
        if value is not None:
            inner[name] = value


def _set_field_of_methods(table: dict[str, Any], name: str, value: Any) -> None:
    """What is said of all methods beside their settings."""
    if name not in _METHOD_FIELDS:
        raise unknown_name(
            "setting", f"method.{name}", [f"method.{field}" for field in _METHOD_FIELDS]
        )
    for method in _methods(table, f"method.{name}"):
        method.pop(name, None)
        if value is not None:
            method[name] = value


def _methods(table: dict[str, Any], change: str) -> list[dict[str, Any]]:
    """Every method as a table, wherever it stands, but none."""
    found: list[dict[str, Any]] = []
    for place in (table, *table.get("grid", ())):
        if place.get("methods"):
            place["methods"] = [
                {"name": method} if isinstance(method, str) else method
                for method in place["methods"]
            ]
            found += [method for method in place["methods"] if method.get("name") != "none"]
    if not found:
        raise SettingError(f"got {change} to change, expected a plan with a method to change")
    return found


def _places(table: dict[str, Any], part: str) -> Iterator[dict[str, Any]]:
    """Wherever settings of a part may stand."""
    for place in (table, *table.get("grid", ()), *table.get("override", ())):
        if part in place:
            yield place[part]


def _pruned(table: dict[str, Any]) -> dict[str, Any]:
    """Without what spoke of tasks, methods and grids that are gone."""
    file = PlanFile.read(table)
    grids = file.grids
    tasks = {task for grid in grids for task in grid.tasks or ()}
    methods = {method.called for grid in grids for method in grid.methods or ()}
    names = {method.name for grid in grids for method in grid.methods or ()}
    if "override" in table:
        pairs = zip(table["override"], file.override, strict=True)
        table["override"] = [
            raw
            for raw, record in pairs
            if record.when.is_of(grids) and any(raw[part] for part in raw.keys() - {"when"})
        ]
    report = table.get("report", {})
    if "metrics" in report:
        report["metrics"] = _kept(report["metrics"], lambda task: task in tasks)
    if "tables" in report:
        there = {None, *(grid.name for grid in grids)}
        report["tables"] = [one for one in report["tables"] if one.get("grid") in there]
    if "tuning" in table:
        table["tuning"] = _kept(table["tuning"], lambda method: method in methods)
    for part in ("from_code", "inferred", "ours"):
        if part in table:
            table[part] = _kept(table[part], lambda name: name.split(".")[0] in {*_WORDS, *names})
    return table


def _kept(table: Mapping[str, Any], wanted: Callable[[str], bool]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if wanted(name)}

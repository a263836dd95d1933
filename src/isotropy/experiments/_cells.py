"""Cells of a table: the runs that differ in nothing but the seed."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

from isotropy.experiments.spec import MethodSettings, RunResult, RunSpec

if TYPE_CHECKING:
    from isotropy.experiments.store import StoredRun

BASELINE = "none"


@dataclass(frozen=True)
class Cell:
    """Runs of one model, task, method and protocol, over seeds.

    Attributes:
        runs: done, failed or still to do.
        setting: what tells the protocol from others of the same model and task, such as
            `train.epochs=5`; empty where there is one.
    """

    runs: "tuple[StoredRun, ...]"
    setting: str = ""

    @property
    def spec(self) -> RunSpec:
        """The spec of its first run, which holds for all of them except for the seed."""
        return self.runs[0].spec

    @property
    def model(self) -> str:
        """The model's name."""
        return self.spec.model

    @property
    def task(self) -> str:
        """The task's name."""
        return self.spec.task

    @property
    def method(self) -> MethodSettings:
        """The method with its settings."""
        return self.spec.method

    @cached_property
    def results(self) -> dict[int, RunResult]:
        """What came out, by seed."""
        return {
            run.spec.seed: run.result
            for run in self.runs
            if run.status == "done" and run.result is not None
        }

    @property
    def failed(self) -> "list[StoredRun]":
        """The runs that ended with an error."""
        return [run for run in self.runs if run.status == "failed"]

    @property
    def missing(self) -> int:
        """How many runs have not ended."""
        return sum(run.status in ("pending", "running") for run in self.runs)

    @cached_property
    def protocol(self) -> str:
        """What two cells must share for their scores to be compared: all but method and measures.

        What is measured does not move a score.
        """
        left = self.spec.model_dump(mode="json", exclude={"seed", "method", "measure"})
        return json.dumps(left, sort_keys=True)


def cells_of(runs: "Iterable[StoredRun]", baseline: str = BASELINE) -> list[Cell]:
    """The cells: by model, task, protocol and method, each in the order in which they come.

    Of the methods the baseline is the first.
    """
    found: dict[str, list[StoredRun]] = {}
    for run in runs:
        key = run.spec.model_dump(mode="json", exclude={"seed"})
        found.setdefault(json.dumps(key, sort_keys=True), []).append(run)
    cells = [Cell(tuple(sorted(each, key=lambda run: run.spec.seed))) for each in found.values()]
    groups: dict[tuple[str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.model, cell.task), []).append(cell)
    models = list(dict.fromkeys(cell.model for cell in cells))
    tasks = list(dict.fromkeys(cell.task for cell in cells))
    return [
        cell
        for model in models
        for task in tasks
        for cell in _ordered(groups.get((model, task), []), baseline)
    ]


def peer_of(cell: Cell, cells: Sequence[Cell]) -> Cell | None:
    """The cell with the same protocol, of those that also measure alike if there are such."""
    same = [other for other in cells if other is not cell and other.protocol == cell.protocol]
    alike = [other for other in same if other.spec.measure == cell.spec.measure]
    return next(iter(alike or same), None)


def is_baseline(cell: Cell, baseline: str = BASELINE) -> bool:
    """Whether a cell is what the others are compared with."""
    return cell.method.name == baseline or cell.method.label == baseline


def _ordered(cells: Sequence[Cell], baseline: str) -> list[Cell]:
    """Cells of one model and task, each with what tells its protocol from that of the others."""
    own = {"seed", "method", "model", "task"}
    flat = [dict(_leaves(cell.spec.model_dump(mode="json", exclude=own))) for cell in cells]
    names = dict.fromkeys(name for leaves in flat for name in leaves)
    differing = [
        name for name in names if len({json.dumps(leaves.get(name)) for leaves in flat}) > 1
    ]
    settings = [
        " ".join(f"{name}={_short(leaves.get(name))}" for name in differing) for leaves in flat
    ]
    order = list(dict.fromkeys(settings))
    found = [Cell(cell.runs, setting) for cell, setting in zip(cells, settings, strict=True)]
    return sorted(
        found, key=lambda cell: (order.index(cell.setting), not is_baseline(cell, baseline))
    )


def _leaves(tree: Mapping[str, Any], path: str = "") -> Iterable[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{path}{name}.")
        else:
            yield f"{path}{name}", value


def _short(value: Any) -> str:
    if isinstance(value, list):
        return ",".join(map(str, value))
    return "none" if value is None else f"{value:g}" if isinstance(value, float) else str(value)

"""Runs with the plan that says how to read them, wherever they come from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isotropy.errors import SettingError, unknown_name
from isotropy.experiments._cells import Cell, cells_of
from isotropy.experiments._plan_file import Report

if TYPE_CHECKING:
    from isotropy.experiments.execution import Runs
    from isotropy.experiments.store import StoredRun


@dataclass(frozen=True)
class Gathered:
    """Runs that make one table.

    Attributes:
        plan: its name; empty for runs without a plan.
        report: how they are to be reported.
        runs: in their order.
    """

    plan: str
    report: Report
    runs: "tuple[StoredRun, ...]"

    @cached_property
    def cells(self) -> list[Cell]:
        """The runs in cells, in the order of a table."""
        return cells_of(self.runs, self.report.baseline)


def gathered(runs: "Runs | Sequence[StoredRun] | str | Path", plan: str | None = None) -> Gathered:
    """The runs of one plan.

    Raises:
        SettingError: there are none, several plans, or none of that name.
    """
    found = all_gathered(runs, plan)
    if len(found) > 1:
        names = ", ".join(repr(table.plan) for table in found if table.plan)
        raise SettingError(
            f"got runs of several plans, expected those of one; choose plan= from: {names}"
        )
    return found[0]


def all_gathered(
    runs: "Runs | Sequence[StoredRun] | str | Path", plan: str | None = None
) -> list[Gathered]:
    """The runs of each plan, and those of none last; of one plan where it is named.

    Raises:
        SettingError: there are no runs, or no plan of that name.
    """
    if isinstance(runs, str | Path):
        found = _from_store(Path(runs))
        where = f"store {str(runs)!r}"
    else:
        of = getattr(runs, "plan", None)
        name, report = (_name(of), _report(of)) if of is not None else ("", Report())
        found = [Gathered(name, report, _with_series(runs))] if len(runs) else []
        where = "a list"
    if plan is not None:
        known = [table.plan for table in found if table.plan]
        if plan not in known:
            raise unknown_name("plan", plan, known)
        found = [table for table in found if table.plan == plan]
    if not found:
        raise SettingError(f"got {where} without runs, expected some; start a plan with `run`")
    return found


def _from_store(path: Path) -> list[Gathered]:
    from isotropy.experiments.store import Store

    with Store(path, read_only=True) as store:
        tables = [
            Gathered(plan.name, _report(plan), tuple(store.runs(plan.name, series=True)))
            for plan in store.plans()
        ]
        alone = tuple(run for run in store.runs(series=True) if not run.plans)
    tables.append(Gathered("", Report(), alone))
    return [table for table in tables if table.runs]


def _with_series(runs: "Runs | Sequence[StoredRun]") -> "tuple[StoredRun, ...]":
    """What `run` returned leaves in the store what was seen along training."""
    store = getattr(runs, "store", None)
    if store is None or not Path(store).exists():
        return tuple(runs)
    from isotropy.experiments.store import Store

    with Store(store, read_only=True) as opened:
        return tuple(opened.runs(ids=[run.id for run in runs], series=True))


def _name(plan: Any) -> str:
    return plan if isinstance(plan, str) else str(plan.name)


def _report(plan: Any) -> Report:
    """A plan's settings of the report, as a record or as the store keeps them."""
    found = getattr(plan, "report", None)
    if isinstance(found, Report):
        return found
    return Report() if found is None else Report.read(found)

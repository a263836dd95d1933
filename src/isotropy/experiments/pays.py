"""Does a method pay? What a comparison says, in a few plain sentences and no more than it says."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isotropy.experiments._gathered import gathered
from isotropy.experiments._numbers import between, counted, point, probability, times
from isotropy.experiments._plan_file import Report
from isotropy.experiments._reading import of_a_point
from isotropy.experiments._rows import Row, rows_of
from isotropy.experiments.statistics import ALPHA, Contrast

if TYPE_CHECKING:
    from isotropy.experiments.execution import Runs
    from isotropy.experiments.store import StoredRun


def sentence(runs: "Runs | Sequence[StoredRun] | str | Path", *, plan: str | None = None) -> str:
    """Which methods gain over none, by how much, how surely, and at what cost.

    A gain or a loss is one whose p is below .05 after Holm's correction over all comparisons. Of
    all others it is said what the runs could have shown. One paragraph for each model and task.

    Args:
        runs: what `run` returned, records of a store, or a store's file.
        plan: which plan of the store; needed where it has several.

    Raises:
        SettingError: there are no runs, or those of several plans.
    """
    table = gathered(runs, plan)
    rows = rows_of(table.cells, table.report)
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.cell.protocol, []).append(row)
    tests = sum(row.p is not None for row in rows)
    several = len(groups) > 1
    return "\n\n".join(_paragraph(group, table.report, tests, several) for group in groups.values())


def _paragraph(rows: Sequence[Row], report: Report, tests: int, several: bool) -> str:
    baseline = next((row for row in rows if row.is_baseline), None)
    compared = [row for row in rows if row.difference is not None]
    where = _where(rows[0]) if several else ""
    said = [_lead(compared, report, where)]
    if baseline is not None and baseline.summary.n:
        said.append(_standing(baseline, report))
    gains, losses = _sure(compared, 1), _sure(compared, -1)
    said += [_change(row, "gains", tests) for row in gains]
    if len(gains) > 1:
        said.append("Which of these is better than the others was not tested.")
    said += [_change(row, "loses", tests) for row in losses]
    said += _open([row for row in compared if row not in (*gains, *losses)])
    said += [f"{row.cell.method.label}: {'; '.join(row.notes)}." for row in rows if row.notes]
    return " ".join(said)


def _lead(compared: Sequence[Row], report: Report, where: str) -> str:
    none = _none(report)
    if not compared:
        return f"{where}Nothing can be said: nothing has been compared with {none}."
    gains, losses = _sure(compared, 1), _sure(compared, -1)
    if gains:
        names = _listed([row.cell.method.label for row in gains])
        return f"{where}In these runs {names} scored better than {none}."
    if len(losses) == len(compared):
        every = "each method" if len(losses) > 1 else losses[0].cell.method.label
        return f"{where}In these runs {every} scored worse than {none}."
    return f"{where}These runs do not show that a method scores better than {none}."


def _standing(baseline: Row, report: Report) -> str:
    centre = baseline.centre(report) or 0.0
    unit = of_a_point(baseline.metric)
    value = f"{centre / unit:.1f}"
    std = baseline.summary.std
    scatter = "" if std is None else f" ± {std / unit:.1f}"
    runs = counted(baseline.summary.n, "run")
    return f"With {_none(report)}, {baseline.metric} is {value}{scatter} points over {runs}."


def _change(row: Row, verb: str, tests: int) -> str:
    """A sure difference, with its size, certainty and cost."""
    found, unit = _difference(row), of_a_point(row.metric)
    interval = found.interval()
    assert interval is not None  # a sure difference has one
    sure = [f"95 % interval {between(_signed(interval, verb, unit))}"]
    if row.p_holm is not None:
        corrected = f" after correction for {tests} comparisons" if tests > 1 else ""
        sure.append(f"{probability(row.p_holm)}{corrected}")
    if row.p_paired is not None:
        sure.append(f"compared by seed, {probability(row.p_paired)}")
    size = point(abs(found.estimate) / unit)
    return f"{row.cell.method.label} {verb} {size} points ({'; '.join(sure)}){_cost(row)}."


def _signed(interval: tuple[float, float], verb: str, unit: float) -> tuple[float, float]:
    """The interval of a gain, or of a loss as a size."""
    low, high = interval
    return (low / unit, high / unit) if verb == "gains" else (-high / unit, -low / unit)


def _open(rows: Sequence[Row]) -> list[str]:
    """What was not shown, and what could have been."""
    said = []
    tested = [row for row in rows if row.p is not None]
    for row in tested:
        found, unit = _difference(row), of_a_point(row.metric)
        low, high = found.interval() or (found.estimate, found.estimate)
        said.append(
            f"For {row.cell.method.label} no difference was shown: {_plus(found.estimate / unit)} "
            f"points, 95 % interval {between((low / unit, high / unit))}"
            + ("" if row.detectable is None else f", where {point(row.detectable / unit)} points")
            + ("" if row.detectable is None else " are the least that these runs could have shown")
            + f"{_cost(row)}."
        )
    for row in rows:
        if row.p is None:
            found, unit = _difference(row), of_a_point(row.metric)
            said.append(
                f"{row.cell.method.label} differs by {_plus(found.estimate / unit)} points, of "
                f"which nothing can be said with certainty{_cost(row)}."
            )
    return said


def _cost(row: Row) -> str:
    return "" if row.cost is None else f"; an epoch takes {times(row.cost)} times as long"


def _sure(rows: Sequence[Row], sign: int) -> list[Row]:
    """Rows with a difference of this sign that is sure, the largest first."""
    found = [
        row
        for row in rows
        if row.p_holm is not None and row.p_holm < ALPHA and _difference(row).estimate * sign > 0
    ]
    return sorted(found, key=lambda row: -abs(_difference(row).estimate))


def _difference(row: Row) -> Contrast:
    assert row.difference is not None  # only rows that have one are asked
    return row.difference


def _where(row: Row) -> str:
    setting = f" ({row.cell.setting})" if row.cell.setting else ""
    return f"{row.cell.model}, {row.cell.task}{setting}: "


def _none(report: Report) -> str:
    return "no method" if report.baseline == "none" else report.baseline


def _plus(value: float) -> str:
    text = point(value)
    return text if text.startswith("−") or not float(text) else f"+{text}"


def _listed(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"

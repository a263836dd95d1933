"""What came out of runs, as text in 80 columns."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from isotropy import tables
from isotropy.experiments._gathered import Gathered, all_gathered
from isotropy.experiments._numbers import counted, point
from isotropy.experiments._published import printed
from isotropy.experiments._reading import SECONDS, of_a_point
from isotropy.experiments._rows import Row, rows_of
from isotropy.experiments.comparison import centre_of, measured
from isotropy.report._claims import claims_of

if TYPE_CHECKING:
    from isotropy.experiments.execution import Runs
    from isotropy.experiments.store import StoredRun

MISSING = "–"
_FIRST = 34  # columns of the method's name
_SECOND = "_2", "_3"


def table(runs: "Runs | Sequence[StoredRun] | str | Path", *, plan: str | None = None) -> str:
    """Scores, isotropy and cost of each plan and model, and what can be said of them.

    Scores and changes are in points: hundredths, where a score is a fraction of 1. A change is
    marked if it is sure after Holm's correction over the plan's comparisons.

    Args:
        runs: what `run` returned, records of a store, or a store's file.
        plan: only this plan.

    Raises:
        SettingError: there are no runs, or no such plan.
    """
    return "\n\n\n".join(_plan(found) for found in all_gathered(runs, plan))


def _plan(found: Gathered) -> str:
    rows = rows_of(found.cells, found.report)
    models = list(dict.fromkeys(row.cell.model for row in rows))
    parts = [tables.wrapped(_title(found))]
    parts += [_model([row for row in rows if row.cell.model == model], found) for model in models]
    parts += [tables.wrapped(_legend(rows, found)), *_notes(rows), *_failed(rows)]
    parts += claims_of(found)
    return "\n\n".join(parts)


def _title(found: Gathered) -> str:
    done = sum(run.status == "done" for run in found.runs)
    state = f"{done} of {len(found.runs)} runs" if done < len(found.runs) else counted(done, "run")
    return f"{found.plan or 'runs without a plan'}: {state}"


def _model(rows: Sequence[Row], found: Gathered) -> str:
    """The table of a model: its tasks, below each its methods."""
    name = rows[0].cell.model
    settings = list(dict.fromkeys(row.cell.setting for row in rows if row.cell.setting))
    measures = _shown(measured(rows, found.report.score))
    papers = any(_printed(row, found) is not None for row in rows)
    epochs = any(centre_of(row, SECONDS, found.report) is not None for row in rows)
    cells = [
        [_clipped(name), "score", "change", *["printed"] * papers, *measures]
        + ["epoch"] * epochs
        + ["runs"]
    ]
    group = None
    for row in rows:
        if group != (group := (row.cell.task, row.cell.setting)):
            mark = f" [{settings.index(group[1]) + 1}]" if group[1] else ""
            head = _clipped(f"{group[0]}{f' ({row.metric})' if row.metric else ''}", len(mark))
            cells.append([head + mark, *[""] * (len(cells[0]) - 1)])
        cells.append(
            [
                f"  {_clipped(row.cell.method.label, 2)}",
                _score(row, found),
                _change(row),
                *[_printed(row, found) or ""] * papers,
                *(_number(centre_of(row, key, found.report)) for key in measures),
                *[_epoch(row, found)] * epochs,
                _runs(row),
            ]
        )
    notes = [tables.wrapped(f"[{i}] {text}") for i, text in enumerate(settings, 1)]
    return "\n\n".join([tables.across(cells), *(["\n".join(notes)] if notes else [])])


def _shown(keys: Sequence[str]) -> list[str]:
    """The measures of a table: not those of single layers, and of a series its first number."""
    return [key for key in keys if "@" not in key and not (key.endswith(_SECOND))]


def _score(row: Row, found: Gathered) -> str:
    centre, unit = row.centre(found.report), of_a_point(row.metric)
    if centre is None:
        return "undefined" if row.summary.undefined else MISSING
    std = row.summary.std
    return f"{centre / unit:.2f}" + ("" if std is None else f" ± {std / unit:.2f}")


def _change(row: Row) -> str:
    if row.is_baseline:
        return ""
    if row.difference is None:
        return MISSING
    text = point(row.difference.estimate / of_a_point(row.metric))
    sign = "" if text.startswith("−") or not float(text) else "+"
    p = row.p_holm
    return f"{sign}{text} {'' if p is None else '**' if p < 0.01 else '*' if p < 0.05 else '':<2}"


def _printed(row: Row, found: Gathered) -> str | None:
    paper = printed(row.cell.spec, row.metric, found.plan) if row.metric else None
    return None if paper is None else f"{paper.value / of_a_point(row.metric):.2f}"


def _number(value: float | None) -> str:
    return MISSING if value is None else tables.number(value)


def _epoch(row: Row, found: Gathered) -> str:
    """A baseline's seconds, and how many times that a method takes."""
    if not row.is_baseline:
        return MISSING if row.cost is None else f"{row.cost:.2f}×"
    seconds = centre_of(row, SECONDS, found.report)
    return MISSING if seconds is None else f"{seconds:.3g} s"


def _runs(row: Row) -> str:
    done, whole = len(row.cell.results), len(row.cell.runs)
    return str(done) if done == whole else f"{done}/{whole}"


def _legend(rows: Sequence[Row], found: Gathered) -> str:
    report, tests = found.report, sum(row.p is not None for row in rows)
    kind = {
        "last": "after training",
        "best": "where the tuning split was best",
        "late": "mean over the last 30 % of training",
    }[report.score]
    parts = [f"score: {kind}, {report.centre} ± standard deviation over seeds"]
    if any(row.difference for row in rows):
        none = "no method" if report.baseline == "none" else report.baseline
        parts.append(f"change: of the mean against {none}, in points")
    if tests:
        parts.append(
            f"* p < .05, ** p < .01 (Welch's test, corrected for {counted(tests, 'comparison')})"
        )
    if any(row.cost is not None for row in rows):
        parts.append("epoch: seconds, and times those on the same machine")
    return "; ".join(parts)


def _notes(rows: Sequence[Row]) -> list[str]:
    said: dict[str, list[str]] = {}
    for row in rows:
        for note in row.notes:
            said.setdefault(note, []).append(_place(row))
    # What is said of half of all cells or more is said once, of how many.
    lines = [
        f"{', '.join(places)}: {note}"
        if len(places) <= max(3, len(rows) // 8)
        else f"{len(places)} of {len(rows)} cells: {note}"
        for note, places in said.items()
    ]
    return ["\n".join(map(tables.wrapped, lines))] if lines else []


def _place(row: Row) -> str:
    return f"{row.cell.model} {row.cell.task} {row.cell.method.label}"


def _failed(rows: Sequence[Row]) -> list[str]:
    lines = [
        f"failed: {run.spec.label}: {(run.error or 'no reason is known').splitlines()[0]}"
        for row in rows
        for run in row.cell.failed
    ]
    return ["\n".join(map(tables.wrapped, lines))] if lines else []


def _clipped(text: str, taken: int = 0) -> str:
    room = _FIRST - taken
    return text if len(text) <= room else f"{text[: room - 1]}…"

"""All numbers of all cells as CSV: one row for a cell and a metric."""

import csv as files
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isotropy.experiments._gathered import Gathered, all_gathered
from isotropy.experiments._published import printed
from isotropy.experiments._reading import SCORE, SECONDS
from isotropy.experiments._rows import Row, rows_of
from isotropy.experiments.comparison import measured

if TYPE_CHECKING:
    from isotropy.experiments.execution import Runs
    from isotropy.experiments.store import StoredRun

COLUMNS = (
    *("plan", "model", "task", "setting", "method", "kind", "metric"),
    *("n", "undefined", "failed", "missing", "mean", "std", "median"),
    *("difference", "low", "high", "p", "p_holm", "p_paired", "g", "g_low", "g_high"),
    *("detectable", "ratio", "published", "published_std", "published_where", "published_note"),
    "notes",
)


def csv(runs: "Runs | Sequence[StoredRun] | str | Path", *, plan: str | None = None) -> str:
    """Every number of every cell, with what it differs by and what the papers print for it.

    `kind` is `score` (the task's main metric), `metric` (its others), `measure` or `cost`. Scores
    are as the task gives them, mostly fractions of 1. p_holm is corrected over all rows of a plan
    that have the same metric, main metrics together. An empty field is a number that does not
    exist.

    Args:
        runs: what `run` returned, records of a store, or a store's file.
        plan: only this plan.

    Raises:
        SettingError: there are no runs, or no such plan.
    """
    file = StringIO()
    writer = files.DictWriter(file, COLUMNS, lineterminator="\n")
    writer.writeheader()
    for table in all_gathered(runs, plan):
        writer.writerows(_records(table))
    return file.getvalue()


def _records(table: Gathered) -> Iterable[dict[str, Any]]:
    mains = rows_of(table.cells, table.report)
    for row in mains:
        yield _record(row, table, "score")
    results = [result for row in mains for result in row.cell.results.values()]
    metrics = dict.fromkeys(name for result in results for name in result.last)
    measures = measured(mains, table.report.score)
    for kind, names in (("metric", metrics), ("measure", measures), ("cost", [SECONDS])):
        for name in names:
            for main, row in zip(mains, rows_of(table.cells, table.report, name), strict=True):
                if row.values and (kind != "metric" or main.metric != name):
                    yield _record(row, table, kind)


def _record(row: Row, table: Gathered, kind: str) -> dict[str, Any]:
    cell, difference, effect = row.cell, row.difference, row.effect()
    interval = difference.interval() if difference else None
    paper = printed(cell.spec, row.metric, table.plan) if row.metric else None
    return {
        "plan": table.plan,
        "model": cell.model,
        "task": cell.task,
        "setting": cell.setting,
        "method": cell.method.label,
        "kind": kind,
        "metric": row.metric or SCORE,
        "n": row.summary.n,
        "undefined": row.summary.undefined,
        "failed": len(cell.failed),
        "missing": cell.missing,
        "mean": row.summary.mean,
        "std": row.summary.std,
        "median": row.summary.median,
        "difference": difference and difference.estimate,
        "low": interval and interval[0],
        "high": interval and interval[1],
        "p": row.p,
        "p_holm": row.p_holm,
        "p_paired": row.p_paired,
        "g": effect and effect.g,
        "g_low": effect and effect.low,
        "g_high": effect and effect.high,
        "detectable": row.detectable,
        "ratio": row.cost if kind == "cost" else None,
        "published": paper and paper.value,
        "published_std": paper and paper.std,
        "published_where": paper and paper.where,
        "published_note": paper and paper.note,
        "notes": "; ".join(row.notes),
    }

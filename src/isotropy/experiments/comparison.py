"""Methods beside no method: one row for every model, task and method, as a data frame."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from isotropy.errors import MissingExtraError
from isotropy.experiments._cells import cells_of
from isotropy.experiments._gathered import gathered
from isotropy.experiments._plan_file import Report
from isotropy.experiments._reading import SECONDS, Score, values
from isotropy.experiments._rows import Row, rows_of
from isotropy.experiments.statistics import LEVEL, summary

if TYPE_CHECKING:
    import pandas

    from isotropy.experiments.execution import Runs
    from isotropy.experiments.store import StoredRun


def compare(
    runs: "Runs | Sequence[StoredRun] | str | Path",
    *,
    plan: str | None = None,
    score: Score | None = None,
    centre: str | None = None,
    baseline: str | None = None,
    metrics: Mapping[str, str] | None = None,
    level: float = LEVEL,
) -> "pandas.DataFrame":
    """What each method changed, how surely, and what it cost.

    A method is compared with the runs without one that share its model, task and all other
    settings. Tests are Welch's, and by seed beside it; p_holm is corrected over all rows. An empty
    cell of the frame (`<NA>`) is a number that does not exist, such as a test of one run.

    Args:
        runs: what `run` returned, records of a store, or a store's file.
        plan: which plan of the store; needed where it has several.
        score: `last`, `best` (on the tuning split) or `late`; the plan's by default.
        centre: `mean` or `median` over seeds; the plan's by default. Tests are of means.
        baseline: the method with which the others are compared; the plan's by default.
        metrics: metrics of tasks instead of the plan's.
        level: of the intervals.

    Returns:
        Columns: `model`, `task`, `setting` (what tells apart protocols of one model and task),
        `method`, `metric`, `n`, `failed`, `missing` (runs), `undefined` (scores), `score`, `std`,
        `difference` to the baseline with `low` and `high`, `p`, `p_holm`, `p_paired`, `g` with
        `g_low` and `g_high` (Hedges), `detectable` (the smallest difference that these runs could
        have shown with a power of .8, corrected), `seconds_per_epoch`, `cost` (its multiple of the
        baseline's), a column for each measure, and `notes`.

    Raises:
        SettingError: there are several plans, an unknown one, or no scores of that kind.
    """
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("pandas", "train") from None
    table = gathered(runs, plan)
    given = {"score": score, "centre": centre, "baseline": baseline, "metrics": metrics}
    changed = {name: value for name, value in given.items() if value is not None}
    report = Report.read({**dict(table.report), **changed})
    rows = rows_of(cells_of(table.runs, report.baseline), report)
    measures = measured(rows, report.score)
    frame = pandas.DataFrame([_record(row, report, measures, level) for row in rows])
    frame = frame.reindex(columns=[*_COLUMNS, *measures, "notes"])
    return frame.astype(
        {
            **dict.fromkeys(_TEXTS, "string"),
            **dict.fromkeys(_COUNTS, "Int64"),
            **dict.fromkeys([*_NUMBERS, *measures], "Float64"),
        }
    )


def measured(rows: Iterable[Row], score: Score = "last") -> list[str]:
    """Keys of the measures that runs have, in their order.

    Those that were only tracked along training are there where scores are "late" ones: both are
    then means over the end of training.
    """
    found: dict[str, None] = {}
    for row in rows:
        tracked = row.cell.spec.measure.track if score == "late" else ()
        for result in row.cell.results.values():
            names = dict.fromkeys(point.name for point in result.series) if tracked else ()
            found |= dict.fromkeys(result.measures)
            found |= dict.fromkeys(
                name for name in names if any(name.startswith(measure) for measure in tracked)
            )
    return list(found)


_TEXTS = ("model", "task", "setting", "method", "metric", "notes")
_COUNTS = ("n", "undefined", "failed", "missing")
_NUMBERS = (
    *("score", "std", "difference", "low", "high", "p", "p_holm", "p_paired"),
    *("g", "g_low", "g_high", "detectable", SECONDS, "cost"),
)
_COLUMNS = (*_TEXTS[:-1], *_COUNTS, *_NUMBERS)


def _record(row: Row, report: Report, measures: Sequence[str], level: float) -> dict[str, Any]:
    cell, difference, effect = row.cell, row.difference, row.effect(level)
    low, high = (difference and difference.interval(level)) or (None, None)
    return {
        "model": cell.model,
        "task": cell.task,
        "setting": cell.setting,
        "method": cell.method.label,
        "metric": row.metric,
        "n": row.summary.n,
        "undefined": row.summary.undefined,
        "failed": len(cell.failed),
        "missing": cell.missing,
        "score": row.centre(report),
        "std": row.summary.std,
        "difference": difference and difference.estimate,
        "low": low,
        "high": high,
        "p": row.p,
        "p_holm": row.p_holm,
        "p_paired": row.p_paired,
        "g": effect and effect.g,
        "g_low": effect and effect.low,
        "g_high": effect and effect.high,
        "detectable": row.detectable,
        SECONDS: centre_of(row, SECONDS, report),
        "cost": row.cost,
        **{key: centre_of(row, key, report) for key in measures},
        "notes": "; ".join(row.notes),
    }


def centre_of(row: Row, name: str, report: Report) -> float | None:
    """The mean or median of another number of a row's runs."""
    found = summary(list(values(row.cell, name, report.score).values()))
    return found.median if report.centre == "median" else found.mean

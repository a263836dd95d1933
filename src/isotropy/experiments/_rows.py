"""The rows of a comparison: each cell beside the one without a method."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from isotropy.experiments import statistics
from isotropy.experiments._cells import Cell, is_baseline, peer_of
from isotropy.experiments._plan_file import Report
from isotropy.experiments._reading import (
    SCORE,
    SECONDS,
    metric_of,
    values,
)
from isotropy.experiments.statistics import Contrast, Effect, Summary, Value


@dataclass(frozen=True, kw_only=True)
class Row:
    """One number of a cell, and how it differs from that of the cell without a method.

    Attributes:
        cell: its runs.
        baseline: the cell without a method under the same protocol; None for itself, or if there
            is none.
        is_baseline: whether others are compared with it.
        metric: what the number is.
        values: of each run, by seed.
        summary: of the values.
        difference: of the means, by Welch's test.
        paired: the same by seed.
        others: the values of the baseline.
        p: of the difference.
        p_holm: corrected over the table.
        p_paired: by seed.
        detectable: the smallest difference that these runs could have shown after correction.
        cost: time of an epoch as a multiple of the baseline's on the same machine.
        notes: what a reader should know.
    """

    cell: Cell
    baseline: Cell | None
    is_baseline: bool
    metric: str | None
    values: Mapping[int, Value]
    summary: Summary
    difference: Contrast | None = None
    paired: Contrast | None = None
    others: Mapping[int, Value] = field(default_factory=dict)
    p: float | None = None
    p_holm: float | None = None
    p_paired: float | None = None
    detectable: float | None = None
    cost: float | None = None
    notes: tuple[str, ...] = ()

    def effect(self, level: float = statistics.LEVEL) -> Effect | None:
        """The difference as Hedges' g."""
        if self.is_baseline:
            return None
        return statistics.hedges(list(self.values.values()), list(self.others.values()), level)

    def centre(self, report: Report) -> float | None:
        """The mean or the median, as the plan says."""
        return self.summary.median if report.centre == "median" else self.summary.mean


def rows_of(
    cells: Sequence[Cell],
    report: Report,
    name: str = SCORE,
    *,
    alpha: float = statistics.ALPHA,
) -> list[Row]:
    """The rows of a table, in its order, corrected over all of its comparisons.

    Args:
        cells: all cells of the table.
        report: which score is meant, and what is compared with what.
        name: `score`, a metric, a measure or `seconds_per_epoch`.
        alpha: of the tests, for the smallest difference that they could have shown.
    """
    baselines = [cell for cell in cells if is_baseline(cell, report.baseline)]
    rows = [_row(cell, baselines, report, name) for cell in cells]
    corrected = statistics.holm([row.p for row in rows])
    tests = sum(row.p is not None for row in rows)
    return [
        replace(
            row,
            p_holm=p,
            detectable=row.difference.detectable(alpha / tests)
            if row.difference and tests
            else None,
        )
        for row, p in zip(rows, corrected, strict=True)
    ]


def _row(cell: Cell, baselines: Sequence[Cell], report: Report, name: str) -> Row:
    mine = values(cell, name, report.score, report.metrics)
    row = Row(
        cell=cell,
        baseline=None,
        is_baseline=is_baseline(cell, report.baseline),
        metric=metric_of(cell, report.metrics) if name == SCORE else name,
        values=mine,
        summary=statistics.summary(list(mine.values())),
    )
    baseline = None if row.is_baseline else peer_of(cell, baselines)
    if baseline is not None:
        other = values(baseline, name, report.score, report.metrics)
        difference = statistics.welch(list(mine.values()), list(other.values()))
        paired = statistics.paired(mine, other)
        row = replace(
            row,
            baseline=baseline,
            difference=difference,
            paired=paired,
            others=other,
            p=difference.p() if difference else None,
            p_paired=paired.p() if paired else None,
            cost=cost(cell, baseline),
        )
    return replace(row, notes=tuple(_notes(row)))


def cost(cell: Cell, baseline: Cell) -> float | None:
    """How many times the baseline's seconds an epoch takes, on machines that both ran on.

    Medians of the runs of each machine, as one run that was disturbed should not decide; over
    machines, the geometric mean of the ratios.
    """
    mine, other = _seconds(cell), _seconds(baseline)
    shared = [
        math.log(median(mine[machine]) / median(other[machine]))
        for machine in mine
        if machine in other
    ]
    return math.exp(math.fsum(shared) / len(shared)) if shared else None


def _seconds(cell: Cell) -> dict[tuple[tuple[str, str], ...], list[float]]:
    found: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for result in cell.results.values():
        seconds = result.seconds_per_epoch
        if seconds:
            found.setdefault(tuple(sorted(result.machine.items())), []).append(seconds)
    return found


def _notes(row: Row) -> Iterable[str]:
    cell, summary = row.cell, row.summary
    ended = len(cell.results)
    if summary.undefined:
        yield f"undefined in {summary.undefined} of {summary.n + summary.undefined} runs"
    if row.metric != SECONDS:
        said = Counter(note for result in cell.results.values() for note in result.notes)
        for note, times in said.items():
            yield note if times == ended == 1 else f"{note} ({times} of {ended} runs)"
    if cell.failed:
        yield f"{len(cell.failed)} of {len(cell.runs)} runs failed"
    if cell.missing:
        yield f"{cell.missing} of {len(cell.runs)} runs not yet done"
    if row.is_baseline or not summary.n:
        return
    if row.baseline is None:
        yield "no run without a method has the same settings: nothing to compare with"
    elif row.difference is None:
        yield "the runs without a method have no score: nothing to compare with"
    elif row.p is None:
        few = min(summary.n, row.difference.runs - summary.n) < 2
        yield "one run is too few for a test" if few else "no scatter over seeds: no test"

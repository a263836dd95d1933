"""How a number is read off a run: which score, which measure, on which scale."""

import re
from collections.abc import Mapping
from statistics import fmean
from typing import Literal, get_args

from isotropy.errors import SettingError
from isotropy.experiments._cells import Cell
from isotropy.experiments.spec import RunResult
from isotropy.experiments.statistics import MARGIN, Value

Score = Literal["last", "best", "late"]
SCORE = "score"
"""The name of a task's main metric, or of what a plan says instead of it."""
SECONDS = "seconds_per_epoch"

# Their scores are printed from 0 to 100; all others are fractions of 1.
_OF_A_HUNDRED = re.compile(r"(sacre)?bleu|chrf|ter$|rouge", re.IGNORECASE)


def metric_of(cell: Cell, metrics: Mapping[str, str]) -> str | None:
    """The metric that stands for a cell's score; None where no run has ended."""
    if cell.task in metrics:
        return metrics[cell.task]
    return next((result.metric for result in cell.results.values()), None)


def values(
    cell: Cell, name: str, score: Score = "last", metrics: Mapping[str, str] | None = None
) -> dict[int, Value]:
    """A number of each run of a cell, by seed, for the runs that have it.

    Args:
        cell: the runs.
        name: `score`, a metric, a measure's key, or `seconds_per_epoch`.
        score: which score is meant.
        metrics: of tasks whose score is not their main metric.

    Raises:
        SettingError: the runs have no scores of that kind.
    """
    wanted = metric_of(cell, metrics or {}) if name == SCORE else name
    found = {
        seed: read(result, wanted, score, cell)
        for seed, result in cell.results.items()
        if wanted is not None and has(result, wanted, score)
    }
    if name == SCORE and cell.results and not found:
        raise SettingError(
            f"got metric {wanted!r} of task {cell.task}, which its runs do not have; "
            f"choose from: {', '.join(sorted(next(iter(cell.results.values())).last))}"
        )
    return found


def has(result: RunResult, name: str, score: Score) -> bool:
    """Whether a run has a number of this name."""
    return (
        name in result.last
        or name in result.measures
        or (score == "late" and bool(late_points(result, name)))
        or (name == SECONDS and result.seconds_per_epoch is not None)
    )


def read(result: RunResult, name: str, score: Score, cell: Cell) -> Value:
    """The number of this name of a run that has it."""
    if name in result.last:
        return scores(result, score, cell)[name]
    if name == SECONDS:
        return result.seconds_per_epoch
    late = late_points(result, name) if score == "late" else []
    return fmean(late) if late else result.measures[name]


def scores(result: RunResult, score: Score, cell: Cell) -> dict[str, Value]:
    """The scores of the kind that is asked for; there is one kind where nothing was trained."""
    if score not in get_args(Score):
        raise SettingError(f"got score={score!r}, expected one of: {', '.join(get_args(Score))}")
    found: dict[str, Value] = getattr(result, score)
    if not found and result.steps:
        reason = ": no part of train was split off for tuning" if score == "best" else ""
        raise SettingError(
            f"got score={score!r}, but runs of {cell.model} {cell.task} {cell.method.label} have "
            f"no such scores{reason}; choose 'last'"
        )
    return found or result.last


def points(result: RunResult, name: str) -> list[tuple[int, float]]:
    """A measure that was tracked along training: steps and values, in order."""
    return sorted((point.step, point.value) for point in result.series if point.name == name)


def late_points(result: RunResult, name: str) -> list[float]:
    """What a tracked measure was in the last 30 % of training."""
    return [value for step, value in points(result, name) if 10 * step > 7 * result.steps]


def of_a_point(metric: str | None) -> float:
    """How much one point is: .01 where scores are fractions of 1, 1 where they go to 100.

    Example:
        >>> of_a_point("accuracy"), of_a_point("bleu")
        (0.01, 1.0)
    """
    return 1.0 if metric and _OF_A_HUNDRED.match(metric.rpartition("/")[2]) else MARGIN

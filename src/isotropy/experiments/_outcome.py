"""What a training, or a run without one, hands to its result."""

from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from isotropy.experiments._splits import Rows
from isotropy.experiments.spec import DataSettings, Point, RunSpec
from isotropy.experiments.tasks._task import Row, Scores, Task
from isotropy.output import Progress


@dataclass(frozen=True, kw_only=True)
class Setting:
    """All that a run works with, once it is loaded.

    Attributes:
        spec: the run.
        task: settled by its data.
        rows: those of the run.
        model: loaded, with a head for the task.
        tokenizer: its tokenizer.
        data: the settings with what the model needs filled in.
        device: where to compute.
        folder: what may be written to.
        progress: is told how far the run is.
    """

    spec: RunSpec
    task: Task
    rows: Rows
    model: Any
    tokenizer: Any
    data: DataSettings
    device: torch.device
    folder: str
    progress: Progress

    @property
    def main(self) -> list[Row]:
        """The rows of the main evaluation set."""
        return list(next(iter(self.rows.evaluations.values())))


@dataclass(kw_only=True)
class Outcome:
    """What came out; the names are those of a `RunResult`."""

    last: Scores
    best: Scores = field(default_factory=dict)
    late: Scores = field(default_factory=dict)
    tuning: Scores = field(default_factory=dict)
    measures: dict[str, float] = field(default_factory=dict)
    arrays: dict[str, list[float]] = field(default_factory=dict)
    series: list[Point] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    steps: int = 0
    epochs: float = 0.0
    train_seconds: float = 0.0


def moved(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """A batch on a device."""
    return {
        key: value.to(device) if isinstance(value, Tensor) else value
        for key, value in batch.items()
    }

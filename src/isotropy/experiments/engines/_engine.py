"""What an engine is: something that carries out runs beside the process that asks for them."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from isotropy.experiments.spec import Place, RunResult, RunSpec
from isotropy.output import Progress

Work = Callable[[RunSpec, Place, Progress], RunResult]
"""What carries out a run: `train.train`."""

TRAIN = "isotropy.experiments.train:train"
"""The usual work, as `module:name`: an engine tells other processes what to import."""


@dataclass(frozen=True)
class Progressed:
    """How far a run is: the stage, how much of it is done, and how much there is, where known."""

    run: str
    stage: str
    done: int
    total: int | None


@dataclass(frozen=True)
class Finished:
    """A run has its result."""

    run: str
    result: RunResult


@dataclass(frozen=True)
class Failed:
    """A run raised an error: a line that says which, then its traceback and last output."""

    run: str
    error: str


@dataclass(frozen=True)
class Lost:
    """A run's process or machine is gone, through no error of the run; it can be done again."""

    run: str
    reason: str


Event = Progressed | Finished | Failed | Lost


class Engine(Protocol):
    """Carries out runs; it knows nothing of the store."""

    @property
    def slots(self) -> int:
        """How many runs it can have at a time."""

    def start(self, spec: RunSpec, place: Place) -> None:
        """Begin a run; of those that it has there are fewer than slots."""

    def wait(self, seconds: float) -> list[Event]:
        """What has happened; comes back when something has, or after so many seconds.

        Each run that was started ends in exactly one of `Finished`, `Failed` and `Lost`.
        """

    def stop(self) -> None:
        """End all runs, and whatever belongs to the engine, at once."""

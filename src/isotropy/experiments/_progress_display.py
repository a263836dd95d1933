"""Shows what is running and what is left: bars on a terminal, a line a run elsewhere."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from time import monotonic
from typing import Any, Protocol

from isotropy.experiments.spec import RunSpec


class Display(Protocol):
    """Is told how a plan goes on."""

    def counts(self, *, done: int, failed: int, others: int) -> None:
        """How many of the plan's runs have ended, and how many another process is doing."""

    def began(self, spec: RunSpec) -> None:
        """A run was begun."""

    def progressed(self, run: str, stage: str, done: int, total: int | None) -> None:
        """How far a run is."""

    def ended(self, spec: RunSpec, status: str, outcome: str) -> None:
        """A run has ended: `done`, `failed` or something else, and how, in a few words."""

    def say(self, line: str) -> None:
        """Something else that the user should know."""


class Silence:
    """Shows nothing."""

    def counts(self, *, done: int, failed: int, others: int) -> None: ...
    def began(self, spec: RunSpec) -> None: ...
    def progressed(self, run: str, stage: str, done: int, total: int | None) -> None: ...
    def ended(self, spec: RunSpec, status: str, outcome: str) -> None: ...
    def say(self, line: str) -> None: ...


class _Overview:
    """How a plan stands, and when it will be done."""

    def __init__(self, total: int, slots: int) -> None:
        self.total, self.slots = total, slots
        self.done = self.failed = self.others = 0
        self._seconds: list[float] = []
        self._began: dict[str, float] = {}

    def begin(self, run: str) -> None:
        self._began[run] = monotonic()

    def end(self, run: str, status: str) -> float:
        """Count a run, and give the seconds that it took."""
        seconds = monotonic() - self._began.pop(run, monotonic())
        if status in ("done", "failed"):
            self._seconds.append(seconds)
        self.done += status == "done"
        self.failed += status == "failed"
        return seconds

    @property
    def line(self) -> str:
        left = self.total - self.done - self.failed
        parts = [f"{self.done} of {self.total} runs done"]
        if self.failed:
            parts.append(f"{self.failed} failed")
        if left:
            parts.append(f"{left} left")
        if self.others:
            parts.append(f"{self.others} of them elsewhere")
        # Where runs take longer than those before them, nothing is known.
        if left and self._seconds and (seconds := self._remaining(left)) >= 1:
            parts.append(f"about {_duration(seconds)} to go")
        return ", ".join(parts)

    def _remaining(self, left: int) -> float:
        """Seconds to go, if runs take as long as those before them."""
        each = sum(self._seconds) / len(self._seconds)
        now = monotonic()
        spent = sum(min(now - began, each) for began in self._began.values())
        return max(0.0, each * left - spent) / self.slots


class _Lines:
    """A line for each run that begins, and for each that has ended."""

    def __init__(self, total: int, slots: int) -> None:
        self._overview = _Overview(total, slots)

    def counts(self, *, done: int, failed: int, others: int) -> None:
        view = self._overview
        view.done, view.failed, view.others = done, failed, others

    def began(self, spec: RunSpec) -> None:
        self._overview.begin(spec.id)
        self.say(f"{spec.label}: begins")

    def progressed(self, run: str, stage: str, done: int, total: int | None) -> None: ...

    def ended(self, spec: RunSpec, status: str, outcome: str) -> None:
        seconds = self._overview.end(spec.id, status)
        self.say(f"{spec.label}: {outcome} in {_duration(seconds)} ({self._overview.line})")

    def say(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)  # noqa: T201  # what it is there for


class _Bars:
    """A bar for the plan, one for each run that goes on, and lines above for those that ended."""

    def __init__(self, bars: Any, total: int, slots: int) -> None:
        self._overview = _Overview(total, slots)
        self._bars = bars
        self._all = bars.add_task("", total=total)
        self._tasks: dict[str, Any] = {}
        self._labels: dict[str, str] = {}

    def counts(self, *, done: int, failed: int, others: int) -> None:
        view = self._overview
        view.done, view.failed, view.others = done, failed, others
        self._bars.update(self._all, completed=done + failed, description=view.line)

    def began(self, spec: RunSpec) -> None:
        self._overview.begin(spec.id)
        # The end of a long label, method and seed, tells runs apart; stage and bar need their room.
        label, room = spec.label, max(20, self._bars.console.width - 40)
        self._labels[spec.id] = label = label if len(label) <= room else f"…{label[1 - room :]}"
        self._tasks[spec.id] = self._bars.add_task(f"{label}: starting", total=None)

    def progressed(self, run: str, stage: str, done: int, total: int | None) -> None:
        if run in self._tasks:
            self._bars.update(
                self._tasks[run],
                description=f"{self._labels[run]}: {stage}",
                completed=done,
                total=total,
            )

    def ended(self, spec: RunSpec, status: str, outcome: str) -> None:
        seconds = self._overview.end(spec.id, status)
        if spec.id in self._tasks:
            self._bars.remove_task(self._tasks.pop(spec.id))
        self.say(f"{spec.label}: {outcome} in {_duration(seconds)}")

    def say(self, line: str) -> None:
        self._bars.console.print(line, markup=False, highlight=False)


@contextmanager
def display(total: int, slots: int, *, show: bool) -> Iterator[Display]:
    """What shows a plan's progress, on standard error.

    Args:
        total: how many runs there are.
        slots: how many can go on at a time.
        show: whether anything is shown.
    """
    if not show or sys.stderr is None:  # somebody may have closed it
        yield Silence()
        return
    if not sys.stderr.isatty():
        yield _Lines(total, slots)
        return

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    with Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bars:
        yield _Bars(bars, total, slots)


def _duration(seconds: float) -> str:
    """Seconds in words that can be read at a glance.

    Example:
        >>> _duration(3.21), _duration(75.4), _duration(7384)
        ('3.2 s', '1:15 min', '2:03 h')
    """
    if seconds < 60:
        return f"{seconds:.1f} s"
    hours, minutes, rest = str(timedelta(seconds=round(seconds % 86400))).split(":")
    days = int(seconds // 86400)
    if seconds < 3600:
        return f"{int(minutes)}:{rest} min"
    return f"{days * 24 + int(hours)}:{minutes} h"

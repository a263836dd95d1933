"""Carries out trials: has an engine do their runs and writes down what came out of them."""

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic
from typing import Any

from isotropy.experiments._search import Trials
from isotropy.experiments.engines._engine import Engine, Event, Failed, Finished, Lost
from isotropy.experiments.spec import Place, RunSpec
from isotropy.output import Progress

_LOSSES = 3  # how often a run is begun whose process dies
_LOOK = 1.0  # seconds


@dataclass
class _Tried:
    """A trial that is not over."""

    book: Trials
    trial: Any
    left: set[int]
    scores: dict[int, float | None] = field(default_factory=dict)
    reason: str = ""  # once a run has failed: then it is over


class Work:
    """One call's work on the trials of all searches.

    Args:
        books: the trials of each search.
        engine: what carries out their runs.
        place: where data are.
        end: by `monotonic`, when no further trial is begun; None for never.
        progress: is called with how many trials have ended.
    """

    def __init__(
        self,
        books: Sequence[Trials],
        engine: Engine,
        place: Place,
        end: float | None,
        progress: Progress,
    ) -> None:
        self._books = books
        self._engine = engine
        self._place = place
        self._end = end
        self._progress = progress
        self._waiting: deque[RunSpec] = deque()
        self._going: dict[str, RunSpec] = {}
        # By run: trials that chose the same at the same time share theirs.
        self._tried: dict[str, list[_Tried]] = {}
        self._losses: dict[str, int] = {}

    def to_the_end(self) -> None:
        """Work until the budget is spent."""
        self._tell()
        while self._begin():
            for event in self._engine.wait(_LOOK):
                self._hear(event)
            self._tell()

    def _begin(self) -> bool:
        """Begin what there is room for; whether there is anything to wait for."""
        while len(self._going) < self._engine.slots:
            while not self._waiting and self._next_trial():
                pass  # one whose runs are going already for another adds none
            if not self._waiting:
                break
            spec = self._waiting.popleft()
            self._going[spec.id] = spec
            self._engine.start(spec, self._place)
        return bool(self._going)

    def _next_trial(self) -> bool:
        """Choose a trial, of the search that has had fewest; whether there was one."""
        late = self._end is not None and monotonic() >= self._end
        for book in () if late else sorted(self._books, key=lambda book: book.begun):
            trial = book.next()
            if trial is None:
                continue
            specs = book.search.specs(trial.params)
            tried = _Tried(book, trial, {spec.seed for spec in specs})
            for spec in specs:
                shared = self._tried.setdefault(spec.id, [])
                if not shared:
                    self._waiting.append(spec)
                shared.append(tried)
            return True
        return False

    def _hear(self, event: Event) -> None:
        if not isinstance(event, Finished | Failed | Lost):
            return
        spec = self._going.pop(event.run)
        if isinstance(event, Lost):
            self._losses[event.run] = self._losses.get(event.run, 0) + 1
            if self._losses[event.run] < _LOSSES:
                self._waiting.appendleft(spec)
                return
        for tried in self._tried.pop(event.run):
            if isinstance(event, Finished):
                tried.scores[spec.seed] = tried.book.score(event.result)
                tried.left.discard(spec.seed)
                if tried.left or tried.reason:
                    continue
            elif not tried.reason:
                tried.reason = _line(event)
            else:
                continue
            tried.book.end(tried.trial, dict(sorted(tried.scores.items())), tried.reason)
        self._waiting = deque(spec for spec in self._waiting if self._wanted(spec))

    def _wanted(self, spec: RunSpec) -> bool:
        """Whether a trial still needs a run: after one that failed, its others need not begin."""
        if all(tried.reason for tried in self._tried[spec.id]):
            del self._tried[spec.id]
            return False
        return True

    def _tell(self) -> None:
        limits = [book.limit for book in self._books]
        known = [limit for limit in limits if limit is not None]
        total = sum(known) if len(known) == len(limits) else None
        self._progress("trials", sum(book.ended for book in self._books), total)


def _line(event: Failed | Lost) -> str:
    """Why a run has no result."""
    if isinstance(event, Lost):
        return f"lost {_LOSSES} times: {event.reason}"
    return event.error.strip().splitlines()[0]

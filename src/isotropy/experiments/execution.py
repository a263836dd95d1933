"""Carries out the runs of a plan: claims them, has an engine do them, writes what came out."""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, overload

from isotropy.errors import StoreError, unknown_name
from isotropy.experiments._only import chosen
from isotropy.experiments._owner import Owner, at_work
from isotropy.experiments._progress_display import Display, display
from isotropy.experiments._rescue import rescue
from isotropy.experiments.engines._engine import (
    Engine,
    Event,
    Failed,
    Finished,
    Lost,
    Progressed,
)
from isotropy.experiments.spec import Place, RunSpec
from isotropy.experiments.store import Store, StoredRun

if TYPE_CHECKING:
    from isotropy.experiments.plan import Plan

LOSSES = 3
"""How often a run is begun in one call before it is left: its process may die of the run itself."""
_BEAT = (
    15.0  # seconds between heartbeats, and between attempts at writing what could not be written
)
_LOOK = 1.0  # seconds between looks at what other processes are doing

_Ended = Finished | Failed | Lost


@dataclass(frozen=True)
class Runs(Sequence[StoredRun]):
    """The runs of a plan as they stand.

    Attributes:
        plan: whose they are.
        store: the file that they are in.
        records: the runs, in the plan's order.
    """

    plan: "Plan"
    store: Path
    records: tuple[StoredRun, ...]

    @overload
    def __getitem__(self, index: int) -> StoredRun: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[StoredRun]: ...
    def __getitem__(self, index: int | slice) -> StoredRun | Sequence[StoredRun]:
        return self.records[index]

    def __len__(self) -> int:
        return len(self.records)

    @property
    def failed(self) -> tuple[StoredRun, ...]:
        """Those that raised an error."""
        return tuple(run for run in self.records if run.status == "failed")

    @property
    def left(self) -> tuple[StoredRun, ...]:
        """Those that were begun too often in vain, and are for the next time."""
        return tuple(run for run in self.records if run.status not in ("done", "failed"))


def run(
    plan: "Plan | str",
    *,
    store: str | Path = "runs.db",
    engine: str | Engine = "local",
    workers: int | None = None,
    threads: int | None = None,
    only: str | None = None,
    retry_failed: bool = False,
    place: Place | None = None,
    device: str = "auto",
    address: str | None = None,
    show: bool = True,
) -> Runs:
    """Carry out the runs of a plan that are not done yet, and give all that it has.

    Whatever is stopped, by Ctrl-C or by force, goes on with the next call. Several processes with
    one store share the work. A run that raises an error is recorded as failed, the others go on.

    Args:
        plan: a plan, its name or its file.
        store: the file of runs.
        engine: `local`, `ray`, or an engine, which is stopped at the end.
        workers: how many runs at a time; as many as there are cores for, by default.
        threads: of each run; a part of what it is.
        only: which runs; `method=i-star,seed=0`, or a pattern of labels as `*mrpc*`.
        retry_failed: whether runs that failed before are done again.
        place: where data are.
        device: `auto`, `cpu` or `cuda`.
        address: of a Ray cluster.
        show: whether progress is shown on standard error.

    Raises:
        SettingError: something in the plan, or in what was asked for, makes no sense.
        StoreError: the store cannot be opened or written; what is in it is intact.
    """
    from isotropy.experiments.plan import Plan

    place = place or Place()
    whole = Plan.load(plan) if isinstance(plan, str) else plan
    every = whole.runs(place, device=device, threads=threads)
    specs = chosen(every, only)
    ids = [spec.id for spec in specs]
    with ExitStack() as stack:
        opened = stack.enter_context(Store(store))
        opened.add(every, whole, place)
        opened.adopt()
        if retry_failed:
            opened.retry(ids)
        if any(status in ("pending", "running") for status in opened.status(ids).values()):
            owner = stack.enter_context(at_work())
            used = _engine(engine, specs, workers, address)
            stack.callback(used.stop)
            shown = stack.enter_context(display(len(specs), used.slots, show=show))
            _Drive(opened, owner, used, specs, place, shown).to_the_end()
        return Runs(whole, opened.path, tuple(opened.runs(ids=ids)))


def _engine(
    engine: str | Engine, specs: Sequence[RunSpec], workers: int | None, address: str | None
) -> Engine:
    """The engine of that name, as large as the runs allow."""
    if not isinstance(engine, str):
        return engine
    threads = max(spec.threads for spec in specs)
    if engine == "local":
        from isotropy.experiments.engines.local import LocalEngine, gpu_names, worker_count

        gpus = gpu_names() if any(spec.device == "cuda" for spec in specs) else ()
        # A GPU has room for one run, as far as anyone can tell beforehand.
        if workers is None and gpus:
            workers = min(len(gpus), worker_count(None, threads))
        return LocalEngine(min(worker_count(workers, threads), len(specs)), gpus=gpus)
    if engine == "ray":
        from isotropy.experiments.engines.ray import RayEngine

        gpu = any(spec.device == "cuda" for spec in specs)
        return RayEngine(address=address, workers=workers, threads=threads, gpu=gpu)
    raise unknown_name("engine", engine, ("local", "ray"))


class _Drive:
    """One process's work on a plan."""

    def __init__(
        self,
        store: Store,
        owner: Owner,
        engine: Engine,
        specs: Sequence[RunSpec],
        place: Place,
        shown: Display,
    ) -> None:
        self._store = store
        self._owner = owner
        self._engine = engine
        self._place = place
        self._shown = shown
        self._specs = {spec.id: spec for spec in specs}
        self._todo = list(self._specs)  # without those that were lost too often
        self._going: set[str] = set()
        self._losses: dict[str, int] = {}
        # What could not be written into the store, and the files in which results wait for it.
        self._unwritten: dict[str, _Ended] = {}
        self._rescued: dict[str, Path] = {}
        self._next_look = self._next_beat = self._next_attempt = 0.0

    def to_the_end(self) -> None:
        """Work until no run is left that this process could do."""
        try:
            while self._begin():
                for event in self._engine.wait(_LOOK):
                    self._hear(event)
                self._keep_up()
        except BaseException as error:
            # Runs are ended before they are given back: no other process may begin one of them
            # while it goes on here. Where this does not come to its end, the dead process tells.
            self._engine.stop()
            with suppress(StoreError):
                self._store.release(self._owner)
            if isinstance(error, KeyboardInterrupt):
                self._shown.say("Stopped. The same command goes on with what is left.")
            raise

    def _begin(self) -> bool:
        """Begin what there is room for; whether there is anything to wait for."""
        if monotonic() < self._next_look:
            return True
        self._next_look = monotonic() + _LOOK
        standing = self._store.status(self._specs)
        states = list(standing.values())
        mine = self._going | set(self._unwritten)
        self._shown.counts(
            done=states.count("done"),
            failed=states.count("failed"),
            others=sum(standing[run] == "running" and run not in mine for run in standing),
        )
        ready = sum(standing[run] == "pending" for run in self._todo)
        while ready and len(self._going) < self._engine.slots and not self._unwritten:
            try:
                spec = self._store.claim(self._owner, self._todo)
            except StoreError:
                if not self._going:
                    raise
                break  # what goes on comes to its end first
            if spec is None:
                break
            ready -= 1
            self._going.add(spec.id)
            self._engine.start(spec, self._place)
            self._shown.began(spec)
        return bool(mine) or any(standing[run] in ("pending", "running") for run in self._todo)

    def _hear(self, event: Event) -> None:
        if isinstance(event, Progressed):
            self._shown.progressed(event.run, event.stage, event.done, event.total)
            return
        self._going.discard(event.run)
        self._next_look = 0.0  # there is room for another
        spec = self._specs[event.run]
        if isinstance(event, Lost):
            self._losses[event.run] = self._losses.get(event.run, 0) + 1
            if self._losses[event.run] >= LOSSES:
                self._todo.remove(event.run)
        try:
            mine = self._write(event)
        except StoreError as error:
            self._unwritten[event.run] = event
            self._next_attempt = monotonic() + _BEAT
            if isinstance(event, Finished):
                file = rescue(self._store.path, event.run, event.result)
                if file is not None:
                    self._rescued[event.run] = file
            self._shown.ended(spec, "unwritten", f"ended, but cannot be written: {error}")
        else:
            outcome = self._said(event)
            self._shown.ended(spec, *(outcome if mine else ("done", "ended, as elsewhere before")))

    def _write(self, event: _Ended) -> bool:
        """Write how a run ended; whether it was still this process's."""
        match event:
            case Finished(run, result):
                return self._store.finish(self._owner, run, result)
            case Failed(run, error):
                return self._store.fail(self._owner, run, error)
            case Lost(run):
                return self._store.release(self._owner, run) == 1

    def _keep_up(self) -> None:
        """What is to be done from time to time."""
        now = monotonic()
        if now >= self._next_beat:
            self._next_beat = now + _BEAT
            with suppress(StoreError):  # only other hosts look at it, and only after minutes
                self._store.heartbeat(self._owner)
        if self._unwritten and (now >= self._next_attempt or not self._going):
            self._next_attempt = now + _BEAT
            try:
                self._write_again()
            except StoreError as error:
                if not self._going:
                    raise self._kept(error) from None

    def _write_again(self) -> None:
        for run, event in list(self._unwritten.items()):
            self._write(event)
            del self._unwritten[run]
            if file := self._rescued.pop(run, None):
                file.unlink(missing_ok=True)
        self._shown.say("The store can be written again, and has all that had ended.")

    def _kept(self, error: StoreError) -> StoreError:
        """The error, with where the results are that could not be written."""
        results = [run for run, event in self._unwritten.items() if isinstance(event, Finished)]
        lost = sum(run not in self._rescued for run in results)
        message = str(error)
        if self._rescued:
            files = ", ".join(str(file) for file in self._rescued.values())
            message += f"; results are kept in {files} until the next start takes them in"
        if lost:
            message += f"; {lost} results could be kept nowhere, those runs will be done again"
        return StoreError(message)

    def _said(self, event: _Ended) -> tuple[str, str]:
        """The status of a run that has ended, and how, in a few words."""
        match event:
            case Finished(_, result):
                score = result.last.get(result.metric)
                said = "undefined" if score is None else format(score, ".4g")
                return "done", f"{result.metric} {said}"
            case Failed(_, error):
                return "failed", f"failed: {error.splitlines()[0]}"
            case Lost(run, reason):
                last = self._losses[run] >= LOSSES
                then = f"{LOSSES} times now, left for the next start" if last else "again at once"
                return "lost", f"lost: {reason.splitlines()[0]}; {then}"

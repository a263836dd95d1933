"""Runs as tasks of a Ray cluster, for those who outgrow one machine.

The packages, models and data must be on every node; the driver alone writes the store.
"""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import sleep
from typing import Any

from isotropy.errors import MissingExtraError, SettingError
from isotropy.experiments.engines import _work
from isotropy.experiments.engines._engine import TRAIN, Event, Failed, Finished, Lost, Progressed
from isotropy.experiments.spec import Place, RunSpec


@dataclass
class _Task:
    """A run on the cluster."""

    spec: RunSpec
    answer: Any


class RayEngine:
    """Tasks of a Ray cluster, each with the processors and the GPU that its run needs.

    Args:
        address: of the cluster, as `auto` or `ray://host:10001`; None to start one on this machine.
        workers: how many runs at a time; None for as many as the cluster has room for.
        threads: of a run.
        gpu: whether runs need a GPU, one each.
        work: what carries out a run, as `module:name`.

    Raises:
        MissingExtraError: Ray is not installed.
        SettingError: there is no cluster at the address, or it has no room for a run.
    """

    def __init__(
        self,
        *,
        address: str | None = None,
        workers: int | None = None,
        threads: int = 1,
        gpu: bool = False,
        work: str = TRAIN,
    ) -> None:
        try:
            import ray
        except ImportError:
            raise MissingExtraError("ray", "ray") from None
        if workers is not None and workers < 1:
            raise SettingError(f"got workers={workers}, expected 1 or more")
        self._ray: Any = ray
        self._workers = workers
        self._threads, self._gpu = threads, gpu
        self._work = work
        self._tasks: dict[str, _Task] = {}
        self._ours = not ray.is_initialized()
        if self._ours:
            with _held_back():
                _connect(ray, address)
        # A fresh process for each run, as on one machine; a lost run is begun again by its driver.
        self._carry_out = ray.remote(max_calls=1, max_retries=0)(_carry_out)
        self._board: Any = ray.remote(num_cpus=0, max_restarts=-1)(_Board).remote()
        if self.slots < 1:
            have = self._ray.cluster_resources()
            cores, gpus = int(have.get("CPU", 0)), int(have.get("GPU", 0))
            self.stop()
            needs = f"{threads} threads" + (" and a GPU each" if gpu else "")
            raise SettingError(
                f"got runs of {needs} for a cluster of {cores} cores and {gpus} GPUs, expected "
                "room for one; give fewer --threads" + (", or --device cpu" if gpu else "")
            )

    @property
    def slots(self) -> int:
        """How many runs the cluster has room for; it may grow or shrink."""
        have = self._ray.cluster_resources()
        fit = int(have.get("CPU", 0)) // self._threads
        if self._gpu:
            fit = min(fit, int(have.get("GPU", 0)))
        return fit if self._workers is None else min(self._workers, fit)

    def start(self, spec: RunSpec, place: Place) -> None:
        """Send a run to the cluster."""
        needs = {"num_cpus": spec.threads, "num_gpus": int(spec.device == "cuda")}
        task = self._carry_out.options(**needs, name=spec.label)
        answer = task.remote(self._work, spec, place, self._board)
        self._tasks[spec.id] = _Task(spec, answer)

    def wait(self, seconds: float) -> list[Event]:
        """What has happened; comes back when something has, or after so many seconds."""
        if not self._tasks:
            sleep(seconds)
            return []
        answers = {task.answer: task.spec for task in self._tasks.values()}
        ready, _ = self._ray.wait(list(answers), num_returns=1, timeout=seconds)
        events: list[Event] = self._heard()
        for answer in ready:
            spec = answers[answer]
            del self._tasks[spec.id]
            events.append(self._end(spec, answer))
        return events

    def stop(self) -> None:
        """End all runs, and the cluster where it was started here."""
        if not self._ray.is_initialized():
            return
        for task in self._tasks.values():
            self._ray.cancel(task.answer, force=True)
        self._tasks.clear()
        self._ray.kill(self._board)
        if self._ours:
            self._ray.shutdown()

    def _end(self, spec: RunSpec, answer: Any) -> Event:
        from ray.exceptions import RayError, RayTaskError

        try:
            told: Finished | Failed = self._ray.get(answer)
        except RayTaskError as error:  # not the run, which catches its own: its import, or the way
            return Failed(spec.id, _work.described(error))
        except RayError as error:  # its process, its machine, its memory
            return Lost(spec.id, " ".join(str(error).split()))
        return told

    def _heard(self) -> list[Event]:
        """How far the runs are, where that can be had at once."""
        from ray.exceptions import RayError

        try:
            told: list[Progressed] = self._ray.get(self._board.read.remote(), timeout=1.0)
        except RayError:  # only for looking at; it starts again by itself
            return []
        return [event for event in told if event.run in self._tasks]


class _Board:
    """An actor on which runs write how far they are."""

    def __init__(self) -> None:
        self._last: dict[str, Progressed] = {}

    def write(self, event: Progressed) -> None:
        self._last[event.run] = event

    def read(self) -> list[Progressed]:
        told, self._last = list(self._last.values()), {}
        return told


def _carry_out(work: str, spec: RunSpec, place: Place, board: Any) -> Finished | Failed:
    """The task."""

    def tell(stage: str, done: int, total: int | None) -> None:
        board.write.remote(Progressed(spec.id, stage, done, total))

    return _work.carry_out(work, spec, place, tell)


@contextmanager
def _held_back() -> Iterator[None]:
    """Let a first Ctrl-C wait for the end of the block; a second one does not.

    Ray forks its processes with Python's hooks, in which an interruption is printed and forgotten.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # interruptions are the main thread's
        return
    told: list[int] = []

    def hear(number: int, frame: Any) -> None:
        if told:
            raise KeyboardInterrupt
        told.append(number)

    before = signal.signal(signal.SIGINT, hear)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
    if told:
        raise KeyboardInterrupt


def _connect(ray: Any, address: str | None) -> None:
    quiet = {"log_to_driver": False, "logging_level": "error"}
    if address is not None:
        try:
            ray.init(address=address, **quiet)
        except (ConnectionError, ValueError, RuntimeError) as error:
            told = " ".join(str(error).split())
            raise SettingError(
                f"got --address {address!r}, where no Ray cluster answers ({told}), expected one "
                "that `ray start --head` has started"
            ) from None
        return
    from isotropy.experiments.engines.local import cores

    ray.init(address="local", num_cpus=cores(), include_dashboard=False, **quiet)

"""Runs in processes of this machine, a fresh one each, forked from a server that has imported all.

Cores are never oversubscribed: workers × threads of a run is at most the cores there are.
"""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, Pipe, wait as wait_for
from pathlib import Path
from time import monotonic, sleep

from isotropy.errors import SettingError
from isotropy.experiments._owner import is_dead, this_process
from isotropy.experiments.engines._engine import TRAIN, Event, Failed, Finished, Lost, Progressed
from isotropy.experiments.engines._fork_server import BEGUN, READY, RECORD
from isotropy.experiments.engines._work import last_words, require, with_output
from isotropy.experiments.spec import Place, RunSpec

_FOLDERS = "isotropy-runs-"  # of an engine, among the temporary files
_DRIVER = "driver.json"  # in it: whose it is
_GRACE = 5.0  # seconds for a process to be gone, or for word of how it ended


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def worker_count(workers: int | None, threads: int) -> int:
    """How many runs fit on this machine at a time.

    Args:
        workers: how many are wanted; None for as many as fit.
        threads: of a run.

    Raises:
        SettingError: less than one, or more than fit; a run of more threads than cores.

    Example:
        >>> worker_count(None, threads=cores())
        1
    """
    if threads > cores():
        raise SettingError(
            f"got threads={threads} on {cores()} cores, expected at most {cores()}: threads that "
            "share a core take several times as long; give fewer"
        )
    fit = max(1, cores() // threads)
    if workers is None:
        return fit
    if workers < 1:
        raise SettingError(f"got workers={workers}, expected 1 or more")
    if workers > fit:
        raise SettingError(
            f"got workers={workers} of {threads} threads each on {cores()} cores, expected at most "
            f"{fit}: runs that share a core take several times as long; give fewer"
        )
    return workers


def gpu_names() -> tuple[str, ...]:
    """The CUDA devices that this process may use, as `CUDA_VISIBLE_DEVICES` names them."""
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is not None:
        return tuple(visible.split(","))[: torch.cuda.device_count()]
    return tuple(str(number) for number in range(torch.cuda.device_count()))


@dataclass
class _Child:
    """A run's process."""

    spec: RunSpec
    connection: Connection
    folder: Path
    gpu: str | None
    pid: int | None = None

    @property
    def log(self) -> Path:
        return self.folder / "output.log"


class LocalEngine:
    """Processes of this machine.

    Args:
        workers: how many runs at a time.
        work: what carries out a run, as `module:name`.
        gpus: the CUDA devices, as `CUDA_VISIBLE_DEVICES` names them, of which each run sees one.

    Raises:
        MissingExtraError: what every run needs is not installed.
    """

    def __init__(self, workers: int, *, work: str = TRAIN, gpus: Sequence[str] = ()) -> None:
        require(work)
        self._workers = workers
        self._gpus = tuple(gpus)
        self._work = work
        self._children: dict[str, _Child] = {}
        _remove_left()
        self._folder = _folder(_FOLDERS)
        (self._folder / _DRIVER).write_text(json.dumps(this_process()), encoding="utf-8")
        self._server = _Server(work, self._folder)

    @property
    def slots(self) -> int:
        """How many runs it can have at a time."""
        return self._workers

    @property
    def server_pid(self) -> int:
        """The process from which runs are forked."""
        return self._server.pid

    def start(self, spec: RunSpec, place: Place) -> None:
        """Begin a run in a fresh process."""
        folder = _folder(f"{spec.id}-", self._folder)
        used = [child.gpu for child in self._children.values()]
        gpu = min(self._gpus, key=used.count, default=None)
        child = _Child(spec, self._fork(), folder, gpu)
        # Whatever a run leaves is removed with its folder, also where it was killed.
        scratch = place if place.scratch else replace(place, scratch=str(folder))
        self._children[spec.id] = child
        with suppress(OSError):  # it is dead already: `wait` will say so
            child.connection.send((spec, scratch, str(child.log), gpu))

    def wait(self, seconds: float) -> list[Event]:
        """What has happened; comes back when something has, or after so many seconds."""
        connections = {child.connection: child for child in self._children.values()}
        channels = [] if self._server.ended else [self._server.channel]
        ready = wait_for([*connections, *channels], seconds)
        if self._server.channel in ready:
            self._server.read()
        heard = [
            child
            for connection, child in connections.items()
            if connection in ready or self._server.saw_end(child.pid)
        ]
        return [event for child in heard for event in self._heard(child)]

    def stop(self) -> None:
        """End all runs and the server, and remove what they left."""
        for child in self._children.values():
            with suppress(EOFError, OSError):
                if child.pid is None and child.connection.poll():
                    child.pid = child.connection.recv()
            child.connection.close()  # ends it
        for child in self._children.values():
            _await_end(child.pid)
        self._children.clear()
        self._server.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _fork(self) -> Connection:
        """The driver's end of a connection with a new process."""
        if self._server.dead:  # killed: the runs that it had started go on without it
            self._server.stop()
            self._server = _Server(self._work, self._folder)
        ours, theirs = Pipe()
        with theirs:
            self._server.fork(theirs.fileno())
        return ours

    def _heard(self, child: _Child) -> Iterator[Event]:
        """All that a run has said, up to now or to its end."""
        try:
            while child.connection.poll():
                told = child.connection.recv()
                if isinstance(told, int):
                    child.pid = told
                elif isinstance(told, Progressed):
                    yield told
                else:
                    yield self._end(child, told)
                    return
        except (EOFError, OSError):
            yield self._end(child, None)
            return
        if child.pid is not None and self._server.saw_end(child.pid):
            # It died, and what it had started keeps the connection open.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child.pid, signal.SIGKILL)
            yield self._end(child, None)

    def _end(self, child: _Child, told: Finished | Failed | None) -> Event:
        """The last event of a run; its process is gone then, with all that it had started."""
        child.connection.close()
        _await_end(child.pid)
        event: Event
        if isinstance(told, Failed):
            event = replace(told, error=with_output(told.error, child.log))
        elif told is None:
            event = Lost(child.spec.id, self._how_it_died(child))
        else:
            event = told
        del self._children[child.spec.id]
        shutil.rmtree(child.folder, ignore_errors=True)
        return event

    def _how_it_died(self, child: _Child) -> str:
        code = self._server.exit_code(child.pid)
        if code is None:
            how = "its process ended"
        elif code == -signal.SIGKILL:
            how = "its process was killed (SIGKILL: by somebody, or for want of memory)"
        elif code < 0:
            how = f"its process was killed ({signal.Signals(-code).name})"
        else:
            how = f"its process ended with code {code}"
        return with_output(how, child.log)


class _Server:
    """The process that forks the runs, as the driver sees it."""

    def __init__(self, work: str, folder: Path) -> None:
        self._log = folder / "server.log"
        self.channel, theirs = socket.socketpair()
        code = (
            f"import sys; sys.path[:] = {json.dumps(sys.path)}; "
            "from isotropy.experiments.engines._fork_server import main; main()"
        )
        settings = {
            # One thread to begin with: no pool is there when a run is forked, and each run makes as
            # many as its spec says.
            **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
            # CUDA does not survive a fork: asking for devices while importing must not start it.
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
        }
        with theirs, self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-c", code, str(theirs.fileno()), work],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for the driver
                env={**os.environ, **settings},
            )
        self._codes: dict[int, int] = {}
        self._ready = False
        self.ended = False

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def dead(self) -> bool:
        return self.ended or self._process.poll() is not None

    def fork(self, file: int) -> None:
        """Ask for a process that has this end of a connection; it may take until all is imported.

        If the server has died meanwhile, the connection's other end tells so.
        """
        with suppress(OSError):
            socket.send_fds(self.channel, [b"f"], [file])

    def read(self) -> None:
        """Hear which processes have ended."""
        told = b""
        with suppress(OSError):
            told = self.channel.recv(RECORD.size * 512)
            while len(told) % RECORD.size:
                told += self.channel.recv(RECORD.size - len(told) % RECORD.size)
        for record in RECORD.iter_unpack(told):
            if record == READY:
                self._ready = True
            elif record[1] == BEGUN:  # a number that an earlier process may have had
                self._codes.pop(record[0], None)
            else:
                self._codes[record[0]] = record[1]
        if not told:
            self.ended = True
            code = self._process.wait()
            if not self._ready and code > 0:
                # It was not killed: no other would fare better.
                raise RuntimeError(f"the worker's imports failed:\n{last_words(self._log)}")

    def saw_end(self, pid: int | None) -> bool:
        """Whether it has told that a process has ended."""
        return pid in self._codes

    def exit_code(self, pid: int | None) -> int | None:
        """How a process ended, once it has; None if nobody knows."""
        end = monotonic() + _GRACE
        while pid is not None and pid not in self._codes and not self.ended:
            left = end - monotonic()
            if left <= 0 or not wait_for([self.channel], left):
                break
            self.read()
        return self._codes.pop(pid, None) if pid is not None else None

    def stop(self) -> None:
        self.channel.close()
        self._process.kill()
        self._process.wait()


def _remove_left() -> None:
    """Remove the folders of engines whose driver was killed: checkpoints are large."""
    for folder in Path(tempfile.gettempdir()).glob(f"{_FOLDERS}*"):
        with suppress(OSError, ValueError):  # not ours, or being made or removed just now
            if folder.stat().st_uid == os.getuid():
                driver = json.loads((folder / _DRIVER).read_text(encoding="utf-8"))
                if is_dead(*driver):
                    shutil.rmtree(folder, ignore_errors=True)


def _folder(name: str, place: Path | None = None) -> Path:
    try:
        return Path(tempfile.mkdtemp(prefix=name, dir=place))
    except OSError as error:
        raise SettingError(
            f"got temporary folder {tempfile.gettempdir()!r}, which cannot be written "
            f"({error.strerror}), expected room for a run's files; set TMPDIR to another"
        ) from None


def _await_end(pid: int | None) -> None:
    """Wait until a process and its group are gone; end them where they do not go by themselves."""
    end = monotonic() + _GRACE
    with suppress(
        ProcessLookupError, PermissionError
    ):  # PermissionError: macOS says so of the dead
        while pid is not None and monotonic() < end:
            os.killpg(pid, 0)
            sleep(0.005)
        if pid is not None:
            os.killpg(pid, signal.SIGKILL)

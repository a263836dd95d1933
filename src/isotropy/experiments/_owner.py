"""Who does a run: a process, and whether it still lives."""

import os
import socket
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SILENCE = 120.0
"""Seconds without a heartbeat after which a process of another host is held for dead."""


@dataclass(frozen=True)
class Owner:
    """A process that does runs, in one call of `run`.

    Attributes:
        id: unlike that of any other, also of the same process.
        host: within which the process's number has a meaning.
        pid: its number.
        started: when it started; numbers are used again.
    """

    id: str
    host: str
    pid: int
    started: str

    def lives(self, silence: float) -> bool:
        """Whether it is still at work.

        Args:
            silence: seconds since its last heartbeat.
        """
        if self.host != _host():
            return silence <= SILENCE
        if self.pid == os.getpid():
            # This very process: the call may be over while the process lives on, as a notebook's.
            return self.id in _AT_WORK
        return not is_dead(self.host, self.pid, self.started)


def this_process() -> tuple[str, int, str]:
    """The host, number and start of this process: what tells it apart from all others."""
    return _host(), os.getpid(), _start_of(os.getpid()) or ""


def is_dead(host: str, pid: int, started: str) -> bool:
    """Whether a process is known to be dead; of those of other hosts nothing is known."""
    return host == _host() and started != _start_of(pid)


_AT_WORK: set[str] = set()


@contextmanager
def at_work() -> Iterator[Owner]:
    """This process as an owner, until the end of the block."""
    owner = Owner(uuid.uuid4().hex, *this_process())
    _AT_WORK.add(owner.id)
    try:
        yield owner
    finally:
        _AT_WORK.discard(owner.id)


def _host() -> str:
    """The machine's name, and of a container also which processes it sees."""
    try:
        return f"{socket.gethostname()} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def _start_of(pid: int) -> str | None:
    """When a process started; None if there is none, or only what a dead one leaves."""
    if sys.platform == "linux":
        try:
            # The name, in brackets, may hold anything.
            told = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        except OSError:
            return None
        state, start = told[0], told[19]
        return None if state in "ZX" else f"{boot} {start}"  # Z: dead, and nobody asked how it died
    command = ["ps", "-o", "stat=,lstart=", "-p", str(pid)]
    environment = {**os.environ, "LC_ALL": "C"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    state, _, start = done.stdout.strip().partition(" ")
    return None if not start or state.startswith("Z") else start.strip()

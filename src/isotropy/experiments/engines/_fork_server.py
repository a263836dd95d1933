"""The process from which the local engine's runs are forked.

It has imported all that a run needs and does nothing else: it has no threads of its own, no open
file of the driver, and no state that a run could change for the next one. A run so starts in
milliseconds, in a process that is as good as fresh.

The driver talks to it over a socket. It sends a byte with a file, the new process's end of a
connection, for each process that it wants, and is told (-1, 0) when all is imported, (pid, BEGUN)
of each process and (pid, exit code) when it has ended. At the socket's end, when the driver is
gone, the server ends. The runs know by themselves: their connections end too.

`multiprocessing`'s own fork server would import the driver's main script again in each child, and
there is one for the whole process, which others may have started with other imports.
"""

import os
import selectors
import signal
import socket
import struct
import sys
import threading
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NoReturn

from isotropy.experiments.engines import _work
from isotropy.experiments.engines._engine import Progressed

RECORD = struct.Struct("ii")
READY = (-1, 0)
BEGUN = 1000  # no exit code


def serve(channel: socket.socket, work: str) -> None:
    """Import what the work needs, then fork whenever the driver asks for it."""
    _work.preload(work)
    # A process that ends wakes the loop up through this pipe.
    ended, wake = os.pipe()
    for end in (ended, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(wake)
    channel.sendall(RECORD.pack(*READY))
    with selectors.DefaultSelector() as selector:
        selector.register(channel, selectors.EVENT_READ)
        selector.register(ended, selectors.EVENT_READ)
        while True:
            ready = {key.fileobj for key, _ in selector.select()}
            if ended in ready:
                os.read(ended, 1 << 12)
                for record in _ended():
                    channel.sendall(RECORD.pack(*record))
            if channel in ready:
                asked, files, _, _ = socket.recv_fds(channel, 1, 1)
                if not asked:
                    return
                pid = os.fork()
                if pid == 0:
                    signal.set_wakeup_fd(-1)
                    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                    for file in (channel.fileno(), ended, wake, selector.fileno()):
                        os.close(file)
                    _be_a_run(files[0], work)
                os.close(files[0])
                channel.sendall(RECORD.pack(pid, BEGUN))


def _ended() -> list[tuple[int, int]]:
    """The processes that have ended, with their exit codes."""
    found = []
    with suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                break
            found.append((pid, os.waitstatus_to_exitcode(status)))
    return found


def _be_a_run(file: int, work: str) -> NoReturn:
    """All that a forked process does. It never returns into the server's code."""
    try:
        os.setsid()  # Ctrl-C is for the driver, which decides what becomes of its runs
        driver = Connection(file)
        driver.send(os.getpid())
        spec, place, log, gpu = driver.recv()
        _print_to(log)
        if gpu is not None:
            os.environ["CUDA_VISIBLE_DEVICES"] = gpu
        threading.Thread(target=_end_with, args=[driver], daemon=True).start()

        def tell(stage: str, done: int, total: int | None) -> None:
            driver.send(Progressed(spec.id, stage, done, total))

        driver.send(_work.carry_out(work, spec, place, tell))
    except (OSError, EOFError):  # the driver is gone: so is the need for a result
        os._exit(1)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        os._exit(1)
    finally:
        with suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        # Not through the interpreter's end, which would run what the server has registered.
        os._exit(0)


def _print_to(log: str) -> None:
    """Let whatever the run prints, also from C, go to a file."""
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.close(file)


def _end_with(driver: Connection) -> None:
    """End this process and all that it has started when the driver closes the connection."""
    with suppress(EOFError, OSError):
        driver.recv_bytes()
    os.killpg(0, signal.SIGKILL)


def main() -> None:
    """Serve on the socket whose number is the first argument the work that is the second."""
    channel = socket.socket(fileno=int(sys.argv[1]))
    serve(channel, sys.argv[2])

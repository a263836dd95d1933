"""The file of searches: Optuna's journal, a line for each thing that happens.

One process at a time has it: trials that seem to be running are then those of a dead one, and a
line that was not written to its end can be taken away.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from isotropy.errors import MissingExtraError, StoreError


@contextmanager
def opened(path: Path) -> Iterator[Any]:
    """Optuna's storage in a file, which is made if it is not there.

    Raises:
        StoreError: it cannot be written, holds something else, or another process has it.
    """
    try:
        import optuna
    except ImportError:
        raise MissingExtraError("optuna", "train") from None
    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with _alone(path):
            _mend(path)
            yield _storage(path)
    finally:
        optuna.logging.set_verbosity(before)


def _storage(path: Path) -> Any:
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend, JournalFileOpenLock

    class Held(JournalFileOpenLock):
        """The lock that this process holds for as long as it has the file."""

        def acquire(self) -> bool:
            return True

        def release(self) -> None:
            pass

    class Journal(JournalFileBackend):
        def append_logs(self, logs: list[dict[str, Any]]) -> None:
            with _writing(path):
                super().append_logs(logs)

    with _writing(path):
        return JournalStorage(Journal(str(path), lock_obj=Held(str(path))))


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"got store {str(path)!r}, which cannot be written ({error.strerror}), expected a file "
            "that may be written, on a disk with room; the same call goes on"
        ) from error


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Hold the lock beside the file, which its process's end gives free."""
    try:
        import fcntl
    except ImportError:  # on Windows nothing tells two processes apart
        yield
        return
    with _writing(path):
        lock = Path(f"{path}.lock").open("w")  # noqa: SIM115 - closed below, whatever happens
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise StoreError(
                f"got store {str(path)!r}, in which another process is searching, expected one "
                "for each; wait for it, or give another --store"
            ) from None
        yield


def _mend(path: Path) -> None:
    """See that a file that is there is one of searches, and end it with a whole line.

    Raises:
        StoreError: it is something else, which is left as it is.
    """
    if not path.exists():
        return
    first = None
    with suppress(OSError, ValueError), path.open("rb") as file:
        first = json.loads(file.readline() or b'{"op_code": 0}')
    if not (isinstance(first, dict) and "op_code" in first):
        raise StoreError(
            f"got store {str(path)!r}, which is no file of searches, expected one that `isotropy "
            "tune` has written, or a new name"
        )
    with _writing(path), path.open("rb+") as file:
        content = file.read()
        file.truncate(content.rfind(b"\n") + 1)

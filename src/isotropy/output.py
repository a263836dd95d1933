"""Files and progress bars of long commands."""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from isotropy.errors import SettingError

Progress = Callable[[str, int, int | None], None]
"""Called with a stage's name, how much of it is done and how much there is, where known."""


@contextmanager
def reserved(
    path: str | None, *, source: str | Path | None = None
) -> Iterator[Callable[[str], None]]:
    """A function that writes a text file, all of it or nothing, at a place that is tried at once.

    A long computation can so fail before it starts and not when its result is to be written. The
    text first goes to a file beside the target, which then takes the target's name. Without a path
    the function does nothing.

    Args:
        path: of the file, which is replaced if it exists.
        source: what is read, which is never replaced: a file, or a folder with all that is in it.

    Raises:
        SettingError: nothing can be written there.
    """
    if path is None:
        yield lambda text: None
        return
    if source is not None and _is_in(path, source):
        raise SettingError(
            f"got output file {path!r}, which is the source or would be among its files, expected "
            "another name or folder"
        )
    with _clear_error(path):
        target = Path(path).resolve()  # of a link, the file that it names is replaced
        if target.is_dir():
            raise IsADirectoryError(0, "it is a folder")
        # A device or a pipe must not be replaced by a file: it is written to, and tried no further.
        special = target.exists() and not target.is_file()
        part = target
        if not special:
            part = target.with_name(f".{target.name[:100]}.{os.getpid()}.part")
            part.touch(exist_ok=False)

    def write(text: str) -> None:
        with _clear_error(path):
            part.write_text(text, encoding="utf-8")
            if not special:
                part.replace(target)

    try:
        yield write
    finally:
        if not special:
            part.unlink(missing_ok=True)


def _is_in(path: str, source: str | Path) -> bool:
    """Whether a file is the source itself, or in the folder that the source is."""
    try:
        file, place = Path(path).resolve(), Path(source).resolve()
        return file == place or (place.is_dir() and place in file.parents)
    except (OSError, ValueError):  # neither names a file: then nothing is replaced
        return False


@contextmanager
def _clear_error(path: str) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:  # ValueError: a name with a zero byte
        reason = getattr(error, "strerror", None) or error
        raise SettingError(
            f"got output file {path!r}, which cannot be written ({reason}); "
            "expected a file name in a folder that exists and allows it"
        ) from None


@contextmanager
def progress_bars(*, show: bool = True) -> Iterator[Progress]:
    """Progress bars on standard error, one a stage, if somebody is looking at it; else nothing."""
    import sys

    if not (show and sys.stderr is not None and sys.stderr.isatty()):
        yield lambda stage, done, total: None
        return

    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress as Bars,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    with Bars(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
        console=Console(stderr=True),
        transient=True,
    ) as bars:
        tasks = {}

        def update(stage: str, done: int, total: int | None) -> None:
            if stage not in tasks:
                tasks[stage] = bars.add_task(stage, total=total)
            bars.update(tasks[stage], completed=done, total=total)

        yield update

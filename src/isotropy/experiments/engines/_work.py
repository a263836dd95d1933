"""What a worker's process does with one run."""

import sys
import traceback
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from time import monotonic
from typing import Any

from isotropy.errors import IsotropyError, MissingExtraError
from isotropy.experiments.engines._engine import Failed, Finished, Work
from isotropy.experiments.spec import Place, RunSpec
from isotropy.output import Progress

_PAUSE = 0.1  # seconds between two words on the progress of a stage
_TAIL = 4000  # characters of a run's output that are kept with its error


def find_work(name: str) -> Work:
    """The function that `module:name` names."""
    module, _, function = name.partition(":")
    found: Work = getattr(import_module(module), function)
    return found


def carry_out(name: str, spec: RunSpec, place: Place, progress: Progress) -> Finished | Failed:
    """Do a run; whatever it raises is the answer.

    Args:
        name: the work, as `module:name`.
        spec: the run.
        place: where its data are.
        progress: called a few times a second at most.
    """
    try:
        result = find_work(name)(spec, place, seldom(progress))
        result.model_dump_json()  # where it cannot be stored, that is the run's error
        return Finished(spec.id, result)
    except (Exception, SystemExit) as error:
        return Failed(spec.id, described(error))


def described(error: BaseException) -> str:
    """An error as it is stored: a line, and the traceback where it is not the user's to mend."""
    line = " ".join(traceback.format_exception_only(error)[-1].split())
    if isinstance(error, IsotropyError):
        line = str(error)
    return f"{line}\n\n{''.join(traceback.format_exception(error)).rstrip()}"


def with_output(error: str, log: Path) -> str:
    """An error with the end of what its run printed."""
    tail = last_words(log)
    return f"{error}\n\nIts last output:\n{tail}" if tail else error


def last_words(log: Path) -> str:
    """The end of a log."""
    try:
        with log.open("rb") as opened:
            size = opened.seek(0, 2)
            opened.seek(max(0, size - _TAIL))
            text = opened.read().decode(errors="replace")
    except OSError:
        return ""
    # A progress bar writes over its line: only the last state of it is of use.
    lines = [line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n")]
    return "\n".join(lines).strip()


def seldom(progress: Progress) -> Progress:
    """Progress that is told at once at a stage's begin and end, else a few times a second."""
    last: list[Any] = ["", 0.0]

    def tell(stage: str, done: int, total: int | None) -> None:
        now = monotonic()
        if stage != last[0] or done == total or now - last[1] >= _PAUSE:
            last[:] = stage, now
            progress(stage, done, total)

    return tell


def require(name: str) -> None:
    """Look for the packages that every run needs, without importing them.

    Raises:
        MissingExtraError: one is missing.
    """
    if name.startswith("isotropy."):
        for package in ("transformers", "accelerate"):
            if find_spec(package) is None:
                raise MissingExtraError(package, "train")


def preload(name: str) -> None:
    """Import what every run needs: a process that is forked afterwards has it."""
    find_work(name)
    if name.startswith("isotropy."):
        import transformers.models.auto.modeling_auto
        import transformers.models.auto.tokenization_auto
        import transformers.trainer

        import isotropy.integrations.huggingface

        del transformers, isotropy
    sys.stdout.flush()

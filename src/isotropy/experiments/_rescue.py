"""Results that could not be written into the store, kept as files until they can."""

import hashlib
import json
import os
import tempfile
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from isotropy.experiments.spec import RunResult


def rescue(store: Path, run: str, result: RunResult) -> Path | None:
    """Write a result beside the store or, where that cannot be, among the temporary files.

    Returns:
        The file, or None if there is room nowhere.
    """
    text = json.dumps({"store": str(store.resolve()), "run": run, "result": result.model_dump()})
    for folder in _folders(store):
        file = folder / f"{_prefix(store)}-{run}.json"
        part = file.with_suffix(".part")
        try:
            part.write_text(text, encoding="utf-8")
            part.replace(file)
        except OSError:
            with suppress(OSError):
                part.unlink(missing_ok=True)
            continue
        return file
    return None


def rescued(store: Path) -> Iterator[tuple[Path, str, RunResult]]:
    """The files that `rescue` wrote for a store, with the runs' ids and results."""
    for folder in _folders(store):
        for file in sorted(folder.glob(f"{_prefix(store)}-*.json")):
            found = _read(file)
            if found is not None and found["store"] == str(store.resolve()):
                yield file, found["run"], RunResult.read(found["result"], where=str(file))


def _read(file: Path) -> dict[str, Any] | None:
    """What is in it; None if it is not ours or not whole: temporary files are everybody's."""
    try:
        with file.open(encoding="utf-8") as opened:
            if hasattr(os, "getuid") and os.fstat(opened.fileno()).st_uid != os.getuid():
                return None
            found = json.load(opened)
    except (OSError, ValueError):
        return None
    return found if isinstance(found, dict) and {"store", "run", "result"} <= found.keys() else None


def _folders(store: Path) -> tuple[Path, ...]:
    return store.resolve().parent, Path(tempfile.gettempdir())


def _prefix(store: Path) -> str:
    """Names the store: the temporary files of all stores lie in one folder."""
    return f"isotropy-rescued-{hashlib.sha256(str(store.resolve()).encode()).hexdigest()[:12]}"

"""Carries out a plan, and is killed where its test wants it.

    drive.py FOLDER RUNS SECONDS [PATTERN COUNT]        so many fake runs, each about so long
    drive.py FOLDER plan.toml - [PATTERN COUNT]         training

The process kills itself when the COUNT-th statement that starts with PATTERN is about to be begun
in the store. PATTERN `after:...` is the statement after such a one.
"""

import os
import random
import signal
import sqlite3
import sys
from pathlib import Path
from typing import Any

from fakes import WORK, FakePlan, fake_spec

from isotropy.experiments import execution
from isotropy.experiments.engines.local import LocalEngine, cores
from isotropy.experiments.spec import Place


def specs(runs: int, seconds: float) -> list[Any]:
    generator = random.Random(runs)
    return [fake_spec(n, seconds=seconds * generator.uniform(0.5, 1.5)) for n in range(runs)]


def kill_at(pattern: str, count: int) -> None:
    """Let SQLite's trace, which is called before a statement is executed, be the end."""
    after = pattern.startswith("after:")
    wanted, seen, armed = pattern.removeprefix("after:"), 0, False
    connect = sqlite3.connect

    def trace(statement: str) -> None:
        nonlocal seen, armed
        if armed:
            os.kill(os.getpid(), signal.SIGKILL)
        if " ".join(statement.split()).startswith(wanted):
            seen += 1
            if seen == count:
                armed = True
                if not after:
                    os.kill(os.getpid(), signal.SIGKILL)

    def traced(*given: Any, **named: Any) -> sqlite3.Connection:
        connection = connect(*given, **named)
        connection.set_trace_callback(trace)
        return connection

    sqlite3.connect = traced  # type: ignore[assignment]


if __name__ == "__main__":
    folder, what, seconds, *fault = sys.argv[1:]
    if fault:
        kill_at(fault[0], int(fault[1]))
    if what.endswith(".toml"):
        execution.run(
            what,
            store=Path(folder) / "runs.db",
            workers=min(2, cores()),
            place=Place(files={"train": str(Path(folder) / "train.csv")}),
        )
    else:
        execution.run(
            FakePlan(specs(int(what), float(seconds))),  # type: ignore[arg-type]
            store=Path(folder) / "runs.db",
            engine=LocalEngine(2, work=WORK),
            place=Place(data_dir=folder),
        )

"""Work in place of training, for the tests of the store and the engines.

What a run does is in its data options. Each begin and end is a line of the journal, a file in the
place's data folder, so that a test can see what was carried out, how often and by whom.
"""

import os
import random
import signal
import sys
import time
from pathlib import Path
from typing import Any

from isotropy.experiments.spec import DataSettings, Place, Point, RunResult, RunSpec
from isotropy.output import Progress

WORK = "fakes:work"


def fake_spec(seed: int = 0, **options: Any) -> RunSpec:
    return RunSpec(model="fake", task="none", seed=seed, data=DataSettings(options=options))


class FakePlan:
    """A plan of runs that are given."""

    def __init__(self, specs: list[RunSpec], name: str = "fake") -> None:
        self.name, self.text, self.report = name, f'name = "{name}"', {"score": "last"}
        self.specs = specs

    def runs(
        self, place: Place, *, device: str = "auto", threads: int | None = None
    ) -> list[RunSpec]:
        return self.specs


def fake_score(spec: RunSpec) -> float:
    return (spec.seed * 0.6180339887498949) % 1


def work(spec: RunSpec, place: Place, progress: Progress) -> RunResult:
    options = spec.data.options
    write(place, "begin", spec)
    steps = int(options.get("steps", 2))
    for step in range(steps):
        progress("working", step, steps)
        time.sleep(float(options.get("seconds", 0)) / steps)
    if wanted := options.get("wait_for"):
        while not Path(wanted).exists():
            time.sleep(0.005)
    if said := options.get("say"):
        sys.stdout.write(f"{said}\n")
        os.system(f"echo {said} from a child >&2")
    if message := options.get("raise"):
        raise ValueError(message)
    if options.get("exit"):
        sys.exit(3)
    if options.get("die") == "always" or (options.get("die") and _is_first_time(place, spec)):
        os.kill(os.getpid(), signal.SIGKILL)
    if options.get("leave"):  # a file and a process
        assert place.scratch is not None
        Path(place.scratch, "left").touch()
        child = os.fork()
        if child == 0:
            time.sleep(600)
        write(place, "child", spec, child)
        if options["leave"] == "and die":
            os.kill(os.getpid(), signal.SIGKILL)
    if options.get("nothing"):
        return None  # type: ignore[return-value]
    write(place, "end", spec)
    series = tuple(
        Point(name="loss", step=step, value=fake_score(spec) + step) for step in range(20)
    )
    return RunResult(
        metric="accuracy",
        last={"accuracy": fake_score(spec)},
        series=series,
        machine=process() if options.get("tell") else {},
        steps=steps,
    )


def process() -> dict[str, str]:
    """What a run sees of its process."""
    return {
        "pid": str(os.getpid()),
        "session": str(os.getsid(0)),
        "gpu": str(os.environ.get("CUDA_VISIBLE_DEVICES")),
        "random": str(random.random()),
        "main": str(getattr(sys.modules["__main__"], "__file__", None)),
        "signal": str(signal.getsignal(signal.SIGCHLD)),
        "threads": str(len(list(Path("/proc/self/task").iterdir()))),
    }


def write(place: Place, what: str, spec: RunSpec, pid: int | None = None) -> None:
    line = f"{what} {spec.id} {pid or os.getpid()} {os.getppid()} {time.time()}\n".encode()
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    file = os.open(Path(place.data_dir or ".") / "journal", flags, 0o666)
    os.write(file, line)
    os.close(file)


def journal(folder: Path, what: str | None = None) -> list[tuple[str, str, int, int, float]]:
    """Its lines: what, the run, the process, its parent, when."""
    file = folder / "journal"
    found = []
    for line in file.read_text().splitlines() if file.exists() else ():
        said, run, pid, parent, moment = line.split()
        if what in (None, said):
            found.append((said, run, int(pid), int(parent), float(moment)))
    return found


def lives(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def until(condition: Any, seconds: float = 20.0) -> Any:
    """Wait until something holds, and give it."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.005)
    return found


def _is_first_time(place: Place, spec: RunSpec) -> bool:
    file = Path(place.data_dir or ".") / f"died-{spec.id}"
    if file.exists():
        return False
    file.touch()
    return True

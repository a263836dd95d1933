"""What every benchmark section uses: interleaved timing, peak memory, records with their limits."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from time import perf_counter

RESULTS = Path(__file__).parent / "results"
PACKAGES = (
    "isotropy", "torch", "numpy", "scipy", "scikit-learn", "IsoScore", "ripser",
    "torch_topological", "scikit-dimension",
)  # fmt: skip


@dataclass
class Row:
    """One line of the table.

    Attributes:
        what: what is measured, on which data.
        value: the number that is held against the limit.
        unit: "×" for a ratio of times, or the value's unit.
        low: the least it may be, where there is a limit.
        high: the most it may be, likewise.
        ours: our median seconds, where time is measured.
        theirs: the other's median seconds.
        against: what it is compared with.
    """

    what: str
    value: float
    unit: str = ""
    low: float | None = None
    high: float | None = None
    ours: float | None = None
    theirs: float | None = None
    against: str = ""

    @property
    def passed(self) -> bool | None:
        """Whether it is within its limits; None if it has none."""
        if self.low is None and self.high is None:
            return None
        return (self.low is None or self.value >= self.low) and (
            self.high is None or self.value <= self.high
        )


@dataclass
class Section:
    """The rows of one script and the circumstances under which they were measured."""

    name: str
    rows: list[Row] = field(default_factory=list)

    def add(self, row: Row) -> None:
        """Add a row and show it."""
        row.value = float(row.value)  # numpy's numbers are not JSON's
        self.rows.append(row)
        verdict = {True: "ok  ", False: "FAIL", None: "    "}[row.passed]
        print(f"{verdict} {row.what}: {row.value:.4g}{row.unit} {limit(row)}", flush=True)

    def faster(
        self,
        what: str,
        times: Mapping[str, float],
        against: str,
        *,
        low: float | None = None,
        high: float | None = None,
    ) -> None:
        """Add how many times faster ours is; with `high`, what multiple of the time it takes."""
        ours, theirs = times["ours"], times[against]
        ratio = ours / theirs if high is not None else theirs / ours
        unit = "× the time" if high is not None else "× faster"
        self.add(Row(what, ratio, unit, low, high, ours, theirs, against))

    def save(self) -> None:
        """Write the section's JSON."""
        record = {
            "section": self.name,
            "circumstances": circumstances(),
            "rows": [{**asdict(row), "passed": row.passed} for row in self.rows],
        }
        RESULTS.mkdir(exist_ok=True)
        text = json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False)
        (RESULTS / f"{self.name}.json").write_text(text + "\n", encoding="utf-8")


def limit(row: Row) -> str:
    """The limits of a row in words."""
    parts = []
    if row.low is not None:
        parts.append(f"≥ {row.low:g}")
    if row.high is not None:
        parts.append(f"≤ {row.high:g}")
    return ", ".join(parts)


def interleaved(
    functions: Mapping[str, Callable[[], object]], *, rounds: int = 5, shortest: float = 0.05
) -> dict[str, float]:
    """Median seconds of each function, run in turns, so that a busy machine is busy for all.

    After one warm-up, each function runs in every round so often that it takes `shortest` seconds.
    """
    repeats = {}
    for name, function in functions.items():
        function()
        start = perf_counter()
        function()
        repeats[name] = max(1, round(shortest / (perf_counter() - start)))
    seconds: dict[str, list[float]] = {name: [] for name in functions}
    for _ in range(rounds):
        for name, function in functions.items():
            start = perf_counter()
            for _ in range(repeats[name]):
                function()
            seconds[name].append((perf_counter() - start) / repeats[name])
    return {name: median(values) for name, values in seconds.items()}


def peak_memory(work: Callable[[], object]) -> float:
    """The peak of this process's memory during some work above what it had before, in MB."""
    import psutil

    process = psutil.Process()
    before = process.memory_info().rss
    refs = Path("/proc/self/clear_refs")
    if refs.exists():
        refs.write_text("5")  # the peak so far (of the imports) is forgotten
    work()
    return (_peak() - before) / 1e6


def _peak() -> int:
    status = Path("/proc/self/status")
    if status.exists():
        line = next(s for s in status.read_text().splitlines() if s.startswith("VmHWM"))
        return int(line.split()[1]) * 1024
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def in_fresh_process(script: str, *arguments: str) -> dict[str, float]:
    """What a script of this folder prints as JSON in its last line, run in a new process."""
    command = [sys.executable, str(Path(__file__).parent / script), *arguments]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout.splitlines()[-1])


def circumstances() -> dict[str, object]:
    """Machine, versions, threads and time."""
    import torch

    versions = {"python": platform.python_version()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    device = f", {torch.cuda.get_device_name()}" if torch.cuda.is_available() else ""
    return {
        "when": datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "machine": f"{platform.system()} {platform.machine()}, {_processor()}{device}",
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "versions": versions,
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((s.split(":")[1].strip() for s in lines if s.startswith("model name")), "unknown")

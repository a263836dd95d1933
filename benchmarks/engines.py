"""Many runs at a time beside one, what it costs to start a run, and how fast a store is read."""

import tempfile
from itertools import count
from pathlib import Path
from time import perf_counter

from harness import Row, Section, interleaved

from isotropy.experiments import execution
from isotropy.experiments._owner import at_work
from isotropy.experiments.engines._engine import Finished
from isotropy.experiments.engines.local import LocalEngine, cores
from isotropy.experiments.plan import Plan
from isotropy.experiments.spec import Place, Point, RunResult, RunSpec
from isotropy.experiments.store import Store

PLAN = Plan.load("demo").override(
    {"seeds": [0, 1], "train.max_steps": 30, "data.train_rows": 2000, "data.eval_rows": 200}
)
RUNS, POINTS = 3000, 200


def nothing(spec: RunSpec, place: Place, progress: object) -> RunResult:
    """Work that takes no time: what is left is the engine's."""
    return RunResult(metric="accuracy", last={"accuracy": 0.5})


def workers(section: Section, folder: Path) -> None:
    number = count()

    def with_workers(workers: int) -> None:
        runs = execution.run(
            PLAN, store=folder / f"{next(number)}.db", workers=workers, device="cpu", show=False
        )
        assert all(run.status == "done" for run in runs)

    times = interleaved(
        {"ours": lambda: with_workers(2), "one worker": lambda: with_workers(1)}, rounds=3
    )
    what = f"{len(PLAN.cells)} short runs of the demo by two workers on {cores()} cores"
    section.faster(what, times, "one worker", high=1)


def starts(section: Section) -> None:
    engine = LocalEngine(1, work="engines:nothing")
    seeds = count()

    def one() -> None:
        engine.start(RunSpec(model="none", task="none", seed=next(seeds)), Place())
        while not any(isinstance(event, Finished) for event in engine.wait(60)):
            pass

    try:
        times = interleaved({"ours": one}, rounds=5, shortest=1)
    finally:
        engine.stop()
    section.add(
        Row("beginning and ending a run in a process of its own", 1e3 * times["ours"], " ms",
            high=100, ours=times["ours"])
    )  # fmt: skip


def reading(section: Section, folder: Path) -> None:
    path = folder / "large.db"
    points = tuple(Point(name="loss", step=step, value=1 / (step + 3)) for step in range(POINTS))
    result = RunResult(metric="accuracy", last={"accuracy": 0.5}, series=points)
    specs = [RunSpec(model="none", task="none", seed=seed) for seed in range(RUNS)]
    ids = [spec.id for spec in specs]
    with Store(path) as store, at_work() as owner:
        store.add(specs)
        start = perf_counter()
        while spec := store.claim(owner, ids):
            store.finish(owner, spec.id, result)
        each = (perf_counter() - start) / RUNS
        section.add(
            Row(f"claiming and writing a run, {POINTS} points, among {RUNS}", 1e3 * each, " ms",
                high=100, ours=each)
        )  # fmt: skip
    with Store(path, read_only=True) as store:
        times = interleaved(
            {
                "scores": lambda: store.runs(series=False),
                "all": store.runs,
                "one": lambda: store.runs(ids=ids[:1]),
                "points": store.series,
            },
            rounds=3,
        )
    said = {
        "scores": f"reading {RUNS} runs without their series",
        "all": f"reading {RUNS} runs with {POINTS} points each",
        "points": f"reading the {RUNS * POINTS} points alone",
        "one": f"reading one run of {RUNS}",
    }
    for name, what in said.items():
        high = {"scores": 2.0, "all": 10.0}.get(name)
        section.add(Row(what, times[name], " s", high=high, ours=times[name]))


def main(section: Section) -> None:
    with tempfile.TemporaryDirectory() as folder:
        starts(section)
        reading(section, Path(folder))
        workers(section, Path(folder))


if __name__ == "__main__":
    section = Section("engines")
    main(section)
    section.save()

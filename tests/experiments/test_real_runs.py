"""Training in the processes of the local engine: the scores of a fresh interpreter, and kills."""

import csv
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
from conftest import sentences
from fakes import until
from test_killing import CLAIMING, COMMITTED, WRITING

from isotropy.experiments import execution
from isotropy.experiments.engines.local import LocalEngine
from isotropy.experiments.plan import Plan
from isotropy.experiments.spec import Place
from isotropy.experiments.store import Store
from isotropy.experiments.train import train

COSTS = {"seconds", "train_seconds", "seconds_per_epoch", "peak_memory", "machine"}

PLAN = """
name = "tiny"
summary = "a tiny model on made-up sentences"
models = ["{model}"]
tasks = ["custom"]
seeds = {seeds}

[data]
tune = 0.2
columns = {{text = "text", label = "label"}}

[train]
max_steps = {steps}
batch_size = 8
learning_rate = 1e-3

[measure]
track = ["iso_score"]
every = 2
rows = 64

[[methods]]
name = "none"

[[methods]]
name = "i-star"
settings = {{weight = -1}}
refresh_points = 200
"""


@pytest.fixture
def write_plan(tiny_model, tmp_path):
    def write(seeds: list[int], steps: int) -> Path:
        with (tmp_path / "train.csv").open("w", newline="") as opened:
            writer = csv.DictWriter(opened, ["text", "label"], extrasaction="ignore")
            writer.writeheader()
            for row in sentences(200, seed=3):
                writer.writerow({**row, "label": "odd" if row["label"] else "even"})
        path = tmp_path / "plan.toml"
        path.write_text(PLAN.format(model=tiny_model("bert"), seeds=seeds, steps=steps))
        return path

    return write


def outcome(result) -> dict[str, Any]:
    return result.model_dump(exclude=COSTS)


def test_a_forked_run_has_the_scores_of_this_process(write_plan, tmp_path):
    """Also alone and among others, and with nothing but harmless threads in the server."""
    plan = Plan.load(write_plan([0, 1], steps=6))
    place = Place(files={"train": str(tmp_path / "train.csv")})
    engine = LocalEngine(2)
    threads = []
    wait = engine.wait

    def watched(seconds):
        server = psutil.Process(engine.server_pid)
        if server.children():
            tasks = Path(f"/proc/{engine.server_pid}/task").iterdir()
            threads.append({(task / "comm").read_text().strip() for task in tasks})
        return wait(seconds)

    engine.wait = watched
    runs = execution.run(
        plan, store=tmp_path / "runs.db", engine=engine, place=place, device="cpu", show=False
    )
    assert [run.status for run in runs] == ["done"] * 4
    for run in runs:
        assert outcome(run.result) == outcome(train(run.spec, place))
    assert len({run.result.last["accuracy"] for run in runs} | {0.0}) > 1
    # jemalloc, which comes with pyarrow, takes care of forks; a pool of workers would not.
    others = set.union(*threads) - {"jemalloc_bg_thd"}
    assert len(others) == 1
    assert all(len(names) <= 2 for names in threads)


def drive(folder: Path, *fault: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(Path(__file__).parent / "drive.py"), str(folder)]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen([*command, str(folder / "plan.toml"), "-", *fault], stderr=log)


def moments() -> list[tuple[str, str, float]]:
    generator = random.Random(11)
    found = [("driver", pattern, 1.0) for pattern in (*CLAIMING, *WRITING, *COMMITTED)]
    found += [("driver", "", generator.uniform(0, 3)) for _ in range(4)]
    found += [("worker", "", generator.uniform(0, 2)) for _ in range(5)]
    found += [("server", "", generator.uniform(0, 2)) for _ in range(3)]
    generator.shuffle(found)
    return found


def attempts(folder: Path) -> int:
    connection = sqlite3.connect(folder / "runs.db", timeout=60)
    (found,) = connection.execute("SELECT sum(attempts) FROM runs").fetchone()
    connection.close()
    return int(found or 0)


def kill(folder: Path, victim: str, where: str, when: float) -> None:
    if where:
        assert drive(folder, where, str(int(when))).wait(300) == -signal.SIGKILL, where
        return
    driver = drive(folder)

    def working() -> tuple[int, int] | None:
        for server in psutil.Process(driver.pid).children():
            for worker in server.children():
                return server.pid, worker.pid
        return None

    until(working, 120)
    time.sleep(when)
    server, worker = until(working, 120)
    os.kill({"driver": driver.pid, "worker": worker, "server": server}[victim], signal.SIGKILL)
    if victim != "driver":
        before = attempts(folder)
        until(lambda: attempts(folder) > before, 120)
        driver.send_signal(signal.SIGINT)
    assert driver.wait(300) == (-signal.SIGKILL if victim == "driver" else -signal.SIGINT)


@pytest.mark.long
def test_training_that_is_killed_at_twenty_moments(write_plan, tmp_path):
    path = write_plan(list(range(12)), steps=40)
    place = Place(files={"train": str(tmp_path / "train.csv")})
    store = tmp_path / "runs.db"
    Store(store).close()
    connection = sqlite3.connect(store)
    connection.executescript(
        """CREATE TABLE finishes (id TEXT);
        CREATE TRIGGER counting AFTER UPDATE OF status ON runs WHEN NEW.status = 'done'
        BEGIN INSERT INTO finishes VALUES (NEW.id); END"""
    )
    connection.close()
    victims = moments()
    assert len(victims) == 20
    for victim in victims:
        kill(tmp_path, *victim)
    with Store(store, read_only=True) as opened:
        assert any(run.status != "done" for run in opened.runs())
    assert drive(tmp_path).wait(600) == 0
    with Store(store, read_only=True) as opened:
        found = opened.runs("tiny")
        finished = opened._connection.execute("SELECT id FROM finishes").fetchall()
    assert [run.status for run in found] == ["done"] * 24
    assert sorted(run for (run,) in finished) == sorted(run.id for run in found)
    undisturbed = execution.run(
        Plan.load(path), store=tmp_path / "other.db", place=place, show=False, workers=1
    )
    assert [run.attempts for run in undisturbed] == [1] * 24
    for run, other in zip(found, undisturbed, strict=True):
        assert outcome(run.result) == outcome(other.result)

"""Processes are killed at any moment, and every run is finished exactly once all the same."""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from drive import specs
from fakes import fake_score, journal, lives, until

from isotropy.experiments.store import Store

RUNS, SECONDS = 44, 0.15

# Statements of the store at which its process kills itself.
CLAIMING = (
    "UPDATE runs SET status = 'running'",
    "after:UPDATE runs SET status = 'running'",  # before its COMMIT
    "SELECT number, runs.id, spec FROM json_each",
)
WRITING = (
    "UPDATE runs SET status = 'done'",
    "after:UPDATE runs SET status = 'done'",  # before its series
    "INSERT INTO series",
    "after:INSERT INTO series",
)
COMMITTED = ("after:COMMIT",)


def moments(seed: int = 4) -> list[tuple[str, str, float]]:
    """Twenty of them: who is killed, where, and when (a count of statements, or seconds)."""
    generator = random.Random(seed)
    found: list[tuple[str, str, float]] = []
    found += [("driver", generator.choice(CLAIMING), generator.randint(1, 3)) for _ in range(4)]
    found += [("driver", pattern, generator.randint(1, 3)) for pattern in WRITING]
    found += [("driver", COMMITTED[0], generator.randint(2, 9)) for _ in range(2)]
    found += [("driver", "", generator.uniform(0.02, 0.4)) for _ in range(3)]
    found += [("worker", "", generator.uniform(0.0, 0.2)) for _ in range(4)]
    found += [("server", "", generator.uniform(0.0, 0.2)) for _ in range(3)]
    generator.shuffle(found)
    return found


def drive(folder: Path, *fault: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, str(Path(__file__).parent / "drive.py"), str(folder)]
    with (folder / "log").open("ab") as log:
        return subprocess.Popen([*command, str(RUNS), str(SECONDS), *fault], stderr=log)


def audited(path: Path) -> None:
    """Let the store itself count how often each run is finished, in the same transactions."""
    connection = sqlite3.connect(path)
    connection.executescript(
        """CREATE TABLE finishes (id TEXT, at REAL);
        CREATE TRIGGER counting AFTER UPDATE OF status ON runs WHEN NEW.status = 'done'
        BEGIN INSERT INTO finishes VALUES (NEW.id, NEW.finished); END"""
    )
    connection.close()


def the_working(folder: Path, past: int) -> tuple[int, int] | None:
    """A run's process that is at work, and the server; of those begun after `past` lines."""
    ended = {line[1:3] for line in journal(folder, "end")}
    for line in reversed(journal(folder, "begin")[past:]):
        if line[1:3] not in ended and lives(line[2]):
            return line[2], line[3]
    return None


def kill(folder: Path, victim: str, where: str, when: float) -> bool:
    """Start a driver and have somebody killed; whether the driver was."""
    if where:
        driver = drive(folder, where, str(int(when)))
        assert driver.wait(60) == -signal.SIGKILL, (where, when)
        return True
    past = len(journal(folder, "begin"))
    driver = drive(folder)
    until(lambda: the_working(folder, past))
    time.sleep(when)
    pid = driver.pid
    if victim != "driver":
        worker, server = until(lambda: the_working(folder, past))
        pid = worker if victim == "worker" else server
    os.kill(pid, signal.SIGKILL)
    if victim != "driver":
        # It goes on by itself; Ctrl-C then leaves the rest to the next one.
        after = len(journal(folder, "begin"))
        until(lambda: len(journal(folder, "begin")) > after + 1)
        driver.send_signal(signal.SIGINT)
    return driver.wait(60) == -signal.SIGKILL


def test_every_run_is_finished_exactly_once(tmp_path):
    path = tmp_path / "runs.db"
    Store(path).close()
    audited(path)
    victims = moments()
    assert len(victims) == 20
    drivers = sum(kill(tmp_path, *moment) for moment in victims)
    assert drivers == sum(victim == "driver" for victim, _, _ in victims)
    with Store(path, read_only=True) as store:
        undone = sum(run.status != "done" for run in store.runs())
    assert 0 < undone < RUNS  # there was something to do to the end, and something to lose
    assert drive(tmp_path).wait(60) == 0

    with Store(path, read_only=True) as store:
        runs = store.runs("fake")
        finishes = store._connection.execute("SELECT id, at FROM finishes").fetchall()
        check = store._connection.execute("PRAGMA integrity_check").fetchall()
    assert check == [("ok",)]
    expected = specs(RUNS, SECONDS)
    assert [run.spec for run in runs] == expected
    assert [run.status for run in runs] == ["done"] * RUNS
    assert [run.result.last["accuracy"] for run in runs] == [fake_score(s) for s in expected]
    assert all(len(run.result.series) == 20 for run in runs)
    assert sorted(run for run, _ in finishes) == sorted(spec.id for spec in expected)
    # What was finished was never begun again.
    at = dict(finishes)
    assert all(begun <= at[run] for _, run, _, _, begun in journal(tmp_path, "begin"))
    # More was begun than finished: the kills did hit runs.
    assert len(journal(tmp_path, "begin")) > RUNS
    assert sum(run.attempts for run in runs) >= len(journal(tmp_path, "begin"))
    until(lambda: not any(lives(line[2]) for line in journal(tmp_path)))


def test_two_drivers_share_the_work(tmp_path):
    drivers = [drive(tmp_path), drive(tmp_path)]
    assert [driver.wait(60) for driver in drivers] == [0, 0]
    begun = journal(tmp_path, "begin")
    assert len(begun) == len({line[1] for line in begun}) == RUNS
    servers = [line[3] for line in begun]
    assert min(map(servers.count, set(servers))) >= 5
    assert len(set(servers)) == 2
    with Store(tmp_path / "runs.db", read_only=True) as store:
        assert {(run.status, run.attempts) for run in store.runs()} == {("done", 1)}


def test_one_takes_over_what_the_other_leaves(tmp_path):
    drivers = [drive(tmp_path), drive(tmp_path)]
    until(lambda: len({line[3] for line in journal(tmp_path, "begin")}) == 2)
    drivers[0].kill()
    drivers[0].wait()
    assert drivers[1].wait(60) == 0
    with Store(tmp_path / "runs.db", read_only=True) as store:
        runs = store.runs()
    assert {run.status for run in runs} == {"done"}
    assert {run.attempts for run in runs} == {1, 2}


@pytest.mark.parametrize("number", [signal.SIGINT])
def test_ctrl_c_leaves_nothing_running_and_the_next_goes_on(tmp_path, number):
    driver = drive(tmp_path)
    until(lambda: len(journal(tmp_path, "end")) >= 3)
    driver.send_signal(number)
    assert driver.wait(20) == -signal.SIGINT
    assert not any(lives(line[2]) for line in journal(tmp_path))
    assert "Stopped. The same command goes on with what is left." in (tmp_path / "log").read_text()
    with Store(tmp_path / "runs.db", read_only=True) as store:
        states = store._connection.execute("SELECT status FROM runs GROUP BY status").fetchall()
    assert states == [("done",), ("pending",)]
    assert drive(tmp_path).wait(60) == 0
    with Store(tmp_path / "runs.db", read_only=True) as store:
        assert {run.status for run in store.runs()} == {"done"}

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from fakes import WORK, fake_score, fake_spec, journal, lives, until

from isotropy.errors import MissingExtraError, SettingError
from isotropy.experiments._owner import this_process
from isotropy.experiments.engines import _work, local
from isotropy.experiments.engines._engine import Failed, Finished, Lost, Progressed
from isotropy.experiments.engines.local import LocalEngine, cores, worker_count
from isotropy.experiments.spec import Place


@pytest.fixture
def engine():
    engine = LocalEngine(2, work=WORK)
    yield engine
    engine.stop()


@pytest.fixture
def place(tmp_path):
    return Place(data_dir=str(tmp_path))


def events_of(engine, count=1, seconds=20.0):
    """All events until so many runs have ended."""
    found = []
    end = time.monotonic() + seconds
    while sum(not isinstance(event, Progressed) for event in found) < count:
        assert time.monotonic() < end, found
        found += engine.wait(0.2)
    return found


def test_a_run_tells_its_progress_and_its_result(engine, place, tmp_path):
    spec = fake_spec(3, steps=4, seconds=1.0)
    engine.start(spec, place)
    *progress, last = events_of(engine)
    assert isinstance(last, Finished)
    assert last.run == spec.id
    assert last.result.last == {"accuracy": fake_score(spec)}
    assert len(last.result.series) == 20
    assert progress == [Progressed(spec.id, "working", step, 4) for step in range(4)]


def test_each_run_has_a_fresh_process_in_a_session_of_its_own(engine, place):
    told = []
    for seed in range(3):
        engine.start(fake_spec(seed, tell=True), place)
        told.append(events_of(engine)[-1].result.machine)
    assert len({machine["pid"] for machine in told}) == 3
    for machine in told:
        assert machine["session"] == machine["pid"]
        assert machine["main"] == "None"  # the driver's script is not imported again
        assert machine["signal"] == str(signal.SIG_DFL)
        assert machine["threads"] == "2"  # its own and the one that watches the driver
        assert not lives(int(machine["pid"]))


def test_a_start_takes_milliseconds(engine, place):
    engine.start(fake_spec(), place)
    events_of(engine)
    began = time.monotonic()
    for seed in range(10):
        engine.start(fake_spec(seed), place)
        events_of(engine)
    assert time.monotonic() - began < 5  # 0.2 s on a quiet machine


def test_an_error_comes_with_its_traceback_and_the_last_output(engine, place):
    engine.start(fake_spec(say="hello", **{"raise": "oh\nno"}), place)
    [event] = [event for event in events_of(engine) if not isinstance(event, Progressed)]
    assert isinstance(event, Failed)
    first, _, rest = event.error.partition("\n\n")
    assert first == "ValueError: oh no"
    assert "raise ValueError(message)\nValueError: oh\nno" in rest
    tail = rest.partition("\n\nIts last output:\n")[2]
    assert sorted(tail.splitlines()) == ["hello", "hello from a child"]


def test_leaving_python_is_an_error_of_the_run(engine, place):
    engine.start(fake_spec(exit=True), place)
    event = events_of(engine)[-1]
    assert isinstance(event, Failed)
    assert event.error.startswith("SystemExit: 3\n")


def test_a_killed_run_is_lost(engine, place):
    engine.start(fake_spec(die="always"), place)
    event = events_of(engine)[-1]
    assert isinstance(event, Lost)
    assert "killed (SIGKILL: by somebody, or for want of memory)" in event.reason


def test_nothing_of_a_run_is_left_when_it_has_ended(engine, place, tmp_path):
    engine.start(fake_spec(leave=True), place)
    events_of(engine)
    [(_, _, child, _, _)] = until(lambda: journal(tmp_path, "child"))
    until(lambda: not lives(child))
    assert not [path for path in engine._folder.iterdir() if path.is_dir()]


def test_a_killed_run_is_lost_though_its_child_lives_on(engine, place, tmp_path):
    engine.start(fake_spec(leave="and die"), place)
    event = events_of(engine, seconds=10.0)[-1]
    assert isinstance(event, Lost)
    assert "SIGKILL" in event.reason
    [(_, _, child, _, _)] = journal(tmp_path, "child")
    until(lambda: not lives(child))


def test_what_cannot_be_stored_is_an_error_of_the_run(engine, place):
    engine.start(fake_spec(nothing=True), place)
    event = events_of(engine)[-1]
    assert isinstance(event, Failed)
    assert event.error.startswith("AttributeError: 'NoneType'")


def test_a_killed_server_is_started_again_and_its_runs_go_on(engine, place, tmp_path):
    go = tmp_path / "go"
    first = fake_spec(0, wait_for=str(go))
    engine.start(first, place)
    until(lambda: journal(tmp_path, "begin"))
    before = engine.server_pid
    os.kill(before, signal.SIGKILL)
    until(lambda: not lives(before))
    second = fake_spec(1)
    engine.start(second, place)
    [event] = [event for event in events_of(engine) if isinstance(event, Finished)]
    assert event.run == second.id
    assert engine.server_pid != before
    go.touch()
    [event] = [event for event in events_of(engine) if isinstance(event, Finished)]
    assert event.run == first.id


def test_a_server_killed_at_any_moment_loses_no_event(engine, place):
    specs = {spec.id: spec for spec in (fake_spec(seed) for seed in range(30))}
    todo, going, done = list(specs), set(), set()
    beaten = 0
    while len(done) < 30:
        while todo and len(going) < 2:
            run = todo.pop()
            going.add(run)
            engine.start(specs[run], place)
            if beaten < 10 and len(todo) % 3 == 0:
                os.kill(engine.server_pid, signal.SIGKILL)
                beaten += 1
        for event in engine.wait(1.0):
            if isinstance(event, Finished):
                done.add(event.run)
                going.remove(event.run)
            elif isinstance(event, Lost):
                going.remove(event.run)
                todo.append(event.run)
    assert beaten == 10


def test_stopping_ends_all(place, tmp_path):
    engine = LocalEngine(2, work=WORK)
    for seed in range(2):
        engine.start(fake_spec(seed, seconds=600, steps=1), place)
    pids = [
        line[2]
        for line in until(lambda: len(journal(tmp_path, "begin")) == 2 and journal(tmp_path))
    ]
    server = engine.server_pid
    began = time.monotonic()
    engine.stop()
    assert time.monotonic() - began < 4
    assert not any(lives(pid) for pid in [*pids, server])
    assert not engine._folder.exists()
    engine.stop()


DRIVER = """
import sys, time
from fakes import WORK, fake_spec
from isotropy.experiments.engines.local import LocalEngine
from isotropy.experiments.spec import Place
engine = LocalEngine(2, work=WORK)
for seed in range(2):
    engine.start(fake_spec(seed, seconds=600, steps=1), Place(data_dir=sys.argv[1]))
print(engine.server_pid, flush=True)
time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_runs_end_with_their_driver(tmp_path, number):
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, str(tmp_path)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    server = int(driver.stdout.readline())
    lines = until(lambda: len(journal(tmp_path, "begin")) == 2 and journal(tmp_path))
    driver.send_signal(number)
    driver.communicate()
    until(lambda: not any(lives(pid) for pid in [server, *(line[2] for line in lines)]))


def test_a_script_needs_no_guard(tmp_path):
    """Unlike with `multiprocessing`, whose processes import the script again."""
    script = tmp_path / "script.py"
    script.write_text(
        DRIVER.replace("seconds=600, steps=1", "")
        .replace("time.sleep(600)", "events = []\nwhile len(events) < 2:\n    events += "
                 "[e for e in engine.wait(5) if type(e).__name__ == 'Finished']\nengine.stop()")
    )  # fmt: skip
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    subprocess.run([sys.executable, script, tmp_path], env=environment, check=True, timeout=60)
    assert len(journal(tmp_path, "end")) == 2


def test_imports_that_fail_are_told():
    engine = LocalEngine(1, work="no_such_module:work")
    try:
        engine.start(fake_spec(), Place())
        with pytest.raises(
            RuntimeError, match=r"imports failed:(?s:.)*No module named 'no_such_mod"
        ):
            events_of(engine)
    finally:
        engine.stop()


@pytest.mark.parametrize("package", ["transformers", "accelerate"])
def test_a_missing_package_is_told_before_anything_is_begun(monkeypatch, package):
    there = _work.find_spec
    monkeypatch.setattr(_work, "find_spec", lambda name: None if name == package else there(name))
    with pytest.raises(MissingExtraError, match=rf"'{package}', .*pip install 'isotropy\[train\]'"):
        LocalEngine(1)


def test_each_run_sees_one_gpu(tmp_path):
    engine = LocalEngine(4, work=WORK, gpus=["2", "5"])
    try:
        go = tmp_path / "go"
        for seed in range(4):
            engine.start(
                fake_spec(seed, tell=True, wait_for=str(go)), Place(data_dir=str(tmp_path))
            )
        go.touch()
        ended = [event for event in events_of(engine, 4) if isinstance(event, Finished)]
        assert sorted(event.result.machine["gpu"] for event in ended) == ["2", "2", "5", "5"]
    finally:
        engine.stop()


def test_waiting_without_runs_takes_its_time(engine):
    until(lambda: engine.wait(0.01) == [] and engine._server._ready)
    began = time.monotonic()
    assert engine.wait(0.2) == []
    assert time.monotonic() - began > 0.15


def test_cores_are_never_oversubscribed(monkeypatch):
    assert cores() >= 1
    monkeypatch.setattr(local, "cores", lambda: 6)
    assert worker_count(None, 1) == 6
    assert worker_count(None, 4) == 1
    assert worker_count(3, 2) == 3
    assert worker_count(1, 6) == 1
    with pytest.raises(SettingError, match="got threads=8 on 6 cores, expected at most 6"):
        worker_count(None, 8)
    with pytest.raises(SettingError, match=r"got workers=4 of 2 threads each on 6 cores.*most 3"):
        worker_count(4, 2)
    with pytest.raises(SettingError, match="got workers=0, expected 1 or more"):
        worker_count(0, 1)


def test_what_a_killed_driver_left_is_removed(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    host, pid, started = this_process()
    drivers = {
        "dead": [host, pid, "long ago"],
        "alive": [host, pid, started],
        "elsewhere": ["another", pid, "long ago"],
        "nobodys": None,
    }
    for name, driver in drivers.items():
        folder = tmp_path / f"isotropy-runs-{name}"
        folder.mkdir()
        (folder / "checkpoint").touch()
        if driver:
            (folder / "driver.json").write_text(json.dumps(driver))
    engine = LocalEngine(1, work=WORK)
    left = {folder.name for folder in tmp_path.iterdir()} - {engine._folder.name}
    engine.stop()
    assert left == {f"isotropy-runs-{name}" for name in ("alive", "elsewhere", "nobodys")}


def test_a_full_temporary_folder_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "no"))
    with pytest.raises(SettingError, match=r"temporary folder .*/no', which cannot be written"):
        LocalEngine(1, work=WORK)
    assert not Path(tmp_path / "no").exists()

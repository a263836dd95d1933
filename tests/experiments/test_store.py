import csv
import os
import shutil
import sqlite3
import stat
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from fakes import FakePlan, fake_spec

from isotropy.errors import SettingError, StoreError
from isotropy.experiments import _owner, _schema
from isotropy.experiments._owner import Owner, at_work
from isotropy.experiments._rescue import rescue
from isotropy.experiments.spec import MethodSettings, Place, Point, RunResult, RunSpec
from isotropy.experiments.store import Store, export

RESULT = RunResult(
    metric="accuracy",
    last={"accuracy": 0.75, "f1": None},
    measures={"two_nn@3": 4.5},
    arrays={"spectrum": [3.0, 0.1]},
    series=tuple(Point(name="loss", step=step, value=step / 7) for step in range(30)),
    notes=("one", "two"),
    seconds=12.5,
    versions={"torch": "2"},
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "runs.db"


@pytest.fixture
def owner():
    with at_work() as owner:
        yield owner


def done(path, specs, owner, plan=None, result=RESULT):
    with Store(path) as store:
        store.add(specs, plan)
        while spec := store.claim(owner, [spec.id for spec in specs]):
            assert store.finish(owner, spec.id, result)


def test_a_result_comes_back_as_it_was(path, owner):
    spec = fake_spec(1)
    done(path, [spec], owner)
    with Store(path, read_only=True) as store:
        [run] = store.runs()
        [short] = store.runs(series=False)
    assert run.spec == spec
    assert run.id == spec.id
    assert (run.status, run.attempts, run.error, run.plans) == ("done", 1, None, ())
    assert run.result == RESULT
    assert short.result == RESULT.model_copy(update={"series": ()})


def test_a_run_belongs_to_several_plans_and_is_there_once(path):
    specs = [fake_spec(seed) for seed in range(3)]
    with Store(path) as store:
        store.add(specs, FakePlan(specs, "one"), Place(data_dir="here", files={"train": "a.csv"}))
        store.add(specs[::-1][:2], FakePlan([], "two"))
        assert len(store.runs()) == 3
        assert [run.spec.seed for run in store.runs("two")] == [2, 1]
        assert store.runs("one")[1].plans == ("one", "two")
        one, two = store.plans()
    assert one.place == Place(data_dir="here", files={"train": "a.csv"})
    assert (one.name, one.text, one.report) == ("one", 'name = "one"', {"score": "last"})
    assert one.ids == tuple(spec.id for spec in specs)
    assert two.ids == (specs[2].id, specs[1].id)


def test_a_plan_that_has_changed_has_its_new_runs_and_the_old_stay_in_the_store(path):
    specs = [fake_spec(seed) for seed in range(4)]
    with Store(path) as store:
        store.add(specs[:3], FakePlan([]))
        store.add(specs[2:], FakePlan([]))
        assert [run.spec.seed for run in store.runs("fake")] == [2, 3]
        assert [run.spec.seed for run in store.runs()] == [0, 1, 2, 3]


def test_an_unknown_plan_is_named(path):
    with Store(path) as store:
        store.add([], FakePlan([], "demo"))
        with pytest.raises(SettingError, match=r"got plan 'dmo'.*did you mean 'demo'"):
            store.runs("dmo")


def test_runs_are_claimed_in_order_and_once(path, owner):
    specs = [fake_spec(seed) for seed in range(3)]
    ids = [spec.id for spec in specs]
    with Store(path) as store, Store(path) as other:
        store.add(specs)
        assert store.claim(owner, ids[::-1]) == specs[2]
        assert other.claim(owner, ids) == specs[0]
        assert store.claim(owner, ids) == specs[1]
        assert other.claim(owner, ids) is None
        assert store.status(ids) == dict.fromkeys(ids, "running")


def test_what_is_not_owned_is_not_written(path, owner):
    spec = fake_spec()
    with Store(path) as store, at_work() as late:
        store.add([spec])
        store.claim(late, [spec.id])
        store.release(late)
        store.claim(owner, [spec.id])
        assert not store.finish(late, spec.id, RESULT)
        assert not store.fail(late, spec.id, "no")
        assert not store.release(late, spec.id)
        assert store.status([spec.id]) == {spec.id: "running"}
        assert store.finish(owner, spec.id, RESULT)
        assert not store.finish(owner, spec.id, RESULT)
        assert len(store.series()) == len(RESULT.series)


def test_a_failed_run_is_done_again_only_where_it_is_asked_for(path, owner):
    spec = fake_spec()
    with Store(path) as store:
        store.add([spec])
        store.claim(owner, [spec.id])
        assert store.fail(owner, spec.id, "ValueError: no\n\ntrace")
        assert store.runs()[0].error == "ValueError: no\n\ntrace"
        assert store.claim(owner, [spec.id]) is None
        store.add([spec])
        assert store.claim(owner, [spec.id]) is None
        assert store.retry([spec.id]) == 1
        assert store.claim(owner, [spec.id]) == spec
        assert store.runs()[0].attempts == 2


# Owners.


def a_dead_process() -> tuple[int, str]:
    """One that has ended, and of which nobody has asked how."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started = _owner._start_of(process.pid)
    process.kill()
    while _owner._start_of(process.pid):
        time.sleep(0.01)
    process.stdin.close()
    process.wait()
    return process.pid, started


def test_what_a_dead_process_began_is_pending_again(path, owner):
    pid, started = a_dead_process()
    spec = fake_spec()
    with Store(path) as store:
        store.add([spec])
        store.claim(Owner("dead", owner.host, pid, started), [spec.id])
        assert store.status([spec.id]) == {spec.id: "pending"}
        assert store.runs()[0].status == "pending"
        assert store.claim(owner, [spec.id]) == spec


def test_a_process_with_the_number_of_a_dead_one_is_another(path, owner):
    other = Owner("other", owner.host, os.getppid(), "long ago")
    assert not other.lives(0)
    assert Owner("parent", owner.host, os.getppid(), _owner._start_of(os.getppid())).lives(1e9)


def test_a_call_that_is_over_is_dead_while_its_process_lives(path, owner):
    spec = fake_spec()
    with Store(path) as store:
        store.add([spec])
        with at_work() as before:
            store.claim(before, [spec.id])
            assert store.claim(owner, [spec.id]) is None
        assert store.claim(owner, [spec.id]) == spec


def test_a_process_of_another_host_is_dead_when_it_has_been_silent(path, owner):
    far = Owner("far", "elsewhere", 1, "1")
    spec = fake_spec()
    with Store(path) as store:
        store.add([spec])
        store.claim(far, [spec.id])
        assert store.claim(owner, [spec.id]) is None
        store._connection.execute("UPDATE owners SET heartbeat = heartbeat - 119")
        assert store.claim(owner, [spec.id]) is None
        store.heartbeat(far)
        store._connection.execute(
            "UPDATE owners SET heartbeat = heartbeat - 121 WHERE id = ?", [far.id]
        )
        assert store.claim(owner, [spec.id]) == spec


CLAIMER = """
import sys, time
from isotropy.experiments._owner import at_work
from isotropy.experiments.spec import RunResult
from isotropy.experiments.store import Store
with Store(sys.argv[1]) as store, at_work() as owner:
    ids = [run.id for run in store.runs()]
    print("ready", flush=True)
    sys.stdin.readline()
    while spec := store.claim(owner, ids):
        print(spec.id)
        if spec.seed % 3:
            assert store.finish(owner, spec.id, RunResult(metric="m", last={"m": spec.seed}))
        elif spec.seed % 2:
            assert store.fail(owner, spec.id, "no")
        sys.stdout.flush()
        time.sleep(0.002)  # or the first one may have all before the others come to it
    print("end", flush=True)
    sys.stdin.readline()
"""


def test_several_processes_claim_each_run_exactly_once(path):
    specs = [fake_spec(seed) for seed in range(120)]
    with Store(path) as store:
        store.add(specs)
    command = [sys.executable, "-c", CLAIMER, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(4)]
    assert [process.stdout.readline() for process in processes] == ["ready\n"] * 4
    for process in processes:
        process.stdin.write("go\n")
        process.stdin.flush()
    claimed = [list(iter(process.stdout.readline, "end\n")) for process in processes]
    with Store(path, read_only=True) as store:
        states = [run.status for run in store.runs()]
    for process in processes:
        process.communicate()
    together = [line.strip() for part in claimed for line in part]
    assert sorted(together) == sorted(spec.id for spec in specs)
    assert states.count("done") == 80
    assert states.count("failed") == 20
    assert states.count("running") == 20
    assert sum(map(bool, claimed)) > 1


# The file.


def test_reading_makes_no_file(tmp_path, path, owner):
    with pytest.raises(StoreError, match=r"runs\.db', which does not exist"):
        Store(path, read_only=True)
    assert not list(tmp_path.iterdir())
    done(path, [fake_spec()], owner)
    before = sorted(tmp_path.iterdir())
    with Store(path, read_only=True) as store:
        assert len(store.runs()) == 1
        with pytest.raises(sqlite3.OperationalError, match="readonly"):
            store._connection.execute("DELETE FROM runs")
    assert sorted(tmp_path.iterdir()) == before == [path]


def test_another_kind_of_file_is_refused_and_left_alone(tmp_path):
    text = tmp_path / "text.db"
    text.write_text("not a database, whatever its name says" * 100)
    database = tmp_path / "other.db"
    with sqlite3.connect(database) as connection:
        connection.execute("CREATE TABLE meta (key, value)")
    connection.close()
    for file in (text, database):
        before = file.read_bytes()
        for read_only in (True, False):
            with pytest.raises(StoreError, match="another kind of file, expected one that"):
                Store(file, read_only=read_only)
        assert file.read_bytes() == before


def test_an_empty_file_becomes_a_store_and_is_none_to_read(path):
    path.touch()
    with pytest.raises(StoreError, match="another kind of file"):
        Store(path, read_only=True)
    with Store(path) as store:
        assert store.runs() == []


@pytest.mark.parametrize("change", ["DELETE FROM meta", "UPDATE meta SET value = 'x'"])
def test_a_store_that_does_not_tell_its_version_is_none(path, change):
    with Store(path) as store:
        store._connection.execute(change)
    for read_only in (False, True):
        with pytest.raises(StoreError, match="another kind of file"):
            Store(path, read_only=read_only)


def test_an_error_that_is_no_text_is_stored(path, owner):
    spec = fake_spec()
    with Store(path) as store:
        store.add([spec])
        store.claim(owner, [spec.id])
        assert store.fail(owner, spec.id, "no file b\udcff.csv")
        assert store.runs()[0].error == "no file b\\udcff.csv"


def test_a_newer_store_is_refused(path):
    with Store(path) as store:
        store._connection.execute("UPDATE meta SET value = '99'")
    for read_only in (True, False):
        with pytest.raises(StoreError, match="schema version 99, expected at most 1; a newer"):
            Store(path, read_only=read_only)


@pytest.mark.parametrize("read_only", [True, False])
def test_an_older_store_is_brought_to_the_present_version(path, owner, monkeypatch, read_only):
    done(path, [fake_spec()], owner)
    newer = (*_schema.VERSIONS, ("ALTER TABLE runs ADD COLUMN note TEXT DEFAULT 'old'",))
    monkeypatch.setattr(_schema, "VERSIONS", newer)
    with Store(path, read_only=read_only) as store:
        assert len(store.runs()) == 1
        asked = "SELECT note, value FROM runs, meta WHERE key = 'schema_version'"
        assert store._connection.execute(asked).fetchall() == [("old", "2")]


def test_a_run_of_another_version_is_named(path):
    with Store(path) as store:
        store.add([fake_spec()])
        store._connection.execute("UPDATE runs SET spec = json_set(spec, '$.moon', 1)")
        with pytest.raises(StoreError, match=r"unknown setting 'moon'.*another version"):
            store.runs()


def test_a_folder_and_a_missing_folder_are_named(tmp_path):
    with pytest.raises(StoreError, match="which is a folder, expected a file"):
        Store(tmp_path)
    with pytest.raises(StoreError, match="whose folder does not exist"):
        Store(tmp_path / "no" / "runs.db")


def test_a_network_disk_is_refused(path, monkeypatch):
    monkeypatch.setattr(_schema, "network_kind", lambda path: "nfs4")
    for read_only in (True, False):
        with pytest.raises(StoreError, match=r"network disk \(nfs4\).*locks.*cannot be trusted"):
            Store(path, read_only=read_only)
    assert not path.exists()


def test_a_damaged_store_is_named(path, owner):
    done(path, [fake_spec(seed) for seed in range(50)], owner)
    content = bytearray(path.read_bytes())
    content[4096:] = b"\xff" * (len(content) - 4096)
    path.write_bytes(content)
    with pytest.raises(StoreError, match="is damaged or on a failing disk"):
        Store(path, read_only=True).runs()


def test_a_lock_that_is_held_is_named(path, monkeypatch):
    Store(path).close()
    monkeypatch.setattr(_schema, "PATIENCE", 0.1)
    held = sqlite3.connect(path, isolation_level=None)
    held.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="another program has locked"):
        Store(path)
    held.close()


def test_a_full_disk_is_an_error_and_leaves_the_store_intact(path, owner):
    specs = [fake_spec(seed) for seed in range(2)]
    ids = [spec.id for spec in specs]
    large = RESULT.model_copy(update={"arrays": {"spectrum": [0.1] * 100_000}})
    with Store(path) as store:
        store.add(specs)
        store.claim(owner, ids)
        store.claim(owner, ids)
        store.finish(owner, ids[0], RESULT)
        (pages,) = store._connection.execute("PRAGMA page_count").fetchone()
        store._connection.execute(f"PRAGMA max_page_count = {pages + 2}")
        with pytest.raises(StoreError, match="whose disk is full, expected room to write"):
            store.finish(owner, ids[1], large)
        assert store.status(ids) == {ids[0]: "done", ids[1]: "running"}
        assert len(store.series()) == len(RESULT.series)
        store._connection.execute("PRAGMA max_page_count = 1000000")
        assert store.finish(owner, ids[1], large)
        assert store._connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


# A process without the rights of root, which may write everywhere.
UNPRIVILEGED = """
import os, sys
from isotropy.errors import StoreError
from isotropy.experiments.store import Store
if os.getuid() == 0:
    os.setuid(65534)
read_only = sys.argv[2] == "read"
try:
    with Store(sys.argv[1], read_only=read_only) as store:
        print(len(store.runs()))
except StoreError as error:
    print(error)
"""


@pytest.fixture
def everybodys():
    """A folder that other users can reach, unlike those of pytest."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


def unprivileged(path, how):
    command = [sys.executable, "-c", UNPRIVILEGED, str(path), how]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_read_only_file_and_folder(everybodys, owner):
    path = everybodys / "runs.db"
    done(path, [fake_spec()], owner)
    path.chmod(0o444)
    everybodys.chmod(0o555)
    before = path.read_bytes()
    said = unprivileged(path, "write")
    assert "runs.db', which is read-only, expected a file and a folder that can be written" in said
    assert unprivileged(path, "read") == "1"
    said = unprivileged(everybodys / "new.db", "write")
    assert "new.db', which cannot be opened (its folder cannot be written)" in said
    path.chmod(0o000)
    assert "cannot be opened (Permission denied)" in unprivileged(path, "write")
    assert "cannot be opened (Permission denied)" in unprivileged(path, "read")
    path.chmod(0o644)
    assert path.read_bytes() == before
    assert list(everybodys.iterdir()) == [path]


# Results that could not be written.


def test_a_rescued_result_is_adopted_once(path, owner):
    specs = [fake_spec(seed) for seed in range(2)]
    ids = [spec.id for spec in specs]
    with Store(path) as store:
        store.add(specs)
        store.claim(owner, ids)
        store.finish(owner, ids[0], RESULT)
        other = RESULT.model_copy(update={"last": {"accuracy": 0.1}})
        files = [rescue(path, run, other) for run in ids]
        assert all(file.parent == path.parent for file in files)
        assert stat.S_ISREG(files[0].stat().st_mode)
        assert store.adopt() == 1
        assert [run.result.last["accuracy"] for run in store.runs()] == [0.75, 0.1]
        assert len(store.series()) == 2 * len(RESULT.series)
        assert not any(file.exists() for file in files)
        assert store.adopt() == 0


@pytest.mark.parametrize("text", ["", "{", "[]", '{"store": "x"}'])
def test_a_rescued_file_that_is_not_whole_stops_nothing(path, owner, text):
    spec = fake_spec()
    with Store(path) as store:
        store.add([spec])
        file = rescue(path, spec.id, RESULT)
        whole = file.read_text()
        file.write_text(text)
        assert store.adopt() == 0
        file.write_text(whole)
        assert store.adopt() == 1


def test_a_result_is_rescued_elsewhere_where_there_is_no_room(tmp_path, path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(elsewhere))
    away = tmp_path / "no-folder" / "runs.db"
    file = rescue(away, "abc", RESULT)
    assert file.parent == elsewhere
    # That of another store is left alone.
    with Store(path) as store:
        assert store.adopt() == 0
    assert file.exists()


# Exports.


@pytest.fixture
def exported(path, owner):
    specs = [
        RunSpec(model="a", task="t", method=MethodSettings(name="m", settings={"weight": 2})),
        RunSpec(model="a", task="t", method=MethodSettings(name="m", settings={"weight": "one"})),
        RunSpec(model='ü, "b"', task="t"),
    ]
    done(path, specs[:2], owner, FakePlan(specs))
    with Store(path) as store:
        store.add(specs[2:])
    return path


def test_export_to_csv(exported, tmp_path):
    out = tmp_path / "table.csv"
    assert export(exported, out) == [out, tmp_path / "table-series.csv"]
    with out.open(encoding="utf-8", newline="") as opened:
        rows = list(csv.DictReader(opened))
    assert [row["status"] for row in rows] == ["done", "done", "pending"]
    assert [row["method.settings.weight"] for row in rows] == ["2", "one", ""]
    assert rows[2]["model"] == 'ü, "b"'
    assert rows[0]["train.batch_size"] == "32"
    assert rows[0]["last.accuracy"] == "0.75"
    assert rows[0]["measures.two_nn@3"] == "4.5"
    assert rows[0]["notes"] == '["one", "two"]'
    assert rows[0]["seconds"] == "12.5"
    assert rows[0]["plans"] == '["fake"]'
    with (tmp_path / "table-series.csv").open(encoding="utf-8", newline="") as opened:
        points = list(csv.DictReader(opened))
    assert len(points) == 60
    assert points[1] == {"run": rows[0]["id"], "name": "loss", "step": "1", "value": str(1 / 7)}


def test_export_to_parquet(exported, tmp_path):
    runs, series = export(exported, tmp_path / "table.parquet")
    table = pq.read_table(runs).to_pydict()
    assert table["method.settings.weight"] == ["2", '"one"', None]
    assert table["arrays.spectrum"] == [[3.0, 0.1], [3.0, 0.1], None]
    assert table["last.accuracy"] == [0.75, 0.75, None]
    assert pq.read_table(series).num_rows == 60


def test_export_to_a_folder_and_of_one_plan(exported, tmp_path):
    with Store(exported, read_only=True) as store:
        files = store.export_parquet(tmp_path / "out", "fake")
        assert files == [tmp_path / "out" / "runs.parquet", tmp_path / "out" / "series.parquet"]
        assert pq.read_table(files[0]).num_rows == 2
        store.export_csv(tmp_path / "out", "fake")


def test_an_export_replaces_nothing_unless_it_is_told_to(exported, tmp_path):
    out = tmp_path / "table.csv"
    (tmp_path / "table-series.csv").write_text("mine")
    with pytest.raises(StoreError, match=r"table-series\.csv', which exists"):
        export(exported, out)
    assert not out.exists()
    export(exported, out, overwrite=True)
    assert out.exists()
    with pytest.raises(StoreError, match=r"expected the ending \.csv or \.parquet"):
        export(exported, tmp_path / "table.xls")
    with pytest.raises(StoreError, match="cannot be written"):
        export(exported, tmp_path / "no" / "table.csv")


def test_an_empty_store_can_be_exported(path, tmp_path):
    Store(path).close()
    for ending in ("csv", "parquet"):
        runs, _ = export(path, tmp_path / f"table.{ending}")
        assert runs.exists()

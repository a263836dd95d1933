import os
import subprocess
import sys
from pathlib import Path

import pytest
from fakes import WORK, FakePlan, fake_score, fake_spec

from isotropy.errors import SettingError, StoreError
from isotropy.experiments import execution
from isotropy.experiments._owner import at_work
from isotropy.experiments.engines._engine import Failed, Finished, Lost, Progressed
from isotropy.experiments.engines.local import LocalEngine
from isotropy.experiments.spec import Place, RunResult
from isotropy.experiments.store import Store

SPECS = [fake_spec(seed) for seed in range(5)]


def result(spec):
    return RunResult(metric="accuracy", last={"accuracy": fake_score(spec)})


class FakeEngine:
    """Ends runs as it is told to, in this process; a run that is not named gets its result."""

    slots = 2

    def __init__(self, **outcomes):
        self.outcomes = {int(seed[1:]): list(events) for seed, events in outcomes.items()}
        self.going, self.begun, self.stopped, self.most = [], [], 0, 0
        self.before = lambda: None

    def start(self, spec, place):
        self.begun.append(spec.seed)
        self.going.append(spec)
        self.most = max(self.most, len(self.going))

    def wait(self, seconds):
        self.before()
        if not self.going:
            return []
        spec = self.going.pop(0)
        outcome = next(iter(self.outcomes.get(spec.seed, ())), None)
        if outcome is not None:
            self.outcomes[spec.seed].pop(0)
            if isinstance(outcome, BaseException) or outcome is KeyboardInterrupt:
                raise outcome
            return [outcome(spec)]
        return [Progressed(spec.id, "training", 1, 2), Finished(spec.id, result(spec))]

    def stop(self):
        self.stopped += 1
        self.going.clear()


def lost(spec):
    return Lost(spec.id, "its process was killed\nlog")


def failed(spec):
    return Failed(spec.id, "ValueError: no\n\ntrace")


@pytest.fixture
def carry_out(tmp_path, monkeypatch):
    monkeypatch.setattr(execution, "_LOOK", 0.01)

    def run(engine, plan=None, **others):
        others = {"show": False, **others}
        return execution.run(
            plan or FakePlan(SPECS), store=tmp_path / "runs.db", engine=engine, **others
        )

    return run


def test_all_runs_of_a_plan(carry_out, tmp_path):
    engine = FakeEngine()
    plan = FakePlan(SPECS)
    runs = carry_out(engine, plan, place=Place(data_dir="data"))
    assert [run.spec for run in runs] == SPECS
    assert [run.result for run in runs] == [result(spec) for spec in SPECS]
    assert (runs.plan, runs.store, runs.failed, runs.left) == (plan, tmp_path / "runs.db", (), ())
    assert len(runs) == 5
    assert runs[1] is runs[1:3][0]
    assert engine.begun == [0, 1, 2, 3, 4]
    assert (engine.most, engine.stopped) == (2, 1)
    with Store(runs.store, read_only=True) as store:
        assert store.plans()[0].place == Place(data_dir="data")


def test_what_is_done_is_not_done_again(carry_out):
    carry_out(FakeEngine())
    engine = FakeEngine()
    runs = carry_out(engine)
    assert [run.status for run in runs] == ["done"] * 5
    assert engine.begun == []


def test_a_failing_run_stops_nothing_and_is_recorded(carry_out):
    runs = carry_out(FakeEngine(_1=[failed]))
    assert [run.status for run in runs] == ["done", "failed", "done", "done", "done"]
    assert runs.failed == (runs[1],)
    assert runs[1].error == "ValueError: no\n\ntrace"
    again = FakeEngine()
    carry_out(again)
    assert again.begun == []
    runs = carry_out(again, retry_failed=True)
    assert again.begun == [1]
    assert runs.failed == ()


def test_a_plan_of_which_all_runs_fail(carry_out):
    runs = carry_out(FakeEngine(**{f"_{seed}": [failed] for seed in range(5)}))
    assert len(runs.failed) == 5


def test_a_lost_run_is_repeated_three_times_and_then_left(carry_out, capsys):
    engine = FakeEngine(_1=[lost, lost], _3=[lost] * 9)
    runs = carry_out(engine, show=True)
    assert engine.begun.count(1) == 3
    assert engine.begun.count(3) == 3
    assert [run.status for run in runs] == ["done", "done", "done", "pending", "done"]
    assert runs.left == (runs[3],)
    said = capsys.readouterr().err
    assert said.count("its process was killed; again at once") == 4
    assert said.count("its process was killed; 3 times now, left for the next start") == 1
    assert carry_out(FakeEngine()).left == ()


def test_only_some_runs(carry_out):
    engine = FakeEngine()
    runs = carry_out(engine, only="seed=1,seed=3")
    assert [run.spec.seed for run in runs] == engine.begun == [1, 3]
    with Store(runs.store, read_only=True) as store:
        assert len(store.runs("fake")) == 5  # the plan is what it is
    with pytest.raises(SettingError, match="no run has seed=9; there are: 0, 1, 2, 3, 4"):
        carry_out(engine, only="seed=9")


def test_ctrl_c_gives_runs_back(carry_out, capsys):
    engine = FakeEngine(_2=[KeyboardInterrupt])
    with pytest.raises(KeyboardInterrupt):
        carry_out(engine, show=True)
    assert engine.stopped
    assert capsys.readouterr().err.endswith("The same command goes on with what is left.\n")
    again = FakeEngine()
    assert [run.status for run in carry_out(again)] == ["done"] * 5
    assert again.begun == [2, 3, 4]


def test_a_bug_of_an_engine_gives_runs_back_too(carry_out, tmp_path):
    with pytest.raises(ZeroDivisionError):
        carry_out(FakeEngine(_0=[ZeroDivisionError()]))
    with Store(tmp_path / "runs.db", read_only=True) as store:
        assert set(store.status([s.id for s in SPECS]).values()) == {"pending"}


def test_what_another_process_does_is_waited_for(carry_out, tmp_path):
    with Store(tmp_path / "runs.db") as store, at_work() as other:
        store.add(SPECS)
        store.claim(other, [SPECS[2].id])
        engine, waited = FakeEngine(), []

        def before():
            if not engine.going:
                waited.append(1)
                if len(waited) == 3:
                    store.finish(other, SPECS[2].id, result(SPECS[2]))

        engine.before = before
        runs = carry_out(engine)
    assert engine.begun == [0, 1, 3, 4]
    assert len(waited) >= 3
    assert [run.status for run in runs] == ["done"] * 5


def test_what_another_process_left_is_taken_over(carry_out, tmp_path):
    with Store(tmp_path / "runs.db") as store:
        store.add(SPECS)
        engine = FakeEngine()
        with at_work() as other:
            store.claim(other, [SPECS[2].id])
        assert all(run.status == "done" for run in carry_out(engine))
    assert engine.begun == [0, 1, 2, 3, 4]


def test_a_run_that_was_taken_away_is_not_written_twice(carry_out, tmp_path):
    engine = FakeEngine()

    def taken():
        with Store(tmp_path / "runs.db") as store, at_work() as other:
            if engine.begun == [0, 1]:
                store._connection.execute("UPDATE runs SET owner = NULL, status = 'pending'")
                store.claim(other, [SPECS[0].id])
                better = RunResult(metric="accuracy", last={"accuracy": 1.0})
                store.finish(other, SPECS[0].id, better)

    engine.before = taken
    runs = carry_out(engine)
    assert runs[0].result.last == {"accuracy": 1.0}
    assert runs[0].attempts == 2
    assert [run.status for run in runs] == ["done"] * 5


class FullDisk:
    """A disk that is full for a while: what is written into the store then is refused."""

    def __init__(self, monkeypatch, method, times):
        self.left, real = times, getattr(Store, method)

        def refused(*given):
            if self.left:
                self.left -= 1
                raise StoreError("got store 'runs.db', whose disk is full")
            return real(*given)

        monkeypatch.setattr(Store, method, refused)


def test_a_result_that_cannot_be_written_is_written_later(carry_out, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr(execution, "_BEAT", 0.0)
    FullDisk(monkeypatch, "finish", times=2)
    engine = FakeEngine()
    runs = carry_out(engine, show=True)
    assert engine.begun == [0, 1, 2, 3, 4]
    assert [run.status for run in runs] == ["done"] * 5
    assert [path.name for path in tmp_path.iterdir()] == ["runs.db"]
    said = capsys.readouterr().err
    assert "cannot be written: got store 'runs.db', whose disk is full" in said
    assert "The store can be written again, and has all that had ended." in said


@pytest.mark.parametrize("method", ["finish", "fail", "release"])
def test_nothing_is_lost_while_nothing_can_be_written(carry_out, monkeypatch, tmp_path, method):
    engine = FakeEngine(_0=[{"fail": failed, "release": lost}.get(method)][: method != "finish"])
    disk = FullDisk(monkeypatch, method, times=1000)
    with pytest.raises(StoreError, match=r"whose disk is full") as caught:
        carry_out(engine)
    assert engine.begun == [0, 1]  # no more is begun then
    kept = sorted(tmp_path.glob("isotropy-rescued-*.json"))
    assert len(kept) == (2 if method == "finish" else 0)
    assert all(str(file) in str(caught.value) for file in kept)
    disk.left = 0
    again = FakeEngine()
    assert [run.status for run in carry_out(again)] == ["done"] * 5
    assert again.begun == ([2, 3, 4] if method == "finish" else [0, 2, 3, 4])
    assert [path.name for path in tmp_path.iterdir()] == ["runs.db"]


def test_a_result_that_can_be_kept_nowhere_is_counted(carry_out, monkeypatch):
    FullDisk(monkeypatch, "finish", times=1000)
    monkeypatch.setattr(execution, "rescue", lambda *given: None)
    with pytest.raises(StoreError, match="2 results could be kept nowhere, those runs will be"):
        carry_out(FakeEngine())


def test_a_store_that_cannot_be_claimed_from_is_told_once_all_has_ended(carry_out, monkeypatch):
    engine = FakeEngine()
    disk = FullDisk(monkeypatch, "claim", times=0)
    engine.before = lambda: setattr(disk, "left", 1000)
    with pytest.raises(StoreError, match="whose disk is full"):
        carry_out(engine)
    assert engine.begun == [0, 1]
    disk.left, again = 0, FakeEngine()
    assert [run.status for run in carry_out(again)] == ["done"] * 5
    assert again.begun == [2, 3, 4]


def test_an_unknown_engine_and_too_many_workers(carry_out):
    with pytest.raises(SettingError, match=r"got engine 'lokal', .*did you mean 'local'"):
        carry_out("lokal")
    with pytest.raises(SettingError, match=r"got workers=1000 of 1 threads each"):
        carry_out("local", workers=1000)


FILL = """
import sys
sys.path[:] = {path!r}
from pathlib import Path
from fakes import WORK, FakePlan, fake_spec
from isotropy.errors import StoreError
from isotropy.experiments import execution
from isotropy.experiments.engines.local import LocalEngine
from isotropy.experiments.spec import Place
folder = Path(sys.argv[1])
filler = folder / "filler"
plan = FakePlan([fake_spec(seed, seconds=0.3) for seed in range(6)])
class Engine(LocalEngine):
    def wait(self, seconds):
        if not filler.exists():
            with filler.open("wb", buffering=0) as opened:
                try:
                    while True:
                        opened.write(bytes(4096))
                except OSError:
                    pass
        return super().wait(seconds)
try:
    execution.run(plan, store=folder / "runs.db", engine=Engine(2, work=WORK),
                  place=Place(data_dir=sys.argv[2]))
except StoreError as error:
    print(error)
"""


@pytest.fixture
def small_disk(tmp_path):
    """A disk of its own, with room for two megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=2m", "isotropy-test", str(folder)]
    try:
        subprocess.run(command, check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("needs the right to mount a disk")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_disk_that_really_fills_up(small_disk, tmp_path):
    """The results go elsewhere, the store stays intact, and the next start has them all."""
    store, elsewhere = small_disk / "runs.db", tmp_path / "elsewhere"
    elsewhere.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", FILL.format(path=sys.path), str(small_disk), str(tmp_path)],
        env={**os.environ, "TMPDIR": str(elsewhere)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "whose disk is full, expected room to write; free some and give" in done.stdout
    kept = list(elsewhere.glob("isotropy-rescued-*.json"))
    assert len(kept) == 2
    assert all(str(file) in done.stdout for file in kept)
    (small_disk / "filler").unlink()
    with Store(store) as opened:
        assert opened._connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert [run.status for run in opened.runs()] == ["pending"] * 6
    subprocess.run(
        [sys.executable, "-c", FILL.format(path=sys.path).replace("not filler", "False and not f"),
         str(small_disk), str(tmp_path)],
        env={**os.environ, "TMPDIR": str(elsewhere)},
        check=True,
    )  # fmt: skip
    with Store(store, read_only=True) as opened:
        assert [run.status for run in opened.runs()] == ["done"] * 6
        assert sum(run.attempts for run in opened.runs()) == 6
    assert not list(elsewhere.iterdir())


def test_the_local_engine_does_a_plan(carry_out, tmp_path):
    specs = [fake_spec(0), fake_spec(1, die="once"), fake_spec(2, **{"raise": "no"})]
    engine = LocalEngine(1, work=WORK)
    runs = carry_out(engine, FakePlan(specs), place=Place(data_dir=str(tmp_path)))
    assert [(run.status, run.attempts) for run in runs] == [("done", 1), ("done", 2), ("failed", 1)]
    assert not Path(engine._folder).exists()

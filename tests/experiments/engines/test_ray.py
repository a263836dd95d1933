"""On a local Ray cluster of two workers."""

import os
import signal
import sys
import time
from pathlib import Path

import pytest
from fakes import WORK, FakePlan, fake_score, fake_spec, journal, lives, until

from isotropy.errors import MissingExtraError, SettingError
from isotropy.experiments import execution
from isotropy.experiments.spec import Place

ray = pytest.importorskip("ray")
# What Ray's own modules do is not ours to mend.
pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture(scope="module")
def cluster():
    """Two cores; its processes find the tests' modules."""
    before = os.environ.get("PYTHONPATH")
    folder = str(Path(__file__).parents[1])
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [folder, before]))
    ray.init(
        address="local",
        num_cpus=2,
        include_dashboard=False,
        log_to_driver=False,
        logging_level="error",
        object_store_memory=100 << 20,
    )
    yield
    ray.shutdown()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture
def engine(cluster):
    from isotropy.experiments.engines.ray import RayEngine

    engine = RayEngine(work=WORK)
    yield engine
    engine.stop()


def test_a_plan_with_a_killed_worker_and_an_error(engine, tmp_path):
    specs = [
        fake_spec(0, seconds=2.0, steps=20),
        fake_spec(1),
        fake_spec(2, die="once"),
        fake_spec(3, **{"raise": "oh no"}),
    ]
    told = []
    wait = engine.wait

    def watched(seconds):
        events = wait(seconds)
        told.extend(event for event in events if type(event).__name__ == "Progressed")
        return events

    engine.wait = watched
    assert engine.slots == 2
    runs = execution.run(
        FakePlan(specs),
        store=tmp_path / "runs.db",
        engine=engine,
        place=Place(data_dir=str(tmp_path)),
        show=False,
    )
    assert [(run.status, run.attempts) for run in runs] == [
        ("done", 1), ("done", 1), ("done", 2), ("failed", 1),
    ]  # fmt: skip
    assert [run.result.last["accuracy"] for run in runs[:3]] == [fake_score(s) for s in specs[:3]]
    assert len(runs[0].result.series) == 20
    assert runs[3].error.startswith("ValueError: oh no\n\nTraceback")
    begun = journal(tmp_path, "begin")
    assert [sum(line[1] == spec.id for line in begun) for spec in specs] == [1, 1, 2, 1]
    assert len({line[2] for line in begun}) == 5  # a fresh process each
    assert any(event.run == specs[0].id and event.stage == "working" for event in told)


def test_a_worker_killed_from_outside_is_lost(engine, tmp_path):
    engine.start(fake_spec(seconds=600), Place(data_dir=str(tmp_path)))
    [line] = until(lambda: journal(tmp_path, "begin"))
    os.kill(line[2], signal.SIGKILL)
    events = until(lambda: [e for e in engine.wait(1.0) if type(e).__name__ == "Lost"])
    assert "died unexpectedly" in events[0].reason
    assert "\n" not in events[0].reason


def test_stopping_ends_runs_and_leaves_a_cluster_of_others(engine, tmp_path):
    engine.start(fake_spec(seconds=600), Place(data_dir=str(tmp_path)))
    [line] = until(lambda: journal(tmp_path, "begin"))
    engine.stop()
    until(lambda: not lives(line[2]))
    assert ray.is_initialized()


def test_an_interruption_waits_until_ray_has_started():
    from isotropy.experiments.engines.ray import _held_back

    before, done = signal.getsignal(signal.SIGINT), []

    def interrupted(times):
        with _held_back():
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
            done.append(times)

    for times in (1, 2):
        with pytest.raises(KeyboardInterrupt):
            interrupted(times)
    assert done == [1]
    assert signal.getsignal(signal.SIGINT) is before


def test_workers_are_limited_and_must_fit(cluster):
    from isotropy.experiments.engines.ray import RayEngine

    engine = RayEngine(work=WORK, workers=1)
    assert engine.slots == 1
    began = time.monotonic()
    assert engine.wait(0.1) == []
    assert time.monotonic() - began >= 0.1
    engine.stop()
    with pytest.raises(SettingError, match="runs of 8 threads for a cluster of 2 cores"):
        RayEngine(work=WORK, threads=8)
    with pytest.raises(SettingError, match="threads and a GPU each for a cluster of 2 cores and 0"):
        RayEngine(work=WORK, gpu=True)
    with pytest.raises(SettingError, match="got workers=0, expected 1 or more"):
        RayEngine(work=WORK, workers=0)


def test_a_missing_ray_names_the_extra(monkeypatch):
    from isotropy.experiments.engines.ray import RayEngine

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(MissingExtraError, match=r"isotropy\[ray\]"):
        RayEngine()

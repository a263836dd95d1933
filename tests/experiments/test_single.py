import pytest
from fakes import fake_score, fake_spec

from isotropy.errors import StoreError
from isotropy.experiments import train
from isotropy.experiments._owner import at_work
from isotropy.experiments.single import train_one
from isotropy.experiments.spec import RunResult
from isotropy.experiments.store import Store


@pytest.fixture
def do(monkeypatch, tmp_path):
    """Does one run, which takes no time, and counts how often it was done."""
    begun = []

    def fake(spec, place, progress):
        begun.append(spec)
        if spec.seed == 1:
            raise ValueError("no")
        if spec.seed == 2 and len(begun) == 1:
            raise KeyboardInterrupt
        return RunResult(metric="accuracy", last={"accuracy": fake_score(spec)})

    monkeypatch.setattr(train, "train", fake)

    def one(seed=0, **others):
        given = {"model": "minilm", "task": "minimal-pairs", "method": "none", "threads": 1}
        return train_one(**{**given, "seed": seed, "store": tmp_path / "runs.db", **others})

    one.begun, one.path = begun, tmp_path / "runs.db"
    return one


def states(path):
    with Store(path, read_only=True) as store:
        return [run.status for run in store.runs()]


def test_a_run_is_done_once(do):
    first, again = do(), do()
    assert (first.result, first.repeated) == (again.result, True)
    assert not again.repeated
    assert "the store had this run already" in again.summary
    assert len(do.begun) == 1


def test_it_needs_no_store(do):
    assert do(store=None).result.last == do(store=None).result.last
    assert len(do.begun) == 2
    assert not do.path.exists()


def test_settings_of_every_part(do):
    settings = {
        "weight": -1,
        "method.refresh_points": 2000,
        "method.accumulate": "cached",
        "train.accumulation": 2,
    }
    spec = do(method="i-star", settings=settings).spec
    assert spec.method.model_dump(exclude={"stage"}) == {
        "name": "i-star",
        "settings": {"weight": -1},
        "refresh_points": 2000,
        "accumulate": "cached",
    }
    stage = do(method="isotropy-layer", settings={"stage.epochs": 7}).spec.method.stage
    assert stage == {"epochs": 7}


def test_a_run_that_fails_is_recorded_and_done_again(do):
    for _ in range(2):
        with pytest.raises(ValueError, match="no"):
            do(seed=1)
        assert states(do.path) == ["failed"]
    assert len(do.begun) == 2


def test_an_interrupted_run_is_given_back(do):
    with pytest.raises(KeyboardInterrupt):
        do(seed=2)
    assert states(do.path) == ["pending"]
    assert do(seed=2).result.last["accuracy"] == fake_score(fake_spec(2))


def test_what_another_process_does_is_left_to_it(do):
    spec = do(store=None).spec
    with Store(do.path) as store, at_work() as other:
        store.add([spec])
        store.claim(other, [spec.id])
        with pytest.raises(StoreError, match="got a run that another process is doing in"):
            do()


def test_a_result_that_cannot_be_written_is_kept(do, monkeypatch):
    finish = Store.finish

    def full(*given):
        raise StoreError("got store 'runs.db', whose disk is full")

    monkeypatch.setattr(Store, "finish", full)
    with pytest.raises(StoreError, match=r"disk is full; the result is kept in .*\.json until"):
        do()
    monkeypatch.setattr(Store, "finish", finish)
    again = do()
    assert not again.repeated
    assert again.result.last == {"accuracy": fake_score(again.spec)}
    assert len(do.begun) == 1

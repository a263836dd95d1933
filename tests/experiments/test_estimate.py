from collections import Counter
from typing import Any

import pytest

from isotropy.errors import SourceError
from isotropy.experiments import estimate as estimates
from isotropy.experiments.estimate import Costs, Estimate, Size, duration, estimate
from isotropy.experiments.spec import Place, RunResult, RunSpec
from isotropy.experiments.tasks import TASKS, Splits

FIXED, START, STEP, ROW = 3.0, 5.0, 0.25, 0.01
TRAIN_ROWS, EVAL_ROWS = 1000, 200


@pytest.fixture(autouse=True)
def _rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tasks with so many rows, but for one whose data are not there."""

    def load(task: Any, data: Any, place: Place) -> Splits:
        if task.name == "rte":
            raise SourceError("got no folder for rte, expected one")
        row = {"text": "x", "label": 0}
        return Splits([row] * TRAIN_ROWS, {"dev": [row] * EVAL_ROWS})

    monkeypatch.setattr(type(TASKS["cola"]), "load", load)


class Clockwork:
    """A training that takes exactly as long as its costs say."""

    def __init__(self, broken: str = "") -> None:
        self.asked: list[RunSpec] = []
        self.broken = broken

    def __call__(self, spec: RunSpec, place: Place) -> RunResult:
        self.asked.append(spec)
        if spec.model == self.broken:
            raise SourceError(f"got model {self.broken!r}, expected one that is here")
        size = Size.of(spec, TRAIN_ROWS, EVAL_ROWS)
        starts = size.epochs if spec.method.name == "i-star" else 1
        train = START * max(1, round(starts)) * (spec.method.name != "none") + STEP * size.steps
        rest = FIXED + ROW * size.rows * size.evaluations
        return RunResult(metric="x", last={}, seconds=train + rest, train_seconds=train)


def spec(**changes: Any) -> RunSpec:
    return RunSpec.read({"model": "minilm", "task": "cola", **changes})


def test_costs_follow_from_two_probes() -> None:
    train = Clockwork()
    i_star = spec(method={"name": "i-star"})
    estimate([i_star], Place(), train=train)
    small, large = map(Clockwork(), train.asked, [Place()] * 2)
    costs = Costs.of(small, large)
    assert (costs.fixed, costs.start) == pytest.approx((FIXED, START))
    assert (costs.step, costs.row) == pytest.approx((STEP, ROW))


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"train": {"epochs": 7, "batch_size": 50, "evaluations": 2}},
        {"train": {"max_steps": 64}, "data": {"train_rows": 320, "eval_rows": 100}},
        {"train": {"accumulation": 4}, "data": {"tune": 0.2}},
        {"method": {"name": "i-star"}},
        {"method": {"name": "cosine"}},
    ],
)
def test_a_run_is_as_long_as_its_parts(changes: dict[str, Any]) -> None:
    run = spec(**changes)
    found = estimate([run], Place(), train=Clockwork())
    assert found.seconds[run.id] == pytest.approx(Clockwork()(run, Place()).seconds, rel=0.05)


def test_probes_are_short_and_measure_nothing() -> None:
    train = Clockwork()
    run = spec(
        train={"epochs": 9, "patience": 1},
        data={"tune": 0.5, "train_rows": 900},
        measure={"track": ["iso_score"], "final": ["two_nn"]},
    )
    estimate([run], Place(), train=train)
    assert [probe.train.max_steps for probe in train.asked] == [2, 6]
    for probe in train.asked:
        assert probe.train.patience is None
        assert probe.data.tune == 0
        assert probe.data.train_rows == 900
        assert probe.data.eval_rows is not None
        assert probe.data.eval_rows < 100
        assert probe.measure.track == probe.measure.final == ()
    whole = Clockwork()
    estimate([spec()], Place(), train=whole)
    assert whole.asked[0].data.train_rows == 2000


def test_seeds_and_weights_are_of_one_kind_and_batches_are_not() -> None:
    train = Clockwork()
    runs = [spec(seed=seed, method={"name": "cosine"}) for seed in range(5)]
    runs += [spec(method={"name": "cosine", "settings": {"weight": 3}})]
    runs += [spec(train={"batch_size": 8})]
    found = estimate(runs, Place(), train=train)
    assert len(train.asked) == 2 * 2
    assert len(found.seconds) == 7
    assert len(found.probed) == 2


def test_probes_are_bounded_and_each_model_and_task_comes_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(estimates, "MOST_PROBES", 4)
    train = Clockwork()
    runs = [
        spec(task=task, method={"name": name})
        for task in ("cola", "mrpc", "sst2")
        for name in ("none", "cosine", "zero-mean")
    ]
    found = estimate(runs, Place(), train=train)
    assert Counter(probe.task for probe in train.asked[:6]) == {"cola": 2, "mrpc": 2, "sst2": 2}
    assert len(found.probed) == 4
    assert len(found.seconds) == 9
    assert found.limits.startswith("5 of 9 kinds of runs were not tried")
    assert "5 of 9 kinds" in str(found)


def test_probes_end_when_their_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(estimates, "PROBE_SECONDS", -1)
    train = Clockwork()
    found = estimate([spec()], Place(), train=train)
    assert train.asked == []
    assert found.seconds == {}
    assert "1 runs of which nothing is known" in str(found)


def test_what_is_not_here_is_said_once() -> None:
    runs = [spec(), spec(task="rte"), spec(task="rte", seed=1), spec(model="elsewhere")]
    train = Clockwork(broken="elsewhere")
    found = estimate(runs, Place(), train=train, missing=["got no data for squad"])
    assert set(found.seconds) == {runs[0].id}
    assert found.not_here == (
        "got no data for squad",
        "data of rte: got no folder for rte, expected one",
        "elsewhere cola none seed=0: got model 'elsewhere', expected one that is here",
    )
    text = str(found)
    assert text.count("not here: ") == 3
    assert "and 3 runs of which nothing is known" in text


def test_runs_share_the_workers_and_the_longest_is_no_shorter() -> None:
    runs = [spec(seed=seed) for seed in range(3)]
    each = Clockwork()(runs[0], Place()).seconds
    found = estimate(runs, Place(), workers=2, train=Clockwork())
    assert found.total == pytest.approx(1.5 * each, rel=0.02)
    assert estimate(runs, Place(), workers=9, train=Clockwork()).total == pytest.approx(
        each, rel=0.02
    )


def test_the_table_has_a_line_for_a_cell_in_80_columns() -> None:
    runs = [
        spec(seed=seed, method={"name": "i-star", "settings": {"weight": weight}})
        for weight in (-1, 5)
        for seed in range(3)
    ]
    text = str(estimate(runs, Place(), workers=2, train=Clockwork()))
    assert "minilm cola i-star weight=-1      3     96" in text
    assert "6 runs, 2 at a time: about" in text
    assert "from 1 probes: minilm cola i-star" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_progress_is_told() -> None:
    told: list[tuple[str, int, int | None]] = []
    estimate([spec()], Place(), train=Clockwork(), progress=lambda *step: told.append(step))
    assert told == [("probes", 0, 1), ("probes", 1, 1)]


def test_an_empty_plan_takes_no_time() -> None:
    assert Estimate((), {}, {}, 1).total == 0


def test_durations() -> None:
    assert duration(3599.6) == "1 h 0 min"
    assert duration(59.7) == "1 min 0 s"

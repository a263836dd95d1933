"""The frame of a comparison, from runs whose scores are made up."""

import math
from collections.abc import Callable
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from isotropy.errors import SettingError
from isotropy.experiments.comparison import compare
from isotropy.experiments.spec import Place
from isotropy.experiments.store import Store

BASE = [0.80, 0.82, 0.79, 0.81, 0.80]
BETTER = [0.85, 0.86, 0.84, 0.87, 0.85]
SAME = [0.81, 0.79, 0.80, 0.82, 0.80]

Run = Callable[..., Any]


def row(frame: pd.DataFrame, **where: str) -> dict[str, Any]:
    for name, value in where.items():
        frame = frame[frame[name] == value]
    assert len(frame) == 1
    return {str(name): value for name, value in frame.iloc[0].items()}


@pytest.fixture
def runs(a_run: Run) -> list[Any]:
    def cell(scores: list[float], **kwargs: Any) -> list[Any]:
        return [a_run(score, seed=seed, **kwargs) for seed, score in enumerate(scores)]

    return [
        *cell(BETTER, method="cosine", measures={"iso_score": 0.5}, seconds_per_epoch=12),
        *cell(BASE, measures={"iso_score": 0.25}, seconds_per_epoch=10),
        *cell(SAME, method="i-star", settings={"weight": -1}, seconds_per_epoch=20),
    ]


def test_one_row_a_cell_with_the_baseline_first(runs: list[Any]) -> None:
    frame = compare(runs)
    assert list(frame["method"]) == ["none", "cosine", "i-star weight=-1"]
    assert list(frame["n"]) == [5, 5, 5]
    base = row(frame, method="none")
    assert base["score"] == pytest.approx(fmean(BASE))
    assert base["std"] == pytest.approx(stdev(BASE))
    assert base["difference"] is pd.NA
    assert base["cost"] is pd.NA
    assert base["metric"] == "accuracy"


def test_the_numbers_are_those_of_scipy(runs: list[Any]) -> None:
    frame = compare(runs)
    ours, theirs = row(frame, method="cosine"), stats.ttest_ind(BETTER, BASE, equal_var=False)
    assert ours["difference"] == pytest.approx(fmean(BETTER) - fmean(BASE))
    assert ours["p"] == pytest.approx(theirs.pvalue)
    assert (ours["low"], ours["high"]) == pytest.approx(theirs.confidence_interval())
    assert ours["p_paired"] == pytest.approx(stats.ttest_rel(BETTER, BASE).pvalue)
    other = row(frame, method="i-star weight=-1")
    assert ours["p_holm"] == pytest.approx(2 * ours["p"])
    assert other["p_holm"] == pytest.approx(other["p"])
    assert ours["g_low"] < ours["g"] < ours["g_high"]
    assert ours["iso_score"] == 0.5
    assert other["iso_score"] is pd.NA
    assert (ours["cost"], other["cost"]) == pytest.approx((1.2, 2.0))
    assert 0.01 < other["detectable"] < 0.04
    wide = row(compare(runs, level=0.99), method="cosine")
    assert wide["low"] < ours["low"]
    assert wide["g_low"] < ours["g_low"]


def test_medians_where_they_are_wanted(runs: list[Any]) -> None:
    frame = compare(runs, centre="median")
    assert row(frame, method="cosine")["score"] == 0.85


def test_only_the_same_settings_are_compared(a_run: Run) -> None:
    short, long = {"train": {"epochs": 1}}, {"train": {"epochs": 5}}
    runs = [
        *(a_run(0.5 + seed / 100, seed=seed, spec=short) for seed in range(3)),
        *(a_run(0.7 + seed / 100, seed=seed, spec=long) for seed in range(3)),
        *(a_run(0.8 + seed / 100, seed=seed, spec=long, method="cosine") for seed in range(3)),
        *(a_run(0.6, seed=seed, spec={"train": {"epochs": 2}}, method="flow") for seed in range(3)),
    ]
    frame = compare(runs)
    assert sorted(frame["setting"].unique()) == [
        "train.epochs=1",
        "train.epochs=2",
        "train.epochs=5",
    ]
    assert row(frame, method="cosine")["difference"] == pytest.approx(0.1)
    alone = row(frame, method="flow")
    assert alone["difference"] is pd.NA
    assert "no run without a method has the same settings" in alone["notes"]


def test_what_is_measured_does_not_hinder_a_comparison(a_run: Run) -> None:
    runs = [
        *(a_run(0.5 + seed / 100, seed=seed) for seed in range(3)),
        *(
            a_run(0.6 + seed / 90, seed=seed, method="cosine", spec={"measure": {"rows": 99}})
            for seed in range(3)
        ),
    ]
    assert row(compare(runs), method="cosine")["difference"] == pytest.approx(0.1, abs=0.01)


def test_what_is_missing_is_said(a_run: Run) -> None:
    runs = [
        a_run(0.5, seed=0),
        a_run(0.6, seed=1),
        a_run(None, seed=0, method="cosine", notes=["it says 1 of every row"]),
        a_run(0.4, seed=1, method="cosine"),
        a_run(seed=2, method="cosine", status="failed", error="out of memory"),
        a_run(seed=3, method="cosine", status="pending"),
        a_run(seed=4, method="cosine", status="running"),
        a_run(seed=0, method="flow", status="failed", error="bad"),
    ]
    frame = compare(runs)
    cosine = row(frame, method="cosine")
    assert (cosine["n"], cosine["undefined"], cosine["failed"], cosine["missing"]) == (1, 1, 1, 2)
    assert cosine["difference"] == pytest.approx(-0.15)
    assert cosine["p"] is pd.NA
    assert cosine["notes"] == (
        "undefined in 1 of 2 runs; it says 1 of every row (1 of 2 runs); 1 of 5 runs failed; "
        "2 of 5 runs not yet done; one run is too few for a test"
    )
    flow = row(frame, method="flow")
    assert flow["n"] == 0
    assert flow["score"] is pd.NA


def test_no_scatter_is_no_certainty(a_run: Run) -> None:
    runs = [a_run(0.5, seed=seed) for seed in range(3)]
    runs += [a_run(0.6, seed=seed, method="cosine") for seed in range(3)]
    found = row(compare(runs), method="cosine")
    assert found["difference"] == pytest.approx(0.1)
    assert found["p"] is found["p_holm"] is found["g"] is found["detectable"] is pd.NA
    assert found["notes"] == "no scatter over seeds: no test"


def test_cost_is_of_one_machine(a_run: Run) -> None:
    slow, fast = {"machine": {"processor": "slow"}}, {"machine": {"processor": "fast"}}
    runs = [
        a_run(seed=0, seconds_per_epoch=10, **fast),
        a_run(seed=1, seconds_per_epoch=100, **slow),
        a_run(seed=0, method="cosine", seconds_per_epoch=150, **slow),
        a_run(seed=1, method="cosine", seconds_per_epoch=160, **slow),
        a_run(seed=0, method="flow", seconds_per_epoch=9, machine={"processor": "other"}),
        a_run(seed=0, method="i-star", seconds_per_epoch=20, **fast),
        a_run(seed=1, method="i-star", seconds_per_epoch=800, **slow),
    ]
    frame = compare(runs)
    assert row(frame, method="cosine")["cost"] == pytest.approx(1.55)
    assert row(frame, method="flow")["cost"] is pd.NA
    assert row(frame, method="i-star")["cost"] == pytest.approx(math.sqrt(2 * 8))


def test_which_score(a_run: Run) -> None:
    def run(method: str, seed: int) -> Any:
        return a_run(
            0.5,
            method=method,
            seed=seed,
            best={"accuracy": 0.6 + seed / 10},
            late={"accuracy": 0.7, "f1": 0.1},
            last={"accuracy": 0.5, "f1": 0.2},
            series=[
                {"name": "iso_score", "step": step, "value": step / 100} for step in range(1, 101)
            ],
            spec={"measure": {"track": ["iso_score"]}},
        )

    runs = [run(method, seed) for method in ("none", "cosine") for seed in (0, 1)]
    assert set(compare(runs)["score"]) == {0.5}
    assert list(compare(runs, score="best")["score"]) == pytest.approx([0.65, 0.65])
    assert set(compare(runs, score="last", metrics={"mrpc": "f1"})["score"]) == {0.2}
    late = compare(runs, score="late")
    assert set(late["score"]) == {0.7}
    # Steps 71 to 100 of 100.
    assert late["iso_score"].to_numpy(float) == pytest.approx(np.full(2, 0.855))
    assert "iso_score" not in compare(runs)


def test_a_store_and_its_plan(a_run: Run, tmp_path: Path) -> None:
    from isotropy.experiments._owner import at_work
    from isotropy.experiments.plan import Plan

    text = """models = ["minilm"]\ntasks = ["mrpc"]\nmethods = ["none", "cosine"]\nseeds = 2
    [report]\nscore = "late"\ncentre = "median"\nmetrics = {mrpc = "f1"}"""
    plans = [Plan.parse(text, where=f"{name}.toml") for name in ("one", "two")]
    runs = [
        a_run(
            method=method,
            seed=seed,
            last={"accuracy": 0.5, "f1": 0.4},
            late={"accuracy": 0.6, "f1": 0.7 + seed / 10},
        )
        for method in ("none", "cosine")
        for seed in (0, 1)
    ]
    with Store(tmp_path / "runs.db") as store, at_work() as owner:
        store.add([run.spec for run in runs], plans[0], Place())
        for run in runs:
            store.claim(owner, [run.id])
            assert store.finish(owner, run.id, run.result)
    frame = compare(tmp_path / "runs.db")
    assert set(frame["score"]) == {0.75}
    assert set(frame["metric"]) == {"f1"}
    assert set(compare(tmp_path / "runs.db", score="last", metrics={})["score"]) == {0.5}
    with Store(tmp_path / "runs.db") as store:
        store.add([runs[0].spec], plans[1])
    with pytest.raises(SettingError, match=r"got runs of several plans.*'one', 'two'"):
        compare(tmp_path / "runs.db")
    assert len(compare(tmp_path / "runs.db", plan="two")) == 1
    with pytest.raises(SettingError, match=r"got plan 'tow'.*did you mean 'two'"):
        compare(str(tmp_path / "runs.db"), plan="tow")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"score": "best"}, "got score='best', but runs of bert mrpc none have no such scores"),
        ({"score": "worst"}, "got score='worst', expected"),
        ({"centre": "mode"}, "got centre='mode', expected"),
        ({"metrics": {"mrpc": "bleu"}}, "got metric 'bleu' of task mrpc.*choose from: accuracy"),
        ({"level": 95}, "got level=95, expected a number between 0 and 1"),
    ],
)
def test_what_makes_no_sense(a_run: Run, options: dict[str, Any], message: str) -> None:
    runs = [a_run(0.5 + seed / 9, seed=seed, method=m) for seed in (0, 1) for m in ("none", "flow")]
    with pytest.raises(SettingError, match=message):
        compare(runs, **options)


def test_no_runs() -> None:
    with pytest.raises(SettingError, match="got a list without runs"):
        compare([])

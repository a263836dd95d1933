"""The tables of the terminal and of the CSV file."""

import csv
import subprocess
import sys
from collections.abc import Callable
from io import StringIO
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from isotropy import report
from isotropy.errors import SettingError
from isotropy.experiments.plan import Plan
from isotropy.experiments.spec import RunResult
from isotropy.experiments.store import Store

Run = Callable[..., Any]


@pytest.fixture
def runs(a_run: Run) -> list[Any]:
    random = np.random.default_rng(0)
    found = []
    for model in ("google-bert/bert-base-uncased", "a-local-model-with-a-name-that-has-no-end"):
        for task, metric, mean in (("mrpc", "f1", 0.9), ("cola", "matthews", 0.5)):
            for method, change, cost in (
                ("none", 0, 1.0),
                ("persistent-entropy", 0.05, 1.5),
                ("i-star", 0, 2.0),
            ):
                found += [
                    a_run(
                        mean + change + random.normal(0, 0.004),
                        model=model,
                        task=task,
                        method=method,
                        settings={"weight": -1, "zeta": 0.2} if method == "i-star" else None,
                        seed=seed,
                        metric=metric,
                        measures={
                            "iso_score_unbiased": 0.02,
                            "anisotropy_1": 0.5 + random.normal(0, 0.01),
                            "anisotropy_2": 0.1,
                            "two_nn@3": 9.0,
                        },
                        seconds_per_epoch=10 * cost,
                    )
                    for seed in range(4)
                ]
    return found


def test_the_table_of_the_terminal(runs: list[Any]) -> None:
    text = report.table(runs)
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("runs without a plan: 48 runs\n")
    for part in (
        "google-bert/bert-base-uncased",
        "a-local-model-with-a-name-that-ha…",
        "mrpc (f1)",
        "cola (matthews)",
        "iso_score_unbiased",
        "anisotropy_1",
        "1.50×",
        "10 s",
        "Welch's test, corrected for 8 comparisons",
    ):
        assert part in " ".join(text.split())
    assert "anisotropy_2" not in text
    assert "two_nn@3" not in text
    lines = [line for line in text.splitlines() if line.startswith("  persistent-entropy")]
    assert sum("**" in line for line in lines) == 4
    assert "None" not in text
    assert "nan" not in text


def test_scores_are_in_points(a_run: Run) -> None:
    runs = [a_run(0.5 + seed / 100, seed=seed) for seed in (0, 1, 2)]
    runs += [a_run(26 + seed, seed=seed, task="wmt16-en-ro", metric="bleu") for seed in (0, 1, 2)]
    text = report.table(runs)
    assert "51.00 ± 1.00" in text
    assert "27.00 ± 1.00" in text


def test_what_is_missing_is_said(a_run: Run) -> None:
    runs = [
        a_run(0.5, seed=0),
        a_run(0.6, seed=1),
        a_run(None, method="flow", seed=0, notes=["dev: all answers are 1"]),
        a_run(method="cosine", seed=0, status="failed", error="out of memory\n  trace"),
        a_run(method="cosine", seed=1, status="failed", error="\x1b[31mred"),
        a_run(method="i-star", seed=0, status="pending"),
    ]
    text = report.table(runs)
    assert "runs without a plan: 3 of 6 runs" in text
    assert "failed: bert mrpc cosine seed=0: out of memory\n" in text
    assert "trace" not in text
    assert "\x1b" not in text
    assert "bert mrpc flow: dev: all answers are 1" in text
    [line] = [line for line in text.splitlines() if line.startswith("  i-star")]
    assert line.split() == ["i-star", "–", "–", "0/1"]
    [line] = [line for line in text.splitlines() if line.startswith("  flow")]
    assert line.split() == ["flow", "undefined", "–", "1"]
    assert "Welch" not in text


def test_protocols_are_numbered(a_run: Run) -> None:
    runs = [
        a_run(0.5, spec={"train": {"epochs": epochs}}, method=method)
        for method in ("cosine", "none")
        for epochs in (1, 2)
    ]
    text = report.table(runs)
    # Each protocol with its own baseline first, whatever the order of the runs.
    names = [line.split()[0] for line in text.splitlines()[4:10]]
    assert names == ["mrpc", "none", "cosine", "mrpc", "none", "cosine"]
    assert "mrpc (accuracy) [1]" in text
    assert "mrpc (accuracy) [2]" in text
    assert "\n[1] train.epochs=1\n[2] train.epochs=2" in text


@pytest.fixture
def stored(a_run: Run, tmp_path: Path) -> Path:
    """A store with a paper's plan, whose runs are made up, and another."""
    from isotropy.experiments._owner import at_work

    text = """models = ["google-bert/bert-base-uncased"]\ntasks = ["mrpc", "cola"]
    methods = ["none", "persistent-entropy"]\nseeds = 3"""
    paper = Plan.parse(text, where="shrink-the-longest.toml")
    random = np.random.default_rng(0)
    specs = [
        a_run(model="google-bert/bert-base-uncased", task=task, method=method, seed=seed).spec
        for task in ("mrpc", "cola")
        for method in ("none", "persistent-entropy")
        for seed in range(3)
    ]
    with Store(tmp_path / "runs.db") as store, at_work() as owner:
        store.add(specs, paper)
        store.add(specs[:1], Plan.parse(text, where="mine.toml"))
        for spec in specs:
            store.claim(owner, [spec.id])
            metric = "f1" if spec.task == "mrpc" else "matthews"
            less = 0.2 * (spec.method.name != "none")
            result = RunResult(
                metric=metric,
                last={metric: 0.8 + random.normal(0, 0.01), "accuracy": 0.7},
                measures={"anisotropy_1": 0.7 - less + random.normal(0, 0.01)},
                steps=10,
            )
            assert store.finish(owner, spec.id, result)
    return tmp_path / "runs.db"


def test_a_papers_plan(stored: Path) -> None:
    text = report.table(stored)
    assert text.index("shrink-the-longest: 12 runs") < text.index("mine: 1 run")
    assert "printed" in text
    assert "89.20" in text
    assert "A1 supported: These runs support the claim that persistent entropy makes" in text
    assert "A5" not in text
    only = report.table(stored, plan="mine")
    assert only.startswith("mine: 1 run\n")
    assert "printed" not in only
    with pytest.raises(SettingError, match="got plan 'his'"):
        report.table(stored, plan="his")


def test_csv_has_everything(stored: Path) -> None:
    rows = list(csv.DictReader(StringIO(report.csv(stored, plan="shrink-the-longest"))))
    kinds = [row["kind"] for row in rows]
    assert kinds == ["score"] * 4 + ["metric"] * 4 + ["measure"] * 4
    first = rows[0]
    assert (first["method"], first["metric"], first["n"]) == ("none", "f1", "3")
    assert (first["published"], first["published_std"]) == ("0.892", "0.002")
    assert first["published_where"] == "shrink-the-longest table 2"
    assert first["difference"] == ""
    measures = [row for row in rows if row["metric"] == "anisotropy_1"]
    entropy = measures[1]
    assert entropy["method"] == "persistent-entropy"
    assert float(entropy["difference"]) == pytest.approx(-0.2, abs=0.03)
    assert float(entropy["p"]) <= float(entropy["p_holm"]) < 0.05
    assert entropy["published"] == "0.485"
    assert not any("nan" in row.values() or "None" in row.values() for row in rows)


def test_csv_of_all_plans(stored: Path) -> None:
    rows = list(csv.DictReader(StringIO(report.csv(stored))))
    assert {row["plan"] for row in rows} == {"shrink-the-longest", "mine"}


def test_cost_in_csv(runs: list[Any]) -> None:
    rows = list(csv.DictReader(StringIO(report.csv(runs))))
    costs = [row for row in rows if row["kind"] == "cost" and row["method"] == "persistent-entropy"]
    assert [float(row["ratio"]) for row in costs] == pytest.approx([1.5] * 4)
    assert any(row["metric"] == "two_nn@3" for row in rows)


def test_reading_needs_no_torch(stored: Path) -> None:
    code = (
        "import sys; from isotropy import report; "
        f"report.table({str(stored)!r}); report.csv({str(stored)!r}); "
        "print(sorted({'torch', 'transformers', 'datasets', 'ray', 'optuna', 'matplotlib'} "
        "& set(sys.modules)))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"

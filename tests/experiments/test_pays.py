"""The sentences on whether a method pays say what the numbers say."""

from collections.abc import Callable
from typing import Any

import pytest

from isotropy.experiments.pays import sentence

BASE = [0.80, 0.82, 0.79, 0.81, 0.80]

Run = Callable[..., Any]


@pytest.fixture
def cell(a_run: Run) -> Callable[..., list[Any]]:
    # Variances are 1.30e-4 and, with a change, 1.26e-4: 5.0 ± 2.306·0.716 points.
    def make(change: float = 0.0, seeds: int = 5, **kwargs: Any) -> list[Any]:
        # The changes of single runs cancel out, so that means are exact.
        jitter = [0.004, -0.004, 0.0, 0.004, -0.004] if change else [0.0] * 5
        return [
            a_run(BASE[seed] + change + jitter[seed], seed=seed, task="custom", **kwargs)
            for seed in range(seeds)
        ]

    return make


def test_a_gain_and_its_cost(cell: Callable[..., list[Any]]) -> None:
    runs = cell(seconds_per_epoch=10) + cell(0.05, method="cosine", seconds_per_epoch=12.5)
    assert sentence(runs) == (
        "In these runs cosine scored better than no method. With no method, accuracy is "
        "80.4 ± 1.1 points over 5 runs. cosine gains 5.0 points (95 % interval 3.3 to 6.7; "
        "p < .001; compared by seed, p < .001); an epoch takes 1.25 times as long."
    )


def test_a_loss(cell: Callable[..., list[Any]]) -> None:
    said = sentence(cell() + cell(-0.05, method="cosine"))
    assert said.startswith("In these runs cosine scored worse than no method.")
    assert "cosine loses 5.0 points (95 % interval 3.3 to 6.7; p < .001" in said
    assert "an epoch" not in said


def test_nothing_shown_and_what_could_have_been(cell: Callable[..., list[Any]]) -> None:
    said = sentence(cell() + cell(0.002, method="cosine"))
    assert said.startswith("These runs do not show that a method scores better than no method.")
    assert "For cosine no difference was shown: +0.2 points, 95 % interval −1.5 to 1.9, where " in (
        said
    )
    # 3.20 standard errors of √(1.30e-4/5 + 1.26e-4/5), by hand.
    assert "where 2.3 points are the least that these runs could have shown." in said


def test_several_gains_are_not_ranked(cell: Callable[..., list[Any]]) -> None:
    runs = cell() + cell(0.05, method="cosine") + cell(0.06, method="flow")
    said = sentence(runs + cell(-0.001, method="uniformity"))
    assert said.startswith("In these runs flow and cosine scored better than no method.")
    assert "Which of these is better than the others was not tested." in said
    assert "after correction for 3 comparisons" in said
    assert said.index("flow gains") < said.index("cosine gains") < said.index("For uniformity")


def test_a_gain_that_correction_takes_away(cell: Callable[..., list[Any]]) -> None:
    runs = cell() + cell(0.018, method="cosine")
    assert "cosine gains" in sentence(runs)
    others = [run for i in range(6) for run in cell(0.001, method=f"other-{i}")]
    assert "For cosine no difference was shown: +1.8 points" in sentence(runs + others)


def test_one_run_each(cell: Callable[..., list[Any]]) -> None:
    said = sentence(cell(seeds=1) + cell(0.05, seeds=1, method="cosine"))
    assert "gains" not in said
    assert "cosine differs by +5.4 points, of which nothing can be said with certainty." in said
    assert "one run is too few for a test" in said


def test_nothing_to_compare(cell: Callable[..., list[Any]]) -> None:
    assert sentence(cell()).startswith("Nothing can be said: nothing has been compared")
    alone = sentence(cell(method="cosine"))
    assert "no run without a method has the same settings" in alone


def test_models_apart(cell: Callable[..., list[Any]]) -> None:
    runs = (
        cell()
        + cell(0.05, method="cosine")
        + cell(model="other")
        + cell(-0.05, method="cosine", model="other")
    )
    one, other = sentence(runs).split("\n\n")
    assert one.startswith("bert, custom: In these runs cosine scored better")
    assert other.startswith("other, custom: In these runs cosine scored worse")


def test_what_is_undefined_or_failed_is_said(cell: Callable[..., list[Any]], a_run: Run) -> None:
    runs = cell() + cell(0.05, method="cosine")
    runs.append(a_run(task="custom", method="cosine", seed=9, status="failed", error="no memory"))
    assert sentence(runs).endswith("cosine: 1 of 6 runs failed.")

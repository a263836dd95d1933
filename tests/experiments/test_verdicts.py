"""Verdicts on runs whose truth is known, because it was put into them."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from isotropy.errors import SettingError
from isotropy.experiments._claims import Selector, claims, find_claim
from isotropy.experiments.spec import MethodSettings
from isotropy.experiments.verdicts import Verdict, verdicts

Run = Callable[..., Any]
Make = Callable[..., list[Any]]


@pytest.fixture
def simulated(a_run: Run) -> Make:
    """Runs over tasks and seeds, whose scores are normal about a mean."""

    def make(
        tasks: str,
        method: str = "none",
        mean: float = 0.8,
        std: float = 0.005,
        seeds: int = 5,
        measures: dict[str, float] | None = None,
        **kwargs: Any,
    ) -> list[Any]:
        found = []
        for number, task in enumerate(tasks.split()):
            name = repr((task, method, kwargs.get("settings"), mean))
            random = np.random.default_rng(list(name.encode()))
            for seed in range(seeds):
                numbers = {
                    key: value * (1 + random.normal(0, 0.02))
                    for key, value in (measures or {}).items()
                }
                found.append(
                    a_run(
                        mean - number / 20 + random.normal(0, std),
                        task=task,
                        method=method,
                        seed=seed,
                        measures=numbers,
                        **kwargs,
                    )
                )
        return found

    return make


def judged(claim: str, runs: list[Any], **options: Any) -> Verdict:
    [verdict] = verdicts(runs, only=[claim], **options)
    assert verdict.id == claim
    return verdict


# Higher and lower.


def test_an_effect_that_is_there_is_supported(simulated: Make) -> None:
    runs = simulated("rte cola mrpc") + simulated("rte cola mrpc", "isotropy-layer", 0.825)
    verdict = judged("B2", runs)
    assert verdict.status == "supported"
    [finding] = verdict.findings
    assert finding.estimate == pytest.approx(2.5, abs=0.6)
    assert finding.evidence.cells == finding.evidence.above == 3
    assert verdict.runs == 30
    assert verdict.sentence.startswith(
        "These runs support the claim that the isotropy layer gains two or three points of score. "
        "isotropy-layer: the score is 2."
    )
    assert "points higher than with no method on average over 3 cells (95 % interval" in (
        verdict.sentence
    )
    assert "corrected p < .001; positive in 3 of 3; 30 runs)." in verdict.sentence


def test_the_opposite_is_contradicted(simulated: Make) -> None:
    runs = simulated("rte cola mrpc") + simulated("rte cola mrpc", "isotropy-layer", 0.77)
    verdict = judged("B2", runs)
    assert verdict.status == "contradicted"
    assert "points lower than with no method" in verdict.sentence
    low, high = verdict.findings[0].interval  # type: ignore[misc]
    assert low < high < 0


def test_nothing_is_undecided_with_what_could_have_been_shown(simulated: Make) -> None:
    runs = simulated("rte", std=0.02) + simulated("rte", "isotropy-layer", 0.8001, std=0.02)
    verdict = judged("B2", runs)
    assert verdict.status == "undecided"
    [finding] = verdict.findings
    assert finding.detectable is not None
    assert 2 < finding.detectable < 8
    assert "the smallest difference that these runs could have shown is" in verdict.sentence


def test_lower_is_higher_turned_round(simulated: Make) -> None:
    runs = simulated("mrpc cola", measures={"anisotropy_1": 0.6})
    less = simulated("mrpc cola", "persistent-entropy", measures={"anisotropy_1": 0.5})
    more = simulated("mrpc cola", "persistent-entropy", measures={"anisotropy_1": 0.7})
    assert judged("A1", runs + less).status == "supported"
    assert judged("A1", runs + more).status == "contradicted"


def test_errors_of_the_first_kind(a_run: Run) -> None:
    random, wrong = np.random.default_rng(0), 0
    for _ in range(200):
        runs = [
            a_run(random.normal(0.8, 0.01), task=task, method=method, seed=seed)
            for task in ("rte", "cola", "mrpc")
            for method in ("none", "isotropy-layer")
            for seed in range(4)
        ]
        wrong += judged("B2", runs).status != "undecided"
    assert wrong <= 20  # 5 % of 200, and three standard deviations


def test_claims_are_corrected_for_each_other(simulated: Make) -> None:
    runs = simulated("rte cola mrpc", measures={"iso_score": 0.2, "explained_variance_1": 0.5})
    runs += simulated(
        "rte cola mrpc",
        "isotropy-layer",
        0.804,
        measures={"iso_score": 0.3, "explained_variance_1": 0.4},
    )
    alone = judged("B2", runs)
    among = {verdict.id: verdict for verdict in verdicts(runs)}
    assert among["B1"].status == among["B3"].status == "supported"
    assert among["A1"].status == "untested"
    assert alone.findings[0].p_for is not None
    assert among["B2"].findings[0].p_for >= alone.findings[0].p_for  # type: ignore[operator]
    assert among["B2"].findings[0].detectable > alone.findings[0].detectable  # type: ignore[operator]


# Margins.


@pytest.mark.parametrize(
    ("mean", "std", "status"),
    [
        (0.801, 0.003, "supported"),  # nothing lost
        (0.797, 0.002, "supported"),  # surely lower, and by less than a point
        (0.76, 0.003, "contradicted"),
        (0.79, 0.02, "undecided"),
    ],
)
def test_not_lower(simulated: Make, mean: float, std: float, status: str) -> None:
    runs = simulated("mrpc cola", std=std)
    runs += simulated("mrpc cola", "persistent-entropy", mean, std)
    verdict = judged("A4", runs)
    assert verdict.status == status
    assert "Less than 1 point counts as none." in verdict.sentence


@pytest.mark.parametrize(
    ("mean", "std", "status"),
    [
        (0.80, 0.003, "supported"),
        (0.77, 0.003, "contradicted"),
        (0.83, 0.003, "contradicted"),
        (0.80, 0.03, "undecided"),
    ],
)
def test_no_effect(simulated: Make, mean: float, std: float, status: str) -> None:
    runs = simulated("rte cola mrpc", "iso-batch-norm", std=std)
    runs += simulated("rte cola mrpc", "isotropy-layer", mean, std)
    assert judged("B4", runs).status == status


def test_a_margin_of_ones_own(simulated: Make) -> None:
    runs = simulated("rte", "iso-batch-norm") + simulated("rte", "isotropy-layer", 0.84)
    assert judged("B4", runs).status == "contradicted"
    wide = judged("B4", runs, margin=8)
    assert wide.status == "supported"
    assert "Less than 8 points counts as none." in wide.sentence


def test_points_of_scores_that_go_to_a_hundred(simulated: Make) -> None:
    runs = simulated("wmt16-en-ro", mean=26, std=0.1, metric="bleu")
    runs += simulated("wmt16-en-ro", "spectrum-pol", 23, std=0.1, metric="bleu")
    runs += simulated("cola", std=0.005) + simulated("cola", "spectrum-pol", 0.77, 0.005)
    verdict = judged("C3", runs)
    assert verdict.status == "supported"
    assert verdict.findings[0].estimate == pytest.approx(-3, abs=0.5)


# Claims of several methods.


def test_all_methods_of_a_claim_count(simulated: Make) -> None:
    runs = simulated("cola stsb")
    one = simulated("cola stsb", "spectrum-pol", 0.75)
    other = simulated("cola stsb", "spectrum-exp", 0.75)
    helps = simulated("cola stsb", "spectrum-exp", 0.85)
    nothing = simulated("cola stsb", "spectrum-exp", 0.8001, std=0.01)
    assert judged("C3", runs + one + other).status == "supported"
    assert judged("C3", runs + one + helps).status == "mixed"
    assert judged("C3", runs + helps).status == "contradicted"
    assert judged("C3", runs + one + nothing).status == "undecided"
    assert len(judged("C3", runs + one + other).findings) == 2


def test_sites_are_judged_apart(simulated: Make) -> None:
    runs = simulated("cola")
    for site in ("head", "vocabulary"):
        runs += simulated("cola", "cosine", 0.79, settings={"site": site})
    found = judged("C1", runs).findings
    assert [finding.evidence.method for finding in found] == [
        "cosine site=head",
        "cosine site=vocabulary",
    ]


def test_weights_and_shares(simulated: Make) -> None:
    runs = simulated("rte sst2")
    for weight, zeta, mean in [(-5, 0.2, 0.83), (-1, 0.6, 0.82), (-1, 1, 0.5), (3, 0.2, 0.7)]:
        settings = {"weight": weight, "zeta": zeta}
        runs += simulated("rte sst2", "i-star", mean, settings=settings)
    runs += simulated("rte sst2", "i-star", 0.4, settings={"weight": -1, "site": "tokens@3"})
    less, more = judged("D1", runs), judged("D2", runs)
    assert less.status == more.status == "supported"
    assert less.findings[0].estimate == pytest.approx(2.5, abs=0.4)
    assert more.findings[0].estimate == pytest.approx(-10, abs=0.4)
    assert len(less.findings) == 1


def test_a_shared_baseline_counts_once(simulated: Make) -> None:
    runs = simulated("rte", std=0.01)
    for weight in (-5, -3, -1):
        runs += simulated("rte", "i-star", 0.82, 0.0001, settings={"weight": weight})
    difference = judged("D1", runs).findings[0].evidence.difference
    assert difference is not None
    base = np.std([run.result.last["accuracy"] for run in runs[:5]], ddof=1)
    assert difference.error == pytest.approx(base / math.sqrt(5) * 100, rel=0.01)


def test_without_shrinkage_against_the_other_shares(simulated: Make) -> None:
    runs = simulated("rte")
    runs += simulated("rte", "i-star", 0.77, settings={"weight": -1, "zeta": 0})
    for zeta in (0.2, 0.4):
        runs += simulated("rte", "i-star", 0.82, settings={"weight": -1, "zeta": zeta})
    runs += simulated("rte", "i-star", 0.2, settings={"weight": 5, "zeta": 0.2})
    verdict = judged("D7", runs)
    assert verdict.status == "supported"
    assert verdict.findings[0].estimate == pytest.approx(-5, abs=0.8)
    assert "lower than with i-star zeta>0" in verdict.sentence


def test_one_method_against_another(simulated: Make) -> None:
    runs = simulated("cola")
    runs += simulated("cola", "persistent-entropy", 0.83)
    runs += simulated("cola", "persistent-entropy-all", 0.80)
    assert judged("A6", runs).status == "supported"
    own = {"train": {"epochs": 9}}
    runs = simulated("rte", "isotropy-layer") + simulated("rte", "iso-batch-norm", 0.9, spec=own)
    verdict = judged("B4", runs)
    assert verdict.status == "contradicted"
    assert "each under its own training settings" in verdict.sentence


# Other kinds of claims.


def test_time(simulated: Make) -> None:
    def runs(factor: float, machine: str) -> list[Any]:
        base = [
            *simulated("cola", seconds_per_epoch=10, machine={"processor": machine}),
            *simulated("mrpc", seconds_per_epoch=20, machine={"processor": machine}),
        ]
        found = [(run, 1.0) for run in base]
        found += [
            (run, factor)
            for run in simulated(
                "cola mrpc", "flow", seconds_per_epoch=1, machine={"processor": "a"}
            )
        ]
        made, random = [], np.random.default_rng(0)
        for run, times in found:
            own = {"cola": 10, "mrpc": 20}[run.spec.task]
            seconds = own * times * math.exp(random.normal(0, 0.02))
            result = run.result.model_copy(update={"seconds_per_epoch": seconds})
            made.append(type(run)(id=run.id, spec=run.spec, status="done", result=result))
        return made

    verdict = judged("C5", runs(4.2, "a"))
    assert verdict.status == "supported"
    assert math.exp(verdict.findings[0].estimate or 0) == pytest.approx(4.2, rel=0.03)
    assert "flow: an epoch takes 4.16 times the seconds on average over 2 cells" in verdict.sentence
    assert judged("C5", runs(0.5, "a")).status == "contradicted"
    assert judged("C5", runs(4.2, "another")).status == "untested"


@pytest.mark.parametrize(("rise", "status"), [(0.2, "supported"), (-0.2, "contradicted")])
def test_along_training(simulated: Make, rise: float, status: str) -> None:
    series = [
        {"name": "anisotropy_1", "step": step, "value": 0.5 + rise * step / 100}
        for step in range(0, 101, 10)
    ]
    runs = simulated("mrpc", series=series)
    assert judged("A3", runs).status == "undecided"  # no scatter
    random = np.random.default_rng(0)
    noisy = []
    for run in runs:
        points = tuple(
            point.model_copy(update={"value": point.value + random.normal(0, 0.02)})
            for point in run.result.series
        )
        result = run.result.model_copy(update={"series": points})
        noisy.append(type(run)(id=run.id, spec=run.spec, status="done", result=result))
    verdict = judged("A3", noisy)
    assert verdict.status == status
    assert verdict.findings[0].estimate == pytest.approx(0.9 * rise, abs=0.03)  # steps 80 to 100
    assert "at the end than at the start" in verdict.sentence


@pytest.mark.parametrize(
    ("with_it", "against_it", "status"),
    [(1.2, 0.8, "supported"), (0.8, 1.2, "contradicted"), (1.0, 1.0, "undecided")],
)
def test_moving_together(simulated: Make, with_it: float, against_it: float, status: str) -> None:
    def cell(weight: int | None, iso: float, two: float) -> list[Any]:
        return simulated(
            "sst2",
            *(["i-star"] if weight else []),
            settings={"weight": weight, "zeta": 0.2} if weight else None,
            measures={"iso_score_unbiased": iso, "two_nn@0": 1, "two_nn@1": 3, "two_nn@2": two},
        )

    runs = cell(None, 0.2, 10) + cell(5, 0.3, 10 * with_it) + cell(-5, 0.1, 10 * against_it)
    verdict = judged("D5", runs + cell(-1, 0.2, 90))
    assert verdict.status == status
    assert "isotropy moved in 2 of 3 cells, which alone count" in verdict.sentence
    assert "by a test each at 0.05, without correction" in verdict.sentence


@pytest.mark.parametrize(
    ("early", "late", "status"),
    [(0.1, 0.19, "supported"), (0.19, 0.1, "contradicted"), (0.3, 0.21, "supported")],
)
def test_layers(simulated: Make, early: float, late: float, status: str) -> None:
    def layers(low: float, high: float) -> dict[str, float]:
        return {f"iso_score_unbiased@{k}": low if k < 3 else high for k in range(5)}

    runs = simulated("qnli", measures=layers(0.2, 0.2))
    runs += simulated("qnli", "i-star", measures=layers(early, late))
    assert judged("D6", runs).status == status


def test_small_samples() -> None:
    from isotropy.experiments._plan_file import Stability
    from isotropy.experiments._sample_size import of_small_samples

    found = of_small_samples(Stability(sizes=(16, 48), features=64, shrinkage_points=5000, draws=4))
    assert found.difference is not None
    assert found.difference.estimate < 0
    assert found.difference.p() < 0.05  # type: ignore[operator]
    assert found.above == 0
    assert found.cells == 8
    assert "nearer to it in 8 of 8 cases" in found.notes[0]


def test_the_simulation_is_made_where_it_is_wanted(
    simulated: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = simulated("rte")
    assert judged("D8", runs).status == "untested"
    from isotropy.experiments import _sample_size
    from isotropy.experiments._plan_file import Stability

    small = Stability(sizes=(16, 48), features=64, shrinkage_points=5000, draws=4)
    whole = _sample_size.of_small_samples
    monkeypatch.setattr(_sample_size, "of_small_samples", lambda: whole(small))
    assert judged("D8", runs, simulate=True).status == "supported"


# What is missing.


def test_no_runs_for_a_claim(simulated: Make) -> None:
    runs = simulated("sst2") + simulated("sst2", "isotropy-layer", 0.9)
    verdict = judged("B2", runs)
    assert verdict.status == "untested"
    assert verdict.runs == 0
    assert verdict.sentence.startswith("No run here is about the claim that the isotropy layer")
    assert judged("B2", runs, everywhere=True).status == "supported"


def test_one_run_each_decides_nothing(simulated: Make) -> None:
    runs = simulated("rte", seeds=1) + simulated("rte", "isotropy-layer", 0.9, seeds=1)
    verdict = judged("B2", runs)
    assert verdict.status == "undecided"
    assert verdict.findings[0].p_for is None
    assert "no test: too few runs, or no scatter" in verdict.sentence


def test_cells_of_one_run_are_left_out_of_others(simulated: Make) -> None:
    runs = simulated("rte") + simulated("rte", "isotropy-layer", 0.85)
    runs += simulated("cola", seeds=1) + simulated("cola", "isotropy-layer", 0.2, seeds=1)
    verdict = judged("B2", runs)
    assert verdict.status == "supported"
    assert "1 cells with fewer than two scores" not in verdict.sentence
    assert "1 cell with fewer than two scores is left out" in verdict.sentence


def test_scores_without_scatter_are_left_out_of_others(simulated: Make) -> None:
    runs = simulated("rte") + simulated("rte", "isotropy-layer", 0.8)
    still = simulated("cola", std=0) + simulated("cola", "isotropy-layer", 0.9, std=0)
    verdict = judged("B2", runs + still)
    assert "1 cell whose runs do not scatter or predict one thing alone is left out" in (
        verdict.sentence
    )
    [finding], [alone] = verdict.findings, judged("B2", runs).findings
    assert finding.evidence.difference == alone.evidence.difference
    assert finding.evidence.cells == 1
    verdict = judged("B2", still)
    assert verdict.status == "undecided"
    assert verdict.findings[0].estimate == pytest.approx(10)
    assert "predict one thing alone, which decides nothing" in verdict.sentence


@pytest.mark.parametrize("noted", [True, False])
def test_models_that_predict_one_class_are_left_out(simulated: Make, noted: bool) -> None:
    notes = ["dev: all 9 predictions are the class entailment"] if noted else []
    runs = simulated("rte cola") + simulated("cola", "isotropy-layer", 0.8)
    runs += simulated("rte", "isotropy-layer", 0.5, std=0, notes=notes)
    [finding] = judged("B2", runs).findings
    assert finding.evidence.cells == (1 if noted else 2)


def test_undefined_scores_are_said(a_run: Run, simulated: Make) -> None:
    runs = simulated("cola")
    runs += [a_run(None, task="cola", method="spectrum-pol", seed=seed) for seed in range(3)]
    verdict = judged("C3", runs)
    assert verdict.status == "undecided"
    assert "no difference can be had; undefined in 3 of 8 runs" in verdict.sentence


def test_measures_of_other_rows_are_not_compared(simulated: Make) -> None:
    runs = simulated("rte", measures={"iso_score": 0.2}, spec={"measure": {"site": "mean@last"}})
    runs += simulated("rte", "isotropy-layer", measures={"iso_score": 0.4})
    assert judged("B1", runs).status == "untested"


# The list of claims.


def test_the_claims_are_all_there() -> None:
    found = claims()
    assert [claim.id for claim in found] == [
        *(f"A{i}" for i in range(1, 7)),
        *(f"B{i}" for i in range(1, 5)),
        *(f"C{i}" for i in range(1, 6)),
        *(f"D{i}" for i in range(1, 9)),
    ]
    assert find_claim("C1").tasks[:2] == ("sst2", "mrpc")
    assert len(find_claim("C1").tasks) == 9
    assert find_claim("D8").tasks == ()
    with pytest.raises(SettingError, match="got claim 'A9', expected a known claim"):
        find_claim("A9")


def test_every_untested_claim_has_a_sentence(simulated: Make) -> None:
    for verdict in verdicts(simulated("minimal-pairs")):
        assert verdict.status == "untested"
        assert verdict.sentence.endswith(f"the claim that {verdict.claim.claim}.") or (
            "counts as none" in verdict.sentence
        )


@pytest.mark.parametrize(
    ("text", "settings", "matches"),
    [
        ("i-star weight<0", {}, True),
        ("i-star weight>0", {}, False),
        ("i-star zeta=0", {"zeta": 0}, True),
        ("i-star site=tokens@all", {"site": "tokens@2"}, False),
        ("i-star weight=*", {"weight": 7}, True),
        ("i-star gamma>0", {}, False),
        ("cosine weight>0", {}, False),
    ],
)
def test_selectors(text: str, settings: dict[str, Any], matches: bool) -> None:
    method = MethodSettings(name="i-star", settings=settings)
    assert Selector.parse(text).matches(method) is matches


def test_what_makes_no_sense(simulated: Make) -> None:
    with pytest.raises(SettingError, match="got margin=0, expected points above 0"):
        verdicts(simulated("rte"), margin=0)
    with pytest.raises(SettingError, match="got 'weight' in 'i-star weight', expected such as"):
        Selector.parse("i-star weight")

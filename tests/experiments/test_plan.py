import json
import tomllib
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from isotropy.errors import MissingExtraError
from isotropy.experiments import _toml
from isotropy.experiments.papers import describe
from isotropy.experiments.plan import Plan, Planned, built_in, choose_device
from isotropy.experiments.spec import Place, RunSpec

PLANS = {name: Plan.load(name) for name in built_in()}
PAPERS = ("shrink-the-longest", "isotropy-layer", "isotropy-calibration", "i-star")


def parsed(**changes: Any) -> Plan:
    table = {
        "models": ["a", "b"],
        "tasks": ["cola", "mrpc"],
        "methods": ["none", {"name": "i-star", "settings": {"weight": -1}}],
        "seeds": 2,
    }
    return Plan.parse(_toml.write({**table, **changes}), where="mine.toml")


def specs(plan: Plan, **which: Any) -> list[RunSpec]:
    """The runs of a plan whose grid, method, model or task is this."""

    def matches(cell: Planned) -> bool:
        found = {**dict(cell.spec), "grid": cell.grid, "method": cell.method}
        return all(found[name] == value for name, value in which.items())

    return [cell.spec for cell in plan.cells if matches(cell)]


def test_a_plan_is_models_times_tasks_times_methods_times_seeds() -> None:
    found = {(s.model, s.task, s.method.name, s.seed) for s in specs(parsed())}
    assert found == {
        (model, task, method, seed)
        for model in "ab"
        for task in ("cola", "mrpc")
        for method in ("none", "i-star")
        for seed in (0, 1)
    }


def test_all_methods_of_a_seed_stand_together() -> None:
    first = parsed().cells[:4]
    assert [(cell.method, cell.spec.seed) for cell in first] == [
        ("none", 0),
        ("i-star", 0),
        ("none", 1),
        ("i-star", 1),
    ]


def test_a_plan_without_a_name_has_that_of_its_file() -> None:
    assert parsed().name == "mine"
    assert parsed(name="other").name == "other"


def test_of_grid_and_plan_the_grid_holds_and_the_last_override_over_both() -> None:
    plan = parsed(
        train={"epochs": 1, "batch_size": 8, "warmup": 0.5},
        grid=[{"name": "g", "tasks": ["cola"], "train": {"batch_size": 16, "warmup": 0.1}}],
        override=[
            {"when": {"model": "a"}, "train": {"warmup": 0.2}},
            {"when": {"model": ["a", "c"], "method": "i-*"}, "train": {"warmup": 0.3}},
        ],
    )
    found = {(s.model, s.method.name): s.train for s in specs(plan)}
    assert {s.task for s in specs(plan)} == {"cola"}
    assert {train.epochs for train in found.values()} == {1}
    assert {train.batch_size for train in found.values()} == {16}
    assert found["b", "none"].warmup == found["b", "i-star"].warmup == 0.1
    assert found["a", "none"].warmup == 0.2
    assert found["a", "i-star"].warmup == 0.3


def test_settings_of_an_override_are_for_methods_alone() -> None:
    plan = parsed(override=[{"when": {"task": "mrpc"}, "settings": {"zeta": 0.4}}])
    found = {(s.task, s.method.name): s.method.settings for s in specs(plan)}
    assert found["mrpc", "i-star"] == {"weight": -1, "zeta": 0.4}
    assert found["cola", "i-star"] == {"weight": -1}
    assert found["mrpc", "none"] == {}


def test_a_label_tells_two_settings_of_a_method_apart() -> None:
    methods = [
        {"name": "cosine", "label": "up", "settings": {"weight": 1}},
        {"name": "cosine", "label": "down", "settings": {"weight": -1}},
    ]
    override = [{"when": {"method": "down"}, "train": {"epochs": 9}}]
    plan = parsed(methods=methods, override=override)
    assert {s.train.epochs for s in specs(plan, method="down")} == {9}
    assert {s.train.epochs for s in specs(plan, method="up")} == {3}
    both = parsed(
        methods=methods, override=[{"when": {"method": "cosine"}, "train": {"epochs": 9}}]
    )
    assert {s.train.epochs for s in specs(both)} == {9}


def test_a_run_of_two_grids_is_one_run() -> None:
    grids = [{"name": "a", "methods": ["none"]}, {"name": "b", "methods": ["none", "cosine"]}]
    plan = parsed(grid=grids, models=["bert-base-cased"])
    assert len(plan.cells) == 4 + 8
    place = Place(data_dir=None)
    assert len(plan.runs(place, device="cpu")) == 8


def test_a_number_has_one_identity_however_it_is_written() -> None:
    written = [
        parsed(methods=[{"name": "i-star", "settings": {"weight": weight}}])
        for weight in (-1, -1.0)
    ]
    assert len({plan.cells[0].spec.id for plan in written}) == 1


def test_runs_have_revisions_threads_and_device(tmp_path: Path) -> None:
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "tokenizer.json", "model.safetensors"):
        (model / name).write_text("{}")
    folder = tmp_path / "data" / "cola"
    folder.mkdir(parents=True)
    for split in ("train", "dev"):
        (folder / f"{split}.tsv").write_text("a\t1\t\tA sentence.\n")
    place = Place(data_dir=str(folder.parent))
    plan = parsed(models=[str(model)], tasks=["cola"], seeds=1)
    runs = plan.runs(place, device="cpu", threads=2)
    assert {run.threads for run in runs} == {2}
    assert {run.device for run in runs} == {"cpu"}
    assert all(len(run.model_revision) == 16 and run.data.revision for run in runs)
    (folder / "dev.tsv").write_text("a\t0\t*\tSentence a.\n")
    again = plan.runs(place, device="cpu", threads=2)
    assert {run.id for run in runs}.isdisjoint(run.id for run in again)
    (model / "config.json").write_text('{"a": 1}')
    assert plan.runs(place, device="cpu", threads=2)[0].model_revision != again[0].model_revision


def test_what_is_here_can_run_though_other_things_are_missing(tmp_path: Path) -> None:
    folder = tmp_path / "cola"
    folder.mkdir()
    for split in ("train", "dev"):
        (folder / f"{split}.tsv").write_text("a\t1\t\tA sentence.\n")
    found, missing = parsed(models=["a"]).available(Place(data_dir=str(tmp_path)), device="cpu")
    assert {run.task for run in found} == {"cola"}
    assert len(missing) == 1
    assert missing[0].startswith("got no data for mrpc (")


def test_a_plan_whose_method_is_not_installed_can_be_described(monkeypatch) -> None:
    def missing(*args: Any, **named: Any) -> None:
        raise MissingExtraError("zuko", "flow")

    monkeypatch.setattr("isotropy.layers.Flow.__init__", missing)
    plan = parsed(methods=["none", "flow"], seeds=1)
    assert describe(plan).startswith("mine: 8 runs")
    with pytest.raises(MissingExtraError, match=r"pip install 'isotropy\[flow\]'"):
        plan.runs(Place())


def test_the_default_is_one_thread_on_what_there_is() -> None:
    [run, *_] = parsed(seeds=1).runs(Place())
    assert run.threads == 1
    assert run.device == choose_device("auto")


# Changes.


def test_a_changed_setting_holds_over_grids_and_overrides() -> None:
    plan = parsed(
        grid=[{"name": "g", "train": {"max_steps": 7}}],
        override=[{"when": {"task": "cola"}, "train": {"max_steps": 8}, "settings": {"zeta": 0.1}}],
    )
    new = plan.override({"train.max_steps": 100, "data.train_rows": 50, "settings.zeta": 0.3})
    assert {s.train.max_steps for s in specs(new)} == {100}
    assert {s.data.train_rows for s in specs(new)} == {50}
    assert {s.method.settings.get("zeta") for s in specs(new, method="i-star")} == {0.3}
    assert {s.train.max_steps for s in specs(plan)} == {7, 8}


def test_none_takes_a_setting_out() -> None:
    plan = parsed(train={"max_steps": 9})
    assert specs(plan.override({"train.max_steps": None}))[0].train.max_steps is None


def test_a_setting_inside_a_table() -> None:
    plan = parsed(train={"peft": "lora", "peft_settings": {"r": 4, "lora_alpha": 8}})
    new = plan.override({"train.peft_settings.r": 2})
    assert specs(new)[0].train.peft_settings == {"r": 2, "lora_alpha": 8}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"tasks": ["cola"]}, {"model": {"a", "b"}, "task": {"cola"}}),
        ({"tasks": "cola"}, {"task": {"cola"}}),
        ({"tasks": ["rte"]}, {"task": {"rte"}}),
        ({"tasks": ["cola", "rte"]}, {"task": {"cola", "rte"}}),
        ({"models": ["./here"]}, {"model": {"./here"}}),
        ({"seeds": [7]}, {"seed": {7}}),
        ({"seeds": 3}, {"seed": {0, 1, 2}}),
    ],
)
def test_other_models_tasks_and_seeds(changes: Any, expected: dict[str, set[Any]]) -> None:
    found = specs(parsed().override(changes))
    for name, values in expected.items():
        assert {getattr(spec, name) for spec in found} == values


def test_chosen_methods_keep_their_settings_and_new_ones_bring_theirs() -> None:
    chosen = specs(parsed().override({"methods": ["i-star"]}))
    assert {spec.method.label for spec in chosen} == {"i-star weight=-1"}
    new = specs(parsed().override({"methods": ["none", {"name": "cosine"}]}))
    assert {spec.method.label for spec in new} == {"none", "cosine"}


def test_a_grid_that_is_left_with_nothing_goes_and_what_spoke_of_it() -> None:
    plan = parsed(
        grid=[
            {"name": "a", "tasks": ["cola"]},
            {"name": "b", "tasks": ["mrpc"], "methods": ["cosine"]},
        ],
        override=[
            {"when": {"grid": "b"}, "train": {"epochs": 1}},
            {"when": {"task": "cola"}, "train": {"epochs": 2}},
        ],
        report={
            "metrics": {"cola": "matthews", "mrpc": "f1"},
            "tables": [{"where": "1", "what": "x", "grid": "b"}],
        },
        tuning={"cosine": {"settings.weight": [1, 2]}},
        ours={"cosine.weight": "unsaid", "seeds": "unsaid"},
    )
    new = plan.override({"tasks": ["cola"]})
    assert {cell.grid for cell in new.cells} == {"a"}
    assert new.report.metrics == {"cola": "matthews"}
    assert new.tables == ()
    assert new.tuning == {}
    assert new.file.ours == {"seeds": "unsaid"}
    assert {s.train.epochs for s in specs(new)} == {2}


def test_a_changed_plan_is_the_plan_that_its_text_says() -> None:
    new = PLANS["i-star"].override({"tasks": ["cola", "squad"], "train.max_steps": 3, "seeds": [4]})
    again = Plan.parse(new.text)
    assert [cell.spec.id for cell in again.cells] == [cell.spec.id for cell in new.cells]
    assert again.name == "i-star"
    assert PLANS["i-star"].override({}) is PLANS["i-star"]


def test_a_report_setting_can_be_changed() -> None:
    assert parsed().override({"report.centre": "median"}).report.centre == "median"


# The plans that come with the package.


def test_the_plans() -> None:
    small = {f"{name}-small" for name in PAPERS}
    assert set(PLANS) == {"demo", "does-it-pay", *PAPERS, *small}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_says_what_it_is(name: str) -> None:
    plan = PLANS[name]
    assert plan.name == name
    assert 0 < len(plan.summary) < 90
    assert plan.reference or name in ("demo", "does-it-pay")
    assert plan.tables or name in ("demo", "does-it-pay")
    assert "none" in {cell.method for cell in plan.cells}


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_is_in_the_package(name: str) -> None:
    text = files("isotropy.experiments").joinpath("plans", f"{name}.toml").read_text("utf-8")
    assert tomllib.loads(text).get("name", name) == name


@pytest.mark.parametrize("name", [name for name in PLANS if name.endswith("-small")])
def test_a_small_plan_has_the_methods_of_the_large_one_in_their_order(name: str) -> None:
    def order(plan: Plan) -> list[str]:
        return list(dict.fromkeys(cell.spec.method.name for cell in plan.cells))

    assert order(PLANS[name]) == order(PLANS[name.removesuffix("-small")])
    assert {cell.spec.model for cell in PLANS[name].cells} == {"minilm"}
    assert {cell.spec.train.precision for cell in PLANS[name].cells} == {"float32"}
    assert "models" in PLANS[name].file.ours


def test_shrink_the_longest_has_table_1() -> None:
    plan = PLANS["shrink-the-longest"]
    assert len(plan.cells) == 2 * 2 * 3 * 5
    rates = {(s.task, s.train.learning_rate, s.train.weight_decay) for s in specs(plan)}
    assert rates == {("mrpc", 8e-5, 8e-6), ("cola", 5e-5, 5e-6)}
    train = specs(plan)[0].train
    assert (train.epochs, train.batch_size, train.optimizer) == (10, 64, "adam")
    assert (train.warmup, train.schedule, train.accumulation) == (0.1, "cosine", 1)
    assert "train.schedule" in plan.file.from_code
    assert plan.report.score == "late"
    assert specs(plan)[0].measure.on == "batch"


def test_isotropy_layer_has_two_schedules_and_splits_train() -> None:
    plan = PLANS["isotropy-layer"]
    assert (plan.report.centre, plan.report.score) == ("median", "best")
    assert plan.report.metrics == {"rte": "accuracy", "cola": "matthews", "mrpc": "accuracy"}
    assert {s.data.tune for s in specs(plan)} == {0.3}
    train = specs(plan, grid="iso-batch-norm")[0].train
    assert (train.learning_rate, train.batch_size) == (5e-5, 16)
    assert (train.epochs, train.warmup) == (10, 0.06)
    assert {s.data.max_length for s in specs(plan, grid="iso-batch-norm")} == {256}


def test_isotropy_calibration_has_its_appendix_b() -> None:
    plan = PLANS["isotropy-calibration"]

    def rate(**which: str) -> Any:
        return {(s.train.learning_rate, s.train.schedule) for s in specs(plan, **which)}

    assert rate(grid="glue", model="bert-base-cased") == {(2e-5, "constant")}
    assert rate(grid="glue", model="distilbert-base-cased") == {(2e-5, "constant")}
    assert rate(grid="glue", model="roberta-base") == {(1e-5, "constant")}
    assert rate(grid="translation") == rate(grid="summarisation") == {(3e-5, "polynomial")}
    epochs = {(s.task, s.train.epochs) for s in specs(plan, grid="glue")}
    assert {task for task, count in epochs if count == 5} == {"mrpc", "wnli"}
    assert {count for task, count in epochs if task not in ("mrpc", "wnli")} == {3}
    assert {s.model for s in specs(plan, grid="glue-flow")} == {"bert-base-cased"}
    # The flow and its baselines have the same rows, and all else is alike.
    for name, few in (("translation", 50_000), ("summarisation", 20_000)):
        found = [specs(plan, grid=f"{name}-few", method=method) for method in ("none", "flow")]
        alike = [[s.model_copy(update={"method": None}) for s in part] for part in found]
        assert alike[0] == alike[1]
        assert {s.data.train_rows for s in found[1]} == {few}
        assert {s.task for s in found[1]} == {s.task for s in specs(plan, grid=name)}
        assert {s.train.schedule for s in found[1]} == {"polynomial"}
    assert not any("flow" in table.what for table in plan.report.tables if table.cannot)
    sites = {s.method.settings.get("site") for s in specs(plan, grid="glue")}
    assert sites == {None, "vocabulary", "head"}


# Table 2 of the paper: λ and ζ by model and task.
TASKS_OF_TABLE_2 = ("sst2", "qnli", "rte", "mrpc", "qqp", "cola", "stsb", "sst5", "squad")
TABLE_2 = {
    "albert-base-v2": "-1|.2 -1|.2 -1|.8 -1|.4 -1|.2 -1|.8 -1|.4 -1|.2 -5|.2",
    "bert-base-cased": "-5|.2 -1|.4 -1|.8 -1|.6 -1|.2 -1|.8 -1|.2 -5|.2 -3|.6",
    "distilbert-base-cased": "-5|.6 -1|.2 -1|.6 -1|.8 -1|.2 -3|.4 -3|.4 -1|.2 -5|.2",
}


def test_i_star_has_table_2() -> None:
    found = {
        (s.model, s.task): (s.method.settings["weight"], s.method.settings["zeta"])
        for s in specs(PLANS["i-star"], grid="main", method="i-star")
    }
    expected = {
        (model, task): tuple(map(float, cell.split("|")))
        for model, row in TABLE_2.items()
        for task, cell in zip(TASKS_OF_TABLE_2, row.split(), strict=True)
    }
    assert found == expected


def test_i_star_has_its_sweeps() -> None:
    plan = PLANS["i-star"]
    weights = {s.method.settings["weight"] for s in specs(plan, grid="weights")}
    assert weights == {-5, -3, -1, 0.5, 1, 3, 5}
    zetas = {(s.task, s.method.settings["zeta"]) for s in specs(plan, grid="zeta")}
    assert zetas == {("rte", zeta) for zeta in (0, 0.2, 0.4, 0.6, 0.8, 1)}
    for grid, depth in (("layers-of-12", 12), ("layers-of-6", 6)):
        sites = {s.method.settings["site"] for s in specs(plan, grid=grid)}
        assert sites == {f"tokens@{layer}" for layer in range(1, depth + 1)}
    layers = {
        (s.model, s.method.settings["weight"], s.method.settings["zeta"])
        for s in specs(plan, task="cola")
        if "site" in s.method.settings and s.method.name == "i-star"
    }
    assert layers == {
        ("albert-base-v2", -1, 0.8),
        ("bert-base-cased", -1, 0.8),
        ("distilbert-base-cased", -3, 0.4),
    }
    cosine = {s.method.settings.get("weight") for s in specs(plan, grid="means")}
    assert cosine == {None, 1, -1}
    assert {s.measure.each_layer for s in specs(plan, grid="dimension")} == {
        ("two_nn", "iso_score_unbiased")
    }
    squad = specs(plan, grid="main", task="squad")[0].data
    assert (squad.max_length, squad.options) == (384, {"stride": 128})
    train = specs(plan)[0].train
    assert (train.accumulation, train.precision, train.optimizer) == (2, "float16", "adamw")
    assert plan.tuning["i-star"]["settings.weight"] == [-5, -3, -1, 1, 3, 5]
    assert plan.tuning["i-star"]["settings.zeta"] == [0.2, 0.4, 0.6, 0.8]
    assert plan.stability is not None


def test_the_demo_is_small() -> None:
    plan = PLANS["demo"]
    assert len(plan.cells) == 12
    assert {s.task for s in specs(plan)} == {"minimal-pairs"}


def test_does_it_pay_reports_on_rows_that_nothing_is_chosen_on() -> None:
    plan = PLANS["does-it-pay"].override({"models": ["./mine"]})
    assert {s.model for s in specs(plan)} == {"./mine"}
    assert {s.data.tune for s in specs(plan)} == {0.1}
    assert plan.report.score == "best"


def test_specs_are_plain_json() -> None:
    for plan in PLANS.values():
        spec = plan.cells[-1].spec
        assert RunSpec.read(json.loads(spec.model_dump_json())).id == spec.id

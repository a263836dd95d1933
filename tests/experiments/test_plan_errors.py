"""Every kind of bad plan is named in one line, with its file, before anything runs."""

import copy
from pathlib import Path
from typing import Any

import pytest

from isotropy.errors import SettingError, SourceError
from isotropy.experiments import _toml
from isotropy.experiments.plan import Plan
from isotropy.experiments.spec import Place

GOOD: dict[str, Any] = {
    "models": ["bert-base-cased"],
    "tasks": ["cola", "mrpc"],
    "methods": ["none", {"name": "i-star", "settings": {"weight": -1}}],
    "seeds": [0, 1],
}
ONE_GRID = {"name": "a", "methods": ["none"]}

# What is changed of a good plan, and what the error says after the file's name.
BAD: dict[str, tuple[dict[str, Any], str]] = {
    # names of things
    "unknown key": ({"modles": ["x"]}, "got an unknown setting 'modles', .* did you mean 'models'"),
    "unknown key of training": (
        {"train": {"learning_rat": 1e-5}},
        "unknown setting 'train.learning_rat', .* did you mean 'learning_rate'",
    ),
    "unknown key of data": ({"data": {"rows": 5}}, "unknown setting 'data.rows'"),
    "unknown key of measures": ({"measure": {"sites": "cls"}}, "'measure.sites', .* 'site'"),
    "unknown key of a method": (
        {"methods": [{"name": "none", "setting": {}}]},
        "unknown setting 'methods.0.setting', .* did you mean 'settings'",
    ),
    "unknown key of a grid": (
        {"grid": [{**ONE_GRID, "task": ["cola"]}]},
        "unknown setting 'grid.0.task', .* did you mean 'tasks'",
    ),
    "unknown key of when": (
        {"override": [{"when": {"tasks": "cola"}, "train": {"epochs": 1}}]},
        "unknown setting 'override.0.when.tasks', .* did you mean 'task'",
    ),
    "unknown key of an override": (
        {"override": [{"when": {"task": "cola"}, "trains": {}}]},
        "unknown setting 'override.0.trains', .* did you mean 'train'",
    ),
    "unknown key of the report": ({"report": {"scores": "last"}}, "'report.scores', .* 'score'"),
    "unknown key of a table": (
        {"report": {"tables": [{"where": "1", "what": "x", "grids": "a"}]}},
        "unknown setting 'report.tables.0.grids', .* did you mean 'grid'",
    ),
    "unknown key of the study": ({"stability": {"size": [4]}}, "'stability.size', .* 'sizes'"),
    "unknown task": ({"tasks": ["colla"]}, "got task 'colla', .* did you mean 'cola'"),
    "unknown method": (
        {"methods": ["none", "istar"]},
        "got method 'istar', .* did you mean 'i-star'",
    ),
    "unknown final measure": (
        {"measure": {"final": ["iso_scor"]}},
        "cola × none: got measure in measure.final 'iso_scor', .* did you mean 'iso_score'",
    ),
    "unknown tracked measure": (
        {"measure": {"track": ["cosine"]}},
        "got measure in measure.track 'cosine'.* 'mean_cosine'",
    ),
    "unknown measure of layers": (
        {"measure": {"each_layer": ["twonn"]}},
        "got measure in measure.each_layer 'twonn', .* 'two_nn'",
    ),
    "unknown site": ({"measure": {"site": "csl@last"}}, "got site 'csl@last', .* 'cls@last'"),
    "unknown setting of a method": (
        {"methods": [{"name": "i-star", "settings": {"zetta": 0.1}}]},
        "cola × i-star: got setting of i-star 'zetta', .* did you mean 'zeta'",
    ),
    "unknown option of a task": (
        {"data": {"options": {"stride": 3}}},
        "got option 'stride' for task cola, which has no options",
    ),
    "unknown task of a metric": (
        {"report": {"metrics": {"rte": "accuracy"}}},
        "got task in report.metrics 'rte', .* choose from: cola, mrpc",
    ),
    "a metric that the task does not have": (
        {"report": {"metrics": {"cola": "mathews"}}},
        "got metric of cola 'mathews', .* did you mean 'matthews'",
    ),
    "unknown baseline": (
        {"report": {"baseline": "nothing"}},
        "got method as report.baseline 'nothing'",
    ),
    "unknown grid of a table": (
        {"report": {"tables": [{"where": "table 1", "what": "x", "grid": "b"}]}},
        "got grid of table 1 'b', .* choose from: main",
    ),
    "unknown setting that is marked": (
        {"ours": {"train.batchsize": "a word"}},
        "ours: got setting 'train.batchsize', .* did you mean 'train.batch_size'",
    ),
    "unknown thing that is marked": ({"inferred": {"cosine.site": "x"}}, "inferred: got setting"),
    "a mark without a reason": ({"ours": {"seeds": " "}}, "got no word why for 'seeds'"),
    "a model that is an address": (
        {"models": ["https://hub.org/x"]},
        "got model 'https://hub.org/x', expected 'minilm', a hub name such as 'org/name', or a fol",
    ),
    "a model with a space": ({"models": ["my bert"]}, "got model 'my bert', expected 'minilm'"),
    "a name with capitals": ({"name": "My Plan"}, "got name='My Plan', expected lower-case words"),
    # nothing there
    "no models": ({"models": []}, r"got no models, expected at least one; add models = \[...\]"),
    "no tasks": ({"tasks": []}, "got no tasks, expected at least one"),
    "no methods": ({"methods": []}, "got no methods, expected at least one"),
    "no seeds": ({"seeds": []}, "got no seeds, expected at least one"),
    "no seeds, as a number": ({"seeds": 0}, "got no seeds, expected at least one"),
    "a grid without tasks": (
        {"grid": [{**ONE_GRID, "tasks": []}]},
        "grid 'a': got no tasks, expected at least one",
    ),
    "a grid without a name": ({"grid": [{"methods": ["none"]}]}, "got no grid.0.name"),
    "an override without when": ({"override": [{"train": {}}]}, "got no override.0.when, expected"),
    "an override without patterns": (
        {"override": [{"when": {}, "train": {"epochs": 2}}]},
        "override 1: got no pattern in when, expected one of grid, model, task, method",
    ),
    "an override of nothing": (
        {"override": [{"when": {"task": "cola"}}]},
        "override 1: got nothing to change, expected train, data, measure or settings",
    ),
    "an override that matches nothing": (
        {"override": [{"when": {"task": "sst*", "model": "bert*"}, "train": {"epochs": 1}}]},
        r"override 1: got when model=bert\*, task=sst\*, which no run of the plan matches",
    ),
    # twice
    "a task twice": ({"tasks": ["cola", "cola"]}, "got task 'cola' 2 times, expected it once"),
    "a model twice": ({"models": ["a", "b", "a"]}, "got model 'a' 2 times"),
    "a seed twice": ({"seeds": [1, 1]}, "got seed 1 2 times, expected it once; leave the others"),
    "a method twice": (
        {"methods": ["none", "cosine", {"name": "cosine", "settings": {"weight": 2}}]},
        "got method 'cosine' 2 times, .* or give methods labels",
    ),
    "a run twice under two labels": (
        {"methods": ["none", "cosine", {"name": "cosine", "label": "again"}]},
        "got the run 'bert-base-cased cola cosine seed=0' twice, once as method 'again'",
    ),
    "a run twice as its settings are equal": (
        {
            "methods": [
                {"name": "cosine", "settings": {"weight": 2}},
                {"name": "cosine", "label": "again", "settings": {"weight": 2.0}},
            ]
        },
        "twice, once as method 'again'",
    ),
    "a grid twice": ({"grid": [ONE_GRID, ONE_GRID]}, "got grid 'a' 2 times"),
    "a measure twice": (
        {"measure": {"final": ["iso_score", "iso_score"]}},
        "got measure 'iso_score' 2 times in measure.final",
    ),
    # types and values
    "one name for a list": ({"models": "bert"}, "got models='bert', expected a list"),
    "methods that are no list": ({"methods": {"name": "none"}}, "got methods=.*, expected"),
    "a seed that is text": ({"seeds": ["1"]}, "expected a number of seeds, or a list of whole num"),
    "a seed that is a fraction": ({"seeds": [0.5]}, "expected a number of seeds, or a list of w"),
    "a seed that is true": ({"seeds": [True]}, "expected a number of seeds, or a list of whole"),
    "a seed below 0": ({"seeds": [-1]}, "expected a number of seeds, or a list of whole numbers"),
    "seeds that are true": ({"seeds": True}, "expected a number of seeds, or a list of whole"),
    "seeds that are text": ({"seeds": "all"}, "got seeds='all', expected a number of seeds"),
    "text for a number": (
        {"train": {"epochs": "three"}},
        "got train.epochs='three', expected a number",
    ),
    "a batch that is a fraction": ({"train": {"batch_size": 1.5}}, "got train.batch_size=1.5, exp"),
    "no epochs": ({"train": {"epochs": 0}}, "got train.epochs=0, expected greater than 0"),
    "a share above 1": ({"train": {"warmup": 10}}, "got train.warmup=10, expected less than or eq"),
    "all of train for tuning": ({"data": {"tune": 1.0}}, "got data.tune=1.0, expected less than 1"),
    "an infinite rate": ({"train": {"learning_rate": float("inf")}}, "expected a finite number"),
    "an unknown schedule": ({"train": {"schedule": "cosin"}}, "expected 'constant', 'linear', 'c"),
    "an unknown precision": ({"train": {"precision": "fp16"}}, "got train.precision='fp16', expec"),
    "an unknown score": ({"report": {"score": "max"}}, "expected 'last', 'best' or 'late'"),
    "an unknown centre": ({"report": {"centre": "mode"}}, "expected 'mean' or 'median'"),
    "a ζ out of range": (
        {"methods": [{"name": "i-star", "settings": {"zeta": 1.2}}]},
        "cola × i-star: got zeta=1.2, expected a number from 0 to 1",
    ),
    "a weight that is text": (
        {"methods": [{"name": "cosine", "settings": {"weight": "much"}}]},
        "cola × cosine: got weight='much', expected a finite number",
    ),
    "a ζ out of range in an override": (
        {"override": [{"when": {"task": "mrpc"}, "settings": {"zeta": -1}}]},
        "mrpc × i-star: got zeta=-1, expected a number from 0 to 1",
    ),
    "more variances than features": (
        {"stability": {"features": 2, "variances": [1, 2, 3]}},
        "stability: got 3 variances for 2 features, expected at most one for each",
    ),
    # combinations
    "settings of none": (
        {"methods": [{"name": "none", "settings": {"weight": 1}}]},
        "got settings weight for method 'none', expected none",
    ),
    "a transform where a model is trained": (
        {"methods": ["whitening"]},
        r"cola × whitening: got method 'whitening' \(transform\) for task 'cola', which trains",
    ),
    "a penalty where nothing is trained": (
        {"tasks": ["stsb-similarity"]},
        "stsb-similarity × i-star: got method 'i-star' .* which trains nothing",
    ),
    "a layer with adapters": (
        {"methods": ["isotropy-layer"], "train": {"peft": "lora"}},
        "got method 'isotropy-layer' .* with peft='lora', expected peft=None",
    ),
    "a second stage of another method": (
        {"methods": [{"name": "cosine", "stage": {"epochs": 2}}]},
        "got method.stage with method 'cosine', expected it with 'isotropy-layer' alone",
    ),
    "one cloud of one micro-batch": (
        {"methods": [{"name": "cosine", "accumulate": "cached"}]},
        "got accumulate='cached' with train.accumulation=1, expected several micro-batches",
    ),
    "a transform after training": (
        {"methods": ["flow-post-hoc"]},
        "cola × flow-post-hoc: got method 'flow-post-hoc'",
    ),
    "adapters' settings without adapters": (
        {"train": {"peft_settings": {"r": 8}}},
        "got train.peft_settings without train.peft, expected peft='lora'",
    ),
    "columns of a task that has its own": (
        {"data": {"columns": {"text": "t"}}},
        "got data.columns for task 'cola', which has its own, expected task 'custom'",
    ),
    "patience without a tuning split": (
        {"train": {"patience": 2}},
        "got train.patience=2 with data.tune=0, expected a share of train .* such as data.tune=0.1",
    ),
    "best of two stages without patience": (
        {
            "methods": ["none", "isotropy-layer"],
            "data": {"tune": 0.1},
            "report": {"score": "best"},
        },
        "got report.score='best' and no train.patience for isotropy-layer on cola, .* begins at",
    ),
    "best without a tuning split": (
        {"report": {"score": "best"}},
        "got report.score='best' and no data.tune for cola, expected a share of train",
    ),
    "the batch without tracked measures": (
        {"measure": {"on": "batch"}},
        "got measure.on='batch' without measure.track, expected names of measures",
    ),
    "steps without tracked measures": (
        {"measure": {"every": 10}},
        "got measure.every=10 without measure.track",
    ),
    "a batch too small for a measure": (
        {"measure": {"on": "batch", "track": ["local_isotropy"]}},
        r"got 32 rows \(train.batch_size\) for local_isotropy in measure.track, expected at leas",
    ),
    "too few rows for a measure": (
        {"measure": {"final": ["two_nn"], "final_rows": 2}},
        r"got 2 rows \(final_rows\) for two_nn in measure.final, expected at least 3",
    ),
    "layers of weights": (
        {"measure": {"site": "head", "final": [], "each_layer": ["two_nn"]}},
        "got measure.each_layer at measure.site='head', expected cls, mean or tokens",
    ),
    "a decoder where there is none": (
        {"measure": {"site": "decoder-mean@last"}},
        "got measure.site='decoder-mean@last' for task 'cola', whose model has no decoder",
    ),
    # tuning
    "tuning of a method that is not there": (
        {"tuning": {"cosine": {"settings.weight": [1]}}},
        "got method in tuning 'cosine', expected a known method in tuning",
    ),
    "tuning of nothing": ({"tuning": {"i-star": {}}}, "tuning.i-star: got nothing to search"),
    "tuning of what is no setting": (
        {"tuning": {"i-star": {"weight": [1]}}},
        "tuning.i-star: got 'weight', expected a setting such as 'settings.weight'",
    ),
    "tuning of an unknown setting": (
        {"tuning": {"i-star": {"train.lr": [1]}}},
        "tuning.i-star: got setting 'train.lr'",
    ),
    "tuning of an unknown setting of the method": (
        {"tuning": {"i-star": {"settings.wieght": [1]}}},
        "tuning.i-star: got setting of i-star 'wieght', .* did you mean 'weight'",
    ),
    "tuning without choices": (
        {"tuning": {"i-star": {"settings.zeta": []}}},
        "tuning.i-star: got no choices for settings.zeta, expected at least one",
    ),
    "tuning over one number": (
        {"tuning": {"i-star": {"settings.zeta": 0.2}}},
        "got settings.zeta=0.2, expected a list of choices or a range such as {low",
    ),
    "tuning over half a range": (
        {"tuning": {"i-star": {"settings.zeta": {"low": 0.1}}}},
        "expected a list of choices or a range such as {low = 1e-5, high = 1e-4, log = true}",
    ),
    "tuning over an empty range": (
        {"tuning": {"i-star": {"settings.zeta": {"low": 0.5, "high": 0.5}}}},
        "got settings.zeta from 0.5 to 0.5, expected low below high",
    ),
    "tuning over a range of words": (
        {"tuning": {"i-star": {"settings.zeta": {"low": "a", "high": "b"}}}},
        "got settings.zeta from 'a' to 'b', expected two numbers",
    ),
    "tuning over the logarithm of 0": (
        {"tuning": {"none": {"train.learning_rate": {"low": 0, "high": 1, "log": True}}}},
        "got train.learning_rate from 0 on a log scale, expected it above 0",
    ),
    "tuning with a misspelt range": (
        {"tuning": {"i-star": {"settings.zeta": {"low": 0, "high": 1, "logs": True}}}},
        "got key of the range of settings.zeta 'logs', .* did you mean 'log'",
    ),
    "tuning over what the method refuses": (
        {"tuning": {"i-star": {"settings.zeta": [0.2, 1.5]}}},
        "tuning.i-star: got zeta=1.5, expected a number from 0 to 1",
    ),
    "tuning over what training refuses": (
        {"tuning": {"none": {"train.batch_size": [8, 0]}}},
        "tuning.none: got batch_size=0, expected greater than or equal to 1",
    ),
}


def test_the_plan_that_all_others_are_made_of_is_good() -> None:
    assert len(Plan.parse(_toml.write(GOOD)).cells) == 8


def test_there_are_many_kinds() -> None:
    assert len(BAD) >= 40


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_plan_is_named_before_anything_runs(kind: str) -> None:
    changes, message = BAD[kind]
    text = _toml.write({**copy.deepcopy(GOOD), **changes})
    with pytest.raises(SettingError, match=f"^mine.toml: .*{message}") as caught:
        Plan.parse(text, where="mine.toml")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("models = [", "mine.toml: got no TOML: "),
        ('models = ["a"]\nmodels = ["b"]', "mine.toml: got no TOML: Cannot overwrite"),
        ("seeds = 1979-05-27", "mine.toml: got seeds=.*expected a number of seeds"),
        ("", "mine.toml: got no models, expected at least one"),
    ],
)
def test_text_that_is_no_plan(tmp_path: Path, text: str, message: str) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(SettingError, match=message):
        Plan.load(file)


def test_plans_that_are_not_there(tmp_path: Path) -> None:
    with pytest.raises(SettingError, match=r"got plan 'demos', .* did you mean 'demo'"):
        Plan.load("demos")
    with pytest.raises(SettingError, match=r"which cannot be read \(No such file or directory\)"):
        Plan.load(tmp_path / "none.toml")
    with pytest.raises(SettingError, match=r"which cannot be read \(Is a directory\)"):
        Plan.load(tmp_path)
    (tmp_path / "bytes.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(SettingError, match="it is not UTF-8 text"):
        Plan.load(tmp_path / "bytes.toml")


def test_half_precision_needs_a_gpu(tmp_path: Path) -> None:
    plan = Plan.parse(_toml.write({**GOOD, "train": {"precision": "float16"}}))
    with pytest.raises(SettingError, match=r"plan.toml: got train.precision='float16' with"):
        plan.runs(Place(), device="cpu")


def test_devices_have_names() -> None:
    plan = Plan.parse(_toml.write(GOOD))
    with pytest.raises(SettingError, match="got device 'gpu', expected a known device"):
        plan.runs(Place(), device="gpu")


def test_data_and_models_that_are_not_here_are_all_named(tmp_path: Path) -> None:
    changed = {"tasks": ["cola", "rte"], "models": ["./nowhere"]}
    plan = Plan.parse(_toml.write({**GOOD, **changed}))
    with pytest.raises(SourceError) as caught:
        plan.runs(Place(data_dir=str(tmp_path)), device="cpu")
    said = str(caught.value)
    assert "got no model ./nowhere (" in said
    assert "got no data for cola, rte (" in said
    assert "leave it out with --set tasks=[...]" in said
    assert "\n" not in said


def test_a_users_own_file_is_read_before_anything_runs(tmp_path: Path) -> None:
    plan = Plan.parse(_toml.write({**GOOD, "tasks": ["custom"]}))
    with pytest.raises(SourceError, match=r"name it with --data FILE$"):
        plan.runs(Place(), device="cpu")
    file = tmp_path / "my.csv"
    file.write_text("words,class\nA,1\nB,2\n")
    place = Place(files={"train": str(file)})
    with pytest.raises(SourceError, match=r"^plan.toml: got column 'text', expected one"):
        plan.runs(place, device="cpu")
    rows = [f"A good one {n}.,1\nA bad one {n}.,2\n" for n in range(10)]
    file.write_text("words,class\n" + "".join(rows))
    named = plan.override({"data.columns": {"text": "words", "label": "class"}})
    assert len(named.runs(place, device="cpu")) == 4


BAD_CHANGES: dict[str, tuple[dict[str, Any], str]] = {
    "unknown part": ({"trains.epochs": 1}, "got 'trains.epochs' to change, expected models, tasks"),
    "a part by itself": ({"train": {"epochs": 1}}, "got 'train' to change, expected models"),
    "unknown setting": (
        {"train.epoch": 1},
        "got setting 'train.epoch', .* did you mean 'train.epochs'",
    ),
    "a wrong value": ({"train.epochs": "many"}, "got train.epochs='many', expected a number"),
    "too deep": ({"data.options.a.b": 1}, "got 'options.a.b' to change"),
    "no models": ({"models": []}, r"got models=\[\], expected at least one"),
    "a number of models": ({"models": 3}, "got models=3, expected a list of names"),
    "seeds that are text": ({"seeds": "some"}, "expected a number of seeds"),
    "a method's unknown setting": ({"settings.zetta": 1}, "got setting of i-star 'zetta'"),
    "nothing in a list": ({"settings.x": [None]}, "got None, expected text, a number, true, false"),
    "a setting of no method": (
        {"methods": ["none"], "settings.weight": 1},
        "got settings.weight to change, expected a plan with a method to change",
    ),
    "something of methods that they do not have": (
        {"method.weight": 1},
        "got setting 'method.weight', expected a known setting",
    ),
}


@pytest.mark.parametrize("kind", BAD_CHANGES)
def test_a_bad_change_is_named(kind: str) -> None:
    changes, message = BAD_CHANGES[kind]
    plan = Plan.parse(_toml.write(GOOD), where="mine.toml")
    with pytest.raises(SettingError, match=f"^mine.toml: .*{message}"):
        plan.override(changes)

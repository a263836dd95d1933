"""Which methods there are, what they take, and with what they do not go."""

from typing import Any

import pytest

from isotropy.errors import SettingError
from isotropy.experiments import validation
from isotropy.experiments.methods import METHODS, check, make_penalty, make_stage
from isotropy.experiments.spec import MethodSettings, RunSpec, TrainSettings
from isotropy.experiments.tasks import find_task


def test_all_methods_with_their_defaults() -> None:
    for name, found in METHODS.items():
        if name.startswith("flow"):
            pytest.importorskip("zuko")
        task = "stsb-similarity" if found.kind == "transform" else "cola"
        check(MethodSettings(name=name), find_task(task), TrainSettings())
    check(MethodSettings(), find_task("cola"), TrainSettings())


@pytest.mark.parametrize(
    ("method", "task", "message"),
    [
        ({"name": "i-sta"}, "cola", "got method 'i-sta', expected a known method; did you mean"),
        ({"name": "none", "settings": {"weight": 1}}, "cola", "got settings weight for method"),
        ({"name": "i-star", "settings": {"wieght": 1}}, "cola", "did you mean 'weight'"),
        ({"name": "i-star", "settings": {"zeta": 2}}, "cola", "got zeta=2, expected a number from"),
        ({"name": "i-star", "settings": {"site": "tokens@every"}}, "cola", "got site 'tokens@ev"),
        ({"name": "i-star", "settings": {"group": 1}}, "cola", "got setting of i-star 'group'"),
        (
            {"name": "persistent-entropy-all", "settings": {"bars": "prominent"}},
            "cola",
            "which is what this method is",
        ),
        ({"name": "flow", "settings": {"levels": 0}}, "cola", "got levels=0"),
        ({"name": "iso-batch-norm", "settings": {"d": 3}}, "cola", "expected a known setting"),
        ({"name": "isotropy-layer", "stage": {"epoch": 2}}, "cola", "did you mean 'epochs'"),
        ({"name": "isotropy-layer", "stage": {"alpha": 3}}, "cola", "got alpha=3"),
        ({"name": "isotropy-layer", "stage": {"seed": 3}}, "cola", "expected a known setting"),
        ({"name": "i-star", "stage": {"epochs": 2}}, "cola", "got method.stage with method"),
        ({"name": "flow", "accumulate": "cached"}, "cola", "got method.accumulate='cached'"),
        ({"name": "accumulate"}, "cola", "got method 'accumulate'"),
        ({"name": "whitening"}, "cola", "which trains a model, expected a task of similarity"),
        ({"name": "flow-post-hoc"}, "rte", "which trains a model, expected a task of similarity"),
        ({"name": "whitening", "settings": {"k": 0}}, "sts12", "got k=0"),
        ({"name": "whitening", "settings": {"kk": 1}}, "sts12", "setting of whitening 'kk'"),
        ({"name": "i-star"}, "stsb-similarity", "which trains nothing, expected a transform"),
        ({"name": "isotropy-layer"}, "squad", "expected a task of classification or regression"),
        ({"name": "flow"}, "squad", "one embedding a text and the head$"),
        ({"name": "isotropy-layer"}, "wmt16-de-en", "and the head; of layers, flow goes with"),
        ({"name": "iso-batch-norm"}, "cnn-dailymail", "and the head; of layers, flow goes with"),
        ({"name": "flow-post-hoc"}, "wmt16-de-en", "which trains a model"),
        (
            {"name": "cosine", "settings": {"site": "decoder-tokens@last"}},
            "cola",
            "whose model has no decoder",
        ),
    ],
)
def test_what_is_refused(method: dict[str, Any], task: str, message: str) -> None:
    with pytest.raises(SettingError, match=message) as raised:
        check(MethodSettings.read(method), find_task(task), TrainSettings())
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("task", ["wmt16-en-ro", "cnn-dailymail"])
def test_the_flow_goes_with_texts_that_are_written(task: str) -> None:
    pytest.importorskip("zuko")
    check(MethodSettings(name="flow"), find_task(task), TrainSettings())
    with pytest.raises(SettingError, match="adapters freeze"):
        check(MethodSettings(name="flow"), find_task(task), TrainSettings(peft="lora"))


@pytest.mark.parametrize(
    ("method", "message"),
    [
        ({"name": "isotropy-layer"}, "adapters freeze what a layer has to train"),
        ({"name": "spectrum-exp"}, "which freezes the vocabulary"),
    ],
)
def test_what_does_not_go_with_adapters(method: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        check(MethodSettings.read(method), find_task("cola"), TrainSettings(peft="lora"))


def look_at(spec: RunSpec) -> None:
    validation.check(spec, find_task(spec.task))
    validation.check_device(spec)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"train": {"patience": 2}}, "got train.patience=2 with data.tune=0"),
        ({"train": {"precision": "float16"}}, "got train.precision='float16' with device='cpu'"),
        ({"task": "stsb", "train": {"label_smoothing": 0.1}}, "expected 0: only the labels"),
        ({"train": {"peft_settings": {"r": 2}}}, "got train.peft_settings without train.peft"),
        ({"task": "sts12", "train": {"peft": "lora"}}, "which trains nothing, expected None"),
        ({"measure": {"track": ["iso_scor"]}}, "got measure in measure.track 'iso_scor'"),
        ({"measure": {"final": ["two_n"]}}, "did you mean 'two_nn'"),
        ({"measure": {"site": "cls@lst"}}, "got site 'cls@lst'"),
        ({"measure": {"site": "decoder-cls@last"}}, "whose model has no decoder"),
        ({"task": "squad", "measure": {"site": "embedding"}}, "expected a task of classification"),
        ({"measure": {"site": "head", "each_layer": ["two_nn"]}}, "which every layer has"),
        ({"measure": {"site": "embedding", "each_layer": ["two_nn"]}}, "expected a site of stat"),
        (
            {"measure": {"site": "head", "on": "batch", "track": ["two_nn"]}},
            "weights are the same for every batch",
        ),
        ({"task": "sts12", "measure": {"track": ["two_nn"]}}, "expected measures in measure.fin"),
        ({"data": {"options": {"stride": 3}}}, "option 'stride'"),
        ({"device": "cuda"}, "this machine has no CUDA GPU"),
    ],
)
def test_what_a_run_refuses(given: dict[str, Any], message: str) -> None:
    import torch

    if given.get("device") == "cuda" and torch.cuda.is_available():
        pytest.skip("there is one")
    spec = RunSpec.read({"model": "minilm", "task": "cola", **given})
    with pytest.raises(SettingError, match=message) as raised:
        look_at(spec)
    assert "\n" not in str(raised.value)


def test_what_is_random_has_the_seed_of_the_run() -> None:
    method = MethodSettings(name="i-star", settings={"tokens": 10})
    assert make_penalty(method, seed=7).seed == 7
    given = MethodSettings(name="i-star", settings={"tokens": 10, "seed": 3})
    assert make_penalty(given, seed=7).seed == 3
    assert make_stage(MethodSettings(name="isotropy-layer"), seed=7).seed == 7

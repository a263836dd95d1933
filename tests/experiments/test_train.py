"""One run, from its spec to its result."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from isotropy.errors import SettingError, TrainingError
from isotropy.experiments.methods import METHODS
from isotropy.experiments.spec import Place, RunResult
from isotropy.experiments.train import train
from isotropy.layers import SecondStage

# What makes each method small enough for 16 features, and quick.
_SMALL: dict[str, dict[str, Any]] = {
    "i-star": {"refresh_points": 200},
    "isotropy-layer": {"stage": {"epochs": 2, "batch_size": 16}},
    "whitening": {"settings": {"k": 4}},
    "cluster-all-but-the-top": {"settings": {"clusters": 2}},
    "flow-post-hoc": {"settings": {"epochs": 1, "levels": 2}},
    "isotropy-layer-post-hoc": {"settings": {"epochs": 1}},
}
_TRANSFORMS = [name for name, found in METHODS.items() if found.kind == "transform"]
_TRAINED = [name for name in METHODS if name not in _TRANSFORMS]


def values(result: RunResult) -> dict[str, Any]:
    """All of a result that equal specs share."""
    costs = {"seconds", "train_seconds", "seconds_per_epoch", "peak_memory", "versions", "machine"}
    return result.model_dump(exclude=costs)


def series(result: RunResult, name: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in result.series if point.name == name]


def test_a_run_without_a_method(spec: Callable[..., Any]) -> None:
    made = spec(data={"tune": 0.2}, train={"max_steps": 4, "evaluations": 3})
    result = train(made)
    assert result.metric == "accuracy"
    assert set(result.last) == {"accuracy", "matthews"}
    assert result.best.keys() == result.last.keys() == result.late.keys()
    assert result.steps == 4
    assert result.epochs == pytest.approx(4 / 6)
    assert [step for step, _ in series(result, "loss")] == [1, 2, 3, 4]
    assert [step for step, _ in series(result, "dev/accuracy")] == [2, 4]
    assert [step for step, _ in series(result, "tuning/accuracy")] == [2, 4]
    assert set(result.data) == {"train", "tuning", "dev"}
    assert set(result.measures) == {
        "iso_score_unbiased", "anisotropy_1", "anisotropy_2", "anisotropy_3", "mean_cosine",
    }  # fmt: skip
    assert 0 < result.train_seconds < result.seconds
    assert result.seconds_per_epoch == pytest.approx(result.train_seconds * 6 / 4)
    assert result.peak_memory > 10_000_000
    assert RunResult.read(result.model_dump_json()) == result


def test_it_learns(spec: Callable[..., Any]) -> None:
    made = spec(train={"max_steps": 120, "learning_rate": 5e-3, "batch_size": 16})
    losses = [value for _, value in series(train(made), "loss")]
    assert sum(losses[-10:]) < 0.7 * sum(losses[:10])


@pytest.mark.parametrize("method", _TRAINED)
def test_every_method_that_trains(spec: Callable[..., Any], method: str) -> None:
    if method == "flow":
        pytest.importorskip("zuko")
    made = spec(method={"name": method, **_SMALL.get(method, {})}, train={"batch_size": 16})
    result = train(made)
    assert result.last["accuracy"] is not None
    assert result.steps == 2
    if METHODS[method].kind == "penalty":
        assert len(series(result, "penalty")) == 2
        assert len(series(result, "task_loss")) == 2
    if method == "flow":
        assert len(series(result, "layer_loss")) == 2
    if method == "isotropy-layer":
        assert len(series(result, "stage/accuracy")) == 2
        assert any("second stage: 2 epochs" in note for note in result.notes)


@pytest.mark.parametrize("method", ["none", *_TRANSFORMS])
def test_every_transform(spec: Callable[..., Any], method: str) -> None:
    if method == "flow-post-hoc":
        pytest.importorskip("zuko")
    made = spec(task="toy-similarity", method={"name": method, **_SMALL.get(method, {})})
    result = train(made)
    assert set(result.last) == {"spearman", "pearson"}
    assert result.steps == 0
    assert result.measures
    if method != "none":
        assert any("distinct texts of dev" in note for note in result.notes)
        assert result.last != train(spec(task="toy-similarity")).last


@pytest.mark.parametrize("kind", ["roberta", "gpt2"])
@pytest.mark.parametrize("method", ["none", "persistent-entropy", "isotropy-layer", "i-star"])
def test_other_models(spec: Callable[..., Any], kind: str, method: str) -> None:
    made = spec(kind, method={"name": method, **_SMALL.get(method, {})})
    assert train(made).last["accuracy"] is not None


def test_a_regression_in_two_stages(spec: Callable[..., Any]) -> None:
    made = spec(task="toy-number", method={"name": "isotropy-layer", **_SMALL["isotropy-layer"]})
    result = train(made)
    assert series(result, "stage/pearson")
    assert result.last["pearson"] == series(result, "dev/pearson")[-1][1]


def test_several_evaluation_sets(spec: Callable[..., Any]) -> None:
    result = train(spec(task="toy-two-sets"))
    assert set(result.last) == {"accuracy", "matthews", "other/accuracy", "other/matthews"}
    assert set(result.data) == {"train", "dev", "other"}


@pytest.mark.parametrize(
    "settings",
    [
        {"optimizer": "adam", "weight_decay": 0.1, "schedule": "cosine", "warmup": 0.5},
        {"optimizer": "sgd", "schedule": "polynomial", "warmup": 1.0, "max_grad_norm": 0},
        {"schedule": "constant", "label_smoothing": 0.1, "group_by_length": False},
        {"gradient_checkpointing": True, "accumulation": 2},
        {"precision": "bfloat16"},
        {"epochs": 0.5, "max_steps": None},
    ],
    ids=lambda settings: "-".join(settings),
)
def test_training_settings(spec: Callable[..., Any], settings: dict[str, Any]) -> None:
    result = train(spec(train=settings, method={"name": "persistent-entropy"}))
    assert result.last["accuracy"] is not None


def test_adam_decays_by_a_squared_norm(spec: Callable[..., Any]) -> None:
    """With L2, Adam's first step has one size whatever the decay; AdamW's has not."""
    from isotropy.experiments._arguments import optimizer

    kind, settings = optimizer(spec(train={"optimizer": "adam"}).train) or (None, {})
    assert kind is torch.optim.Adam
    weight = torch.nn.Parameter(torch.tensor([100.0]))
    made = kind([{"params": [weight], "weight_decay": 0.5}], **{**settings, "lr": 0.1})
    weight.grad = torch.tensor([0.0])
    made.step()
    assert float(weight.detach()) == pytest.approx(99.9)


def test_micro_batches_as_one_cloud(spec: Callable[..., Any]) -> None:
    method = {"name": "persistent-entropy", "accumulate": "cached"}
    made = spec(method=method, train={"accumulation": 2, "batch_size": 4})
    whole = spec(method={"name": "persistent-entropy"}, train={"batch_size": 4, "accumulation": 2})
    assert series(train(made), "penalty") != series(train(whole), "penalty")


def test_lora(spec: Callable[..., Any]) -> None:
    pytest.importorskip("peft")
    for method in ("none", "i-star", "persistent-entropy"):
        made = spec(
            method={"name": method, **_SMALL.get(method, {})},
            train={"peft": "lora", "peft_settings": {"r": 2, "lora_alpha": 4}},
            measure={"each_layer": ["iso_score_unbiased"]},
        )
        result = train(made)
        assert result.last["accuracy"] is not None
        assert {"iso_score_unbiased@1", "iso_score_unbiased@2"} < set(result.measures)
        assert "peft" in result.versions


def test_lora_changes_little_and_learns(spec: Callable[..., Any]) -> None:
    pytest.importorskip("peft")
    made = spec(train={"peft": "lora", "max_steps": 60, "learning_rate": 1e-2})
    losses = [value for _, value in series(train(made), "loss")]
    assert sum(losses[-10:]) < sum(losses[:10])


def test_early_stopping(spec: Callable[..., Any]) -> None:
    """At a rate of almost 0 nothing gets better: the second evaluation is the last."""
    made = spec(
        data={"tune": 0.2},
        train={"max_steps": 30, "patience": 1, "learning_rate": 1e-12, "evaluations": 1},
    )
    result = train(made)
    assert result.steps == 12
    assert any("stopped early, at step 12 of 30" in note for note in result.notes)
    assert result.last == result.best


def test_best_is_chosen_by_the_tuning_split_alone(spec: Callable[..., Any]) -> None:
    made = spec(data={"tune": 0.3}, train={"max_steps": 18, "evaluations": 3})
    result = train(made)
    tuning = series(result, "tuning/accuracy")
    step = max(tuning, key=lambda point: point[1])[0]
    assert result.best["accuracy"] == dict(series(result, "dev/accuracy"))[step]
    assert result.tuning["accuracy"] == dict(tuning)[step]


def test_early_stopping_measures_the_best_model(spec: Callable[..., Any]) -> None:
    """A run that goes on beyond its best measures what one that ends there does."""
    data = {"tune": 0.3}
    schedule = {"schedule": "constant", "learning_rate": 3e-2, "evaluations": 3}
    result = train(spec(data=data, train={"max_steps": 24, "patience": 20, **schedule}))
    tuning = series(result, "tuning/accuracy")
    step = max(tuning, key=lambda point: point[1])[0]
    assert step < result.steps
    assert any(f"measured at step {step}, the best" in note for note in result.notes)
    ended = train(spec(data=data, train={"max_steps": step, **schedule}))
    assert result.measures == ended.measures
    assert result.best == ended.last


def test_a_second_stage_begins_at_the_best_and_stops_by_the_tuning_split(
    spec: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    held: list[torch.Tensor] = []
    whole = SecondStage.train

    def watched(self: SecondStage, *given: Any, held_out: Any = None) -> Any:
        rows, labels = given[2:]
        held.append(held_out)
        counts.append((len(rows), len(labels)))
        return whole(self, *given, held_out=held_out)

    counts: list[tuple[int, int]] = []
    monkeypatch.setattr(SecondStage, "train", watched)
    method = {"name": "isotropy-layer", **_SMALL["isotropy-layer"]}
    schedule = {"schedule": "constant", "learning_rate": 3e-2, "evaluations": 3}
    made = spec(
        method=method, data={"tune": 0.3}, train={"max_steps": 24, "patience": 20, **schedule}
    )
    result = train(made)
    step = max(series(result, "tuning/accuracy")[:-1], key=lambda point: point[1])[0]
    ended = train(spec(method=method, data={"tune": 0.3}, train={"max_steps": step, **schedule}))
    assert result.best == result.last == ended.last
    assert series(result, "stage/loss") == series(ended, "stage/loss")
    (count, _), chosen = counts[0], held[0].tolist()
    assert chosen == list(range(count - len(chosen), count))  # the rows of the tuning split
    assert len(chosen) == round(0.3 * count)


def test_late_scores_are_means(spec: Callable[..., Any]) -> None:
    result = train(spec(train={"max_steps": 16, "evaluations": 8}))
    late = [value for step, value in series(result, "dev/accuracy") if step > 0.7 * 16]
    assert len(late) > 2
    assert result.late["accuracy"] == pytest.approx(sum(late) / len(late))


def test_one_row(spec: Callable[..., Any]) -> None:
    result = train(
        spec(task="toy-one-row", method={"name": "persistent-entropy"}, measure={"arrays": True})
    )
    assert result.last["accuracy"] in (0.0, 1.0)
    assert any("iso_score_unbiased is undefined" in note for note in result.notes)
    assert result.arrays["dimension_means"]


def test_tracking_of_held_out_rows(spec: Callable[..., Any]) -> None:
    made = spec(measure={"track": ["iso_score", "anisotropy"], "every": 2}, train={"max_steps": 5})
    result = train(made)
    assert [step for step, _ in series(result, "iso_score")] == [0, 2, 4, 5]
    assert [step for step, _ in series(result, "anisotropy_1")] == [0, 2, 4, 5]


def test_tracking_changes_nothing(spec: Callable[..., Any]) -> None:
    one = train(spec(train={"max_steps": 5}))
    two = train(
        spec(
            train={"max_steps": 5, "evaluations": 4},
            measure={"track": ["iso_score"], "every": 1, "rows": 10},
        )
    )
    three = train(
        spec(train={"max_steps": 5}, measure={"track": ["iso_score"], "every": 1, "on": "batch"})
    )
    assert series(one, "loss") == series(two, "loss") == series(three, "loss")
    assert one.last == two.last == three.last


@pytest.mark.parametrize(
    ("method", "accumulation"),
    [
        ({"name": "none"}, 1),
        ({"name": "none"}, 2),
        ({"name": "persistent-entropy"}, 1),
        ({"name": "persistent-entropy", "accumulate": "cached"}, 2),
    ],
)
def test_tracking_of_the_batch(
    spec: Callable[..., Any], monkeypatch: pytest.MonkeyPatch, accumulation: int, method: Any
) -> None:
    from isotropy.experiments._embeddings import Sample

    sizes: list[tuple[int, ...]] = []
    inner = Sample.of_batch

    def of_batch(self: Sample, rows: torch.Tensor) -> Any:
        sizes.append(tuple(rows.shape))
        return inner(self, rows)

    monkeypatch.setattr(Sample, "of_batch", of_batch)
    made = spec(
        method=method,
        train={"max_steps": 4, "accumulation": accumulation},
        measure={"track": ["iso_score"], "every": 2, "on": "batch"},
    )
    result = train(made)
    assert [step for step, _ in series(result, "iso_score")] == [2, 4]
    assert sizes[0] == (8 * accumulation, 16)


@pytest.mark.parametrize("method", ["isotropy-layer", "iso-batch-norm"])
def test_the_site_cls_is_after_the_layer(spec: Callable[..., Any], method: str) -> None:
    """`cls@last` of a model with a layer is what the site `embedding` says, and no other."""
    common: dict[str, Any] = {"method": {"name": method, **_SMALL.get(method, {})}}
    cls = train(spec(measure={"site": "cls@last"}, **common))
    head = train(spec(measure={"site": "embedding"}, **common))
    other = train(spec(measure={"site": "cls@2"}, **common))
    assert cls.measures == head.measures
    assert cls.measures != other.measures
    plain = train(spec(measure={"site": "embedding"}))
    assert plain.measures != train(spec(measure={"site": "cls@last"})).measures


def test_the_embedding_of_a_batch_is_after_the_layer(spec: Callable[..., Any]) -> None:
    measure = {"track": ["iso_score"], "every": 1, "on": "batch"}
    common: dict[str, Any] = {"method": {"name": "iso-batch-norm"}}
    cls = train(spec(measure={"site": "cls@last", **measure}, **common))
    head = train(spec(measure={"site": "embedding", **measure}, **common))
    assert series(cls, "iso_score") == series(head, "iso_score")
    for kind in ("bert", "roberta", "gpt2"):
        plain = train(spec(kind, measure={"site": "embedding", **measure}))
        assert len(series(plain, "iso_score")) == 2


@pytest.mark.parametrize("site", ["tokens@all", "mean@last", "vocabulary", "head", "cls@1"])
def test_sites_of_final_measures(spec: Callable[..., Any], site: str) -> None:
    final = ["partition_isotropy"] if site == "head" else ["iso_score"]
    result = train(spec(measure={"site": site, "final": final}))
    assert len(result.measures) == (2 if site == "head" else 1)


def test_arrays_and_layers(spec: Callable[..., Any]) -> None:
    made = spec(measure={"arrays": True, "each_layer": ["mean_cosine"], "final_rows": 12})
    result = train(made)
    assert len(result.arrays["spectrum"]) == len(result.arrays["dimension_means"]) == 16
    assert result.arrays["spectrum"] == sorted(result.arrays["spectrum"], reverse=True)
    assert len(result.arrays["bars"]) == 11
    assert {"mean_cosine@1", "mean_cosine@2"} < set(result.measures)
    assert result.measures["mean_cosine@2"] == pytest.approx(result.measures["mean_cosine"])


def test_equal_specs_give_equal_results(spec: Callable[..., Any], tmp_path: Path) -> None:
    """Twice in one process with another run between, and in a fresh one."""
    made = spec(
        task="toy",
        method={"name": "i-star", "refresh_points": 200},
        data={"tune": 0.2},
        train={"max_steps": 6, "evaluations": 2},
        measure={"track": ["iso_score"], "every": 2, "arrays": True},
        seed=5,
    )
    threads = torch.get_num_threads()
    state = torch.get_rng_state()
    first = train(made)
    assert torch.get_num_threads() == threads
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(123)
    train(spec(method={"name": "persistent-entropy"}, train={"precision": "bfloat16"}, seed=8))
    assert values(train(made)) == values(first)
    assert values(train(made.model_copy(update={"seed": 6}))) != values(first)

    script = tmp_path / "fresh.py"
    script.write_text(_FRESH.format(tests=str(Path(__file__).parent)), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        input=made.model_dump_json(),
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HF_HUB_OFFLINE": "1"},
    )
    assert done.returncode == 0, done.stderr
    fresh = RunResult.read(done.stdout.splitlines()[-1])
    assert values(fresh) == values(first)


_FRESH = """
import sys
sys.path.insert(0, {tests!r})
from conftest import MadeUp
from isotropy.experiments import tasks
from isotropy.experiments.spec import RunSpec
from isotropy.experiments.tasks._classification import Classification
from isotropy.experiments.train import train
tasks.TASKS["toy"] = Classification(
    name="toy", origin=MadeUp(), summary="made up", reference="none", classes=("even", "odd"),
    metric="accuracy", metrics=("accuracy", "matthews"),
)
print(train(RunSpec.read(sys.stdin.read())).model_dump_json())
"""


def test_an_undefined_metric_is_none(spec: Callable[..., Any]) -> None:
    """One row has no correlation, and nor has a mean with such a score in it."""
    result = train(spec(task="toy-one-row"))
    assert result.last["matthews"] is None
    assert result.late["matthews"] is None
    assert any("late matthews is undefined" in note for note in result.notes)
    assert json.loads(result.model_dump_json())["last"]["matthews"] is None


def test_a_loss_that_is_not_finite(spec: Callable[..., Any]) -> None:
    made = spec(
        train={"max_steps": 20, "learning_rate": 1e30, "optimizer": "sgd", "max_grad_norm": 0}
    )
    with pytest.raises(TrainingError, match=r"got a loss of (nan|inf) at step \d+ with learning"):
        train(made)


def test_progress_and_places(spec: Callable[..., Any], tmp_path: Path) -> None:
    seen: list[tuple[str, int, int | None]] = []
    scratch = tmp_path / "scratch"
    train(
        spec(data={"tune": 0.2}),
        Place(scratch=str(scratch)),
        lambda stage, done, total: seen.append((stage, done, total)),
    )
    assert list(scratch.iterdir()) == []
    assert ("train", 2, 2) in seen
    assert ("evaluate", 2, 2) in seen
    assert {stage for stage, _, _ in seen} == {"load", "train", "evaluate", "measure"}


def test_an_interrupt_passes_through(spec: Callable[..., Any], tmp_path: Path) -> None:
    def stop(stage: str, done: int, total: int | None) -> None:
        if (stage, done) == ("train", 1):
            raise KeyboardInterrupt

    threads = torch.get_num_threads()
    with pytest.raises(KeyboardInterrupt):
        train(spec(), Place(scratch=str(tmp_path)), stop)
    assert list(tmp_path.iterdir()) == []
    assert torch.get_num_threads() == threads


def test_quiet(spec: Callable[..., Any], capfd: pytest.CaptureFixture[str]) -> None:
    train(spec(method={"name": "i-star", "refresh_points": 100}))
    said = capfd.readouterr()
    assert said.out == ""
    assert said.err == ""


def test_a_scratch_that_is_a_file(spec: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SettingError, match=r"got scratch folder .*, in which nothing can be"):
        train(spec(), Place(scratch=str(tmp_path / "file" / "folder")))


def test_a_model_that_has_changed(spec: Callable[..., Any]) -> None:
    with pytest.raises(SettingError, match="expected 0123456789abcdef; its files have changed"):
        train(spec(model_revision="0123456789abcdef"))


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU")
@pytest.mark.parametrize("precision", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("method", ["none", "persistent-entropy", "i-star", "isotropy-layer"])
def test_equal_results_on_a_gpu(spec: Callable[..., Any], precision: str, method: str) -> None:
    made = spec(
        device="cuda",
        method={"name": method, **_SMALL.get(method, {})},
        train={"max_steps": 4, "precision": precision},
        measure={"track": ["iso_score"], "every": 2, "on": "batch", "arrays": True},
    )
    first = train(made)
    assert values(train(made)) == values(first)
    assert "gpu" in first.machine

"""Runs on the tasks themselves: written answers, windows, real models and data."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isotropy.experiments.spec import Place, RunResult, RunSpec
from isotropy.experiments.train import train

SHORT: dict[str, Any] = {"max_steps": 2, "batch_size": 4, "learning_rate": 1e-3}


def words(count: int, start: int) -> str:
    return " ".join(f"w{(start + n) % 24}" for n in range(count))


@pytest.fixture
def pairs(tmp_path: Path) -> Place:
    for name, lines in (("train", 16), ("dev", 6)):
        for place, language in enumerate(("en", "ro")):
            text = "".join(f"{words(3 + n % 5, n + place)}\n" for n in range(lines))
            (tmp_path / f"{name}.{language}").write_text(text)
    return Place(files={"train": str(tmp_path / "train"), "dev": str(tmp_path / "dev")})


@pytest.mark.parametrize(
    "method",
    [
        {"name": "none"},
        {"name": "cosine"},
        {"name": "spectrum-pol"},
        {"name": "i-star", "refresh_points": 100},
        {"name": "cosine", "settings": {"site": "decoder-tokens@last"}},
    ],
    ids=lambda method: "-".join(map(str, method.values())),
)
def test_translation(tiny_model: Callable[[str], str], pairs: Place, method: Any) -> None:
    spec = RunSpec.read(
        {
            "model": tiny_model("t5"),
            "task": "wmt16-en-ro",
            "method": method,
            "train": {**SHORT, "label_smoothing": 0.1, "accumulation": 2},
            "data": {"tune": 0.25, "options": {"beams": 2, "target_length": 8}},
            "measure": {
                "site": "decoder-tokens@last",
                "track": ["mean_cosine"],
                "every": 1,
                "each_layer": ["mean_cosine"],
            },
        }
    )
    result = train(spec, pairs)
    assert set(result.last) == {"bleu", "chrf"}
    assert result.last["bleu"] is not None
    assert {"mean_cosine", "mean_cosine@1", "mean_cosine@2"} < set(result.measures)
    tracked = [point.step for point in result.series if point.name == "mean_cosine"]
    assert tracked == [0, 1, 2]
    again = train(spec, pairs)
    assert (again.last, again.series) == (result.last, result.series)


def test_translation_with_adapters(tiny_model: Callable[[str], str], pairs: Place) -> None:
    pytest.importorskip("peft")
    spec = {
        "model": tiny_model("t5"),
        "task": "wmt16-en-ro",
        "train": {**SHORT, "peft": "lora"},
        "data": {"options": {"beams": 1, "target_length": 8}},
    }
    assert train(RunSpec.read(spec), pairs).last["bleu"] is not None


def test_summarisation(tiny_model: Callable[[str], str], tmp_path: Path) -> None:
    rows = [{"article": words(30, n), "highlights": words(4, n)} for n in range(12)]
    file = tmp_path / "rows.jsonl"
    file.write_text("\n".join(json.dumps(row) for row in rows))
    spec = {
        "model": tiny_model("t5"),
        "task": "cnn-dailymail",
        "train": SHORT,
        "data": {"options": {"beams": 1, "target_length": 6}},
    }
    result = train(RunSpec.read(spec), Place(files={"train": str(file), "dev": str(file)}))
    assert set(result.last) == {"rouge1", "rouge2", "rougeL"}


@pytest.mark.parametrize("method", ["none", "i-star"])
def test_question_answering(tiny_model: Callable[[str], str], tmp_path: Path, method: str) -> None:
    """Contexts of several windows, whose logits have several lengths."""
    entries = []
    for n in range(8):
        context = words(20 + 15 * (n % 3), n)
        answer = context.split()[5]
        question = {
            "id": str(n),
            "question": words(3, n),
            "answers": [{"text": answer, "answer_start": context.index(answer)}],
        }
        entries.append({"context": context, "qas": [question]})
    file = tmp_path / "squad.json"
    file.write_text(json.dumps({"version": "1.1", "data": [{"title": "t", "paragraphs": entries}]}))
    spec = {
        "model": tiny_model("bert"),
        "task": "squad",
        "method": {"name": method, "refresh_points": 100} if method != "none" else {},
        "train": {**SHORT, "eval_batch_size": 3},
        "data": {"max_length": 30, "options": {"stride": 8, "question_length": 6}},
        "measure": {"site": "tokens@all"},
    }
    result = train(RunSpec.read(spec), Place(files={"train": str(file), "dev": str(file)}))
    assert set(result.last) == {"f1", "exact_match"}
    assert result.measures


# --- real models and data


def curve(result: RunResult, name: str) -> list[float]:
    return [point.value for point in result.series if point.name == name]


@pytest.mark.weights
def test_minilm_learns_minimal_pairs() -> None:
    spec = RunSpec.read(
        {
            "model": "minilm",
            "task": "minimal-pairs",
            "data": {"train_rows": 400, "eval_rows": 40},
            "train": {"max_steps": 20, "batch_size": 16, "learning_rate": 2e-4},
        }
    )
    result = train(spec)
    losses = curve(result, "loss")
    assert sum(losses[-5:]) < sum(losses[:5])
    assert 0 < result.measures["iso_score_unbiased"] < 1


@pytest.mark.weights
@pytest.mark.data
def test_whitening_helps_minilm_s_neighbours(data_dir: Path) -> None:
    """As published for BERT: whitened embeddings are isotropic and still say what is alike."""
    place = Place(data_dir=str(data_dir))
    common = {"model": "minilm", "task": "stsb-similarity", "data": {"eval_rows": 150}}
    method = {"method": {"name": "whitening", "settings": {"k": 64}}}
    plain = train(RunSpec.read(common), place)
    white = train(RunSpec.read({**common, **method}), place)
    assert plain.last["spearman"] is not None
    assert plain.last["spearman"] > 0.75
    assert white.last["spearman"] is not None
    assert white.last["spearman"] > 0.5
    assert white.measures["iso_score_unbiased"] > 0.9 > plain.measures["iso_score_unbiased"]


@pytest.mark.weights
@pytest.mark.data
@pytest.mark.parametrize("task", ["rte", "cola", "stsb"])
def test_glue_with_minilm(data_dir: Path, task: str) -> None:
    spec = RunSpec.read(
        {
            "model": "minilm",
            "task": task,
            "method": {"name": "isotropy-layer", "stage": {"epochs": 3}},
            "data": {"train_rows": 60, "eval_rows": 30, "tune": 0.2, "max_length": 64},
            "train": {"max_steps": 2, "batch_size": 16},
            "measure": {"final": ["iso_score"]},
        }
    )
    result = train(spec, Place(data_dir=str(data_dir)))
    assert set(result.data) == {"train", "tuning", "dev"}
    assert 0 < result.measures["iso_score"] < 1

"""Whole runs of question answering, translation and summarisation on tiny models."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isotropy.experiments.spec import Place, RunSpec
from isotropy.experiments.train import train

WORDS = [f"w{n}" for n in range(24)]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """A folder with small data sets of the three kinds: what is asked is the word after another."""
    folders = {name: tmp_path / name for name in ("squad", "wmt16/ro-en", "cnndm")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    for split, count in (("train", 24), ("dev", 8)):
        texts = [" ".join(WORDS[(n * 7 + k) % 24] for k in range(10)) for n in range(count)]
        questions = [
            {
                "context": text,
                "qas": [
                    {
                        "id": str(n),
                        "question": text.split()[3],
                        "answers": [{"text": text.split()[4], "answer_start": 0}],
                    }
                ],
            }
            for n, text in enumerate(texts)
        ]
        for one in questions:
            answer = one["qas"][0]["answers"][0]
            answer["answer_start"] = one["context"].index(f" {answer['text']} ") + 1
        content = {"version": "1.1", "data": [{"title": "t", "paragraphs": questions}]}
        (folders["squad"] / f"{split}-v1.1.json").write_text(json.dumps(content))
        for language in ("en", "ro"):
            lines = "".join(f"{text}\n" for text in texts)
            (folders["wmt16/ro-en"] / f"{split}.{language}").write_text(lines)
        rows = [{"article": text, "highlights": text[:8]} for text in texts]
        (folders["cnndm"] / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    return Place(data_dir=str(tmp_path))


def run_of(model: str, task: str, method: str = "none", **data: Any) -> RunSpec:
    return RunSpec.read(
        {
            "model": model,
            "task": task,
            "method": {"name": method},
            "train": {"max_steps": 3, "batch_size": 8, "learning_rate": 1e-3, "evaluations": 2},
            "data": data,
            "measure": {"track": ["iso_score"], "rows": 8, "final_rows": 8},
        }
    )


@pytest.mark.parametrize("method", ["none", "i-star"])
def test_question_answering(tiny_model: Callable[[str], str], place: Place, method: str) -> None:
    # Windows are smaller than some contexts.
    options = {"stride": 3, "question_length": 4}
    spec = run_of(tiny_model("bert"), "squad", method, max_length=12, options=options)
    result = train(spec, place)
    assert result.steps == 3
    assert result.metric == "f1"
    assert set(result.last) == {"f1", "exact_match"}
    assert all(value is not None and 0 <= value <= 1 for value in result.last.values())
    assert train(spec, place).last == result.last
    assert "iso_score_unbiased" in result.measures


@pytest.mark.parametrize(
    ("model", "task", "method"),
    [
        ("t5", "wmt16-en-ro", "none"),
        ("t5", "wmt16-en-ro", "cosine"),
        ("t5", "cnn-dailymail", "spectrum-exp"),
        ("t5", "wmt16-en-ro", "flow"),
        ("mbart", "wmt16-en-ro", "flow"),
        ("bart", "cnn-dailymail", "flow"),
    ],
)
def test_written_texts(
    tiny_model: Callable[[str], str], place: Place, model: str, task: str, method: str
) -> None:
    if method == "flow":
        pytest.importorskip("zuko")
    options = {"target_length": 6, "beams": 2}
    spec = run_of(tiny_model(model), task, method, options=options)
    result = train(spec, place)
    assert result.steps == 3
    expected = {"bleu", "chrf"} if task == "wmt16-en-ro" else {"rouge1", "rouge2", "rougeL"}
    assert set(result.last) == expected
    assert all(value is not None and 0 <= value <= 100 for value in result.last.values())
    losses = [point.value for point in result.series if point.name == "layer_loss"]
    assert len(losses) == (3 if method == "flow" else 0)
    assert train(spec, place).last == result.last


def test_a_site_of_the_encoder_stays_there_with_a_flow(
    tiny_model: Callable[[str], str], place: Place
) -> None:
    pytest.importorskip("zuko")
    found = {}
    for method in ("none", "flow"):
        base = run_of(tiny_model("t5"), "wmt16-en-ro", method, options={"target_length": 6})
        still = base.train.model_copy(update={"learning_rate": 1e-30})
        for on in ("held-out", "batch"):
            measured = base.measure.model_copy(update={"on": on, "rows": 8})
            update = {"train": still, "measure": measured}
            result = train(base.model_copy(update=update), place)
            tracked = [point for point in result.series if "iso_score" in point.name]
            found[method, on] = (result.measures, [(p.step, p.value) for p in tracked])
            assert len(tracked) > 1
    for on in ("held-out", "batch"):
        assert found["flow", on][0] == pytest.approx(found["none", on][0])
        steps, values = zip(*found["flow", on][1], strict=True)
        expected = dict(found["none", on][1])
        assert values == pytest.approx([expected[step] for step in steps])


def test_a_run_that_reports_nothing_never_looks_at_dev(
    tiny_model: Callable[[str], str], place: Place
) -> None:
    assert place.data_dir is not None
    data = {"tune": 0.25, "reported": False, "max_length": 16, "options": {"stride": 2}}
    result = train(run_of(tiny_model("bert"), "squad", **data), place)
    assert set(result.data) == {"train", "tuning"}
    assert result.best == result.tuning
    dev = Path(place.data_dir) / "squad" / "dev-v1.1.json"
    dev.write_text(dev.read_text().replace("w1", "w2"))
    again = train(run_of(tiny_model("bert"), "squad", **data), place)
    assert (again.last, again.tuning) == (result.last, result.tuning)

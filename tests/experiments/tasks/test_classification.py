"""From rows to a model's inputs, and from its outputs to scores."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from isotropy.errors import SettingError
from isotropy.experiments.spec import DataSettings
from isotropy.experiments.tasks import Row, Splits, find_task

PAIRS: list[Row] = [
    {"text": "a b c d", "pair": "e f", "label": 1},
    {"text": "a", "pair": "b c d e f", "label": 0},
]
TEXTS: list[Row] = [{"text": row["text"], "label": row["label"]} for row in PAIRS]
LETTERS = ["a b c d e f"]


def test_pairs_have_types_and_labels_and_no_padding(word_tokenizer: Callable[..., Any]) -> None:
    tokenizer = word_tokenizer(LETTERS)
    first, second = find_task("mrpc").encode(PAIRS, tokenizer, DataSettings(), training=True)
    assert tokenizer.decode(first["input_ids"]) == "<cls> a b c d <sep> e f <sep>"
    assert first["token_type_ids"] == [0] * 6 + [1] * 3
    assert first["attention_mask"] == [1] * 9
    assert first["labels"] == 1
    assert tokenizer.decode(second["input_ids"]) == "<cls> a <sep> b c d e f <sep>"
    assert set(first) == {"input_ids", "token_type_ids", "attention_mask", "labels"}


def test_single_texts_of_a_tokenizer_without_types(word_tokenizer: Callable[..., Any]) -> None:
    tokenizer = word_tokenizer(
        LETTERS, style="plain", model_input_names=["input_ids", "attention_mask"]
    )
    first, _ = find_task("cola").encode(TEXTS, tokenizer, DataSettings(), training=False)
    assert tokenizer.decode(first["input_ids"]) == "a b c d </s>"
    assert set(first) == {"input_ids", "attention_mask", "labels"}


@pytest.mark.parametrize("by", ["setting", "tokenizer"])
def test_of_a_pair_that_is_too_long_the_longer_text_is_cut(
    word_tokenizer: Callable[..., Any], by: str
) -> None:
    limit = {"model_max_length": 7} if by == "tokenizer" else {}
    data = DataSettings(max_length=7) if by == "setting" else DataSettings()
    tokenizer = word_tokenizer(LETTERS, **limit)
    first, second = find_task("mrpc").encode(PAIRS, tokenizer, data, training=True)
    assert tokenizer.decode(first["input_ids"]) == "<cls> a b <sep> e f <sep>"
    assert tokenizer.decode(second["input_ids"]) == "<cls> a <sep> b c d <sep>"


def test_many_rows_keep_their_order(word_tokenizer: Callable[..., Any]) -> None:
    words = [f"w{i}" for i in range(5000)]
    tokenizer = word_tokenizer(words)
    rows = [{"text": word, "label": i % 2} for i, word in enumerate(words)]
    encoded = find_task("cola").encode(rows, tokenizer, DataSettings(), training=True)
    assert [tokenizer.decode(one["input_ids"][1]) for one in encoded] == words
    assert [one["labels"] for one in encoded] == [row["label"] for row in rows]


def test_batches_are_padded_by_the_collator(word_tokenizer: Callable[..., Any]) -> None:
    tokenizer = word_tokenizer(LETTERS)
    task = find_task("cola")
    encoded = task.encode(TEXTS, tokenizer, DataSettings(), training=True)
    batch = task.collator(tokenizer, None)(encoded)
    assert batch["input_ids"].shape == (2, 6)
    assert batch["attention_mask"].tolist() == [[1] * 6, [1] * 3 + [0] * 3]
    assert batch["labels"].tolist() == [1, 0]
    scores = find_task("stsb").encode(
        [{**row, "label": 2.5} for row in PAIRS], tokenizer, DataSettings(), training=True
    )
    labels = task.collator(tokenizer, None)(scores)["labels"]
    assert labels.dtype.is_floating_point
    assert labels.tolist() == [2.5, 2.5]


def test_texts_are_no_longer_than_the_model_reads(tiny_model: Callable[[str], str]) -> None:
    from transformers import AutoModelForSequenceClassification

    task = find_task("cola")
    for kind, limit in (("bert", 40), ("roberta", 39), ("gpt2", 40)):
        model = AutoModelForSequenceClassification.from_pretrained(tiny_model(kind))
        assert task.adapted(DataSettings(), model).max_length == limit
        assert task.adapted(DataSettings(max_length=9), model).max_length == 9
        with pytest.raises(SettingError, match=f"max_length=41, expected at most the {limit} tok"):
            task.adapted(DataSettings(max_length=41), model)


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        ("mnli", {"num_labels": 3, "problem_type": "single_label_classification"}),
        ("sst5", {"num_labels": 5, "problem_type": "single_label_classification"}),
        ("stsb", {"num_labels": 1, "problem_type": "regression"}),
    ],
)
def test_the_head_that_a_task_needs(name: str, settings: dict[str, Any]) -> None:
    found = find_task(name).model_settings(Splits([], {}))
    assert settings.items() <= found.items()


def logits(seed: int, rows: int, k: int) -> Any:
    return np.random.default_rng(seed).normal(size=(rows, k)).astype(np.float32)


@pytest.mark.parametrize("seed", range(3))
def test_scores_of_classes_as_in_sklearn(seed: int) -> None:
    random = np.random.default_rng(seed)
    rows = [{"label": int(label)} for label in random.integers(0, 2, 50)]
    outputs = logits(seed, 50, 2)
    labels, said = [row["label"] for row in rows], (outputs[:, 1] > outputs[:, 0]).astype(int)
    expected = {
        "accuracy": accuracy_score(labels, said),
        "f1": f1_score(labels, said),
        "matthews": matthews_corrcoef(labels, said),
    }
    for name in ("mrpc", "cola", "rte", "minimal-pairs"):
        task = find_task(name)
        predictions = task.predict(rows, [], outputs, None, DataSettings())
        scores = task.score(predictions, rows)
        assert set(scores) == set(task.metrics)
        for metric, value in scores.items():
            assert value == pytest.approx(expected[metric], abs=1e-12)
        assert predictions.notes == ()


def test_a_constant_predictor_is_named_and_its_score_undefined() -> None:
    rows = [{"label": i % 2} for i in range(6)]
    outputs = np.tile([0.0, 1.0], (6, 1))
    task = find_task("cola")
    predictions = task.predict(rows, [], outputs, None, DataSettings())
    assert predictions.notes == ("all 6 predictions are the class acceptable",)
    assert task.score(predictions, rows) == {"matthews": None, "accuracy": 0.5}


def test_outputs_that_are_not_finite_are_named() -> None:
    rows = [{"label": 0}, {"label": 1}, {"label": 0}]
    outputs = np.array([[1.0, 0.0], [np.nan, np.nan], [0.0, np.inf]])
    predictions = find_task("rte").predict(rows, [], outputs, None, DataSettings())
    assert predictions.notes == ("2 of 3 predictions come from NaN or infinity",)
    task = find_task("stsb")
    predictions = task.predict(rows, [], outputs[:, :1], None, DataSettings())
    assert predictions.notes == ("1 of 3 predictions are NaN or infinite",)
    assert task.score(predictions, rows) == {"spearman": None, "pearson": None}


def test_a_constant_number_is_named() -> None:
    rows = [{"label": 1.0}, {"label": 2.0}, {"label": 4.0}]
    task = find_task("stsb")
    predictions = task.predict(rows, [], np.full((3, 1), 2.5), None, DataSettings())
    assert predictions.notes == ("all 3 predictions are 2.5",)
    assert task.score(predictions, rows) == {"spearman": None, "pearson": None}
    predictions = task.predict(rows, [], np.array([[1.0], [3.0], [9.0]]), None, DataSettings())
    assert predictions.notes == ()
    assert task.score(predictions, rows)["spearman"] == 1.0

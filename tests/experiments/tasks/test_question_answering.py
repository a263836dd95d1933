"""Answers from windows: their places, their choice and their scores."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isotropy.errors import SettingError, SourceError
from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks._answer_spans import answer_tokens, best_span, windows
from isotropy.experiments.tasks._question_answering import QUESTION_ANSWERING
from isotropy.experiments.tasks._squad_rules import exact_match, plain, word_f1
from isotropy.experiments.tasks._task import Predictions

(SQUAD,) = QUESTION_ANSWERING
CONTEXT = "one two three four five six seven eight nine ten eleven twelve"


def row(
    question: str = "which number", answer: str = "eight", context: str = CONTEXT
) -> dict[str, Any]:
    return {
        "id": "q",
        "question": question,
        "context": context,
        "answers": [answer],
        "starts": [context.index(answer)],
    }


def file_of(*questions: dict[str, Any], context: str = CONTEXT) -> dict[str, Any]:
    return {
        "version": "1.1",
        "data": [{"title": "t", "paragraphs": [{"context": context, "qas": list(questions)}]}],
    }


def question(text: str = "eight", start: int | None = None) -> dict[str, Any]:
    start = CONTEXT.index(text) if start is None else start
    answers = [{"text": text, "answer_start": start}]
    return {"id": "q1", "question": "which number", "answers": answers}


# --- the official rules: every value counted by hand


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("The  Eiffel\tTower", "eiffel tower"),
        ("A an THE", ""),
        ("theatre and anthem", "theatre and anthem"),
        ("U.S.A.", "usa"),
        ("well-known", "wellknown"),
        ("the-cat", "thecat"),  # punctuation goes before articles do
        ("$4,500.50!", "450050"),
        ("Ärzte «über» Köln", "ärzte «über» köln"),  # only ASCII punctuation is punctuation
        ("a\N{NO-BREAK SPACE}b", "b"),
        ("", ""),
    ],
)
def test_normalisation(text: str, expected: str) -> None:
    assert plain(text) == expected


@pytest.mark.parametrize(
    ("prediction", "answers", "exact", "f1"),
    [
        ("Denver Broncos", ["Denver Broncos", "the Broncos"], 1, 1),
        ("the denver broncos!", ["Denver Broncos"], 1, 1),
        ("Broncos", ["Denver Broncos"], 0, 2 / 3),  # precision 1, recall 1/2
        ("Denver Broncos of Colorado", ["Denver Broncos"], 0, 2 / 3),  # 1/2 and 1
        ("Carolina Panthers", ["Denver Broncos"], 0, 0),
        ("", ["Denver"], 0, 0),
        ("", ["the"], 1, 0),  # v1.1 has no rule for answers without words
        ("x x y", ["x y y"], 0, 2 / 3),  # each word as often as it occurs: x once, y once
        ("gold", ["silver", "gold medal", "old gold ring"], 0, 2 / 3),  # the best, not the mean
        ("broncos denver", ["Denver Broncos"], 0, 1),  # order is nothing to F1
        ("São Paulo", ["são paulo"], 1, 1),
    ],
)
def test_scores_by_hand(prediction: str, answers: list[str], exact: float, f1: float) -> None:
    assert exact_match(prediction, answers) == exact
    assert word_f1(prediction, answers) == pytest.approx(f1)


def test_scores_are_means_over_questions() -> None:
    rows = [{"answers": ["Denver Broncos"]}, {"answers": ["a dog", "cats"]}, {"answers": ["x"]}]
    scores = SQUAD.score(Predictions(["Broncos", "the cats", ""]), rows)
    assert scores == {"f1": pytest.approx((2 / 3 + 1) / 3), "exact_match": pytest.approx(1 / 3)}


# --- windows


def test_windows_hold_the_whole_context_and_share_the_stride(
    word_tokenizer: Callable[..., Any],
) -> None:
    tokenizer = word_tokenizer([CONTEXT, "which number"])
    found = list(
        windows(["which number"], [CONTEXT], tokenizer, length=10, stride=2, question_length=64)
    )
    # 10 − 3 special − 2 of the question leave 5 words; each next window begins 3 words later.
    words = [[CONTEXT[a:b] for a, b in offsets.tolist() if a >= 0] for _, _, offsets in found]
    numbers = CONTEXT.split()
    assert words == [numbers[0:5], numbers[3:8], numbers[6:11], numbers[9:12]]
    assert [example for example, _, _ in found] == [0] * 4
    assert all(len(inputs["input_ids"]) == len(offsets) for _, inputs, offsets in found)


def test_a_long_question_leaves_room_for_the_context(word_tokenizer: Callable[..., Any]) -> None:
    tokenizer = word_tokenizer([CONTEXT])
    long = "  " + "one two " * 50
    found = list(windows([long], [CONTEXT], tokenizer, length=12, stride=3, question_length=64))
    seen = {tuple(place) for _, _, offsets in found for place in offsets.tolist()}
    assert len(seen - {(-1, -1)}) == 12
    short = list(windows([long], [CONTEXT], tokenizer, length=12, stride=3, question_length=2))
    assert tokenizer.decode(short[0][1]["input_ids"]).startswith("<cls> one two <sep>")


def test_an_answer_is_marked_in_every_window_that_has_all_of_it(
    word_tokenizer: Callable[..., Any],
) -> None:
    tokenizer = word_tokenizer([CONTEXT, "which number"])
    data = DataSettings(max_length=10, options={"stride": 2})
    for answer in ("one", "eight", "four five", "twelve", "four five six seven"):
        encoded = SQUAD.encode([row(answer=answer)], tokenizer, data, training=True)
        parts = []
        for feature in encoded:
            start, end = feature["start_positions"], feature["end_positions"]
            parts.append(tokenizer.decode(feature["input_ids"][start : end + 1]))
        text = [" ".join(CONTEXT.split()[a:b]) for a, b in ((0, 5), (3, 8), (6, 11), (9, 12))]
        assert parts == [answer if f" {answer} " in f" {window} " else "<cls>" for window in text]


def test_an_answer_split_over_windows_is_in_none(word_tokenizer: Callable[..., Any]) -> None:
    tokenizer = word_tokenizer([CONTEXT, "which number"])
    data = DataSettings(max_length=10, options={"stride": 2})
    encoded = SQUAD.encode(
        [row(answer="three four five six seven eight")], tokenizer, data, training=True
    )
    assert {(f["start_positions"], f["end_positions"]) for f in encoded} == {(0, 0)}


def test_an_answer_inside_a_word_takes_the_word() -> None:
    words = np.array([[-1, -1], [0, 3], [4, 9], [10, 12]], np.int32)
    assert answer_tokens(words, 5, 8) == (2, 2)
    assert answer_tokens(words[:1], 5, 8) is None


# --- the choice of an answer


@pytest.mark.parametrize("seed", range(20))
def test_the_best_span_is_that_of_a_search_over_all(seed: int) -> None:
    generator = np.random.default_rng(seed)
    length = 14
    start, end = generator.normal(size=(2, length)).round(1)  # rounded: ties occur
    inside = np.zeros(length, bool)
    inside[4:12] = True
    offsets = np.where(inside[:, None], np.arange(length)[:, None] * 3 + [0, 2], -1)
    n_best, longest = int(generator.integers(1, 8)), int(generator.integers(1, 5))
    ranked = [
        sorted(range(length), key=lambda i, logits=logits: (-logits[i], i))[:n_best]
        for logits in (start, end)
    ]
    best = None
    for i in ranked[0]:
        for j in ranked[1]:
            if not (inside[i] and inside[j] and i <= j < i + longest):
                continue
            if best is None or start[i] + end[j] > best[0]:
                best = (start[i] + end[j], 3 * i, 3 * j + 2)
    padded = np.append(start, 100), np.append(end, 100)  # a longer window's place
    assert best_span(*padded, offsets, n_best=n_best, longest=longest) == best


def test_the_best_window_answers(word_tokenizer: Callable[..., Any]) -> None:
    tokenizer = word_tokenizer([CONTEXT, "which number"])
    data = DataSettings(max_length=10, options={"stride": 2})
    rows = [row(), row(answer="one", context="one two")]
    encoded = SQUAD.encode(rows, tokenizer, data, training=False)
    assert [feature["example"] for feature in encoded] == [0, 0, 0, 0, 1]
    outputs = np.full((2, 5, 10), -5.0)
    outputs[0, :, 0] = outputs[1, :, 0] = 50  # "no answer here" is none of v1.1's answers
    outputs[0, 1, 5], outputs[1, 1, 5] = 3, 1  # window 1: "five": 4
    outputs[0, 2, 4], outputs[1, 2, 5] = 3, 4  # window 2: "seven eight": 7
    outputs[0, 4, 5], outputs[1, 4, 4] = 9, 9  # "two" before "one": no passage
    found = SQUAD.predict(rows, encoded, outputs, tokenizer, data)
    assert found.values[0] == "seven eight"
    assert found.values[1] in ("one", "two", "one two")
    narrow = data.model_copy(update={"options": {"stride": 2, "n_best": 1}})
    found = SQUAD.predict(rows, encoded, outputs, tokenizer, narrow)
    assert found.values == ["", ""]
    assert found.notes == ("no passage was found for 2 of 2 questions",)


def test_unicode_offsets_are_characters(word_tokenizer: Callable[..., Any]) -> None:
    context = "Müller 😀 traf Çelik am 3. März"
    tokenizer = word_tokenizer([context, "wen"])
    rows = [row("wen", "Çelik", context)]
    data = DataSettings(max_length=32, options={"stride": 4})
    (feature,) = SQUAD.encode(rows, tokenizer, data, training=True)
    start = feature["start_positions"]
    assert tokenizer.decode(feature["input_ids"][start : feature["end_positions"] + 1]) == "Çelik"
    (feature,) = SQUAD.encode(rows, tokenizer, data, training=False)
    logits = np.zeros((2, 1, len(feature["input_ids"])))
    logits[:, 0, start] = 1
    assert SQUAD.predict(rows, [feature], logits, tokenizer, data).values == ["Çelik"]


# --- batches and models


@pytest.mark.parametrize("side", ["left", "right"])
def test_a_model_answers_the_same_in_any_batch(
    word_tokenizer: Callable[..., Any], side: str
) -> None:
    from transformers import BertConfig, BertForQuestionAnswering

    tokenizer = word_tokenizer([CONTEXT, "which number"], padding_side=side)
    torch.manual_seed(0)
    model = BertForQuestionAnswering(
        BertConfig(
            vocab_size=len(tokenizer),
            hidden_size=16,
            num_hidden_layers=1,
            num_attention_heads=2,
            intermediate_size=16,
        )
    ).eval()
    rows = [row(), row(context="eight nine", answer="nine"), row(question="which", answer="ten")]
    data = DataSettings(max_length=14, options={"stride": 2})
    collate = SQUAD.collator(tokenizer, model)

    def answers(size: int) -> list[str]:
        encoded = SQUAD.encode(rows, tokenizer, data, training=False)
        starts, ends = [], []
        for first in range(0, len(encoded), size):
            with torch.no_grad():
                output = model(**collate(encoded[first : first + size]))
            for logits, kept in ((output.start_logits, starts), (output.end_logits, ends)):
                wide = np.full((len(logits), 14), -100.0)
                wide[:, : logits.shape[1]] = logits.numpy()
                kept.extend(wide)
        outputs = np.stack(starts), np.stack(ends)
        return list(SQUAD.predict(rows, encoded, outputs, tokenizer, data).values)

    assert answers(1) == answers(2) == answers(8)
    batch = collate(SQUAD.encode(rows, tokenizer, data, training=True))
    loss = model(**batch).loss
    loss.backward()
    assert torch.isfinite(loss)
    assert set(batch) == {
        "input_ids", "attention_mask", "token_type_ids", "start_positions", "end_positions"
    }  # fmt: skip


# --- files


def test_a_folder_is_read(tmp_path: Path) -> None:
    folder = tmp_path / "squad"
    folder.mkdir()
    (folder / "train-v1.1.json").write_text(json.dumps(file_of(question())))
    (folder / "dev-v1.1.json").write_text(json.dumps(file_of(question("ten"), question())))
    place = Place(data_dir=str(tmp_path))
    splits = SQUAD.load(DataSettings(), place)
    assert splits.train == [{**row(), "id": "q1"}]
    assert [found["answers"] for found in splits.evaluations["dev"]] == [["ten"], ["eight"]]
    before = SQUAD.revision(DataSettings(), place)
    (folder / "dev-v1.1.json").write_text(json.dumps(file_of(question("two"))))
    assert SQUAD.revision(DataSettings(), place) != before


def test_a_file_stands_in_for_a_split(tmp_path: Path) -> None:
    for name, content in (("a", question()), ("b", question("ten"))):
        (tmp_path / name).write_text(json.dumps(file_of(content)))
    place = Place(files={"train": str(tmp_path / "a"), "dev": str(tmp_path / "b")})
    splits = SQUAD.load(DataSettings(), place)
    assert splits.train[0]["answers"] + splits.evaluations["dev"][0]["answers"] == ["eight", "ten"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("not json", "which is no JSON"),
        ("[]", "of another layout"),
        ("{}", "without 'data'"),
        (json.dumps({"data": []}), "without questions"),
        (json.dumps(file_of({"id": "a", "answers": []})), "without 'question'"),
        (
            json.dumps(file_of({"id": "a", "question": "b", "answers": []})),
            "question 'a' .* without an answer",
        ),
        (json.dumps(file_of(question("eight", 5))), "'eight' at character 5, .* 'wo th'"),
        (json.dumps(file_of(question("eight", -5))), "at character -5"),
        (json.dumps(file_of({**question(), "question": 3})), "of another layout"),
        (b"\xff\xfe", "which is no JSON .*utf-8"),
    ],
)
def test_damaged_files(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = tmp_path / "train.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    place = Place(files={"train": str(path), "dev": str(path)})
    with pytest.raises(SourceError, match=message) as caught:
        SQUAD.load(DataSettings(), place)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("place", "error", "message"),
    [
        (Place(data_dir="/nowhere"), SourceError, "without the train split of rajpurkar/squad"),
        (Place(files={"train": "/none"}), SourceError, "got /none for the train split, .* no file"),
        (Place(files={"validation": "/none"}), SettingError, "split 'validation', .* train, dev"),
        (Place(), SourceError, "got no data set rajpurkar/squad .* --data-dir"),
    ],
)
def test_missing_data(place: Place, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SQUAD.load(DataSettings(), place)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (DataSettings(options={"strid": 3}), "did you mean 'stride'"),
        (DataSettings(options={"stride": -1}), "stride=-1"),
        (DataSettings(options={"n_best": 0}), "n_best=0"),
        (DataSettings(options={"answer_length": 2.5}), "answer_length=2.5"),
        (DataSettings(max_length=100), "max_length=100 and stride=128, .* from 133 up"),
    ],
)
def test_bad_settings(word_tokenizer: Callable[..., Any], data: DataSettings, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        SQUAD.encode([row()], word_tokenizer([CONTEXT]), data, training=True)


def test_a_tokenizer_without_offsets_is_refused() -> None:
    class Slow:
        is_fast = False
        model_max_length = 512

    with pytest.raises(SettingError, match=r"type Slow, .* expected a fast one"):
        SQUAD.encode([row()], Slow(), DataSettings(), training=True)


@pytest.mark.data
def test_the_real_files(data_dir: Path) -> None:
    place = Place(data_dir=str(data_dir))
    splits = SQUAD.load(DataSettings(), place)
    assert (len(splits.train), len(splits.evaluations["dev"])) == (7225, 700)
    dev = splits.evaluations["dev"]
    perfect = Predictions([found["answers"][-1] for found in dev])
    assert SQUAD.score(perfect, dev) == {"f1": 1.0, "exact_match": 1.0}
    other = Place(data_dir=str(data_dir), files={"dev": str(data_dir / "squad" / "xquad.en.json")})
    assert len(SQUAD.load(DataSettings(), other).evaluations["dev"]) == 1190


@pytest.mark.data
@pytest.mark.weights
def test_perfect_logits_give_the_answers_back(data_dir: Path, minilm: Path) -> None:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(minilm)
    rows = SQUAD.load(DataSettings(), Place(data_dir=str(data_dir))).train[:400]
    data = DataSettings(max_length=128, options={"stride": 48, "answer_length": 60})
    training = SQUAD.encode(rows, tokenizer, data, training=True)
    encoded = SQUAD.encode(rows, tokenizer, data, training=False)
    start, end = np.zeros((2, len(encoded), 128))
    for index, feature in enumerate(training):
        start[index, feature["start_positions"]] = end[index, feature["end_positions"]] = 1
    scores = SQUAD.score(SQUAD.predict(rows, encoded, (start, end), tokenizer, data), rows)
    assert scores["exact_match"] > 0.98  # an answer may end inside a token

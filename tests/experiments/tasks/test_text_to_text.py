"""Translation and summarisation: pairs, tokens, generated texts and their scores."""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isotropy.errors import SettingError, SourceError
from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks._summarisation import SUMMARISATION
from isotropy.experiments.tasks._task import Predictions, Task
from isotropy.experiments.tasks._text_to_text import HubPairs
from isotropy.experiments.tasks._translation import TRANSLATION

EN_RO, DE_EN = TRANSLATION
(CNN,) = SUMMARISATION

ROWS = [
    {"source": "a red house", "target": "o casă roșie"},
    {"source": "a blue house stands there", "target": "o casă albastră stă acolo"},
    {"source": "a red sky", "target": "un cer roșu"},
    {"source": "the sky is blue", "target": "cerul este albastru"},
]
TEXTS = [text for row in ROWS for text in row.values()]


def small_t5(size: int) -> Any:
    from transformers import T5Config, T5ForConditionalGeneration

    torch.manual_seed(0)
    return T5ForConditionalGeneration(
        T5Config(
            vocab_size=size,
            d_model=32,
            d_kv=8,
            d_ff=32,
            num_layers=1,
            num_heads=4,
            dropout_rate=0.0,
            decoder_start_token_id=0,
        )
    )


def small_bart(size: int) -> Any:
    from transformers import BartConfig, BartForConditionalGeneration

    torch.manual_seed(0)
    return BartForConditionalGeneration(
        BartConfig(
            vocab_size=size,
            d_model=32,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=32,
            decoder_ffn_dim=32,
            max_position_embeddings=64,
            dropout=0.0,
            pad_token_id=0,
            bos_token_id=3,
            eos_token_id=1,
            decoder_start_token_id=1,
            forced_eos_token_id=None,
        )
    )


def small_mbart(size: int) -> Any:
    from transformers import MBartConfig, MBartForConditionalGeneration

    torch.manual_seed(0)
    return MBartForConditionalGeneration(
        MBartConfig(
            vocab_size=size,
            d_model=32,
            encoder_layers=1,
            decoder_layers=1,
            encoder_attention_heads=4,
            decoder_attention_heads=4,
            encoder_ffn_dim=32,
            decoder_ffn_dim=32,
            max_position_embeddings=64,
            dropout=0.0,
            forced_eos_token_id=None,
        )
    )


def mbart_tokenizer() -> Any:
    from transformers import MBartTokenizer
    from transformers.models.mbart.tokenization_mbart import FAIRSEQ_LANGUAGE_CODES

    words = sorted({word for text in TEXTS for word in text.split()})
    vocabulary = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>", "▁")]
    vocabulary += [(f"▁{word}", -1.0) for word in words]
    vocabulary += [(code, 0.0) for code in FAIRSEQ_LANGUAGE_CODES] + [("<mask>", 0.0)]
    return MBartTokenizer(vocab=vocabulary)


def generated(task: Task, model: Any, tokenizer: Any, data: DataSettings) -> Predictions:
    """What a model writes for the rows, as a runner has it: in batches, padded with -100."""
    encoded = task.encode(ROWS, tokenizer, data, training=False)
    collate = task.collator(tokenizer, model)
    model.eval()
    written = []
    for first in range(0, len(encoded), 3):
        batch = collate(encoded[first : first + 3])
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        tokens = model.generate(**inputs, **task.generation(tokenizer, data))
        written.append(torch.nn.functional.pad(tokens, (0, 40 - tokens.shape[1]), value=-100))
    return task.predict(ROWS, encoded, torch.cat(written).numpy(), tokenizer, data)


def train(task: Task, model: Any, tokenizer: Any, data: DataSettings, steps: int) -> None:
    batch = task.collator(tokenizer, model)(task.encode(ROWS, tokenizer, data, training=True))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(steps):
        optimizer.zero_grad()
        model(**batch).loss.backward()
        optimizer.step()


# --- from texts to scores on models made here


@pytest.mark.parametrize("make", [small_t5, small_bart], ids=["t5", "bart"])
@pytest.mark.parametrize("task", [EN_RO, CNN], ids=["translation", "summarisation"])
def test_a_model_learns_to_write_the_targets(
    word_tokenizer: Callable[..., Any], make: Callable[[int], Any], task: Task
) -> None:
    tokenizer = word_tokenizer([*TEXTS, "translate English to Romanian: summarize:"], style="t5")
    model = make(len(tokenizer))
    data = DataSettings(max_length=32, options={"target_length": 12, "beams": 2})
    data = task.adapted(data, model)
    before = task.score(generated(task, model, tokenizer, data), ROWS)
    train(task, model, tokenizer, data, 60)
    found = generated(task, model, tokenizer, data)
    assert found == Predictions([row["target"] for row in ROWS])
    scores = task.score(found, ROWS)
    assert set(scores) == set(task.metrics)
    assert scores[task.metric] == pytest.approx(100)
    assert before[task.metric] < 50


def test_mbart_is_told_both_languages() -> None:
    tokenizer = mbart_tokenizer()
    model = small_mbart(len(tokenizer))
    data = EN_RO.adapted(DataSettings(options={"target_length": 12, "beams": 2}), model)
    assert data.options["prefix"] == ""
    (first, *_) = EN_RO.encode(ROWS, tokenizer, data, training=True)
    english, romanian = tokenizer.convert_tokens_to_ids(["en_XX", "ro_RO"])
    assert list(first["input_ids"][-2:]) == [tokenizer.eos_token_id, english]
    assert list(first["labels"][-2:]) == [tokenizer.eos_token_id, romanian]
    batch = EN_RO.collator(tokenizer, model)([first])
    assert batch["decoder_input_ids"][0, 0] == romanian  # what generation begins with, too
    assert EN_RO.generation(tokenizer, data)["decoder_start_token_id"] == romanian
    train(EN_RO, model, tokenizer, data, 60)
    found = generated(EN_RO, model, tokenizer, data)
    assert list(found.values) == [row["target"] for row in ROWS]


def test_mbart_50_writes_the_language_first() -> None:
    from transformers import MBart50Tokenizer

    words = [(name, 0.0) for name in ("<s>", "<pad>", "</s>", "<unk>", "▁", "▁house")]
    tokenizer = MBart50Tokenizer(vocab=words)
    german = DE_EN.generation(tokenizer, DataSettings())
    assert german["forced_bos_token_id"] == tokenizer.convert_tokens_to_ids("en_XX")
    assert tokenizer.src_lang == "de_DE"
    assert "decoder_start_token_id" not in german


def test_only_a_t5_gets_its_prefix(word_tokenizer: Callable[..., Any]) -> None:
    t5, bart = small_t5(10), small_bart(10)
    plain = DataSettings(options={"beams": 1})
    assert EN_RO.adapted(plain, t5).options == {
        "beams": 1,
        "prefix": "translate English to Romanian: ",
    }
    assert DE_EN.adapted(plain, t5).options["prefix"] == "translate German to English: "
    assert CNN.adapted(plain, t5).options["prefix"] == "summarize: "
    assert CNN.adapted(plain, bart).options["prefix"] == ""
    own = DataSettings(options={"prefix": "go: "})
    assert CNN.adapted(own, t5) == own
    tokenizer = word_tokenizer(["go:", *TEXTS], style="t5")
    encoded = EN_RO.encode(ROWS, tokenizer, own, training=True)
    assert tokenizer.decode(encoded[0]["input_ids"]) == "go: a red house </s>"


def test_texts_are_cut_and_batches_padded(word_tokenizer: Callable[..., Any]) -> None:
    tokenizer = word_tokenizer(TEXTS, style="t5")
    data = DataSettings(max_length=4, options={"target_length": 3})
    encoded = EN_RO.encode(ROWS, tokenizer, data, training=True)
    assert [len(row["input_ids"]) for row in encoded] == [4, 4, 4, 4]
    assert [len(row["labels"]) for row in encoded] == [3, 3, 3, 3]
    batch = EN_RO.collator(tokenizer, small_t5(len(tokenizer)))(
        EN_RO.encode(ROWS[:2], tokenizer, DataSettings(), training=True)
    )
    assert set(batch) == {"input_ids", "attention_mask", "labels", "decoder_input_ids"}
    assert batch["attention_mask"].tolist() == [[1, 1, 1, 1, 0, 0], [1] * 6]
    assert batch["labels"][0].tolist()[-2:] == [-100, -100]


def test_generation_settings() -> None:
    assert CNN.generation(None, DataSettings()) == {
        "do_sample": False,
        "max_new_tokens": 128,
        "num_beams": 4,
    }
    own = {"beams": None, "generate": {"length_penalty": 2.0, "max_new_tokens": 142}}
    assert CNN.generation(None, DataSettings(options=own)) == {
        "do_sample": False,
        "max_new_tokens": 142,
        "length_penalty": 2.0,
    }


@pytest.mark.parametrize(
    ("tokens", "texts", "notes"),
    [
        ([[0, 5, 1, 0], [0, 6, 7, -100]], ["a", "b c"], ()),
        ([[0, 1, -100], [0, 5, 1]], ["", "a"], ("1 of 2 generated texts are empty",)),
        ([[5, 1], [5, 1]], ["a", "a"], ("all generated texts are the same",)),
    ],
)
def test_decoded_texts(
    word_tokenizer: Callable[..., Any], tokens: Any, texts: list[str], notes: tuple[str, ...]
) -> None:
    tokenizer = word_tokenizer(["a b c"], style="t5")
    found = CNN.predict([], [], np.array(tokens), tokenizer, DataSettings())
    assert found == Predictions(texts, notes)


# --- scores are the packages' own


def test_bleu_is_what_sacrebleu_prints(tmp_path: Path) -> None:
    texts = ["The cat sat on the mat.", "A dog barks , loudly .", "", "ți-am spus"]
    targets = ["The cat is on the mat.", "The dog barked loudly.", "Nothing.", "ți-am spus deja"]
    scores = EN_RO.score(Predictions(texts), [{"target": target} for target in targets])
    (tmp_path / "target").write_text("\n".join(targets) + "\n")
    command = [sys.executable, "-m", "sacrebleu", str(tmp_path / "target")]
    command += ["-m", "bleu", "chrf", "-b", "-w", "6"]
    printed = subprocess.run(
        command, input="\n".join(texts) + "\n", capture_output=True, text=True, check=True
    ).stdout
    bleu, chrf = (float(number) for number in json.loads(printed))
    assert scores == {"bleu": pytest.approx(bleu, abs=1e-5), "chrf": pytest.approx(chrf, abs=1e-5)}
    assert 0 < scores["bleu"] < 100


def test_bleu_by_hand() -> None:
    # 1-grams 5/6, 2-grams 3/5, 3-grams 2/4, 4-grams 1/3 (one word of six is wrong); same length.
    text, target = "the cat sat on a mat", "the cat sat on the mat"
    scores = DE_EN.score(Predictions([text]), [{"target": target}])
    assert scores["bleu"] == pytest.approx(100 * (5 / 6 * 3 / 5 * 2 / 4 * 1 / 3) ** 0.25)


def test_perfect_and_empty_texts() -> None:
    rows = [{"target": "one two three four five"}, {"target": "six seven eight nine ten"}]
    perfect = Predictions([row["target"] for row in rows])
    nothing = Predictions(["", ""])
    assert EN_RO.score(perfect, rows) == {
        "bleu": pytest.approx(100),
        "chrf": pytest.approx(100),
    }
    assert EN_RO.score(nothing, rows) == {"bleu": 0, "chrf": 0}
    assert CNN.score(perfect, rows) == {
        name: pytest.approx(100) for name in ("rouge1", "rouge2", "rougeL")
    }
    assert CNN.score(nothing, rows) == {"rouge1": 0, "rouge2": 0, "rougeL": 0}


def test_rouge_by_hand() -> None:
    rows = [{"target": "police killed the gunman"}, {"target": "a b c d"}]
    texts = Predictions(["the gunman kills police", "a b c d"])
    # Of the first pair: all 4 words with stems; 1 of 3 pairs; the longest common sequence is 2.
    assert CNN.score(texts, rows) == {
        "rouge1": pytest.approx(100 * (4 / 4 + 1) / 2),
        "rouge2": pytest.approx(100 * (1 / 3 + 1) / 2),
        "rougeL": pytest.approx(100 * (2 / 4 + 1) / 2),
    }


def test_rouge_is_that_of_rouge_score() -> None:
    from rouge_score.rouge_scorer import RougeScorer

    texts = ["Storms hit the coast.\nTwo died.", "Markets were rising", "x"]
    targets = ["A storm hit the coast\nTwo people died", "The market rose sharply", "nothing"]
    scorer = RougeScorer(["rouge1", "rouge2", "rougeL"], use_stemmer=True)
    each = [scorer.score(target, text) for target, text in zip(targets, texts, strict=True)]
    scores = CNN.score(Predictions(texts), [{"target": target} for target in targets])
    assert scores == {
        name: pytest.approx(100 * np.mean([score[name].fmeasure for score in each]))
        for name in CNN.metrics
    }


# --- files


def write_pairs(folder: Path, stem: str, languages: tuple[str, str], lines: int) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for language in languages:
        text = "".join(f"{language} {stem} {number}\n" for number in range(lines))
        (folder / f"{stem}.{language}").write_text(text)


def test_parallel_files(tmp_path: Path) -> None:
    folder = tmp_path / "wmt16" / "ro-en"
    write_pairs(folder, "train", ("en", "ro"), 3)
    write_pairs(folder, "newsdev2016", ("en", "ro"), 2)
    write_pairs(folder, "newstest2016", ("en", "ro"), 4)
    place = Place(data_dir=str(tmp_path))
    splits = EN_RO.load(DataSettings(), place)
    assert splits.train[1] == {"source": "en train 1", "target": "ro train 1"}
    assert {name: len(rows) for name, rows in splits.evaluations.items()} == {"dev": 2}
    test = DataSettings(options={"evaluate": "test"})
    assert {n: len(r) for n, r in EN_RO.load(test, place).evaluations.items()} == {"test": 4}
    assert EN_RO.revision(test, place) != EN_RO.revision(DataSettings(), place)


@pytest.mark.parametrize("given", ["mine", "mine.en", "mine.ro"])
def test_files_of_one_s_own(tmp_path: Path, given: str) -> None:
    write_pairs(tmp_path, "mine", ("en", "ro"), 3)
    place = Place(files={"train": str(tmp_path / given), "dev": str(tmp_path / "mine")})
    assert EN_RO.load(DataSettings(), place).train[2]["target"] == "ro mine 2"


def test_only_a_line_feed_ends_a_line(tmp_path: Path) -> None:
    (tmp_path / "x.en").write_bytes("a\u2028b\x0cc\r\nd\re\n".encode())
    (tmp_path / "x.ro").write_bytes(b"1\n\n")
    place = Place(files={"train": str(tmp_path / "x"), "dev": str(tmp_path / "x")})
    assert EN_RO.load(DataSettings(), place).train == [
        {"source": "a\u2028b\x0cc", "target": "1"},
        {"source": "d\re", "target": ""},
    ]


def test_json_lines(tmp_path: Path) -> None:
    folder = tmp_path / "cnndm"
    folder.mkdir()
    for name in ("train", "validation"):
        rows = [{"id": "1", "article": f"{name} ünd", "highlights": "one\ntwo"}]
        text = "\n".join(json.dumps(row, ensure_ascii=False) for row in rows) + "\n\n"
        (folder / f"{name}.jsonl").write_text(text, encoding="utf-8")
    splits = CNN.load(DataSettings(), Place(data_dir=str(tmp_path)))
    assert splits.train == [{"source": "train ünd", "target": "one\ntwo"}]
    assert splits.evaluations["dev"][0]["source"] == "validation ünd"


def test_rows_of_the_hub_are_pairs() -> None:
    from datasets import Dataset

    pairs = [{"translation": {"de": f"{n} Haus", "en": f"{n} house"}} for n in range(3)]
    rows = DE_EN.hub_rows(Dataset.from_list(pairs))
    assert isinstance(rows, HubPairs)
    assert rows[-1] == {"source": "2 Haus", "target": "2 house"}
    assert list(rows) == rows[:3]
    articles = Dataset.from_list([{"article": "a", "highlights": "h", "id": "i"}])
    assert list(CNN.hub_rows(articles)) == [{"source": "a", "target": "h"}]


@pytest.mark.parametrize(
    ("task", "files", "message"),
    [
        (EN_RO, {"x.en": "a\nb\n", "x.ro": "a\n"}, "got 2 lines in .* and 1 in .*x.ro"),
        (EN_RO, {"x.en": "a\n"}, r"names of x.en and x.ro have in common"),
        (EN_RO, {"x.en": "", "x.ro": ""}, "without lines"),
        (EN_RO, {"x.en": b"\xff\n", "x.ro": "a\n"}, "not UTF-8 in line 1"),
        (CNN, {"x": "{}\n"}, "got line 1 of .* without a text 'article'"),
        (CNN, {"x": '{"article": "a", "highlights": 3}\n'}, "without a text 'highlights'"),
        (CNN, {"x": '{"article": "a", "highlights": "h"}\n{"a\n'}, "line 2 of .* no JSON"),
        (CNN, {"x": "[]\n"}, "without a text 'article'"),
        (CNN, {"x": "\n"}, "without lines, expected a JSON object a line"),
        (CNN, {}, "expected an existing file"),
    ],
)
def test_damaged_files(tmp_path: Path, task: Task, files: dict[str, Any], message: str) -> None:
    for name, content in files.items():
        text = content if isinstance(content, bytes) else content.encode()
        (tmp_path / name).write_bytes(text)
    place = Place(files={"train": str(tmp_path / "x"), "dev": str(tmp_path / "x")})
    with pytest.raises(SourceError, match=message) as caught:
        task.load(DataSettings(), place)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("task", [EN_RO, DE_EN, CNN])
def test_missing_data(task: Task, tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"got no data set .* hub .* --data-dir"):
        task.load(DataSettings(), Place())
    with pytest.raises(SourceError, match=r"without the train split .* --split train=FILE"):
        task.load(DataSettings(), Place(data_dir=str(tmp_path)))
    with pytest.raises(SettingError, match="a file for split 'valid'"):
        task.load(DataSettings(), Place(files={"valid": "x"}))


@pytest.mark.parametrize(
    ("task", "options", "message"),
    [
        (CNN, {"beam": 3}, "did you mean 'beams'"),
        (CNN, {"beams": 0}, "beams=0"),
        (CNN, {"target_length": 1}, "target_length=1"),
        (CNN, {"evaluate": "valid"}, "evaluate='valid', expected 'dev' or 'test'"),
        (CNN, {"prefix": 3}, "prefix=3"),
        (CNN, {"generate": [1]}, r"generate=\[1\], expected a table"),
        (CNN, {"generate": {"do_sample": True}}, "do_sample=true"),
        (EN_RO, {"source_code": 3}, "source_code=3"),
        (CNN, {"source_code": "en_XX"}, "option of cnn-dailymail 'source_code'"),
    ],
)
def test_bad_options(task: Task, options: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        task.check(DataSettings(options=options))


def test_a_code_that_the_tokenizer_does_not_know() -> None:
    tokenizer = mbart_tokenizer()
    data = DataSettings(options={"target_code": "ro_XX"})
    with pytest.raises(SettingError, match=r"does not know 'ro_XX' for Romanian, .* target_code"):
        EN_RO.encode(ROWS, tokenizer, data, training=True)


@pytest.mark.data
def test_the_real_files(data_dir: Path) -> None:
    splits = DE_EN.load(DataSettings(), Place(data_dir=str(data_dir)))
    assert (len(splits.train), len(splits.evaluations["dev"])) == (10_000, 3000)
    pairs = str(data_dir / "wmt16" / "ro-en" / "newsdev2016")
    own = Place(data_dir=str(data_dir), files={"train": pairs})
    splits = EN_RO.load(DataSettings(), own)
    assert len(splits.train) == len(splits.evaluations["dev"]) == 1999
    articles = str(data_dir / "cnndm" / "train_sample_100.jsonl")
    splits = CNN.load(DataSettings(), Place(data_dir=str(data_dir), files={"dev": articles}))
    assert len(splits.train) == 100
    copied = Predictions([row["source"][:400] for row in splits.train])
    scores = CNN.score(copied, splits.evaluations["dev"])
    assert 15 < scores["rougeL"] < scores["rouge1"] < 50

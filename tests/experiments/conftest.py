"""Tiny models with a tokenizer of a few words, and tasks on made-up sentences."""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).parent))  # where `fakes` is, for the processes of tests too

WORDS = [f"w{n}" for n in range(24)]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
_SHAPE = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "initializer_range": 0.3,
}
_BART = {
    "d_model": 16,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 40,
    "init_std": 0.3,
    "pad_token_id": 0,
    "decoder_start_token_id": 3,
    "forced_eos_token_id": 3,
}
_CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bart": ("Bart", _BART),
    "mbart": ("MBart", _BART),
    "bert": ("Bert", _SHAPE),
    "roberta": ("Roberta", {**_SHAPE, "pad_token_id": 0}),
    "gpt2": (
        "GPT2",
        {"n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40, "initializer_range": 0.3},
    ),
    "t5": (
        "T5",
        {
            "d_model": 16,
            "d_kv": 8,
            "d_ff": 32,
            "num_layers": 2,
            "num_heads": 2,
            "pad_token_id": 0,
            "decoder_start_token_id": 0,
        },
    ),
}


def _save_tokenizer(folder: Path, kind: str) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"unk_token": "[UNK]", "eos_token": "[SEP]"}
    if kind != "gpt2":  # a decoder that adds nothing to a text and knows no padding
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]",
            pair="[CLS] $A [SEP] $B [SEP]",
            special_tokens=[("[CLS]", 2), ("[SEP]", 3)],
        )
        names |= {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], **names
    ).save_pretrained(folder)


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], str]:
    """The folder of a tiny model of a kind, with random weights, without a head."""
    import torch
    import transformers

    transformers.utils.logging.disable_progress_bar()
    made: dict[str, Path] = {}

    def folder(kind: str) -> str:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("models") / f"tiny-{kind}"
            name, settings = _CONFIGS[kind]
            config = getattr(transformers, f"{name}Config")(
                vocab_size=len(SPECIAL + WORDS), bos_token_id=2, eos_token_id=3, **settings
            )
            torch.manual_seed(0)
            getattr(transformers, f"{name}Model")(config).save_pretrained(made[kind])
            _save_tokenizer(made[kind], kind)
        return str(made[kind])

    return folder


def sentences(count: int, seed: int) -> list[dict[str, Any]]:
    """Sentences of 3 to 12 words, whose first word tells the class and the number."""
    generator = np.random.default_rng(seed)
    rows = []
    for _ in range(count):
        words = generator.integers(0, len(WORDS), generator.integers(3, 13))
        other = generator.integers(0, len(WORDS), generator.integers(3, 13))
        rows.append(
            {
                "text": " ".join(WORDS[w] for w in words),
                "pair": " ".join(WORDS[w] for w in other),
                "label": int(words[0] % 2),
                "number": float(words[0]) / len(WORDS),
            }
        )
    return rows


@dataclass(frozen=True)
class MadeUp:
    """Where the rows of these tasks come from."""

    train: int = 60
    dev: int = 40
    label: str = "label"
    columns: tuple[str, ...] = ("text",)
    second: bool = False

    def load(self, task: str, data: Any, place: Any) -> Any:
        from isotropy.experiments.tasks import Splits

        sets = {"dev": self.rows(self.dev, 1)}
        if self.second:
            sets["other"] = self.rows(self.dev // 2, 2)
        return Splits(self.rows(self.train, 0), sets)

    def rows(self, count: int, seed: int) -> list[dict[str, Any]]:
        return [
            {**{name: row[name] for name in self.columns}, "label": row[self.label]}
            for row in sentences(count, seed)
        ]

    def revision(self, task: str, data: Any, place: Any) -> str:
        return ""


@pytest.fixture
def toys(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """Registers the tasks `toy`, `toy-number`, `toy-two-sets`, `toy-one-row`, `toy-similarity`."""
    from isotropy.experiments import tasks
    from isotropy.experiments.tasks._classification import Classification, Regression
    from isotropy.experiments.tasks._similarity import Similarity

    common: dict[str, Any] = {"summary": "made up", "reference": "none"}
    classes: dict[str, Any] = {
        **common,
        "classes": ("even", "odd"),
        "metric": "accuracy",
        "metrics": ("accuracy", "matthews"),
    }
    pearson = {"metric": "pearson", "metrics": ("pearson",)}
    both = ("text", "pair")
    made = [
        Classification(name="toy", origin=MadeUp(), **classes),
        Classification(name="toy-two-sets", origin=MadeUp(second=True), **classes),
        Classification(name="toy-one-row", origin=MadeUp(train=1, dev=1), **classes),
        Regression(name="toy-number", origin=MadeUp(label="number"), **pearson, **common),
        Similarity(
            name="toy-similarity",
            origin=MadeUp(train=0, label="number", columns=both),
            **common,
        ),
    ]
    found = {task.name: task for task in made}
    monkeypatch.setattr(tasks, "TASKS", {**tasks.TASKS, **found})
    return found


@pytest.fixture
def spec(tiny_model: Callable[[str], str], toys: dict[str, Any]) -> Callable[..., Any]:
    """Makes a run's spec on a tiny model: a short training on `toy`, unless one says otherwise."""
    from isotropy.experiments.spec import RunSpec

    def make(kind: str = "bert", **others: Any) -> RunSpec:
        base: dict[str, Any] = {
            "model": tiny_model(kind),
            "task": "toy",
            "train": {"max_steps": 2, "batch_size": 8, "learning_rate": 1e-3},
        }
        for name, value in others.items():
            known = base.get(name)
            base[name] = {**known, **value} if isinstance(known, dict) else value
        return RunSpec.read(base)

    return make

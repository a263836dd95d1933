"""Fitted transforms inside a SentenceTransformer, and in the process that loads it."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.base.modules import Dense
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

from isotropy import transforms
from isotropy.errors import SettingError, SourceError
from isotropy.integrations.sentence_transformers import TransformModule, transform_module

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "big", "small", "red", "blue"]
TEXTS = [f"{a} {b} {c}" for a in WORDS for b in WORDS[:4] for c in WORDS[5:9]]


@pytest.fixture(scope="module")
def encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny BERT with a tokenizer of a few words."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    folder = tmp_path_factory.mktemp("models") / "tiny"
    vocabulary = {word: i for i, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]"
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        initializer_range=0.5,
    )
    BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture
def model(encoder: Path) -> SentenceTransformer:
    transformer = Transformer(str(encoder))
    pooling = Pooling(transformer.get_embedding_dimension())
    return SentenceTransformer(modules=[transformer, pooling], device="cpu")


ALL = [
    transforms.Whitening(k=8),
    transforms.Whitening(method="zca"),
    transforms.Standardize(),
    transforms.AllButTheTop(2),
    transforms.ClusterAllButTheTop(3, d=1),
]


# The affine ones are loaded without this library in sight.
LOADING = """
import json, sys
sys.modules["isotropy"] = None
import numpy as np
from sentence_transformers import SentenceTransformer
for i in range(5):
    if ours := i == 4:
        del sys.modules["isotropy"]
    model = SentenceTransformer(f"model-{i}", device="cpu", trust_remote_code=ours)
    np.save(f"found-{i}.npy", model.encode(json.load(open("texts.json"))))
"""


def test_it_survives_saving_and_a_fresh_process(model: SentenceTransformer, tmp_path: Path) -> None:
    x = model.encode(TEXTS)
    found = []
    for i, transform in enumerate(ALL):
        expected = transform.fit(x).transform(x)
        changed = SentenceTransformer(modules=[*model, transform_module(transform)], device="cpu")
        found.append(changed.encode(TEXTS))
        np.testing.assert_allclose(found[-1], expected, rtol=1e-3, atol=1e-4)
        assert changed.get_embedding_dimension() == expected.shape[1]
        changed.save(str(tmp_path / f"model-{i}"))
    assert not list(tmp_path.rglob("*.bin"))
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS))
    run = [sys.executable, "-c", LOADING]
    subprocess.run(run, cwd=tmp_path, check=True, capture_output=True, timeout=120)
    for i, rows in enumerate(found):
        np.testing.assert_array_equal(np.load(tmp_path / f"found-{i}.npy"), rows)


def test_affine_maps_need_no_code_of_ours(model: SentenceTransformer) -> None:
    x = model.encode(TEXTS)
    modules = [transform_module(transform.fit(x)) for transform in ALL]
    assert [isinstance(module, Dense) for module in modules] == [True] * 4 + [False]
    assert not any(parameter.requires_grad for parameter in modules[0].parameters())


def test_half_precision_and_gradients() -> None:
    x = torch.randn(40, 6, generator=torch.Generator().manual_seed(0))
    module = TransformModule(transforms.ClusterAllButTheTop(2, d=1).fit(x))
    half = x.to(torch.bfloat16).requires_grad_()
    out = module({"sentence_embedding": half})["sentence_embedding"]
    assert out.dtype == torch.bfloat16
    out.float().square().sum().backward()
    assert torch.isfinite(half.grad).all()


def test_only_transforms() -> None:
    with pytest.raises(SettingError, match="got a transform of type Linear, expected a fitted"):
        transform_module(torch.nn.Linear(2, 2))


def test_a_damaged_file(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(40, 6))
    module = TransformModule(transforms.ClusterAllButTheTop(2, d=1).fit(x))
    module.save(str(tmp_path))
    file = tmp_path / "transform.safetensors"
    file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(SourceError, match="cannot be read as safetensors"):
        TransformModule.load(str(tmp_path))

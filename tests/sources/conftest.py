"""How tests read a source to its end, and tiny models of many kinds."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from isotropy.sources import Source


class Everything(NamedTuple):
    rows: torch.Tensor
    columns: Mapping[str, NDArray[Any]]
    sizes: list[int]


def everything(source: Source, rows: int = 1000, columns: tuple[str, ...] = ()) -> Everything:
    chunks = list(source.chunks(rows, columns))
    starts = np.cumsum([0] + [len(chunk.rows) for chunk in chunks])
    assert [chunk.start for chunk in chunks] == starts[:-1].tolist()
    assert all(set(chunk.columns) == set(columns) for chunk in chunks)
    return Everything(
        torch.cat([chunk.rows for chunk in chunks]),
        {c: np.concatenate([chunk.columns[c] for chunk in chunks]) for c in columns},
        [len(chunk.rows) for chunk in chunks],
    )


@pytest.fixture(scope="session")
def read() -> Callable[..., Everything]:
    """All rows and the named columns of a source, after checking that its chunks are in order."""
    return everything


WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "big", "small"]
WORDS += [".", ",", "is", "not", "red", "blue", "green", "one", "two", "three"]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
VOCABULARY = len(SPECIAL) + len(WORDS)
LIMIT = 12

# Weights that are large enough for every token to matter to every other.
_WIDE = {"initializer_range": 0.5}
_BERT = {
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    **_WIDE,
}
_CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", {**_BERT, "max_position_embeddings": LIMIT}),
    "electra": ("Electra", {**_BERT, "embedding_size": 8, "max_position_embeddings": LIMIT}),
    # RoBERTa counts positions from the padding's number + 1, which is 1 here.
    "roberta": (
        "Roberta",
        {**_BERT, "max_position_embeddings": LIMIT + 1, "pad_token_id": 0},
    ),
    "gpt2": (
        "GPT2",
        {"n_embd": 16, "n_layer": 3, "n_head": 2, "n_positions": LIMIT, **_WIDE},
    ),
    "llama": ("Llama", {**_BERT, "max_position_embeddings": LIMIT}),
    "xlnet": ("XLNet", {"d_model": 16, "n_layer": 3, "n_head": 2, "d_inner": 32, **_WIDE}),
    "t5": (
        "T5",
        {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 3, "num_heads": 2},
    ),
    "bart": (
        "Bart",
        {
            "d_model": 16,
            "encoder_layers": 3,
            "decoder_layers": 1,
            "encoder_attention_heads": 2,
            "decoder_attention_heads": 2,
            "encoder_ffn_dim": 32,
            "decoder_ffn_dim": 32,
            "max_position_embeddings": LIMIT,
            "init_std": 0.5,
        },
    ),
}
MODEL_KINDS = tuple(_CONFIGS)


def _save_tokenizer(folder: Path, kind: str) -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    vocabulary = {token: i for i, token in enumerate(SPECIAL + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"unk_token": "[UNK]", "eos_token": "[SEP]"}
    if kind not in ("gpt2", "llama"):  # decoders that add nothing to a text and know no padding
        tokenizer.post_processor = processors.TemplateProcessing(
            single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
        )
        names |= {"pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_input_names=["input_ids", "attention_mask"], **names
    )
    fast.save_pretrained(folder)


@pytest.fixture(scope="session")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """The folder of a tiny model of a kind, with random weights and a tokenizer of 20 words."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    made: dict[str, Path] = {}

    def folder(kind: str) -> Path:
        if kind not in made:
            made[kind] = tmp_path_factory.mktemp("models") / f"tiny-{kind}"
            name, settings = _CONFIGS[kind]
            config = getattr(transformers, f"{name}Config")(
                vocab_size=VOCABULARY, bos_token_id=2, eos_token_id=3, **settings
            )
            torch.manual_seed(0)
            getattr(transformers, f"{name}Model")(config).save_pretrained(made[kind])
            _save_tokenizer(made[kind], kind)
        return made[kind]

    return folder

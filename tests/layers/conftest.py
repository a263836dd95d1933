"""Tiny classifiers of every kind that a layer can be attached to."""

from collections.abc import Callable
from typing import Any

import pytest
import torch

# Weights that are large enough for every token to matter to the embedding.
_BERT = {
    "vocab_size": 30,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 40,
    "initializer_range": 0.5,
}
_DISENTANGLED = {
    "relative_attention": True,
    "pos_att_type": ["p2c", "c2p"],
    "position_biased_input": False,
    "type_vocab_size": 0,
}
_KINDS: dict[str, dict[str, Any]] = {
    "Bert": _BERT,
    "Roberta": _BERT,
    "Albert": {**_BERT, "embedding_size": 8},
    "Electra": {**_BERT, "embedding_size": 8},
    "MPNet": _BERT,
    "Deberta": {**_BERT, **_DISENTANGLED},
    "DebertaV2": {**_BERT, **_DISENTANGLED},
    "DistilBert": {
        "vocab_size": 30,
        "dim": 16,
        "n_layers": 2,
        "n_heads": 2,
        "hidden_dim": 32,
        "initializer_range": 0.5,
    },
    "GPT2": {"vocab_size": 30, "n_embd": 16, "n_layer": 2, "n_head": 2, "initializer_range": 0.5},
    "Llama": _BERT,
    "Qwen2": {**_BERT, "num_key_value_heads": 2},
}


@pytest.fixture(scope="session")
def classifier() -> Callable[[str], Any]:
    """A new tiny classifier of a kind with three labels and random weights, in evaluation mode."""
    import transformers

    transformers.utils.logging.disable_progress_bar()

    def make(kind: str, task: str = "SequenceClassification") -> Any:
        settings = {"num_labels": 3, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        config = getattr(transformers, f"{kind}Config")(**{**_KINDS[kind], **settings})
        torch.manual_seed(0)
        return getattr(transformers, f"{kind}For{task}")(config).eval()

    return make


@pytest.fixture
def batch() -> dict[str, torch.Tensor]:
    """Five texts of 9 tokens; one is padded on the right, one on the left."""
    ids = torch.randint(3, 30, (5, 9), generator=torch.Generator().manual_seed(0))
    ids[1, 6:] = 0
    ids[2, :3] = 0
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}

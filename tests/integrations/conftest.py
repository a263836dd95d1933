"""Tiny models, sentences as numbers, and settings with which trainings are the same every time."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

Batch = dict[str, Tensor]
Row = dict[str, Any]

WORDS = 40
PAD = 0


def sentences(count: int, seed: int = 0) -> list[Row]:
    """Sentences of 3 to 9 words with one of two labels, which their first word tells."""
    generator = torch.Generator().manual_seed(seed)
    rows = []
    for _ in range(count):
        length = int(torch.randint(3, 10, (), generator=generator))
        words = torch.randint(1, WORDS, (length,), generator=generator).tolist()
        rows.append({"input_ids": words, "labels": words[0] % 2})
    return rows


def collate(rows: list[Row]) -> Batch:
    """Rows of words, padded to the longest, with their mask."""
    longest = max(len(row["input_ids"]) for row in rows)
    ids = [row["input_ids"] + [PAD] * (longest - len(row["input_ids"])) for row in rows]
    mask = [[1] * len(row["input_ids"]) for row in rows]
    batch = {
        "input_ids": torch.tensor(ids),
        "attention_mask": torch.tensor([m + [0] * (longest - len(m)) for m in mask]),
    }
    if isinstance(rows[0]["labels"], list):
        most = max(len(row["labels"]) for row in rows)
        labels = [row["labels"] + [-100] * (most - len(row["labels"])) for row in rows]
        return batch | {"labels": torch.tensor(labels)}
    return batch | {"labels": torch.tensor([row["labels"] for row in rows])}


def tiny_classifier(dropout: float = 0.0, seed: int = 0) -> nn.Module:
    """A BERT of two layers, in float64 so that comparisons are sharp."""
    from transformers import BertConfig, BertForSequenceClassification

    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=WORDS,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.5,
    )
    return BertForSequenceClassification(config).double()


@pytest.fixture
def arguments(tmp_path: Path) -> Callable[..., Any]:
    """Training arguments with which nothing is random, printed or saved unless one says so."""

    def make(**settings: Any) -> Any:
        from transformers import Seq2SeqTrainingArguments

        common = {
            "output_dir": str(tmp_path / "out"),
            "per_device_train_batch_size": 8,
            "max_steps": 3,
            "learning_rate": 0.1,
            "lr_scheduler_type": "constant",
            "optim": "sgd",
            "max_grad_norm": 0.0,
            "train_sampling_strategy": "sequential",
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "use_cpu": True,
            "dataloader_pin_memory": False,
        }
        return Seq2SeqTrainingArguments(**{**common, **settings})

    return make


def cosine_of_pairs(x: Tensor) -> Tensor:
    """Σ_{i≠j} cos(x_i, x_j)/M², pair by pair."""
    directions = x / x.norm(dim=1, keepdim=True)
    cosines = directions @ directions.T
    return cosines.masked_fill(torch.eye(len(x), dtype=torch.bool), 0).sum() / len(x) ** 2


def distance(model: nn.Module, other: nn.Module) -> float:
    """The greatest difference between the weights of two models."""
    pairs = zip(model.parameters(), other.parameters(), strict=True)
    return max(float((a - b).detach().abs().max()) for a, b in pairs)


@pytest.fixture(scope="session")
def tiny() -> SimpleNamespace:
    """What the tests share."""
    return SimpleNamespace(
        sentences=sentences,
        collate=collate,
        classifier=tiny_classifier,
        cosine=cosine_of_pairs,
        distance=distance,
    )

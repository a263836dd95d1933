"""The second stage on a real encoder."""

import inspect
import statistics
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from isotropy import layers, measures
from isotropy.layers import IsotropyLayer, SecondStage

pytestmark = pytest.mark.weights


def words() -> list[str]:
    """Short texts of the standard library's own docstrings."""
    texts = (inspect.getdoc(member) for _, member in inspect.getmembers(statistics))
    lines = {line.strip() for text in texts if text for line in text.splitlines()}
    return sorted(line for line in lines if 5 < len(line.split()) < 12)[:80]


@pytest.fixture(scope="module")
def model(minilm: Path) -> Any:
    from transformers import AutoModelForSequenceClassification

    torch.manual_seed(0)
    return AutoModelForSequenceClassification.from_pretrained(minilm, num_labels=2).eval()


@pytest.fixture(scope="module")
def batch(minilm: Path) -> dict[str, Tensor]:
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(minilm)
    return dict(tokenizer(words(), padding=True, return_tensors="pt"))


def test_once_is_the_same_as_through_the_encoder(model: Any, batch: dict[str, Tensor]) -> None:
    n = len(batch["input_ids"])
    labels = torch.arange(n) % 2
    rows = layers.embeddings(
        model, [{k: v[i : i + 32] for k, v in batch.items()} for i in range(0, n, 32)]
    )

    def through_the_encoder(numbers: Tensor) -> Tensor:
        return layers.embeddings(model, [{k: v[numbers] for k, v in batch.items()}])

    stage = SecondStage(epochs=3, batch_size=12)
    head, found = layers.Head(model), []
    for source in (rows, through_the_encoder):
        layer = IsotropyLayer(rows.shape[1])
        stage.train(layer, head, source, labels)
        with torch.no_grad():
            found.append(torch.cat((layer(rows), head(layer(rows))), dim=1))
    torch.testing.assert_close(found[0], found[1], rtol=0, atol=1e-5)
    assert float((found[0][:, : rows.shape[1]] - rows).abs().max()) > 0.01  # it has learned


def test_it_raises_the_iso_score_of_real_embeddings(model: Any, batch: dict[str, Tensor]) -> None:
    rows = layers.embeddings(model, [batch])
    labels = torch.arange(len(rows)) % 2
    layer = IsotropyLayer(rows.shape[1])
    stage = SecondStage(alpha=0.0, epochs=40, patience=40)
    stage.train(layer, layers.Head(model), rows, labels)
    with torch.no_grad():
        after = layer(rows)
    assert float(measures.iso_score(after)) > 1.2 * float(measures.iso_score(rows))

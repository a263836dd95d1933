"""Trains a tiny classifier for three steps on every rank that there is; run by torchrun.

Argument: the folder for the results.
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    PrinterCallback,
    TrainingArguments,
)

from isotropy import layers
from isotropy.integrations.huggingface import IsotropyTrainer
from isotropy.penalties import Cosine, IStar, PersistentEntropy

PENALTIES: dict[str, Any] = {
    "i-star": lambda: IStar(weight=2, zeta=0.3),
    "persistent-entropy": lambda: PersistentEntropy(bars="all"),
    "cosine": lambda: Cosine(3, site="vocabulary"),
    "flow": lambda: None,
    "flow-of-known-use": lambda: None,
    "flow-and-cosine": lambda: Cosine(3),
}
CASES = [("i-star", 1), ("i-star", 2), ("persistent-entropy", 1), ("persistent-entropy", 2)]
CASES += [("cosine", 1), ("flow", 1), ("flow", 2), ("flow-of-known-use", 1)]
CASES += [("flow-and-cosine", 2)]
ROWS, BATCH = 48, 16  # of all ranks and micro-batches together


class SlowFlow(layers.Flow):
    """A flow with a rate at which plain gradient descent does not diverge."""

    learning_rate = 0.002


def row(n: int) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(n)
    words = torch.randint(1, 30, (8,), generator=generator).tolist()
    return {"input_ids": words, "attention_mask": [1] * 8, "labels": words[0] % 2}


def train(folder: Path, name: str, accumulation: int) -> None:
    """One training; `accumulation` is the number of micro-batches a step."""
    world = int(os.environ.get("WORLD_SIZE", "1"))
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=30,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.5,
    )
    model = BertForSequenceClassification(config).double()
    if name.startswith("flow"):
        layers.attach(model, SlowFlow(8))
    arguments = TrainingArguments(
        str(folder),
        per_device_train_batch_size=BATCH // world // accumulation,
        gradient_accumulation_steps=accumulation,
        max_steps=ROWS // BATCH,
        learning_rate=0.1,
        lr_scheduler_type="constant",
        optim="sgd",
        max_grad_norm=0.0,
        train_sampling_strategy="sequential",
        logging_steps=1,
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        use_cpu=True,
        dataloader_pin_memory=False,
        # By default such models are searched for unused parameters.
        ddp_find_unused_parameters=False if name == "flow-of-known-use" else None,
    )
    trainer = IsotropyTrainer(
        model,
        arguments,
        train_dataset=[row(n) for n in range(ROWS)],
        eval_dataset=[row(n) for n in range(100, 110)],
        penalty=PENALTIES[name](),
        accumulate="cached" if accumulation > 1 else "separate",
        compare_steps=1,
        track=["iso_score"],
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    rank = int(os.environ.get("RANK", "0"))
    torch.save(trainer.model.state_dict(), folder / f"{name}-{accumulation}-{rank}.pt")
    (folder / f"{name}-{accumulation}-{rank}.json").write_text(
        json.dumps(trainer.state.log_history)
    )


if __name__ == "__main__":
    for case in CASES:
        train(Path(sys.argv[1]), *case)

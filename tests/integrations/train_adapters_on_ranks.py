"""Trains with the other integrations for three steps on every rank that there is; by torchrun.

Argument: the folder for the results.
"""

import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, disable_progress_bars
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from torch import Tensor, nn
from torch.utils.data import DataLoader, DistributedSampler
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast, PrinterCallback

from isotropy import Representations
from isotropy.integrations import lightning, sentence_transformers as st
from isotropy.penalties import Cosine, IStar, PersistentEntropy

PENALTIES: dict[str, Any] = {
    "i-star": lambda: IStar(weight=2, zeta=0.3),
    "persistent-entropy": lambda: PersistentEntropy(bars="all"),
    "persistent-entropy-of-classes": lambda: PersistentEntropy(bars="all"),
    "cosine": lambda: Cosine(3),
    "cosine-of-tokens": lambda: Cosine(3),
    "cosine-of-weights": lambda: Cosine(3, site="vocabulary"),
}
KINDS = {
    "sentence-transformers": list(PENALTIES),
    "lightning": ["i-star", "persistent-entropy-of-classes", "cosine"],
}
CASES = [(kind, name) for kind, names in KINDS.items() for name in names]
STEPS, BATCH = 3, 16  # of all ranks together
WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "big", "small", "red", "blue"]

RANK, WORLD = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
Log = list[dict[str, float]]


def train(folder: Path, kind: str, name: str) -> None:
    """One training, whose weights and logs go into the folder."""
    trained = with_sentence_transformers if kind == "sentence-transformers" else with_lightning
    weights, logs = trained(folder, name)
    torch.save(weights, folder / f"{kind}-{name}-{RANK}.pt")
    (folder / f"{kind}-{name}-{RANK}.json").write_text(json.dumps(logs))


# ---- sentence-transformers


class OfRows(nn.Module):
    """A loss that is a mean over single sentences, which have classes."""

    def __init__(self, model: SentenceTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, sentence_features: Any, labels: Tensor) -> Tensor:
        (features,) = sentence_features
        rows = self.model(features)["sentence_embedding"]
        return nn.functional.cross_entropy(rows, labels)


def encoder(folder: Path) -> SentenceTransformer:
    """A tiny encoder with a tokenizer of twelve words, in float64."""
    path = folder / f"encoder-{RANK}"
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = {word: i for i, word in enumerate(special + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    names = {"unk_token": "[UNK]", "pad_token": "[PAD]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=16, **names
    ).save_pretrained(path)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.5,
    )
    BertModel(config).save_pretrained(path)
    modules = [Transformer(str(path)), Pooling(8)]
    return SentenceTransformer(modules=modules, device="cpu").double()


def sentence(n: int) -> str:
    generator = torch.Generator().manual_seed(n)
    length = int(torch.randint(2, 8, (), generator=generator))
    return " ".join(
        WORDS[i] for i in torch.randint(len(WORDS), (length,), generator=generator).tolist()
    )


def sentences(name: str) -> Dataset:
    """In an order in which each of two ranks has the sentences of one class in every batch."""
    rows = range(STEPS * BATCH)
    if name == "persistent-entropy-of-classes":
        labels = [n // (BATCH // 2) % 2 for n in rows]
        return Dataset.from_dict({"sentence": [sentence(n) for n in rows], "label": labels})
    pairs = {"a": [sentence(n) for n in rows], "b": [sentence(1000 + n) for n in rows]}
    return Dataset.from_dict(pairs | {"score": [n % 5 / 4 for n in rows]})


def with_sentence_transformers(folder: Path, name: str) -> tuple[dict[str, Tensor], Log]:
    model = encoder(folder)
    has_classes = name == "persistent-entropy-of-classes"
    inner = OfRows(model) if has_classes else losses.CosineSimilarityLoss(model)
    of: Any = "tokens" if name == "cosine-of-tokens" else "sentences"
    data = sentences(name)
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            output_dir=str(folder / "out"),
            per_device_train_batch_size=BATCH // WORLD,
            max_steps=STEPS,
            learning_rate=0.1,
            lr_scheduler_type="constant",
            optim="sgd",
            max_grad_norm=0.0,
            train_sampling_strategy="sequential",
            logging_steps=1,
            eval_strategy="steps",
            eval_steps=STEPS,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            use_cpu=True,
            dataloader_pin_memory=False,
        ),
        train_dataset=data,
        eval_dataset=data,
        loss=st.IsotropyLoss(model, inner, PENALTIES[name](), of=of, compare_steps=1),
        evaluator=st.IsotropyEvaluator([sentence(n) for n in range(100, 120)], ["iso_score"]),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(st.IsotropyCallback(trainer))
    trainer.train()
    return model.state_dict(), trainer.state.log_history


# ---- Lightning


class Classifier(LightningModule):
    """Two linear layers, whose hidden layer is the cloud."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.hidden = nn.Linear(6, 5, dtype=torch.float64)
        self.head = nn.Linear(5, 2, dtype=torch.float64)

    def representations(self, batch: Any) -> Any:
        return Representations.from_cloud(torch.tanh(self.hidden(batch[0])), batch[1])

    def training_step(self, batch: Any) -> Any:
        shown = self.representations(batch)
        loss = nn.functional.cross_entropy(self.head(shown.cloud), batch[1])
        return {"loss": loss, "representations": shown}

    def validation_step(self, batch: Any) -> None:
        pass

    def configure_optimizers(self) -> Any:
        return torch.optim.SGD(self.parameters(), lr=0.1)


class Kept(Callback):
    """What every rank finds in the trainer's metrics after each step."""

    def __init__(self) -> None:
        self.seen: Log = []

    def on_train_batch_end(self, trainer: Trainer, *_: Any, **__: Any) -> None:
        self.seen.append({key: float(value) for key, value in trainer.callback_metrics.items()})


def points(count: int, seed: int) -> list[tuple[Tensor, int]]:
    """In an order in which each of two ranks has the points of one class."""
    x = torch.randn(count, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return [(row + i % 2, i % 2) for i, row in enumerate(x)]


def with_lightning(folder: Path, name: str) -> tuple[dict[str, Tensor], Log]:
    module, kept = Classifier(), Kept()
    trainer = Trainer(
        max_steps=STEPS,
        accelerator="cpu",
        devices=WORLD,
        strategy=DDPStrategy(process_group_backend="gloo") if WORLD > 1 else "auto",
        logger=False,
        log_every_n_steps=1,
        num_sanity_val_steps=0,
        limit_val_batches=1,
        enable_progress_bar=False,
        enable_model_summary=False,
        enable_checkpointing=False,
        default_root_dir=folder,
        callbacks=[
            lightning.IsotropyCallback(PENALTIES[name](), track=["iso_score"], compare_steps=1),
            kept,
        ],
    )
    size = BATCH // WORLD
    rows = points(STEPS * BATCH, seed=1)
    # Lightning itself would deal training data out in random order.
    order = DistributedSampler(rows, num_replicas=WORLD, rank=RANK, shuffle=False)
    training = DataLoader(rows, batch_size=size, sampler=order)
    # Of an odd number of rows Lightning deals one out twice.
    trainer.fit(module, training, DataLoader(points(45, seed=2), batch_size=size))
    return module.state_dict(), kept.seen


def quiet() -> None:
    """Without the libraries' notes on their own parts."""
    warnings.filterwarnings("ignore")
    disable_progress_bars()
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)


if __name__ == "__main__":
    quiet()
    for case in CASES:
        train(Path(sys.argv[1]), *case)

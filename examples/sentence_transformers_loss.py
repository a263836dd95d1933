"""A sentence encoder trained on sentences and their halves, with and without a penalty.

    python examples/sentence_transformers_loss.py --steps 6

The penalty goes around the encoder's own loss; an evaluator measures the embeddings of sentences
that are not trained on.
"""

import argparse
import tempfile
from collections.abc import Sequence

from datasets import Dataset
from labelled_sentences import MINILM, all_sentences
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss
from transformers import PrinterCallback, logging

from isotropy import penalties
from isotropy.integrations.sentence_transformers import IsotropyEvaluator, IsotropyLoss

BATCH = 16


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=6, help="how many batches of 16 pairs (6)")
    parser.add_argument("--held-out", type=int, default=100, help="sentences to measure (100)")
    settings = parser.parse_args(arguments)
    logging.set_verbosity_error()
    logging.disable_progress_bar()

    texts = all_sentences()[: settings.held_out + BATCH * settings.steps]
    held_out, trained = texts[: settings.held_out], texts[settings.held_out :]
    pairs = Dataset.from_dict({"sentence": list(trained), "half": [half(t) for t in trained]})
    evaluator = IsotropyEvaluator(held_out, ["iso_score", "mean_cosine"])
    for penalty in (None, penalties.Uniformity(weight=0.5)):
        model = SentenceTransformer(MINILM)
        loss = MultipleNegativesRankingLoss(model)
        if penalty is None:
            print("before       ", shown(evaluator(model)))
        with tempfile.TemporaryDirectory() as folder:
            trainer = SentenceTransformerTrainer(
                model=model,
                args=SentenceTransformerTrainingArguments(
                    folder,
                    per_device_train_batch_size=BATCH,
                    max_steps=settings.steps,
                    learning_rate=5e-5,
                    save_strategy="no",
                    report_to="none",
                    disable_tqdm=True,
                    dataloader_pin_memory=False,
                ),
                train_dataset=pairs,
                loss=loss if penalty is None else IsotropyLoss(model, loss, penalty),
            )
            trainer.remove_callback(PrinterCallback)
            trainer.train()
        print("plain loss   " if penalty is None else "with penalty ", shown(evaluator(model)))
    return 0


def half(text: str) -> str:
    """Every second word."""
    return " ".join(text.split()[::2])


def shown(numbers: dict[str, float]) -> str:
    """Numbers in one line."""
    return ", ".join(f"{key} {value:.3f}" for key, value in numbers.items())


if __name__ == "__main__":
    raise SystemExit(main())

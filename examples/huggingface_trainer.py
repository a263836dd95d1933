"""Hugging Face's trainer with a penalty: MiniLM learns which sentences say what is returned.

    python examples/huggingface_trainer.py --steps 16

Prints the two terms of the loss, the ratio of their gradients, and the isotropy of sentences that
are not trained on.
"""

import argparse
import tempfile
from collections.abc import Sequence

from datasets import Dataset
from labelled_sentences import MINILM, labelled_sentences
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PrinterCallback,
    TrainingArguments,
    logging,
)

from isotropy import penalties
from isotropy.integrations.huggingface import IsotropyTrainer

COLUMNS = ("task_loss", "penalty", "penalty_gradient_ratio", "iso_score")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=16, help="how many batches of 16 (16)")
    parser.add_argument("--held-out", type=int, default=128, help="sentences to measure (128)")
    settings = parser.parse_args(arguments)
    logging.set_verbosity_error()
    logging.disable_progress_bar()

    texts, labels = labelled_sentences(16 * settings.steps + settings.held_out)
    tokenizer = AutoTokenizer.from_pretrained(MINILM)
    rows = [{**tokenizer(text), "labels": label} for text, label in zip(texts, labels, strict=True)]
    with tempfile.TemporaryDirectory() as folder:
        trainer = IsotropyTrainer(
            model=AutoModelForSequenceClassification.from_pretrained(MINILM, num_labels=2),
            args=TrainingArguments(
                folder,
                per_device_train_batch_size=16,
                max_steps=settings.steps,
                learning_rate=5e-5,
                logging_steps=max(1, settings.steps // 5),
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                dataloader_pin_memory=False,
            ),
            train_dataset=Dataset.from_list(rows[settings.held_out :]),
            eval_dataset=Dataset.from_list(rows[: settings.held_out]),
            data_collator=DataCollatorWithPadding(tokenizer),
            penalty=penalties.PersistentEntropy(weight=0.5),
            compare_steps=max(1, settings.steps // 5),
            track=["iso_score"],
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
    print("step  " + "  ".join(COLUMNS))
    for entry in trainer.state.log_history:
        found = [
            f"{entry[key]:{len(key)}.3f}" if key in entry else " " * len(key) for key in COLUMNS
        ]
        if any(part.strip() for part in found):
            print(f"{entry['step']:4}  " + "  ".join(found))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

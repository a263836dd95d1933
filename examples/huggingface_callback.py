"""I-STAR and two tracked measures for a Hugging Face trainer that is there already.

    python examples/huggingface_callback.py --steps 12

The trainer's own logs show everything, the seconds of the refresh at every epoch's start too.
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
    Trainer,
    TrainingArguments,
    logging,
)

from isotropy import penalties
from isotropy.integrations.huggingface import IsotropyCallback


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=12, help="how many batches of 16 (12)")
    parser.add_argument("--points", type=int, default=4000, help="tokens of a refresh (4000)")
    settings = parser.parse_args(arguments)
    logging.set_verbosity_error()
    logging.disable_progress_bar()

    texts, labels = labelled_sentences(16 * settings.steps)
    tokenizer = AutoTokenizer.from_pretrained(MINILM)
    rows = Dataset.from_list(
        [{**tokenizer(text), "labels": label} for text, label in zip(texts, labels, strict=True)]
    )
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model=AutoModelForSequenceClassification.from_pretrained(MINILM, num_labels=2),
            args=TrainingArguments(
                folder,
                per_device_train_batch_size=16,
                max_steps=settings.steps,
                learning_rate=5e-5,
                logging_steps=max(1, settings.steps // 4),
                save_strategy="no",
                report_to="none",
                disable_tqdm=True,
                dataloader_pin_memory=False,
            ),
            train_dataset=rows,
            data_collator=DataCollatorWithPadding(tokenizer),
        )
        trainer.add_callback(
            IsotropyCallback(
                trainer,
                penalty=penalties.IStar(weight=-1, zeta=0.2),
                refresh_points=settings.points,
                track=["iso_score", "mean_cosine"],
                track_dataset=rows,
                track_rows=64,
                track_site="mean@last",
            )
        )
        trainer.train()
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

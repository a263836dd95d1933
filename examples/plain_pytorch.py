"""A penalty in ten lines of plain PyTorch: MiniLM learns which sentences say what is returned.

python examples/plain_pytorch.py --steps 20
"""

import argparse
from collections.abc import Sequence

import torch
from labelled_sentences import MINILM, labelled_sentences
from transformers import AutoModelForSequenceClassification, AutoTokenizer, logging

import isotropy
from isotropy import penalties


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=20, help="how many batches of 16 (20)")
    steps = parser.parse_args(arguments).steps
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    torch.manual_seed(0)

    texts, labels = labelled_sentences(16 * steps)
    tokenizer = AutoTokenizer.from_pretrained(MINILM)
    model = AutoModelForSequenceClassification.from_pretrained(MINILM, num_labels=2).train()

    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
    penalty = penalties.Cosine(weight=1.0, site="tokens@last")
    for step in range(steps):
        batch = tokenizer(texts[16 * step : 16 * step + 16], padding=True, return_tensors="pt")
        batch["labels"] = torch.tensor(labels[16 * step : 16 * step + 16])
        output = model(**batch, output_hidden_states=True)
        shown = isotropy.Representations.from_output(
            output, batch["attention_mask"], batch["labels"], model
        )
        term = penalty(shown)
        (output.loss + term).backward()
        optimizer.step()
        optimizer.zero_grad()
        print(f"step {step + 1}: task loss {output.loss.item():.3f}, penalty {term.item():.3f}")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())

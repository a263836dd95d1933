"""The isotropy layer's second stage as a part of a run."""

import itertools
import math
import time
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader

from isotropy import layers
from isotropy.experiments import methods
from isotropy.experiments._outcome import Setting
from isotropy.experiments.spec import Point
from isotropy.layers._places import size_of


@dataclass(frozen=True)
class Stage:
    """What a second stage did.

    Attributes:
        series: of its epochs, whose numbers stand for steps.
        seconds: what it took, the embeddings included.
        note: how long it was.
    """

    series: list[Point]
    seconds: float
    note: str


def second_stage(setting: Setting, trainer: Any, encoded: list[dict[str, Any]]) -> Stage:
    """Train the layer on the training rows' embeddings and attach it to the model.

    The embeddings are computed once. Early stopping looks at the task's main metric on the tuning
    split, which the first stage was not trained on either; on a part of the training rows where
    there is none, or where the stage's settings have a `validation` of their own. An undefined
    score is the worst.

    Args:
        setting: the run, whose model has been fine-tuned.
        trainer: that did it.
        encoded: the training rows, as the model reads them.

    Raises:
        SettingError: the model has no place for a layer.
        InputError: there are too few rows.
    """
    spec = setting.spec
    start = time.perf_counter()
    model = trainer.model
    every = list(setting.rows.train)
    if setting.rows.tuning and "validation" not in spec.method.stage:
        first, tuning = len(encoded), setting.rows.tuning
        encoded = [
            *encoded,
            *setting.task.encode(tuning, setting.tokenizer, setting.data, training=True),
        ]
        every += tuning
        held_out = torch.arange(first, len(encoded))
    else:
        held_out, _ = methods.make_stage(spec.method, seed=spec.seed).split(len(encoded))
    rows = _embeddings(trainer, encoded)
    labels = torch.tensor([example["labels"] for example in encoded], device=rows.device)
    shown = [encoded[i] for i in held_out.tolist()]
    examples = [every[i] for i in held_out.tolist()]

    most, scored = methods.make_stage(spec.method, seed=spec.seed).epochs, itertools.count(1)
    setting.progress("second stage", 0, most)

    def score(logits: Tensor, _: Tensor) -> float:
        setting.progress("second stage", min(next(scored), most), most)
        predictions = setting.task.predict(
            examples, shown, logits.float().cpu().numpy(), setting.tokenizer, setting.data
        )
        value = setting.task.score(predictions, examples)[setting.task.metric]
        return -math.inf if value is None or not math.isfinite(value) else float(value)

    layer = methods.make_layer(spec.method, size_of(model), seed=spec.seed).to(rows.device)
    stage = methods.make_stage(spec.method, seed=spec.seed, score=score)
    trained = stage.train(layer, layers.Head(model), rows, labels, held_out=held_out)
    layers.attach(model, layer)
    if spec.device == "cuda":
        torch.cuda.synchronize()
    series = [
        Point(name=name, step=number, value=value)
        for number, epoch in enumerate(trained.epochs, start=1)
        for name, value in (
            ("stage/loss", epoch.loss),
            ("stage/task_loss", epoch.task),
            ("stage/isotropy", epoch.isotropy),
            (f"stage/{setting.task.metric}", epoch.score),
        )
        if math.isfinite(value)
    ]
    note = f"second stage: {len(trained.epochs)} epochs, the best is {trained.best + 1}"
    return Stage(series, time.perf_counter() - start, note)


@torch.no_grad()
def _embeddings(trainer: Any, encoded: list[dict[str, Any]]) -> Tensor:
    """What the head reads of each row, n×d in float32, in the rows' order."""
    order = sorted(range(len(encoded)), key=lambda i: (-len(encoded[i]["input_ids"]), i))
    dataset: Any = encoded
    loader: DataLoader[Any] = DataLoader(
        dataset,
        batch_size=trainer.args.eval_batch_size,
        sampler=order,
        collate_fn=trainer._get_collator_with_removed_columns(trainer.data_collator),
    )
    found = layers.embeddings(trainer.model, loader).float()
    rows = torch.empty_like(found)
    rows[torch.tensor(order, device=rows.device)] = found
    return rows

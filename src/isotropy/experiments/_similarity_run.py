"""Runs of tasks that train nothing: embeddings as they are, or after a transform."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from isotropy.experiments import methods
from isotropy.experiments._embeddings import Batch, Sample
from isotropy.experiments._evaluation import Evaluation, defined
from isotropy.experiments._outcome import Outcome, Setting, moved
from isotropy.experiments._splits import drawn
from isotropy.experiments.tasks._similarity import site_of
from isotropy.states import rows_of

_TYPES = {"bfloat16": torch.bfloat16, "float16": torch.float16}

Encoded = Sequence[dict[str, Any]]


def embedded(setting: Setting) -> Outcome:
    """Embed, fit and apply the transform if there is one, score and measure.

    A transform is fitted on the distinct texts of the task's train set, or where it has none on
    those of its main evaluation set, without their scores. What is measured is what is scored.
    """
    task, spec = setting.task, setting.spec
    encoder = _Encoder(setting)
    sets = {
        name: task.encode(rows, setting.tokenizer, setting.data, training=False)
        for name, rows in setting.rows.evaluations.items()
    }
    main = next(iter(sets))
    for inputs in sets.values():
        encoder.add(inputs)
    notes: dict[str, None] = {}
    if methods.kind_of(spec.method) == "transform":
        source, inputs = main, sets[main]
        if setting.rows.train:
            source = "train"
            inputs = task.encode(setting.rows.train, setting.tokenizer, setting.data, training=True)
            encoder.add(inputs)
        texts = encoder.rows(_distinct(inputs))
        transform = methods.make_transform(spec.method, seed=spec.seed).fit(texts)
        few = f", fewer than the {texts.shape[1]} features" if len(texts) < texts.shape[1] else ""
        said = f"{spec.method.name} was fitted on {len(texts)} distinct texts of {source}{few}"
        notes[said] = None
        encoder.apply(transform)
    found = {}
    for name, inputs in sets.items():
        rows = encoder.rows(inputs).cpu().numpy()
        half = len(inputs) // 2
        predictions = task.predict(
            setting.rows.evaluations[name],
            inputs,
            (rows[:half], rows[half:]),
            setting.tokenizer,
            setting.data,
        )
        scores = task.score(predictions, setting.rows.evaluations[name])
        found[name] = {metric: defined(value) for metric, value in scores.items()}
        notes |= dict.fromkeys(f"{name}: {note}" for note in predictions.notes)
    outcome = Outcome(last=Evaluation(0, found, {}).scores)
    texts_measured: Any = drawn(
        _distinct(sets[main]), spec.measure.final_rows, spec.data.split_seed
    )
    sample = Sample(encoder.batches(texts_measured), spec.measure, spec.seed)
    outcome.measures, outcome.arrays = sample.final(setting.model, encoder.rows(texts_measured))
    outcome.notes = [*notes, *sample.notes]
    return outcome


class _Encoder:
    """Embeds each distinct text once."""

    def __init__(self, setting: Setting) -> None:
        self.setting = setting
        self.model = setting.model.to(setting.device).eval()
        self.site = site_of(setting.data)
        self._known: dict[tuple[int, ...], int] = {}
        self._rows = torch.empty(0)

    def add(self, inputs: Encoded) -> None:
        """Embed what is not known yet, the longest first."""
        new = [found for found in _distinct(inputs) if _key(found) not in self._known]
        new.sort(key=lambda example: -len(example["input_ids"]))
        batches = self.batches(new)
        parts = [self._rows] if len(self._rows) else []
        dtype = _TYPES.get(self.setting.spec.train.precision)
        for number, batch in enumerate(batches, start=1):
            with torch.autocast(self.setting.device.type, dtype, enabled=dtype is not None):
                rows = rows_of(self.model, batch, self.site).blocks[0]
            parts.append(rows.float().cpu())
            self.setting.progress("embed", number, len(batches))
        for example in new:
            self._known[_key(example)] = len(self._known)
        self._rows = torch.cat(parts)

    def apply(self, transform: Any) -> None:
        """Map all that has been embedded."""
        self._rows = transform.transform(self._rows)

    def rows(self, inputs: Encoded) -> Tensor:
        """The embeddings of inputs that were added, n×d."""
        return self._rows[torch.tensor([self._known[_key(example)] for example in inputs])]

    def batches(self, inputs: Encoded) -> list[Batch]:
        """Inputs as batches on the device."""
        size = self.setting.spec.train.eval_batch_size
        collate = self.setting.task.collator(self.setting.tokenizer, self.model)
        dataset: Any = list(inputs)
        loader: DataLoader[Any] = DataLoader(dataset, batch_size=size, collate_fn=collate)
        return [moved(dict(batch), self.setting.device) for batch in loader]


def _key(example: dict[str, Any]) -> tuple[int, ...]:
    return tuple(np.asarray(example["input_ids"]).tolist())


def _distinct(inputs: Encoded) -> list[dict[str, Any]]:
    """Each text once, in the order of their first coming."""
    return list({_key(example): example for example in reversed(inputs)}.values())[::-1]

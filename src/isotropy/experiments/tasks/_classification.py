"""Tasks that give a text, or a pair of texts, a class or a number."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from isotropy.experiments.metrics import METRICS
from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks._encoding import encoded_texts, within_positions
from isotropy.experiments.tasks._published import Origin
from isotropy.experiments.tasks._task import Predictions, Row, Scores, Splits, Task
from isotropy.sources._messages import count


@dataclass(frozen=True, kw_only=True)
class Labelled(Task):
    """What classification and regression share: rows of `text`, perhaps `pair`, and `label`.

    Attributes:
        origin: where the rows come from.
    """

    origin: Origin

    def load(self, data: DataSettings, place: Place) -> Splits:
        """The rows, read from local files or the hub."""
        self.check(data)
        return self.origin.load(self.name, data, place)

    def revision(self, data: DataSettings, place: Place) -> str:
        """A hash of the files, or the hub's revision."""
        return self.origin.revision(self.name, data, place)

    def model_class(self) -> Any:
        """The model with a head for sequences."""
        from transformers import AutoModelForSequenceClassification

        return AutoModelForSequenceClassification

    def adapted(self, data: DataSettings, model: Any) -> DataSettings:
        """The settings with the model's longest text."""
        return within_positions(data, model)

    def encode(
        self, rows: Sequence[Row], tokenizer: Any, data: DataSettings, *, training: bool
    ) -> list[dict[str, Any]]:
        """Tokens of each row with its `labels`."""
        texts = [row["text"] for row in rows]
        pairs = [row["pair"] for row in rows] if rows and "pair" in rows[0] else None
        inputs = encoded_texts(texts, pairs, tokenizer, data)
        return [{**found, "labels": row["label"]} for found, row in zip(inputs, rows, strict=True)]

    def score(self, predictions: Predictions, rows: Sequence[Row]) -> Scores:
        """The metrics, by name."""
        labels = [row["label"] for row in rows]
        return {name: METRICS[name](labels, predictions.values) for name in self.metrics}


@dataclass(frozen=True, kw_only=True)
class Classification(Labelled):
    """One of several classes for each row; the class with the largest logit is predicted.

    Attributes:
        classes: their names, in the order of their numbers.
    """

    kind: ClassVar[str] = "classification"

    classes: tuple[str, ...]

    def model_settings(self, splits: Splits) -> dict[str, Any]:
        """As many logits as classes."""
        return {
            "num_labels": len(self.classes),
            "problem_type": "single_label_classification",
            "id2label": dict(enumerate(self.classes)),
            "label2id": {name: i for i, name in enumerate(self.classes)},
        }

    def predict(
        self,
        rows: Sequence[Row],
        encoded: Sequence[Mapping[str, Any]],
        outputs: Any,
        tokenizer: Any,
        data: DataSettings,
    ) -> Predictions:
        """Class numbers, and a note where all are the same."""
        logits = np.asarray(outputs)
        values = logits.argmax(axis=1).tolist()
        notes = []
        if broken := int((~np.isfinite(logits)).any(axis=1).sum()):
            notes.append(
                f"{broken} of {count(len(values), 'prediction')} come from NaN or infinity"
            )
        if len(values) > 1 and len(set(values)) == 1:
            name = self.classes[values[0]]
            notes.append(f"all {len(values)} predictions are the class {name}")
        return Predictions(values, tuple(notes))


@dataclass(frozen=True, kw_only=True)
class Regression(Labelled):
    """A number for each row, trained on the squared error."""

    kind: ClassVar[str] = "regression"

    def model_settings(self, splits: Splits) -> dict[str, Any]:
        """One output."""
        return {"num_labels": 1, "problem_type": "regression"}

    def predict(
        self,
        rows: Sequence[Row],
        encoded: Sequence[Mapping[str, Any]],
        outputs: Any,
        tokenizer: Any,
        data: DataSettings,
    ) -> Predictions:
        """The outputs, and a note where they are all the same or no numbers."""
        values = np.asarray(outputs, np.float64).reshape(len(rows))
        return Predictions(values.tolist(), number_notes(values, "prediction"))


def number_notes(values: Any, thing: str) -> tuple[str, ...]:
    """What a reader of correlations should know of the numbers that are correlated."""
    if broken := int((~np.isfinite(values)).sum()):
        return (f"{broken} of {count(len(values), thing)} are NaN or infinite",)
    if len(values) > 1 and values.min() == values.max():
        return (f"all {len(values)} {thing}s are {values[0]:g}",)
    return ()

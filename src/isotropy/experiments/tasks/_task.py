"""What a task is: its data, its columns, its metric, and how a model is made to do it."""

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from isotropy.errors import SettingError, unknown_name
from isotropy.experiments.spec import DataSettings, Place

Row = Mapping[str, Any]
"""One example, under the task's own names of columns."""
Scores = dict[str, float | None]
"""Metrics by name; None where one is undefined."""


@dataclass(frozen=True)
class Splits:
    """The data of a task.

    Attributes:
        train: rows to train on; empty for a task without training.
        evaluations: rows to report on, by the name of the set; the first is the main one, called
            `dev` (or `test`).
    """

    train: Sequence[Row]
    evaluations: Mapping[str, Sequence[Row]]

    def hashes(self) -> dict[str, str]:
        """A hash of the rows of each split, 16 hexadecimal digits."""
        return {
            name: rows_hash(rows)
            for name, rows in {"train": self.train, **self.evaluations}.items()
        }


@dataclass(frozen=True)
class Predictions:
    """What a model says of rows, and what can be seen of it.

    Attributes:
        values: one a row: a class number, a score, a text, or whatever `score` reads.
        notes: such as that all are the same.
    """

    values: Sequence[Any]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A task: a declaration; its kind, a subclass, knows what to do with it.

    Attributes:
        name: lower-case with hyphens.
        summary: one line, for tables.
        reference: where it comes from.
        metric: the main one of `metrics`.
        metrics: all names in `score`'s answer.
        defaults: what `DataSettings.options` may hold, such as `stride`, with the values that hold
            unless a plan says otherwise.
    """

    kind: ClassVar[str]
    """`classification`, `regression`, `question-answering`, `translation`, `summarisation` or
    `similarity`."""
    trains: ClassVar[bool] = True
    """Whether a model is trained for it; similarity looks at embeddings as they are."""
    generates: ClassVar[bool] = False
    """Whether its model is a sequence-to-sequence one, whose answers are generated."""

    name: str
    summary: str
    reference: str
    metric: str
    metrics: tuple[str, ...]
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def check(self, data: DataSettings) -> None:
        """Look at the settings alone, before any data or model is loaded.

        Raises:
            SettingError: a setting that the task does not have, or whose value makes no sense.
        """
        for name in data.options:
            if not self.defaults:
                raise SettingError(
                    f"got option {name!r} for task {self.name}, which has no options; leave it out"
                )
            if name not in self.defaults:
                raise unknown_name(f"option of {self.name}", name, self.defaults)

    @abstractmethod
    def load(self, data: DataSettings, place: Place) -> Splits:
        """The rows, read from local files or the hub; all of them, whatever `data` limits.

        Raises:
            SourceError: files are missing or damaged.
            SettingError: a setting that the task does not have.
        """

    @abstractmethod
    def revision(self, data: DataSettings, place: Place) -> str:
        """What names the content that `load` would read: a hash of the files, or a revision."""

    def settled(self, splits: Splits) -> "Task":
        """The task as its data make it: of a user's own files, with their classes and metrics.

        Called once, after `load`; everything after that is asked of the answer.
        """
        return self

    @abstractmethod
    def model_class(self) -> Any:
        """The `AutoModelFor...` of transformers that does the task."""

    def model_settings(self, splits: Splits) -> dict[str, Any]:
        """Keyword arguments of `from_pretrained`, such as `num_labels`."""
        return {}

    def adapted(self, data: DataSettings, model: Any) -> DataSettings:
        """The settings with what a model needs filled in, such as the prefix that T5 expects.

        Called once, when the model is there; `encode`, `generation` and `predict` get the answer.
        """
        return data

    @abstractmethod
    def encode(
        self, rows: Sequence[Row], tokenizer: Any, data: DataSettings, *, training: bool
    ) -> list[dict[str, Any]]:
        """The model's inputs; a row may give several (windows), each then has an `example`.

        For similarity these are twice as many as rows: all first texts, then all second ones.
        """

    def collator(self, tokenizer: Any, model: Any) -> Callable[[list[Any]], dict[str, Any]]:
        """What makes a padded batch of encoded rows."""
        from transformers import DataCollatorWithPadding

        return DataCollatorWithPadding(tokenizer)

    def generation(self, tokenizer: Any, data: DataSettings) -> dict[str, Any]:
        """Keyword arguments of the model's `generate`, of a task that generates."""
        return {}

    @abstractmethod
    def predict(
        self,
        rows: Sequence[Row],
        encoded: Sequence[Mapping[str, Any]],
        outputs: Any,
        tokenizer: Any,
        data: DataSettings,
    ) -> Predictions:
        """Answers, from what the model gave for the encoded rows.

        Args:
            rows: the examples.
            encoded: what `encode` made of them.
            outputs: the model's outputs in the order of `encoded`, as numpy arrays: logits n×k, for
                question answering a pair (start, end) of n×t, generated tokens n×t for tasks that
                generate; for similarity a pair of n×d, the embeddings of first and second texts.
            tokenizer: the tokenizer.
            data: the settings.
        """

    @abstractmethod
    def score(self, predictions: Predictions, rows: Sequence[Row]) -> Scores:
        """The metrics, by name."""


def rows_hash(rows: Sequence[Row]) -> str:
    """A hash of what rows hold, 16 hexadecimal digits.

    Example:
        >>> rows_hash([{"text": "a", "label": 0}]) == rows_hash([{"label": 0, "text": "a"}])
        True
    """
    found = hashlib.sha256()
    for row in rows:
        found.update(json.dumps(row, sort_keys=True, ensure_ascii=False).encode())
        found.update(b"\n")
    return found.hexdigest()[:16]

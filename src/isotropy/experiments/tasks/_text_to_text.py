"""Tasks whose answer is a text that the model writes."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from isotropy.errors import SettingError
from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks._layout import Layout
from isotropy.experiments.tasks._task import Predictions, Row, Splits, Task
from isotropy.settings import choice, whole_number

_LENGTH = 1024
_ROWS_AT_ONCE = 1000  # a tokenizer's own record of a text is some fifty times its tokens

OPTIONS: Mapping[str, Any] = {
    "evaluate": "dev",
    "prefix": None,
    "target_length": 128,
    "beams": 4,
    "generate": {},
}


@dataclass(frozen=True, kw_only=True)
class TextToText(Task):
    """Read a text, the `source`, and write one, the `target`.

    Options: `evaluate`, the split that is reported, `dev` or `test`; `prefix`, what stands before
    each source (None for what a T5 was trained with, and nothing for other models);
    `target_length`, the most tokens of a target in training and of what is written; `beams`, of the
    search (None for the model's own number); `generate`, further arguments of the model's
    `generate`, such as `length_penalty`. Nothing is drawn at random. A source has 1024 tokens
    unless `max_length` says otherwise or the model takes fewer.
    """

    generates: ClassVar[bool] = True

    layout: Layout

    def check(self, data: DataSettings) -> None:
        """Look at the settings alone."""
        super().check(data)
        options = self.options(data)
        choice("evaluate", options["evaluate"], ("dev", "test"))
        whole_number("target_length", options["target_length"], low=2)
        if options["beams"] is not None:
            whole_number("beams", options["beams"], low=1)
        if not isinstance(options["prefix"], str | None):
            raise SettingError(f"got prefix={options['prefix']!r}, expected a text")
        if not isinstance(options["generate"], dict):
            raise SettingError(
                f"got generate={options['generate']!r}, expected a table of arguments, such as "
                "{length_penalty = 2.0}"
            )
        if options["generate"].get("do_sample"):
            raise SettingError(
                "got generate.do_sample=true, expected no sampling: equal runs are to give equal "
                "scores"
            )

    def load(self, data: DataSettings, place: Place) -> Splits:
        """Pairs of texts of train and of the split that is reported."""
        self.check(data)
        splits = self._splits(data)
        files = self.layout.settled(self.name, splits, data, place)
        train, reported = (
            self.hub_rows(self.layout.from_hub(split, data))
            if files is None
            else self.file_rows(files[split])
            for split in splits
        )
        return Splits(train, {splits[1]: reported})

    def revision(self, data: DataSettings, place: Place) -> str:
        """A hash of the files, or the hub's revision."""
        return self.layout.revision(self._splits(data), data, place)

    @abstractmethod
    def file_rows(self, paths: Sequence[Path]) -> Sequence[Row]:
        """The pairs of a split's files."""

    @abstractmethod
    def hub_rows(self, dataset: Any) -> Sequence[Row]:
        """The pairs of a split on the hub."""

    @abstractmethod
    def t5_prefix(self) -> str:
        """What a T5 was trained to see before such a source."""

    def model_class(self) -> Any:
        """The model with an encoder and a decoder."""
        from transformers import AutoModelForSeq2SeqLM

        return AutoModelForSeq2SeqLM

    def adapted(self, data: DataSettings, model: Any) -> DataSettings:
        """The settings with the prefix that the model was trained with."""
        if self.options(data)["prefix"] is not None:
            return data
        prefix = self.t5_prefix() if model.config.model_type == "t5" else ""
        return data.model_copy(update={"options": {**data.options, "prefix": prefix}})

    def encode(
        self, rows: Sequence[Row], tokenizer: Any, data: DataSettings, *, training: bool
    ) -> list[dict[str, Any]]:
        """Tokens of source and target; the attention mask comes with the padding."""
        self.check(data)
        options = self.options(data)
        prefix = options["prefix"] or ""
        length = min(data.max_length or _LENGTH, tokenizer.model_max_length)
        found = []
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            some = [rows[index] for index in range(first, min(first + _ROWS_AT_ONCE, len(rows)))]
            sources = tokenizer(
                [prefix + row["source"] for row in some], truncation=True, max_length=length
            )["input_ids"]
            targets = tokenizer(
                text_target=[row["target"] for row in some],
                truncation=True,
                max_length=options["target_length"],
            )["input_ids"]
            found += [
                {"input_ids": np.asarray(source, np.int32), "labels": np.asarray(target, np.int32)}
                for source, target in zip(sources, targets, strict=True)
            ]
        return found

    def collator(self, tokenizer: Any, model: Any) -> Callable[[list[Any]], dict[str, Any]]:
        """Pads sources and targets, and gives the decoder what it reads in training."""
        from transformers import DataCollatorForSeq2Seq

        pad = DataCollatorForSeq2Seq(tokenizer, model=model)

        def collate(features: list[Any]) -> dict[str, Any]:
            lists = [
                {name: feature[name].tolist() for name in ("input_ids", "labels")}
                for feature in features
            ]
            return dict(pad(lists))

        return collate

    def generation(self, tokenizer: Any, data: DataSettings) -> dict[str, Any]:
        """Keyword arguments of `generate`."""
        options = self.options(data)
        beams = {} if options["beams"] is None else {"num_beams": options["beams"]}
        return {
            "do_sample": False,
            "max_new_tokens": options["target_length"],
            **beams,
            **options["generate"],
        }

    def predict(
        self,
        rows: Sequence[Row],
        encoded: Sequence[Mapping[str, Any]],
        outputs: Any,
        tokenizer: Any,
        data: DataSettings,
    ) -> Predictions:
        """The texts of generated tokens."""
        tokens = np.asarray(outputs)
        padding = tokenizer.pad_token_id  # where the trainer pads batches it writes -100
        texts = tokenizer.batch_decode(
            np.where(tokens < 0, padding, tokens).tolist(), skip_special_tokens=True
        )
        found = [text.strip() for text in texts]
        return Predictions(found, _notes(found))

    def options(self, data: DataSettings) -> dict[str, Any]:
        """The options with those that hold unless a plan says otherwise."""
        return {**self.defaults, **data.options}

    def _splits(self, data: DataSettings) -> tuple[str, str]:
        return "train", self.options(data)["evaluate"]


@dataclass(frozen=True)
class HubPairs(Sequence[Row]):
    """Rows of a data set of the hub, each made a pair when it is asked for."""

    dataset: Any
    pair: Callable[[Mapping[str, Any]], Row]

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return self.pair(self.dataset[int(index)])


def _notes(texts: Sequence[str]) -> tuple[str, ...]:
    empty = texts.count("")
    if empty:
        return (f"{empty} of {len(texts)} generated texts are empty",)
    if len(texts) > 1 and len(set(texts)) == 1:
        return ("all generated texts are the same",)
    return ()

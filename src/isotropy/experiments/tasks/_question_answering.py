"""Questions whose answer is a passage of a context: SQuAD v1.1."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks._answer_spans import answer_tokens, best_span, windows
from isotropy.experiments.tasks._layout import Layout
from isotropy.experiments.tasks._squad_files import check_row, squad_rows
from isotropy.experiments.tasks._squad_rules import exact_match, word_f1
from isotropy.experiments.tasks._task import Predictions, Row, Scores, Splits, Task
from isotropy.settings import whole_number

_LENGTH = 384
_SPLITS = ("train", "dev")


@dataclass(frozen=True, kw_only=True)
class QuestionAnswering(Task):
    """Find the passage of a context that answers a question.

    A context that is too long is read in windows that overlap. A model gives each token a logit as
    the first and one as the last of the answer; the answer is the best passage of all windows.
    In training, a window without the answer points at the token `cls`, or else at its first.

    Options: `stride`, the tokens that two windows share; `question_length`, the tokens of a
    question that are kept; `n_best`, how many first and last tokens are looked at;
    `answer_length`, the most tokens of an answer. A window has 384 tokens unless `max_length` says
    otherwise.
    """

    kind: ClassVar[str] = "question-answering"

    layout: Layout

    def check(self, data: DataSettings) -> None:
        """Look at the settings alone."""
        super().check(data)
        options = self._options(data)
        whole_number("stride", options["stride"], low=0)
        for name in ("question_length", "n_best", "answer_length"):
            whole_number(name, options[name], low=1)

    def load(self, data: DataSettings, place: Place) -> Splits:
        """Questions of train and dev."""
        self.check(data)
        files = self.layout.settled(self.name, _SPLITS, data, place)
        if files is not None:
            train, dev = (
                squad_rows(files[split][0], training=split == "train") for split in _SPLITS
            )
            return Splits(train, {"dev": dev})
        train, dev = (
            [_hub_row(row, self.layout.hub, split) for row in self.layout.from_hub(split, data)]
            for split in _SPLITS
        )
        return Splits(train, {"dev": dev})

    def revision(self, data: DataSettings, place: Place) -> str:
        """A hash of the files, or the hub's revision."""
        return self.layout.revision(_SPLITS, data, place)

    def model_class(self) -> Any:
        """The model with two logits a token."""
        from transformers import AutoModelForQuestionAnswering

        return AutoModelForQuestionAnswering

    def encode(
        self, rows: Sequence[Row], tokenizer: Any, data: DataSettings, *, training: bool
    ) -> list[dict[str, Any]]:
        """Windows; in training with the places of the answer, else with `offsets`."""
        self.check(data)
        options = self._options(data)
        found = []
        for example, inputs, offsets in windows(
            [row["question"] for row in rows],
            [row["context"] for row in rows],
            tokenizer,
            length=min(data.max_length or _LENGTH, tokenizer.model_max_length),
            stride=options["stride"],
            question_length=options["question_length"],
        ):
            if training:
                row = rows[example]
                begin, answer = row["starts"][0], row["answers"][0]
                place = answer_tokens(offsets, begin, begin + len(answer))
                nowhere = _cls_place(inputs["input_ids"], tokenizer)
                inputs["start_positions"], inputs["end_positions"] = place or (nowhere, nowhere)
            else:
                inputs["offsets"] = offsets
            found.append({**inputs, "example": example})
        return found

    def collator(self, tokenizer: Any, model: Any) -> Callable[[list[Any]], dict[str, Any]]:
        """Pads at the right, so that a token's logits stand where the token does."""

        def collate(features: list[Any]) -> dict[str, Any]:
            import torch
            from torch.nn.utils.rnn import pad_sequence

            fills = {"input_ids": tokenizer.pad_token_id or 0}  # all else is 0 there
            batch = {
                name: pad_sequence(
                    [torch.as_tensor(feature[name], dtype=torch.long) for feature in features],
                    batch_first=True,
                    padding_value=fills.get(name, 0),
                )
                for name in tokenizer.model_input_names
                if name in features[0]
            }
            for name in ("start_positions", "end_positions"):
                if name in features[0]:
                    batch[name] = torch.tensor([feature[name] for feature in features])
            return batch

        return collate

    def predict(
        self,
        rows: Sequence[Row],
        encoded: Sequence[Mapping[str, Any]],
        outputs: Any,
        tokenizer: Any,
        data: DataSettings,
    ) -> Predictions:
        """The best passage of all windows; an empty text where none could be one."""
        options = self._options(data)
        texts, scores = [""] * len(rows), [-np.inf] * len(rows)
        for feature, start, end in zip(encoded, *outputs, strict=True):
            best = best_span(
                start,
                end,
                feature["offsets"],
                n_best=options["n_best"],
                longest=options["answer_length"],
            )
            example = feature["example"]
            if best and best[0] > scores[example]:
                scores[example], first, last = best
                texts[example] = rows[example]["context"][first:last].strip()
        empty = texts.count("")
        notes = (f"no passage was found for {empty} of {len(rows)} questions",) if empty else ()
        return Predictions(texts, notes)

    def score(self, predictions: Predictions, rows: Sequence[Row]) -> Scores:
        """Exact match and F1 as shares of 1, by the rules of SQuAD v1.1."""
        pairs = list(zip(predictions.values, (row["answers"] for row in rows), strict=True))
        return {
            "f1": float(np.mean([word_f1(*pair) for pair in pairs])),
            "exact_match": float(np.mean([exact_match(*pair) for pair in pairs])),
        }

    def _options(self, data: DataSettings) -> dict[str, Any]:
        return {**self.defaults, **data.options}


def _hub_row(row: Mapping[str, Any], source: str, split: str) -> dict[str, Any]:
    found = {
        "id": row["id"],
        "question": row["question"],
        "context": row["context"],
        "answers": list(row["answers"]["text"]),
        "starts": list(row["answers"]["answer_start"]),
    }
    check_row(found, source, training=split == "train")
    return found


def _cls_place(ids: Any, tokenizer: Any) -> int:
    (found,) = np.nonzero(ids == tokenizer.cls_token_id)
    return int(found[0]) if len(found) else 0


QUESTION_ANSWERING = (
    QuestionAnswering(
        name="squad",
        summary="the passage of a Wikipedia article that answers a question (SQuAD v1.1)",
        reference="Rajpurkar et al. 2016, arXiv:1606.05250",
        metric="f1",
        metrics=("f1", "exact_match"),
        defaults={"stride": 128, "question_length": 64, "n_best": 20, "answer_length": 30},
        layout=Layout(
            hub="rajpurkar/squad",
            folders=("squad", "SQuAD"),
            stems={
                "train": ("train-v1.1", "train_part-v1.1", "train"),
                "dev": ("dev-v1.1", "dev_part-v1.1", "dev"),
            },
        ),
    ),
)

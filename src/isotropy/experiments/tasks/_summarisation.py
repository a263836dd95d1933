"""Summarisation, scored by ROUGE."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from isotropy.errors import MissingExtraError, SourceError
from isotropy.experiments.tasks._layout import Layout
from isotropy.experiments.tasks._task import Predictions, Row, Scores
from isotropy.experiments.tasks._text_to_text import OPTIONS, HubPairs, TextToText
from isotropy.sources._messages import reading, shown
from isotropy.sources._texts import text_lines

_METRICS = ("rouge1", "rouge2", "rougeL")


@dataclass(frozen=True, kw_only=True)
class Summarisation(TextToText):
    """Say in a few sentences what a text says.

    ROUGE-1, ROUGE-2 and ROUGE-L are rouge-score's with its stemmer: means over the texts of the F
    measure, from 0 to 100. ROUGE-L is that of the whole summary; the one that takes it line by line
    is another, rougeLsum, and gives higher numbers.
    """

    kind: ClassVar[str] = "summarisation"

    article: str
    """The name of the column with the text, and of that with the summary."""
    summarised: str

    def file_rows(self, paths: Sequence[Path]) -> list[Row]:
        """The texts of a file with a JSON object a line."""
        (path,) = paths
        name = shown(str(path))
        with reading(name), path.open("rb") as file:
            found = [
                self._row(line, f"line {number + 1} of {name}")
                for number, line in text_lines(file, name)
                if line.strip()
            ]
        if not found:
            raise SourceError(f"got file {name} without lines, expected a JSON object a line")
        return found

    def hub_rows(self, dataset: Any) -> Sequence[Row]:
        """The texts of a split on the hub."""
        return HubPairs(dataset, self._pair)

    def t5_prefix(self) -> str:
        """What a T5 was trained to see."""
        return "summarize: "

    def score(self, predictions: Predictions, rows: Sequence[Row]) -> Scores:
        """ROUGE, means over the texts."""
        try:
            from rouge_score.rouge_scorer import RougeScorer
        except ImportError:
            raise MissingExtraError("rouge-score", "train") from None
        scorer = RougeScorer(list(_METRICS), use_stemmer=True)
        scores = [
            scorer.score(row["target"], text)
            for text, row in zip(predictions.values, rows, strict=True)
        ]
        return {
            name: 100 * sum(score[name].fmeasure for score in scores) / len(scores)
            for name in _METRICS
        }

    def _row(self, line: str, where: str) -> Row:
        expected = f"expected a JSON object with texts {self.article!r} and {self.summarised!r}"
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise SourceError(f"got {where}, which is no JSON ({error}), {expected}") from None
        for name in (self.article, self.summarised):
            if not isinstance(row, dict) or not isinstance(row.get(name), str):
                raise SourceError(f"got {where} without a text {name!r}, {expected}")
        return self._pair(row)

    def _pair(self, row: Mapping[str, Any]) -> Row:
        return {"source": row[self.article], "target": row[self.summarised]}


SUMMARISATION = (
    Summarisation(
        name="cnn-dailymail",
        summary="the highlights of a news article (CNN/DailyMail)",
        reference="Hermann et al. 2015, arXiv:1506.03340; See et al. 2017, arXiv:1704.04368",
        metric="rouge1",
        metrics=_METRICS,
        defaults=OPTIONS,
        article="article",
        summarised="highlights",
        layout=Layout(
            hub="abisee/cnn_dailymail",
            config="3.0.0",
            folders=("cnndm", "cnn_dailymail", "cnn-dailymail"),
            stems={
                "train": ("train", "train_sample_100"),
                "dev": ("dev", "validation"),
                "test": ("test",),
            },
            endings=((".jsonl",),),
        ),
    ),
)

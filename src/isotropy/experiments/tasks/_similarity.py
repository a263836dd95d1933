"""How well the cosine of two embeddings tells how alike their texts are; nothing is trained."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from isotropy.errors import SettingError, SourceError
from isotropy.experiments.metrics import METRICS
from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks._classification import number_notes
from isotropy.experiments.tasks._encoding import encoded_texts, within_positions
from isotropy.experiments.tasks._files import content_hash, existing, require_revision
from isotropy.experiments.tasks._glue import stsb_columns
from isotropy.experiments.tasks._hub import Hub
from isotropy.experiments.tasks._published import Origin, Published, hub_rows, labelled_rows
from isotropy.experiments.tasks._task import Predictions, Row, Scores, Splits, Task
from isotropy.experiments.tasks._tsv import Columns
from isotropy.sites import Site
from isotropy.sources._messages import reading, shown

_DEFAULTS: Mapping[str, Any] = {"site": "mean@last"}


def site_of(data: DataSettings) -> Site:
    """Which embedding of a text is compared: the option `site`.

    Raises:
        SettingError: a site that does not give one vector a text.

    Example:
        >>> str(site_of(DataSettings(options={"site": "cls@3"})))
        'cls@3'
    """
    given = data.options.get("site", _DEFAULTS["site"])
    site = Site.parse(str(given))
    if site.is_weight or site.pool == "tokens" or site.layer == "all" or site.decoder:
        raise SettingError(
            f"got option site={given!r}, expected one vector a text, such as 'mean@last' or "
            "'cls@last'"
        )
    return site


@dataclass(frozen=True, kw_only=True)
class Similarity(Task):
    """Spearman's and Pearson's correlation of cosines with people's scores.

    Its option `site` says which embedding of a text is compared, `mean@last` by default.

    Attributes:
        origin: where the rows come from: `text`, `pair`, and the score as `label`.
    """

    kind: ClassVar[str] = "similarity"
    trains: ClassVar[bool] = False

    metric: str = "spearman"
    metrics: tuple[str, ...] = ("spearman", "pearson")
    defaults: Mapping[str, Any] = field(default_factory=lambda: _DEFAULTS)
    origin: Origin

    def check(self, data: DataSettings) -> None:
        """Look at the settings alone."""
        super().check(data)
        site_of(data)

    def load(self, data: DataSettings, place: Place) -> Splits:
        """The rows, read from local files or the hub."""
        self.check(data)
        return self.origin.load(self.name, data, place)

    def revision(self, data: DataSettings, place: Place) -> str:
        """A hash of the files, or the hub's revision."""
        return self.origin.revision(self.name, data, place)

    def model_class(self) -> Any:
        """The model without a head."""
        from transformers import AutoModel

        return AutoModel

    def adapted(self, data: DataSettings, model: Any) -> DataSettings:
        """The settings with the model's longest text."""
        return within_positions(data, model)

    def encode(
        self, rows: Sequence[Row], tokenizer: Any, data: DataSettings, *, training: bool
    ) -> list[dict[str, Any]]:
        """Tokens of all first texts, then of all second ones."""
        texts = [row[side] for side in ("text", "pair") for row in rows]
        return list(encoded_texts(texts, None, tokenizer, data))

    def predict(
        self,
        rows: Sequence[Row],
        encoded: Sequence[Mapping[str, Any]],
        outputs: Any,
        tokenizer: Any,
        data: DataSettings,
    ) -> Predictions:
        """The cosine of each row's two embeddings; NaN where one of them is zero."""
        first, second = outputs
        cosines = (_directions(first) * _directions(second)).sum(axis=1)
        return Predictions(cosines.tolist(), number_notes(cosines, "cosine"))

    def score(self, predictions: Predictions, rows: Sequence[Row]) -> Scores:
        """The metrics, by name."""
        labels = [row["label"] for row in rows]
        return {name: METRICS[name](labels, predictions.values) for name in self.metrics}


@dataclass(frozen=True, kw_only=True)
class Yearly:
    """A year of SemEval's shared task: one file a set, and all of them together.

    The main evaluation set, `all`, holds the rows of all sets one after the other, so that a score
    of it is one correlation over all pairs, not a mean of correlations. Rows that nobody scored are
    left out. The hub has all sets as one.

    Attributes:
        year: of the task, which is its folder's name too.
        hub: where the hub has it.
    """

    year: int
    hub: Hub

    def load(self, task: str, data: DataSettings, place: Place) -> Splits:
        """All rows, then those of each set."""
        files = self._files(task, place)
        if files is None:
            return Splits([], {"all": hub_rows(self.hub, "all", data.revision, None)})
        require_revision(task, data, files.values())
        sets = {
            name: labelled_rows(path, _YEARLY_COLUMNS, None, frozenset({""}))
            for name, path in files.items()
        }
        return Splits([], {"all": [row for rows in sets.values() for row in rows], **sets})

    def revision(self, task: str, data: DataSettings, place: Place) -> str:
        """A hash of the files, or else the hub's revision that is asked for."""
        files = self._files(task, place)
        return data.revision if files is None else content_hash(files.values())

    def _files(self, task: str, place: Place) -> dict[str, Path] | None:
        """The file of each set by its name, in their order."""
        if place.files:
            return {
                name: existing(path, f"the set {name} of task {task}")
                for name, path in place.files.items()
            }
        if place.data_dir is None:
            return None
        root = Path(place.data_dir).expanduser()
        folders = (f"sts12-16/{self.year}", task)
        with reading(shown(place.data_dir)):
            for folder in folders:
                if found := sorted((root / folder).glob("*.test.tsv")):
                    return {path.name.removesuffix(".test.tsv"): path for path in found}
        raise SourceError(
            f"got data folder {shown(place.data_dir)} without files of {task}, expected "
            f"{' or '.join(f'{folder}/*.test.tsv' for folder in folders)}; "
            "put them there, or name a file with --split NAME=FILE"
        )


_YEARLY_COLUMNS = Columns(
    names={
        "text": ("sentence1", "text"),
        "pair": ("sentence2", "pair"),
        "label": ("score", "label"),
    },
    places={"label": 0, "text": 1, "pair": 2},
    widths=(3,),
)
_HUB_COLUMNS = {"text": "sentence1", "pair": "sentence2", "label": "score"}

stsb_similarity = Similarity(
    name="stsb-similarity",
    summary="Cosine of embeddings against STS Benchmark's scores (test, and dev)",
    reference="https://aclanthology.org/S17-2001",
    origin=Published(
        folders=("stsb-similarity", "stsb", "STS-B"),
        # GLUE's own test file has no scores.
        layouts=(
            {"test": ("sts-test.csv",), "dev": ("sts-dev.csv",)},
            {"dev": ("dev.tsv", "sts-dev.csv")},
        ),
        columns=stsb_columns,
        hub=Hub(
            repository="mteb/stsbenchmark-sts",
            splits={"test": "test", "dev": "validation"},
            columns=_HUB_COLUMNS,
        ),
        classes=None,
    ),
)

sick_r = Similarity(
    name="sick-r",
    summary="Cosine of embeddings against SICK's scores of relatedness (test)",
    reference="https://aclanthology.org/L14-1314",
    origin=Published(
        folders=("sick-r", "sick", "SICK"),
        layouts=({"test": ("SICK_test_annotated.txt", "test.tsv")},),
        columns=Columns(
            names={
                "text": ("sentence_A", "text"),
                "pair": ("sentence_B", "pair"),
                "label": ("relatedness_score", "label"),
            }
        ),
        hub=Hub(repository="mteb/sickr-sts", splits={"test": "test"}, columns=_HUB_COLUMNS),
        classes=None,
    ),
)


def _yearly(year: int, reference: str) -> Similarity:
    name = f"sts{year % 100}"
    return Similarity(
        name=name,
        summary=f"Cosine of embeddings against scores of SemEval {year}, all sets as one",
        reference=f"https://aclanthology.org/{reference}",
        origin=Yearly(
            year=year,
            hub=Hub(repository=f"mteb/{name}-sts", splits={"all": "test"}, columns=_HUB_COLUMNS),
        ),
    )


SIMILARITY = (
    stsb_similarity,
    _yearly(2012, "S12-1051"),
    _yearly(2013, "S13-1004"),
    _yearly(2014, "S14-2010"),
    _yearly(2015, "S15-2045"),
    _yearly(2016, "S16-1081"),
    sick_r,
)


def _directions(rows: Any) -> NDArray[np.float64]:
    """Rows of length 1; NaN where a row is zero."""
    values = np.asarray(rows, np.float64)
    largest = np.abs(values).max(axis=1, keepdims=True)  # or squares of large ones would overflow
    with np.errstate(invalid="ignore", divide="ignore"):
        values = values / largest
        return np.asarray(values / np.linalg.norm(values, axis=1, keepdims=True))

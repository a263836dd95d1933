"""A user's own files: a text, or two, and a class or a number in each row."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isotropy.errors import SettingError, SourceError, unknown_name
from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks._classification import Classification, Regression
from isotropy.experiments.tasks._equal_texts import equal_texts
from isotropy.experiments.tasks._files import content_hash, existing, require_revision
from isotropy.experiments.tasks._records import records
from isotropy.experiments.tasks._task import Row, Splits, Task
from isotropy.settings import number
from isotropy.sources._messages import count, listing, quoted, shown

_KINDS = ("auto", "classification", "regression")
_SPLITS = ("train", "dev", "test")
# Numbers with more different values than this, not all of them whole, are no classes.
_MOST_VALUES = 10
_FEWEST_ROWS = 10
_NOT_FINITE = {f"{sign}{word}" for sign in ("", "+", "-") for word in ("nan", "inf", "infinity")}


@dataclass(frozen=True)
class UserFiles:
    """The files that stand for train, dev and test; without the last two, a part of train is dev.

    That part has the shares of the classes (or the spread of the numbers) that train has, as well
    as rows of one text, which stay together, allow. It depends on `split_seed` alone.
    """

    def load(self, task: str, data: DataSettings, place: Place) -> Splits:
        """The rows of the files; those of classes have the name of their `class` too."""
        files = _files(task, place)
        require_revision(task, data, files.values())
        columns = _columns(data)
        found = {split: _named_rows(path, columns) for split, path in files.items()}
        options = {**_DEFAULTS, **data.options}
        train = found.pop("train")
        where = shown(str(files["train"]))
        if not found:
            if len(train) < _FEWEST_ROWS:
                raise SourceError(
                    f"got {count(len(train), 'row')} in {where}, expected at least {_FEWEST_ROWS} "
                    "to split a dev set off; add rows, or name a file with --split dev=FILE"
                )
            train, found["dev"] = _split(train, options["dev"], data.split_seed)
        names = Counter(row["label"] for row in train)
        if len(names) < 2:
            raise SourceError(
                f"got only the label {quoted(next(iter(names)))} in {where}, expected at least two "
                "different ones; check the column of the labels"
            )
        regression = _is_regression(names, options["kind"], where)
        if not regression and len(names) == len(train) >= _FEWEST_ROWS:
            raise SourceError(
                f"got {len(names)} different labels in the {len(train)} rows of {where}, expected "
                "classes of several rows; check the column of the labels, or set "
                "data.options.kind=regression"
            )
        if "dev" in found and not found["dev"]:
            texts = len(equal_texts(train, range(len(train))))
            raise SourceError(
                f"got {count(texts, 'different text')} in the {len(train)} rows of {where}, "
                "expected more to split a dev set off, as equal texts stay together; add rows, or "
                "name a file with --split dev=FILE"
            )
        if regression:
            return Splits(
                _scored(train, where),
                {split: _scored(rows, _name(files, split)) for split, rows in found.items()},
            )
        classes = {name: i for i, name in enumerate(sorted(names, key=_class_order))}
        evaluations = {
            split: _classed(rows, classes, _name(files, split)) for split, rows in found.items()
        }
        return Splits(_classed(train, classes, where), evaluations)

    def revision(self, task: str, data: DataSettings, place: Place) -> str:
        """A hash of the files."""
        return content_hash(_files(task, place).values())


@dataclass(frozen=True, kw_only=True)
class Custom(Classification):
    """A task of a user's own; until its data settle it, a classification without classes.

    Options: `kind`, which is `classification` or `regression`, or `auto`: regression if all labels
    are numbers, not all of them whole, and more than 10 of them different; `dev`, the share of
    train that is the dev set where no file is.
    """

    def check(self, data: DataSettings) -> None:
        """Look at the settings alone."""
        super().check(data)
        options = {**_DEFAULTS, **data.options}
        if options["kind"] not in _KINDS:
            raise unknown_name("kind of custom", str(options["kind"]), _KINDS)
        number("dev", options["dev"], low=0, high=0.5, open=True)
        _columns(data)

    def settled(self, splits: Splits) -> Task:
        """A classification with the classes of the data, or a regression."""
        shared: dict[str, Any] = {
            "name": self.name,
            "summary": self.summary,
            "reference": self.reference,
            "defaults": self.defaults,
            "origin": self.origin,
        }
        if "class" not in splits.train[0]:
            metrics = ("spearman", "pearson")
            return Regression(metric=metrics[0], metrics=metrics, **shared)
        classes = {row["label"]: row["class"] for row in splits.train}
        return Classification(
            metric=self.metric,
            metrics=self.metrics,
            classes=tuple(classes[i] for i in sorted(classes)),
            **shared,
        )


_DEFAULTS: Mapping[str, Any] = {"kind": "auto", "dev": 0.2}

custom = Custom(
    name="custom",
    summary="Your own CSV, JSON lines or Parquet: classes or numbers of texts or pairs of texts",
    reference="your own data",
    metric="accuracy",
    metrics=("accuracy", "macro_f1"),
    defaults=_DEFAULTS,
    classes=(),
    origin=UserFiles(),
)


def _files(task: str, place: Place) -> dict[str, Path]:
    for split in place.files:
        if split not in _SPLITS:
            raise SettingError(
                f"got a file for split {split!r} of task {task}, expected one of "
                f"{', '.join(_SPLITS)}"
            )
    if "train" not in place.files:
        raise SourceError(
            f"got no file for task {task}, expected one to train on; name it with --data FILE"
        )
    return {
        split: existing(place.files[split], f"the {split} split of task {task}")
        for split in _SPLITS
        if split in place.files
    }


def _columns(data: DataSettings) -> dict[str, str]:
    for field in data.columns:
        if field not in ("text", "pair", "label"):
            raise unknown_name("column of custom", field, ("text", "pair", "label"))
    return {"text": "text", "label": "label", **data.columns}


def _named_rows(path: Path, columns: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows of a file, their labels as names."""
    name = shown(str(path))
    found: list[dict[str, Any]] = []
    empty: dict[str, list[str]] = {field: [] for field in columns}
    places: list[str] = []
    for where, record in records(path, columns):
        row = {
            field: _text(value, columns[field], where)
            for field, value in record.items()
            if field != "label"
        }
        row["label"] = _label(record["label"], columns["label"], where)
        for field, value in row.items():
            if not value.strip():
                empty[field].append(where)
        found.append(row)
        places.append(where)
    if not found:
        raise SourceError(f"got no rows in {name}, expected some below its header")
    for field, without in empty.items():
        if without:
            raise SourceError(
                f"got {count(len(without), 'row')} without a value in column "
                f"{quoted(columns[field])} of {name}, the first in {without[0]}, expected one in "
                "every row; fill them in or remove these rows"
            )
    _check_finite([row["label"] for row in found], places)
    return found


def _check_finite(labels: Sequence[str], places: Sequence[str]) -> None:
    """Raise a SourceError for the first "nan" or "inf" where all other labels are numbers."""
    odd = next((i for i, label in enumerate(labels) if label.lower() in _NOT_FINITE), None)
    if odd is None:
        return
    others = {label for label in labels if label.lower() not in _NOT_FINITE}
    if others and all(_number(label) is not None for label in others):
        raise SourceError(
            f"got the label {quoted(labels[odd])} in {places[odd]}, expected a finite number, as "
            "all other labels are numbers; correct it or remove the row"
        )


def _text(value: Any, column: str, where: str) -> str:
    if value is None or isinstance(value, str):
        return value or ""
    raise SourceError(
        f"got a {type(value).__name__} in column {quoted(column)} in {where}, expected a text; "
        "choose the column of the texts"
    )


def _label(value: Any, column: str, where: str) -> str:
    """A label as the name of its class: 1, 1.0 and "1" are the same; empty where there is none."""
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    if isinstance(value, str | int | float):
        return str(value).strip()
    raise SourceError(
        f"got a {type(value).__name__} in column {quoted(column)} in {where}, expected the name of "
        "a class or a number; choose the column of the labels"
    )


def _number(name: str) -> float | None:
    try:
        value = float(name)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def _is_regression(names: Mapping[str, int], kind: str, where: str) -> bool:
    numbers = {name: _number(name) for name in names}
    words = [name for name, value in numbers.items() if value is None]
    if kind == "regression" and words:
        raise SourceError(
            f"got the label {quoted(words[0])} in {where}, expected numbers as kind=regression "
            "says; correct it, or set data.options.kind=classification"
        )
    if kind != "auto":
        return kind == "regression"
    values = {value for value in numbers.values() if value is not None}
    return (
        not words and len(values) > _MOST_VALUES and not all(value.is_integer() for value in values)
    )


def _class_order(name: str) -> tuple[bool, float, str]:
    """Numbers by size, then names by the alphabet."""
    value = _number(name)
    return (value is None, value or 0.0, name)


def _name(files: Mapping[str, Path], split: str) -> str:
    return shown(str(files.get(split, files["train"])))


def _scored(rows: Sequence[Row], where: str) -> list[Row]:
    found: list[Row] = []
    for row in rows:
        value = _number(row["label"])
        if value is None:
            raise SourceError(
                f"got the label {quoted(row['label'])} in {where}, expected a number as in the "
                "training data; correct it"
            )
        found.append({**row, "label": value})
    return found


def _classed(rows: Sequence[Row], classes: Mapping[str, int], where: str) -> list[Row]:
    for row in rows:
        if row["label"] not in classes:
            raise SourceError(
                f"got the label {quoted(row['label'])} in {where}, which no training row has, "
                f"expected one of {listing(classes)}; correct it, or check the column of the labels"
            )
    return [{**row, "label": classes[row["label"]], "class": row["label"]} for row in rows]


def _split(
    rows: list[dict[str, Any]], share: float, seed: int
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Train and dev: of the shuffled rows in the order of their labels, one in so many is dev.

    Rows of one text go together, to the side that is then nearer to its share. Each class keeps a
    row for train.
    """
    counts = Counter(row["label"] for row in rows)
    numbers = len(counts) > len(rows) // 2  # most are different: they are no classes

    def spared(group: Sequence[int]) -> bool:
        """Whether train has rows of the same classes without these."""
        taken = Counter(rows[i]["label"] for i in group)
        return numbers or all(counts[label] > taken[label] for label in taken)

    shuffled = [int(i) for i in np.random.default_rng(seed).permutation(len(rows))]
    groups = sorted(
        equal_texts(rows, shuffled), key=lambda group: _class_order(rows[group[0]]["label"])
    )
    able = [group for group in groups if spared(group)]
    most, seen = int(sum(map(len, able)) * share), 0
    chosen: set[int] = set()
    for group in able:
        seen += len(group)
        lacking = seen * share - len(chosen)
        if lacking > len(group) / 2 and len(chosen) + len(group) <= most and spared(group):
            chosen.update(group)
            counts.subtract(rows[i]["label"] for i in group)
    train = [row for i, row in enumerate(rows) if i not in chosen]
    return train, [row for i, row in enumerate(rows) if i in chosen]

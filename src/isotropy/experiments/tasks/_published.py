"""Data sets that others have published: in a folder in their own formats, or on the hub."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from isotropy.errors import SourceError
from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks._files import Layout, content_hash, locate, require_revision
from isotropy.experiments.tasks._hub import Hub
from isotropy.experiments.tasks._task import Row, Splits
from isotropy.experiments.tasks._tsv import Columns, tsv_rows
from isotropy.sources._messages import quoted, shown


class Origin(Protocol):
    """Where the rows of a task come from."""

    def load(self, task: str, data: DataSettings, place: Place) -> Splits:
        """The rows."""

    def revision(self, task: str, data: DataSettings, place: Place) -> str:
        """What names their content."""


@dataclass(frozen=True, kw_only=True)
class Published:
    """A published data set of texts or pairs of texts with a class or a score.

    Attributes:
        folders: names of its folder.
        layouts: the files in it.
        columns: what is in them: `text`, `label`, and `pair` for pairs.
        hub: where the hub has it.
        classes: what labels are called in files, in the order of their numbers; None for scores.
        unlabelled: values of the label's column in rows that have none, which are dropped.
    """

    folders: tuple[str, ...]
    layouts: tuple[Layout, ...]
    columns: Columns
    hub: Hub
    classes: tuple[str, ...] | None
    unlabelled: frozenset[str] = frozenset()

    def load(self, task: str, data: DataSettings, place: Place) -> Splits:
        """The rows of files, or else of the hub."""
        files = locate(task, place, self.folders, self.layouts)
        if files is None:
            splits = {split: self._from_hub(split, data) for split in self.hub.splits}
        else:
            require_revision(task, data, files.values())
            splits = {split: self._from_file(path) for split, path in files.items()}
        return Splits(splits.pop("train", []), splits)

    def revision(self, task: str, data: DataSettings, place: Place) -> str:
        """A hash of the files, or else the hub's revision that is asked for."""
        files = locate(task, place, self.folders, self.layouts)
        return data.revision if files is None else content_hash(files.values())

    def _from_file(self, path: Path) -> list[Row]:
        return labelled_rows(path, self.columns, self.classes, self.unlabelled)

    def _from_hub(self, split: str, data: DataSettings) -> list[Row]:
        return hub_rows(self.hub, split, data.revision, self.classes)


def labelled_rows(
    path: Path,
    columns: Columns,
    classes: tuple[str, ...] | None,
    unlabelled: frozenset[str] = frozenset(),
) -> list[Row]:
    """The rows of a file, their labels as class numbers or as scores.

    Raises:
        SourceError: the file is damaged, a label unknown, or there is no row with one.
    """
    name = shown(str(path))
    numbers = None if classes is None else {label: i for i, label in enumerate(classes)}
    found: list[Row] = []
    for line, fields in tsv_rows(path, columns):
        label = fields["label"].strip()
        if label not in unlabelled:
            found.append({**fields, "label": _label(label, numbers, line, name)})
    if not found:
        raise SourceError(f"got {name} without a row with a label, expected some; check the file")
    return found


def hub_rows(hub: Hub, split: str, revision: str, classes: tuple[str, ...] | None) -> list[Row]:
    """The rows of a split of the hub, with the same labels.

    Raises:
        SourceError: it cannot be had, or a label is none of the classes.
    """
    found: list[Row] = []
    for number, fields in enumerate(hub.rows(split, revision)):
        label = fields["label"]
        known = _is_score(label) if classes is None else label in range(len(classes))
        if not known:
            expected = "a score" if classes is None else f"0 to {len(classes) - 1}"
            raise SourceError(
                f"got the label {label!r} in row {number} of split {hub.splits[split]!r} of "
                f"{hub.repository}, expected {expected}; choose a split with labels"
            )
        found.append({**fields, "label": float(label) if classes is None else int(label)})
    if not found:
        raise SourceError(
            f"got no rows in split {hub.splits[split]!r} of {hub.repository}, expected some"
        )
    return found


def _label(given: str, numbers: Mapping[str, int] | None, line: int, name: str) -> int | float:
    if numbers is not None:
        if given in numbers:
            return numbers[given]
        expected = _either(numbers)
    else:
        try:
            score = float(given)
        except ValueError:
            score = math.nan
        if math.isfinite(score):
            return score
        expected = "a number"
    raise SourceError(
        f"got the label {quoted(given)} in line {line} of {name}, expected {expected}; "
        "repair the line, or choose a file with labels"
    )


def _either(names: Iterable[str]) -> str:
    return " or ".join(repr(name) for name in names)


def _is_score(value: Any) -> bool:
    return isinstance(value, int | float) and math.isfinite(value)

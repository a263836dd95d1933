"""Which rows a run sees: draws and splits that its seeds decide, and nothing else."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from isotropy.errors import SettingError
from isotropy.experiments.spec import DataSettings
from isotropy.experiments.tasks._equal_texts import equal_texts
from isotropy.experiments.tasks._task import Row, Splits, Task, rows_hash

TUNING = "tuning"
"""The name of the tuning split, also in a series."""


@dataclass(frozen=True)
class Rows:
    """The rows of a run.

    Attributes:
        train: to train on.
        tuning: a part of the task's train that is not trained on; empty unless asked for.
        evaluations: to report on, the main set first.
    """

    train: Sequence[Row]
    tuning: Sequence[Row]
    evaluations: Mapping[str, Sequence[Row]]

    def hashes(self) -> dict[str, str]:
        """A hash of each part."""
        parts = {"train": self.train, "tuning": self.tuning, **self.evaluations}
        return {name: rows_hash(rows) for name, rows in parts.items() if len(rows)}

    def repeated(self) -> list[str]:
        """A note for each part whose texts are trained on too, where these are over 5 %."""
        if not len(self.train) or "text" not in self.train[0]:
            return []
        trained = {(row["text"], row.get("pair")) for row in self.train}
        found = []
        for name, rows in {TUNING: self.tuning, **self.evaluations}.items():
            again = sum((row["text"], row.get("pair")) in trained for row in rows)
            if 20 * again > len(rows):
                found.append(f"{name}: {again} of {len(rows)} texts are in train too")
        return found

    def splits(self) -> Splits:
        """As a task knows them, with what is tuned on as a part of train."""
        return Splits(train=[*self.train, *self.tuning], evaluations=self.evaluations)


def rows_of(task: Task, splits: Splits, data: DataSettings) -> Rows:
    """The rows that the settings ask for.

    Of train some are drawn first, and a share of these is split off, class by class where there are
    classes. All depend on `split_seed` alone. Where nothing is reported, what is split off stands
    in for the evaluation sets.

    Raises:
        SettingError: nothing is left to train, tune or report on.
    """
    if not splits.evaluations or not all(len(rows) for rows in splits.evaluations.values()):
        raise SettingError(
            f"got task {task.name!r} without rows to report on, expected at least one; "
            "give it a dev file"
        )
    evaluations = {
        name: drawn(rows, data.eval_rows, data.split_seed)
        for name, rows in splits.evaluations.items()
    }
    if not data.reported and not (task.trains and data.tune):
        raise SettingError(
            f"got reported=False for task {task.name!r} without a split of train, expected one to "
            "take the place of what is reported; set data.tune, such as 0.2"
        )
    train = drawn(splits.train, data.train_rows, data.split_seed)
    if not task.trains or not data.tune:
        if task.trains and not train:
            raise SettingError(f"got task {task.name!r} without rows to train on, expected some")
        return Rows(train, [], evaluations)
    kept, tuning = _split(train, _classes(task, train), data.tune, data.split_seed)
    if not kept or not tuning:
        raise SettingError(
            f"got tune={data.tune:g} of {len(train)} training rows, expected some rows on both "
            "sides of the split; change tune or train_rows"
        )
    return Rows(kept, tuning, evaluations if data.reported else {TUNING: tuning})


def drawn(rows: Sequence[Row], count: int | None, seed: int) -> Sequence[Row]:
    """So many rows, or all, in their own order."""
    if count is None or count >= len(rows):
        return rows
    order = np.random.default_rng(seed).permutation(len(rows))[:count]
    return [rows[int(i)] for i in sorted(order)]


def _classes(task: Task, rows: Sequence[Row]) -> list[Hashable]:
    """What a split keeps the shares of: the classes, or nothing."""
    if task.kind != "classification":
        return [None] * len(rows)
    return [row.get("label") for row in rows]


def _split(
    rows: Sequence[Row], classes: Sequence[Any], share: float, seed: int
) -> tuple[list[Row], list[Row]]:
    """Kept and split off; of each class about the share, and of all of them exactly.

    Rows of one text stay together; where they do not fit into the share, it is not quite reached.

    What is left over after each class has given its whole part comes from those classes that have
    given least of what they should (largest remainders).
    """
    order = [int(i) for i in np.random.default_rng(seed).permutation(len(rows))]
    groups: dict[Any, list[list[int]]] = {}
    for alike in equal_texts(rows, order):
        groups.setdefault(classes[alike[0]], []).append(alike)
    sizes = {name: sum(map(len, group)) for name, group in groups.items()}
    total = round(share * len(rows))
    counts = {name: int(share * size) for name, size in sizes.items()}
    by_rest = sorted(groups, key=lambda name: counts[name] - share * sizes[name])
    for name in by_rest[: max(0, total - sum(counts.values()))]:
        counts[name] += 1
    chosen: set[int] = set()
    for name, group in groups.items():
        left = counts[name]
        for alike in group:
            if len(alike) <= left:
                chosen.update(alike)
                left -= len(alike)
    kept = [row for i, row in enumerate(rows) if i not in chosen]
    return kept, [row for i, row in enumerate(rows) if i in chosen]

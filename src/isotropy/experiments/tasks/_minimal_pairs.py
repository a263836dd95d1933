"""Acceptability of English sentences from a grammar of the project's own: no file is needed."""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

from isotropy.errors import SettingError, unknown_name
from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks._classification import Classification
from isotropy.experiments.tasks._minimal_pairs_grammar import PHENOMENA, Phenomenon
from isotropy.experiments.tasks._minimal_pairs_words import Draw, Split
from isotropy.experiments.tasks._task import Row, Splits

# Pairs of each phenomenon.
_PAIRS: dict[Split, int] = {"train": 460, "dev": 46, "test": 46}
_REVISION = "grammar-1"


@dataclass(frozen=True)
class Grammar:
    """The sentences of a grammar, the same ones everywhere.

    Nouns, verbs, adjectives, adverbs and names of dev and of test are in no other split. Rows go
    through the phenomena in turn, the two sentences of a pair side by side, the acceptable one
    first in every other pair: any part of them is about balanced.
    """

    def load(self, task: str, data: DataSettings, place: Place) -> Splits:
        """The sentences; a folder of data sets is not looked at."""
        self.revision(task, data, place)
        if data.revision not in ("", _REVISION):
            raise SettingError(
                f"got data.revision={data.revision!r} of task {task}, expected {_REVISION!r}; "
                "make the run anew"
            )
        chosen = phenomena_of(data)
        splits: dict[str, list[Row]] = {
            split: [row for row in _rows(split, pairs) if row["phenomenon"] in chosen]
            for split, pairs in _PAIRS.items()
        }
        return Splits(splits.pop("train"), splits)

    def revision(self, task: str, data: DataSettings, place: Place) -> str:
        """The grammar's version."""
        if place.files:
            raise SettingError(
                f"got files for task {task}, which makes its own sentences, expected none; "
                "choose the task custom for files of your own"
            )
        return _REVISION


@cache
def _rows(split: Split, pairs: int) -> tuple[Row, ...]:
    made = [list(_pairs(phenomenon, split, pairs)) for phenomenon in PHENOMENA]
    return tuple(row for number in range(pairs) for rows in made for row in rows[number])


def _pairs(phenomenon: Phenomenon, split: Split, pairs: int) -> Iterator[tuple[Row, Row]]:
    draw = Draw(split, f"{phenomenon.name} {split}")
    seen: set[str] = set()
    number = 0
    while number < pairs:
        good, bad = phenomenon.rule(draw, number)
        if good in seen or bad in seen:
            continue
        seen |= {good, bad}
        both = [
            {
                "text": _sentence(text, phenomenon.name),
                "label": label,
                "phenomenon": phenomenon.name,
                "pair_id": f"{phenomenon.name}-{number}",
            }
            for text, label in ((good, 1), (bad, 0))
        ]
        yield (both[1], both[0]) if number % 2 else (both[0], both[1])
        number += 1


def _sentence(text: str, phenomenon: str) -> str:
    return f"{text[0].upper()}{text[1:]}{'?' if phenomenon == 'island' else '.'}"


def phenomena_of(data: DataSettings) -> frozenset[str]:
    """The phenomena that the option `phenomena` names, or all.

    Raises:
        SettingError: no list of names of phenomena.

    Example:
        >>> sorted(phenomena_of(DataSettings(options={"phenomena": ["tense", "passive"]})))
        ['passive', 'tense']
    """
    known = [phenomenon.name for phenomenon in PHENOMENA]
    given = data.options.get("phenomena")
    if given is None:
        return frozenset(known)
    if not isinstance(given, list) or not given:
        raise SettingError(
            f'got option phenomena={given!r}, expected a list of names such as ["tense", "passive"]'
        )
    for name in given:
        if name not in known:
            raise unknown_name("phenomenon", str(name), known)
    return frozenset(given)


class MinimalPairs(Classification):
    """The task; its option `phenomena` names those that it is about, all of them by default."""

    def check(self, data: DataSettings) -> None:
        """Look at the settings alone."""
        super().check(data)
        phenomena_of(data)


minimal_pairs = MinimalPairs(
    name="minimal-pairs",
    summary="Is the sentence acceptable English? From a grammar, without any file",
    reference="after BLiMP, https://arxiv.org/abs/1912.00582; the sentences are our own",
    metric="accuracy",
    metrics=("accuracy", "matthews"),
    classes=("unacceptable", "acceptable"),
    defaults={"phenomena": None},
    origin=Grammar(),
)

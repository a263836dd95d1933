"""What the papers claim, as data: which runs a claim is about and what it says of them."""

import csv
import operator
import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Literal, get_args

from isotropy.errors import SettingError, unknown_name
from isotropy.experiments.spec import MethodSettings

Direction = Literal["higher", "lower", "not higher", "not lower", "no effect"]
SAME_SIGN = "same sign as "
EARLY_LAYERS = "early layers more"
TRAINING = "start of training"
SIMULATION = "simulation"

TASKS = {
    "glue": ("sst2", "mrpc", "cola", "rte", "wnli", "stsb", "qnli", "mnli", "qqp"),
    "wmt16": ("wmt16-en-ro", "wmt16-de-en"),
}
"""What a scope calls several tasks."""

ANY = "*"
"""In a condition, a value that may be any: runs that differ in it are judged together."""

_COMPARE = {"<": operator.lt, ">": operator.gt, "=": operator.eq}
_CONDITION = re.compile(r"(\w+)([<>=])(\S+)")
# What a method's settings are where a run does not give them.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "i-star": {"weight": -1, "zeta": 0.2, "site": "tokens@all"},
    "cosine": {"weight": 1},
}


@dataclass(frozen=True)
class Selector:
    """Which methods are meant: a name, and conditions on settings.

    Example:
        >>> negative = Selector.parse("i-star weight<0")
        >>> negative.matches(MethodSettings(name="i-star", settings={"weight": -3}))
        True
        >>> negative.matches(MethodSettings(name="i-star", settings={"weight": 1}))
        False
    """

    name: str
    conditions: tuple[tuple[str, str, float | str], ...] = ()

    @classmethod
    def parse(cls, text: str) -> "Selector":
        """The selector that a text such as `i-star weight<0` stands for."""
        name, *parts = text.split()
        found = []
        for part in parts:
            match = _CONDITION.fullmatch(part)
            if match is None:
                raise SettingError(f"got {part!r} in {text!r}, expected such as 'weight<0'")
            key, sign, value = match.groups()
            found.append((key, sign, _number(value)))
        return cls(name, tuple(found))

    def matches(self, method: MethodSettings) -> bool:
        """Whether a method is meant."""
        if method.name != self.name:
            return False
        settings = {**_DEFAULTS.get(self.name, {}), **method.settings}
        return all(
            key in settings
            and (
                value == ANY
                or (
                    isinstance(settings[key], str) == isinstance(value, str)
                    and _COMPARE[sign](settings[key], value)
                )
            )
            for key, sign, value in self.conditions
        )

    def variant(self, method: MethodSettings) -> str:
        """What of a method's label the conditions leave open: what one verdict may not mix."""
        named = {key for key, _, _ in self.conditions}
        left = {key: value for key, value in method.settings.items() if key not in named}
        return method.model_copy(update={"settings": left}).label


@dataclass(frozen=True)
class Claim:
    """A row of claims.csv.

    Attributes:
        id: the paper's letter and a number.
        paper: the name of the plan that reproduces it.
        where: table or figure.
        methods: what it is about; each of them is judged.
        compared_with: another method, or the start of training.
        measures: `score`, or keys of measures of which the first one that was measured counts.
        direction: what is claimed of the difference.
        tasks: on which; empty for a simulation.
        claim: in our words.
    """

    id: str
    paper: str
    where: str
    methods: tuple[Selector, ...]
    compared_with: str
    measures: tuple[str, ...]
    direction: str
    tasks: tuple[str, ...]
    claim: str


@cache
def claims() -> tuple[Claim, ...]:
    """All claims, in the order of the papers.

    Example:
        >>> claims()[0].id, claims()[0].direction, claims()[0].tasks
        ('A1', 'lower', ('mrpc', 'cola'))
    """
    text = files("isotropy.experiments").joinpath("data", "claims.csv").read_text(encoding="utf-8")
    return tuple(_claim(row) for row in csv.DictReader(text.splitlines()))


def find_claim(name: str) -> Claim:
    """The claim of this id.

    Raises:
        SettingError: there is none.
    """
    known = {claim.id: claim for claim in claims()}
    if name not in known:
        raise unknown_name("claim", name, known)
    return known[name]


def _claim(row: dict[str, str]) -> Claim:
    words = [] if row["scope"] == SIMULATION else row["scope"].split()
    direction = row["direction"]
    special = direction == EARLY_LAYERS or direction.startswith(SAME_SIGN)
    if not special and direction not in get_args(Direction):
        raise SettingError(
            f"got direction {direction!r} of claim {row['id']}, expected a known one"
        )
    return Claim(
        id=row["id"],
        paper=row["paper"],
        where=row["where"],
        methods=tuple(map(Selector.parse, _alternatives(row["method"]))),
        compared_with=row["compared_with"],
        measures=_alternatives(row["measure"]),
        direction=direction,
        tasks=tuple(task for word in words for task in TASKS.get(word, (word,))),
        claim=row["claim"],
    )


def _alternatives(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split("|"))


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text

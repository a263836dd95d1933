"""What a search may choose: values of settings, as the table `tuning` of a plan names them."""

import itertools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from isotropy.errors import SettingError
from isotropy.experiments.spec import JsonValue, RunSpec

# Of these a search must not decide: they say which data it sees.
_FIXED = ("revision", "train_rows", "eval_rows", "tune", "split_seed", "reported", "columns")
_MANY = 10_000  # combinations that nobody would try one by one


@dataclass(frozen=True)
class Dimension:
    """One setting that is searched.

    Attributes:
        name: its dotted name, such as `settings.weight`.
        choices: its values, or none for a range.
        low: of a range.
        high: of a range, included.
        log: whether the range is searched on a logarithmic scale.
    """

    name: str
    choices: tuple[JsonValue, ...] = ()
    low: float = 0
    high: float = 0
    log: bool = False

    @classmethod
    def parse(cls, name: str, given: Any) -> "Dimension":
        """The setting of a plan that has been checked.

        Raises:
            SettingError: a setting that says which data are seen, or a choice that is there twice.

        Example:
            >>> Dimension.parse("settings.weight", {"low": 1, "high": 4}).value(3)
            3
            >>> Dimension.parse("settings.layers", [[1, 2], "all"]).value("[1, 2]")
            [1, 2]
        """
        part, _, setting = name.partition(".")
        if part == "data" and setting in _FIXED:
            raise SettingError(
                f"got {name!r} to search, which says what data are seen, expected a setting of the "
                "method or of training; leave it out"
            )
        if isinstance(given, Mapping):
            return cls(name, (), given["low"], given["high"], bool(given.get("log", False)))
        texts = [json.dumps(value) for value in given]
        for text in texts:
            if texts.count(text) > 1:
                raise SettingError(f"got the choice {text} of {name} twice, expected it once")
        return cls(name, tuple(given))

    @property
    def distribution(self) -> Any:
        """The same for Optuna, whose choices are plain values: ours are written as JSON."""
        from optuna import distributions

        if self.choices:
            return distributions.CategoricalDistribution([json.dumps(c) for c in self.choices])
        if self._whole:
            return distributions.IntDistribution(int(self.low), int(self.high), log=self.log)
        return distributions.FloatDistribution(self.low, self.high, log=self.log)

    @property
    def values(self) -> Sequence[Any] | None:
        """All that there are, as Optuna has them; None of a range of numbers that are not whole."""
        if self.choices:
            return [json.dumps(choice) for choice in self.choices]
        return range(int(self.low), int(self.high) + 1) if self._whole else None

    def value(self, given: Any) -> JsonValue:
        """The setting's value for what Optuna chose, with four digits: what is run is written."""
        if self.choices:
            value: JsonValue = json.loads(given)
            return value
        if self._whole:
            return int(given)
        return min(max(float(f"{given:.4g}"), float(self.low)), float(self.high))

    @property
    def _whole(self) -> bool:
        return isinstance(self.low, int) and isinstance(self.high, int)


def every_choice(dimensions: tuple[Dimension, ...]) -> list[dict[str, Any]] | None:
    """All combinations as Optuna has them, or None where there is no end of them.

    Example:
        >>> weight = Dimension("settings.weight", (-1, 1))
        >>> every_choice((weight, Dimension("train.epochs", low=3, high=4)))[1]
        {'settings.weight': '-1', 'train.epochs': 4}
    """
    values = [dimension.values for dimension in dimensions]
    if any(one is None for one in values) or prod(len(one or ()) for one in values) > _MANY:
        return None
    names = [dimension.name for dimension in dimensions]
    combined = itertools.product(*(one or () for one in values))
    return [dict(zip(names, one, strict=True)) for one in combined]


def with_settings(spec: RunSpec, chosen: Mapping[str, JsonValue]) -> RunSpec:
    """The run with some settings changed.

    Raises:
        SettingError: a value of the wrong kind.

    Example:
        >>> spec = RunSpec(model="minilm", task="cola")
        >>> with_settings(spec, {"train.learning_rate": 1e-3}).train.learning_rate
        0.001
    """
    table = spec.model_dump()
    for name, value in chosen.items():
        part, _, setting = name.partition(".")
        place = table["method"][part] if part in ("settings", "stage") else table[part]
        place[setting] = value
    return RunSpec.read(table)

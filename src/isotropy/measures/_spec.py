"""What a measure says of itself: the contract tests, the tables and the docs read this."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Literal, Protocol, Self

from torch import Tensor

from isotropy.errors import SettingError, unknown_name

Invariance = Literal["rotation", "scale", "translation"]
Direction = Literal["higher", "lower"]


@dataclass(frozen=True)
class Number:
    """One number that a measure gives: its key in a `Measurement` and how to read it.

    Attributes:
        key: name in results, such as `"anisotropy_1"`.
        low: the smallest value it can take.
        high: the largest value it can take.
        isotropic: its value for a perfectly isotropic cloud, where there is one.
        at_most_d: whether the number of features bounds it.
        more_isotropic: whether a higher or a lower value means more isotropic, where it means that.
        has_interval: whether an interval means anything: not where the number grows with the rows,
            so that a sample says nothing of it, and not where it is a count or jumps like one.
    """

    key: str
    low: float = -inf
    high: float = inf
    isotropic: float | None = None
    more_isotropic: Direction | None = None
    has_interval: bool = True
    at_most_d: bool = False


class SecondPass(Protocol):
    """What a measure does that must see all rows once more, after the moments are known."""

    def update(self, rows: Tensor) -> None:
        """Take in the next rows, k×d in their compute dtype."""

    def result(self) -> Sequence[float]:
        """The measure's numbers, in the order of its spec."""


@dataclass(frozen=True, kw_only=True)
class MeasureSpec:
    """A measure: its function, its numbers, its properties and the way it reads a stream.

    Exactly one of the four last callables is given. It takes a summary of the rows and the options
    as keywords, and returns the measure's numbers, one for each entry of `numbers`, in that order.

    Attributes:
        name: the function's name, written with underscores.
        function: the public function: array and options in, score out.
        numbers: what it gives with its options, the main number first.
        summary: one line, for tables.
        invariant_to: what leaves every number as it is.
        differentiable: whether a gradient flows from the function's result to its input.
        min_rows: the fewest rows with which the score exists, with the default options.
        trust: when to trust the number and when not, for the docs: a few plain sentences.
        reference: where the definition comes from.
        default: whether `measure()` computes it unless told what to compute.
        options: the function's keyword options that `measure()` passes on, with their values.
        numbers_with: the numbers for given options, where options change which there are.
        warn: given rows and features, the reason why this number is not to be trusted, or None.
        k: how many neighbours `from_neighbours` needs; an option named `k` goes before it.
        from_moments: numbers from the streamed moments of all rows.
        from_neighbours: numbers from the nearest neighbours of (a sample of) the rows.
        from_rows: numbers from (a sample of) the rows themselves.
        second_pass: given the moments of all rows, what to run over all rows.
        smooth: given the moments, which of its numbers change smoothly with the rows of this cloud,
            as the jackknife needs it; all of them if it is not given.
        leaves_out_pairs: whether its jackknife leaves out pairs of groups too, for measures that
            follow from moments so cheaply that 190 more evaluations do not matter.
    """

    name: str
    function: Callable[..., Any]
    numbers: tuple[Number, ...]
    summary: str
    invariant_to: frozenset[Invariance]
    differentiable: bool
    min_rows: int
    trust: str
    reference: str
    default: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)
    numbers_with: Callable[..., tuple[Number, ...]] | None = None
    warn: Callable[[int, int], str | None] = lambda rows, features: None
    k: int = 0
    from_moments: Callable[..., Sequence[float]] | None = None
    from_neighbours: Callable[..., Sequence[float]] | None = None
    from_rows: Callable[..., Sequence[float]] | None = None
    second_pass: Callable[..., SecondPass] | None = None
    smooth: Callable[..., Sequence[bool]] | None = None
    leaves_out_pairs: bool = False

    @property
    def neighbours(self) -> int:
        """How many neighbours of each row it needs with its options."""
        return int(self.options.get("k", self.k)) if self.from_neighbours else 0

    def with_options(self, **options: Any) -> Self:
        """The same measure with other values of its options.

        Raises:
            SettingError: an option that it does not have, or a value of another type.
        """
        for name, value in options.items():
            if not self.options:
                raise SettingError(f"got option {name!r} of {self.name}, which has no options")
            if name not in self.options:
                raise unknown_name(f"option of {self.name}", name, self.options)
            expected = type(self.options[name])
            if expected is float and type(value) is int:
                options[name] = float(value)
            elif type(value) is not expected:
                raise SettingError(
                    f"got {self.name}.{name}={value!r}, expected a value of type "
                    f"{expected.__name__} such as {self.options[name]!r}"
                )
        merged = {**self.options, **options}
        numbers = self.numbers_with(**merged) if self.numbers_with else self.numbers
        return replace(self, options=merged, numbers=numbers)

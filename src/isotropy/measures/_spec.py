"""What a measure says of itself: the contract tests, the tables and the docs read this."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from typing import Any, Literal, Protocol

from torch import Tensor

from isotropy.moments import Moments
from isotropy.neighbours import Neighbours

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
        more_isotropic: whether a higher or a lower value means more isotropic, where it means that.
    """

    key: str
    low: float = -inf
    high: float = inf
    isotropic: float | None = None
    more_isotropic: Direction | None = None


class SecondPass(Protocol):
    """What a measure does that must see all rows once more, after the moments are known."""

    def update(self, rows: Tensor) -> None:
        """Take in the next rows, k×d in their compute dtype."""

    def result(self) -> Sequence[float]:
        """The measure's numbers, in the order of its spec."""


@dataclass(frozen=True, kw_only=True)
class MeasureSpec:
    """A measure: its function, its numbers, its properties and the way it reads a stream.

    Exactly one of the four last callables is given. It takes a summary of the rows and returns the
    measure's numbers, one for each entry of `numbers`, in that order.

    Attributes:
        name: the function's name, written with underscores.
        function: the public function: array in, score out.
        numbers: what it gives, the main number first.
        summary: one line, for tables.
        invariant_to: what leaves every number as it is.
        differentiable: whether a gradient flows from the function's result to its input.
        min_rows: the fewest rows with which the score exists.
        trust: when to trust the number and when not, for the docs: a few plain sentences.
        reference: where the definition comes from.
        default: whether `measure()` computes it unless told what to compute.
        warn: given rows and features, the reason why this number is not to be trusted, or None.
        k: how many neighbours `from_neighbours` needs.
        from_moments: numbers from the streamed moments of all rows.
        from_neighbours: numbers from the nearest neighbours of (a sample of) the rows.
        from_rows: numbers from (a sample of) the rows themselves.
        second_pass: given the moments of all rows and a sample of them, what to run over all rows.
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
    warn: Callable[[int, int], str | None] = lambda rows, features: None
    k: int = 0
    from_moments: Callable[[Moments], Sequence[float]] | None = None
    from_neighbours: Callable[[Neighbours], Sequence[float]] | None = None
    from_rows: Callable[[Tensor], Sequence[float]] | None = None
    second_pass: Callable[[Moments, Tensor], SecondPass] | None = None

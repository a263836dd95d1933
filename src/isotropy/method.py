"""What a penalty, layer or transform says of itself: tables, docs and contract tests read it."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["penalty", "layer", "transform"]


@dataclass(frozen=True, kw_only=True)
class MethodSpec:
    """A method's description.

    Attributes:
        name: lower-case with hyphens; the class has the same in CamelCase.
        kind: what it is.
        component: its class.
        summary: one line, for tables.
        reference: where it comes from.
        differs: where the paper, its code and this differ, and what is done here; "" if nowhere.
        settings: keyword arguments of `component` that make this method of it.
        measure: the number that it moves, by its key in a `Measurement`, where there is one.
        moves: in which direction it moves that number with its default weight.
    """

    name: str
    kind: Kind
    component: type
    summary: str
    reference: str
    differs: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    measure: str | None = None
    moves: Literal["up", "down"] | None = None

    def make(self, **settings: Any) -> Any:
        """The component with this method's settings, and others."""
        return self.component(**{**self.settings, **settings})

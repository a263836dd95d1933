"""What the checks of penalties, layers and transforms have in common."""

from collections.abc import Callable, Iterable
from typing import Any

from isotropy.errors import SettingError
from isotropy.method import Kind, MethodSpec
from isotropy.testing._tools import require


def require_spec(spec: MethodSpec, kind: Kind) -> None:
    """Raise an AssertionError unless a spec says what tables and docs need."""
    require(spec.kind == kind, f"its kind is {spec.kind}")
    require(bool(spec.summary and spec.reference), "needs a summary and a reference")
    require(len(spec.summary) <= 60, "the summary does not fit a table: 60 characters at most")
    require((spec.measure is None) == (spec.moves is None), "needs both measure and moves, or none")
    if not spec.settings:  # `i-star` is IStar
        words = "".join(word.capitalize() for word in spec.name.split("-"))
        require(spec.component.__name__ == words, f"its class should have the name {words}")


def require_refused(make: Callable[..., Any], bad: Iterable[tuple[str, Any]]) -> None:
    """Raise an AssertionError unless each setting alone is an error that names it, in one line."""
    for name, value in bad:
        try:
            make(**{name: value})
        except SettingError as error:
            said = str(error)
            require(name in said, f"the message for {name}={value!r} does not name it: {said}")
            require("\n" not in said, f"the message for {name}={value!r} has several lines")
        else:
            require(False, f"{name}={value!r} is accepted")

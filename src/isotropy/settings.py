"""The checks of settings: each gives the value back, or says what was given and what expected."""

import math
from numbers import Integral, Real

from isotropy.errors import SettingError


def number(
    name: str, value: float, *, low: float = -math.inf, high: float = math.inf, open: bool = False
) -> float:
    """A setting that is a finite number within limits.

    Args:
        name: the setting's.
        value: as given.
        low: the least it may be.
        high: the most it may be.
        open: whether it must be above `low`.

    Raises:
        SettingError: it is not.

    Example:
        >>> number("zeta", 0.2, low=0, high=1)
        0.2
    """
    is_number = isinstance(value, Real) and not isinstance(value, bool)  # numpy's too
    if is_number and math.isfinite(value) and low <= value <= high and not (open and value == low):
        return float(value)
    if math.isinf(low) and math.isinf(high):
        expected = "a finite number"
    elif math.isinf(high):
        expected = f"a finite number {'above' if open else 'from'} {low:g}"
        expected += "" if open else " up"
    else:
        expected = f"a number {'above' if open else 'from'} {low:g} {'and up ' * open}to {high:g}"
    raise SettingError(f"got {name}={value!r}, expected {expected}")


def whole_number(name: str, value: int, *, low: int, high: int | None = None) -> int:
    """A setting that is a whole number from `low` up, or to `high`.

    Raises:
        SettingError: it is not.

    Example:
        >>> whole_number("k", 10, low=1)
        10
    """
    is_whole = isinstance(value, Integral) and not isinstance(value, bool)  # numpy's too
    if is_whole and value >= low and (high is None or value <= high):
        return int(value)
    limits = f"{low} up" if high is None else f"{low} to {high}"
    raise SettingError(f"got {name}={value!r}, expected a whole number from {limits}")


def flag(name: str, value: bool) -> bool:
    """A setting that is True or False: of any other value Python would make one or the other.

    Raises:
        SettingError: it is not.

    Example:
        >>> flag("normalize", True)
        True
    """
    if isinstance(value, bool):
        return value
    raise SettingError(f"got {name}={value!r}, expected True or False")


LARGEST_SEED = 2**32 - 1
"""What numpy's and scikit-learn's generators take."""


def seed_number(name: str, value: int) -> int:
    """A setting that is the seed of a generator.

    Raises:
        SettingError: it is not.

    Example:
        >>> seed_number("seed", 7)
        7
    """
    return whole_number(name, value, low=0, high=LARGEST_SEED)


def choice(name: str, value: str | None, known: tuple[str | None, ...]) -> str | None:
    """A setting that is one of some words.

    Raises:
        SettingError: it is not.

    Example:
        >>> choice("bars", "all", ("all", "prominent"))
        'all'
    """
    if value not in known:
        words = " or ".join(repr(word) for word in known)
        raise SettingError(f"got {name}={value!r}, expected {words}")
    return value

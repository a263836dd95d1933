"""What a cell of a table of text holds: a number, a list of numbers, or something else."""

import math
import re

import numpy as np
from numpy.typing import NDArray

from isotropy.sources._choose import Kind

# What stands for a missing number. It says no less of a column than a number does.
_MISSING = frozenset(["", "na", "n/a", "#n/a", "<na>", "null", "none", "nil", "-", "?", "."])
# Numbers as Python's literals and decimal commas write them.
_FOREIGN = re.compile(r"[+-]?[0-9_]*[.,]?[0-9][0-9_]*([eE][+-]?[0-9]+)?")
_LONGEST_NUMBER = 64


def as_number(cell: str) -> float | int | None:
    """The number in a cell, or None.

    Example:
        >>> as_number("3"), as_number(" 1e-3"), as_number("1_0"), as_number("0,5")
        (3, 0.001, None, None)
    """
    if "_" in cell:  # Python takes these, other readers of tables do not
        return None
    try:
        return int(cell)
    except ValueError:
        try:
            return float(cell)
        except ValueError:
            return None


def as_list(cell: str) -> NDArray[np.float64]:
    """The numbers between brackets, with commas as JSON writes or blanks as numpy prints them.

    Raises:
        ValueError: something in it is no number.

    Example:
        >>> as_list("[0.5, 1.5]"), as_list("[0.5 1.5]")
        (array([0.5, 1.5]), array([0.5, 1.5]))
    """
    text = cell.strip("[] \n")
    return as_floats(text.split("," if "," in text else None))


def as_floats(cells: list[str]) -> NDArray[np.float64]:
    """The numbers in cells.

    Raises:
        ValueError: a cell holds none.
    """
    if "_" in "".join(cells):
        raise ValueError("an underscore in a number")
    return np.array([float(cell) for cell in cells])


def is_meant_as_number(cell: str) -> bool:
    """Whether a cell is a number, also one of another convention, which is no text either.

    Example:
        >>> is_meant_as_number("0,5"), is_meant_as_number("1_0"), is_meant_as_number("a")
        (True, True, False)
    """
    text = cell.strip()
    return as_number(text) is not None or (
        len(text) <= _LONGEST_NUMBER and _FOREIGN.fullmatch(text) is not None
    )


def kind_of(cell: str) -> Kind:
    """What a column holds of which this is the first cell."""
    if cell.lstrip().startswith("["):
        return "list"
    missing = cell.strip().lower() in _MISSING
    return "number" if missing or is_meant_as_number(cell) else "other"


def evident_kind(cell: str) -> Kind:
    """What a cell holds that is clearly a list or a number: text may begin with a bracket."""
    if cell.lstrip().startswith("["):
        try:
            return "list" if len(as_list(cell)) else "other"
        except ValueError:
            return "other"
    number = as_number(cell)
    finite = number is not None and (isinstance(number, int) or math.isfinite(number))
    return "number" if finite else "other"  # Nan is a name too

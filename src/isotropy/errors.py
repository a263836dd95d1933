"""The errors that isotropy raises: one family, one line each.

A message says what was given, what was expected and what to do. Any other exception that leaves
the library is a bug.
"""

from collections.abc import Iterable
from typing import Self


class IsotropyError(ValueError):
    """Any error that a caller can act on."""


class InputError(IsotropyError):
    """A cloud has the wrong shape, dtype, number of rows or values."""


class UndefinedError(IsotropyError):
    """The score has no value for this cloud, such as a cosine with a row of zeros."""


class SourceError(IsotropyError):
    """A file, folder or stream cannot be read as embeddings."""


class StoreError(IsotropyError):
    """A file of runs cannot be opened, read or written."""


class SettingError(IsotropyError):
    """An option has a value that makes no sense, or a name that does not exist."""


class TrainingError(IsotropyError):
    """A training went wrong in a way that other settings may mend, such as a loss that is NaN."""


class IsotropyWarning(UserWarning):
    """A score was computed, and something about it should be known; `measure()` records it."""


class MissingExtraError(IsotropyError, ImportError):
    """A feature needs an optional dependency that is not installed."""

    def __init__(self, package: str, extra: str) -> None:
        super().__init__(
            f"got no installed package {package!r}, which this needs; "
            f"install it with: pip install 'isotropy[{extra}]'"
        )
        self._arguments = package, extra

    def __reduce__(self) -> tuple[type[Self], tuple[str, str]]:
        """How to pickle it: a worker process hands its errors to its parent that way."""
        return type(self), self._arguments


def unknown_name(kind: str, given: str, known: Iterable[str]) -> SettingError:
    """The error for a name that does not exist, with the nearest one that does."""
    from difflib import get_close_matches  # here: most programs never need it

    names = sorted(known)
    near = get_close_matches(given, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from: {', '.join(names)}"
    return SettingError(f"got {kind} {given!r}, expected a known {kind}; {hint}")

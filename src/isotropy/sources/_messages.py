"""The words of source errors: one line, the file's name, what was expected, what to do."""

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches

from isotropy.errors import SourceError

# A message stays readable when a file holds hundreds of arrays.
_SHOWN = 8
_LONGEST = 160
_LONGEST_QUOTE = 80
_ADDRESS = re.compile(r" at 0x[0-9a-f]+")


def listing(names: Iterable[str]) -> str:
    """Names in quotes, the first few of them if there are many.

    Example:
        >>> listing(["row", "layer"])
        "'row', 'layer'"
    """
    known = list(names)
    shown = ", ".join(quoted(name) for name in known[:_SHOWN])
    return f"{shown} and {len(known) - _SHOWN} more" if len(known) > _SHOWN else shown


def quoted(value: object) -> str:
    r"""A name or a value in quotes, on one line, and cut if it is long.

    Example:
        >>> quoted("two\nlines")
        "'two\\nlines'"
    """
    text = repr(value)
    return text if len(text) <= _LONGEST_QUOTE else f"{text[:_LONGEST_QUOTE]}…{text[-1]}"


def count(number: int, thing: str) -> str:
    """How many things.

    Example:
        >>> count(1, "number"), count(2, "number")
        ('1 number', '2 numbers')
    """
    return f"{number} {thing}{'s' * (number != 1)}"


def shown(path: str) -> str:
    """A path as a name in messages and tables: as it is, unless that would not be one line."""
    whole = path if path.isprintable() else repr(path)
    if len(whole) <= 2 * _LONGEST:
        return whole
    return f"{whole[:_LONGEST]}…{whole[-_LONGEST:]}"


def one_line(error: BaseException) -> str:
    r"""Another library's message as the end of ours: one line, not too long, safe to print.

    Some libraries quote a file's bytes as they are, and a terminal obeys control characters.

    Example:
        >>> one_line(ValueError("bad \x1b[2J\nfile."))
        'bad \\x1b[2J file'
    """
    words = _ADDRESS.sub("", " ".join(str(error).split())).rstrip(".") or type(error).__name__
    text = "".join(c if c.isprintable() else repr(c)[1:-1] for c in words)
    return text if len(text) <= _LONGEST else text[:_LONGEST] + "…"


def unknown(kind: str, given: str, known: Iterable[str], where: str) -> SourceError:
    """The error for a column or array that does not exist, with the nearest that does."""
    names = list(known)
    near = get_close_matches(given, names, n=1)
    if near:
        hint = f"did you mean {quoted(near[0])}?"
    elif names:
        hint = f"choose from: {listing(names)}"
    else:
        hint = f"there is no {kind} to choose"
    return SourceError(f"got {kind} {quoted(given)}, expected one that {where} has; {hint}")


def ragged(where: str, given: int, expected: int) -> SourceError:
    """The error for a row of another length than the first."""
    return SourceError(
        f"got {where} with {count(given, 'number')}, expected {expected} as in the first row; "
        "every row needs the same number of features"
    )


def corrupt(name: str, kind: str, error: BaseException) -> SourceError:
    """The error for a file that its format's library cannot read."""
    return SourceError(
        f"got {name}, which cannot be read as {kind} ({one_line(error)}), expected a whole file; "
        "it is truncated, corrupt or of another format: copy or write it again"
    )


@contextmanager
def reading(name: str) -> Iterator[None]:
    """Turn the operating system's errors about the file `name` into source errors."""
    try:
        yield
    except PermissionError as error:
        raise SourceError(
            f"got {name}, which may not be read (permission denied), expected a readable file; "
            "change its permissions or copy it"
        ) from error
    except OSError as error:
        raise SourceError(
            f"got {name}, which cannot be read ({error.strerror or one_line(error)}), "
            "expected a readable file; check the path and the disk"
        ) from error

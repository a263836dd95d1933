"""Which array of a file, or which columns of a table, are the embeddings.

The rule is the same for every format: what `key` names; else the only candidate; else the one that
is called embeddings, embedding, vectors or vector; else an error that lists the names. One of these
names is never passed over: where it holds something else, that is an error too.
"""

import itertools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from isotropy.errors import SettingError, SourceError
from isotropy.sources._messages import listing, quoted, unknown

_USUAL = ("embeddings", "embedding", "vectors", "vector")

# Numeric columns of these names say something about a row and are no feature of it.
_ABOUT_A_ROW = frozenset(
    [
        "id",
        "idx",
        "index",
        "row",
        "label",
        "labels",
        "class",
        "target",
        "layer",
        "group",
        "cluster",
        "split",
        "fold",
        "shard",
        "token",
        "position",
    ]
)
_NUMBERED = re.compile(r"(.*?)([0-9]{1,18})", re.DOTALL)


@dataclass(frozen=True)
class Entry:
    """An array in a file: its shape and whether it holds floating-point numbers."""

    shape: tuple[int, ...]
    floating: bool


def choose_array(entries: Mapping[str, Entry], key: str | None, where: str) -> str:
    """The name of the array that is the embeddings.

    Without a key the candidates are the 2-D arrays of floating-point numbers. Where there is none,
    an only array (or an array with a usual name) is chosen, so that its own error can be told.

    Raises:
        SourceError: no array, an unknown key, or several candidates.

    Example:
        >>> entries = {"embeddings": Entry((9, 4), True), "row": Entry((9,), False)}
        >>> choose_array(entries, None, "e.npz")
        'embeddings'
    """
    if not entries:
        raise SourceError(f"got {where} without any array, expected one of embeddings")
    if key is not None:
        if key not in entries:
            raise unknown("key", key, entries, where)
        return key
    candidates = [n for n, entry in entries.items() if entry.floating and len(entry.shape) == 2]
    named = [name for name in _USUAL if name in entries]
    meant = [name for name in named if len(entries[name].shape) == 2 or not entries[name].floating]
    if meant and not set(named) & set(candidates):
        return meant[0]
    if not candidates:
        if named or len(entries) == 1:
            return (named or list(entries))[0]
        raise SourceError(
            f"got {where} with the arrays {listing(entries)}, expected a two-dimensional one of "
            "floating-point numbers; save the embeddings as such an array"
        )
    return _only(candidates, where, "arrays")


Kind = Literal["list", "number", "other"]
"""What a column holds: lists of numbers, numbers that can be features, or anything else."""


def choose_columns(
    kinds: Mapping[str, Kind], key: str | None, where: str, *, wide: bool = True
) -> tuple[str, ...]:
    """The names of the columns that are the embeddings: one of lists, or several of numbers.

    Without a key that is the only column of lists; in a table without one (`wide`) the only family
    of columns that are counted up (`x_0, x_1, …` or `0, 1, …`) and hold numbers, or else all
    numeric columns but those whose name says that they are about a row (`label`, `layer`, `row`, …,
    `…_id`). A key is the name of a column of lists, or what the names of a family have before the
    number (`x_`).

    A family is made by name: one of its columns may hold no numbers, which is an error for the
    caller to tell, as a column that is left out is a wrong number.

    Raises:
        SourceError: no such columns, an unknown key, several candidates, or a family without a key
            that lacks a column.

    Example:
        >>> choose_columns({"x_0": "number", "x_1": "number", "year": "number"}, None, "e.csv")
        ('x_0', 'x_1')
    """
    families = _families(kinds) if wide else {}
    if key is not None:
        if kinds.get(key) == "list":
            return (key,)
        if key in families:
            return families[key]
        if key in kinds:
            raise SourceError(
                f"got key {quoted(key)}, expected a column of {where} that holds lists of numbers"
                f"{' or the start of numbered columns, such as x_ for x_0, x_1' if wide else ''}; "
                "this one does not"
            )
        names = [name for name, kind in kinds.items() if kind == "list"] + list(families)
        raise unknown("key", key, names, where)
    named = [name for name in _USUAL if name in kinds]
    if named and all(kinds[name] == "other" for name in named):
        raise SourceError(
            f"got column {quoted(named[0])} of {where} without floating-point numbers, expected "
            "the embeddings in it by its name; convert or rename it, or choose another with key "
            "(--key on the command line)"
        )
    lists = [name for name, kind in kinds.items() if kind == "list"]
    if lists:
        return (_only(lists, where, "columns"),)
    numeric = [
        prefix
        for prefix, names in families.items()
        if any(kinds[name] == "number" for name in names)
    ]
    if numeric:
        prefix = _only(numeric, where, "groups of columns")
        _require_no_gap(prefix, families[prefix], where)
        return families[prefix]
    numbers = tuple(
        name for name, kind in kinds.items() if kind == "number" and not _is_about_a_row(name)
    )
    if wide and numbers:
        return numbers
    raise SourceError(
        f"got {where} with the columns {listing(kinds)}, expected one that holds lists of "
        f"floating-point numbers{' or several that hold one number each' if wide else ''}"
    )


def no_key(key: str | None, what: str) -> None:
    """Raise a SettingError if a key is given for something that is one array."""
    if key is not None:
        raise SettingError(
            f"got key={quoted(key)} for {what}, expected none as it is one array; omit it"
        )


def _only(candidates: list[str], where: str, kind: str) -> str:
    named = [name for name in _USUAL if name in candidates]
    if len(candidates) > 1 and not named:
        raise SourceError(
            f"got {where} with {len(candidates)} {kind} that could be the embeddings, expected "
            f"one; choose it with key (--key on the command line): {listing(candidates)}"
        )
    return (named or candidates)[0]


def _families(kinds: Mapping[str, Kind]) -> dict[str, tuple[str, ...]]:
    """The columns whose names differ in their last number only, by what stands before it."""
    found: dict[str, list[str]] = {}
    for name, kind in kinds.items():
        match = _NUMBERED.fullmatch(name)
        if match and kind != "list":
            found.setdefault(match[1], []).append(name)
    return {prefix: tuple(names) for prefix, names in found.items() if len(names) > 1}


def _require_no_gap(prefix: str, names: tuple[str, ...], where: str) -> None:
    """Raise a SourceError unless the names count up from 0 or 1."""
    numbers = {int(name.removeprefix(prefix)): name.removeprefix(prefix) for name in names}
    missing = next(i for i in itertools.count(1) if i not in numbers)
    if missing < max(numbers):
        first = numbers[min(numbers)]
        digits = len(first) if first.startswith("0") else 1
        name = f"{prefix}{missing:0{digits}}"
        raise SourceError(
            f"got {where} with the columns {listing(names)}, but none called {quoted(name)}, "
            f"expected columns that count up from 0 or 1; add what is missing, or pass "
            f"key={quoted(prefix)} (--key on the command line) to take these as they are"
        )


def _is_about_a_row(name: str) -> bool:
    low = name.strip().lower()
    return not low or low in _ABOUT_A_ROW or low.endswith("_id") or low.startswith("unnamed:")

"""Writes TOML, which the standard library only reads."""

import json
from collections.abc import Mapping
from typing import Any

from isotropy.errors import SettingError


def write(table: Mapping[str, Any]) -> str:
    """The TOML of a table of plain values, lists and tables.

    Example:
        >>> print(write({"name": "mine", "seeds": [0, 1], "train": {"epochs": 2}}), end="")
        name = "mine"
        seeds = [0, 1]
        <BLANKLINE>
        [train]
        epochs = 2
    """
    return "\n".join(_lines(table, "")).lstrip("\n") + "\n"


def _lines(table: Mapping[str, Any], path: str) -> list[str]:
    """Plain values first: whatever follows a table's header belongs to it."""
    plain, tables = [], []
    for name, value in table.items():
        if isinstance(value, Mapping) and not path:
            tables += ["", f"[{_key(name)}]", *_lines(value, _key(name))]
        elif _is_tables(value) and not path:
            for one in value:
                tables += ["", f"[[{_key(name)}]]", *_lines(one, _key(name))]
        else:
            plain.append(f"{_key(name)} = {_value(value)}")
    return plain + tables


def _is_tables(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, Mapping) for v in value)


def _key(name: str) -> str:
    is_bare = name.isascii() and name.replace("-", "a").replace("_", "a").isalnum()
    return name if is_bare else _text(name)


def _value(value: Any) -> str:
    if isinstance(value, Mapping):
        inside = ", ".join(f"{_key(name)} = {_value(one)}" for name, one in value.items())
        return f"{{{inside}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)  # inf and nan are TOML, and not JSON
    raise SettingError(f"got {value!r}, expected text, a number, true, false, a list or a table")


def _text(value: str) -> str:
    # JSON's escapes are TOML's too, but for the delete character, which TOML wants escaped.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")

"""Byte strings in a column as text, so that a label is not shown as `b'a'`."""

from typing import Any

import numpy as np
from numpy.typing import NDArray


def as_text(values: NDArray[Any]) -> NDArray[Any]:
    r"""Values with byte strings decoded as UTF-8; bytes that are none stay visible as `\xff`.

    Example:
        >>> as_text(np.array([b"caf\xc3\xa9", b"\xff"])).tolist()
        ['café', '\\xff']
    """
    if values.dtype.kind == "S" or (values.dtype == object and _is_bytes(values)):
        found = np.empty(len(values), dtype=object)
        found[:] = [value.decode("utf-8", "backslashreplace") for value in values]
        return found
    return values


def _is_bytes(values: NDArray[Any]) -> bool:
    return len(values) > 0 and isinstance(values[0], bytes)

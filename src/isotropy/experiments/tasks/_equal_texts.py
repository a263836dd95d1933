"""Rows of one text, which a split keeps together: trained on, a text says nothing of new ones."""

from collections.abc import Hashable, Iterable, Sequence

from isotropy.experiments.tasks._task import Row


def equal_texts(rows: Sequence[Row], order: Iterable[int]) -> list[list[int]]:
    """The indices of rows, those of equal text and pair together, by their first in the order.

    Rows without a `text` stand by themselves.

    Example:
        >>> equal_texts([{"text": "a"}, {"text": "b"}, {"text": "a"}], [2, 1, 0])
        [[2, 0], [1]]
    """
    found: dict[Hashable, list[int]] = {}
    for i in order:
        row = rows[i]
        key = (row["text"], row.get("pair")) if "text" in row else i
        found.setdefault(key, []).append(i)
    return list(found.values())

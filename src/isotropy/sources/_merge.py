"""Small chunks made into larger ones, so that many small files are not many small products."""

from collections.abc import Iterable, Iterator

import numpy as np
import torch

from isotropy.sources._source import Chunk


def merged(chunks: Iterable[Chunk], rows: int) -> Iterator[Chunk]:
    """Consecutive chunks, joined where together they have at most `rows` rows.

    A chunk is never split, and one that stays alone is not copied.

    Example:
        >>> parts = [Chunk(torch.ones(k, 2), start) for start, k in ((0, 2), (2, 1), (3, 4))]
        >>> [len(chunk.rows) for chunk in merged(parts, 4)]
        [3, 4]
    """
    held: list[Chunk] = []
    count = 0
    for chunk in chunks:
        if held and count + len(chunk.rows) > rows:
            yield _joined(held)
            held, count = [], 0
        held.append(chunk)
        count += len(chunk.rows)
    if held:
        yield _joined(held)


def _joined(chunks: list[Chunk]) -> Chunk:
    first = chunks[0]
    if len(chunks) == 1:
        return first
    return Chunk(
        rows=torch.cat([chunk.rows for chunk in chunks]),
        start=first.start,
        columns={
            name: np.concatenate([chunk.columns[name] for chunk in chunks])
            for name in first.columns
        },
    )

"""Small chunks made into larger ones, so that many small files are not many small products."""

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from isotropy.errors import SourceError
from isotropy.sources._messages import one_line, quoted
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
            name: _together([chunk.columns[name] for chunk in chunks], name)
            for name in first.columns
        },
    )


def _together(parts: list[Any], name: str) -> NDArray[Any]:
    """A column's values one after the other; those of Parquet as it stores them may be Arrow's."""
    if isinstance(parts[0], np.ndarray):
        return np.concatenate(parts)
    import pyarrow as pa

    tables = [pa.table([part], names=["values"]) for part in parts]
    try:
        joined = pa.concat_tables(tables, promote_options="permissive")
    except pa.ArrowException as error:
        raise SourceError(
            f"got shards with different types of column {quoted(name)} ({one_line(error)}), "
            "expected one; make them alike"
        ) from error
    values: NDArray[Any] = joined["values"].combine_chunks()
    return values

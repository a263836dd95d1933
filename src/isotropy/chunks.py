"""The chunks of a source as every pass reads them: in the dtype to compute in, and numbered."""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy.errors import InputError
from isotropy.inputs import COMPUTE_DTYPE
from isotropy.output import Progress
from isotropy.sources import Source

# A chunk of this many values takes 64 MiB in float32.
_CHUNK_VALUES = 1 << 24
# Rows in a chunk where the number of features is not known beforehand.
_CHUNK_ROWS = 4096
# Up to this many multiplications, products are taken in float64: it costs a second or less.
_EXACT_WORK = 2e10


class Numbered(NamedTuple):
    """Some rows of a source.

    Attributes:
        rows: k×d, in the dtype to compute in; their values have not been looked at.
        numbers: k, the rows' numbers in the source.
        columns: the columns that were asked for, k entries each.
    """

    rows: Tensor
    numbers: Tensor
    columns: Mapping[str, NDArray[Any]]


def rows_at_a_time(source: Source, chunk_rows: int | None) -> int:
    """How many rows to read at a time: as asked, or what suits their length."""
    if chunk_rows is not None:
        return chunk_rows
    return _CHUNK_ROWS if source.features is None else max(1, _CHUNK_VALUES // source.features)


def numbered_chunks(
    source: Source,
    stage: str,
    columns: tuple[str, ...],
    device: torch.device | None,
    chunk_rows: int | None,
    progress: Progress,
) -> Iterator[Numbered]:
    """All rows of a source, in order.

    Args:
        source: the rows.
        stage: what the progress is called.
        columns: which columns to read beside them.
        device: where the rows go, or None for where they are.
        chunk_rows: see `rows_at_a_time`.
        progress: is told how many rows were read.

    Raises:
        InputError: fewer than 2 features.
    """
    done = 0
    progress(stage, 0, source.n_rows)
    for chunk in source.chunks(rows_at_a_time(source, chunk_rows), columns):
        if not len(chunk.rows):
            continue
        features = chunk.rows.shape[1]
        if features < 2:
            raise InputError(
                f"got {source.name} with {features} feature{'s' * (features != 1)}, expected "
                "at least 2 (columns of the embeddings)"
            )
        dtype = COMPUTE_DTYPE[chunk.rows.dtype]
        if source.n_rows is not None and source.n_rows * features**2 <= _EXACT_WORK:
            dtype = torch.float64
        rows = chunk.rows.detach().to(device=device, dtype=dtype)
        numbers = torch.arange(chunk.start, chunk.start + len(rows))
        yield Numbered(rows, numbers, chunk.columns)
        done += len(rows)
        progress(stage, done, source.n_rows)

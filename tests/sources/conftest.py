"""How tests read a source to its end."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from isotropy.sources import Source


class Everything(NamedTuple):
    rows: torch.Tensor
    columns: Mapping[str, NDArray[Any]]
    sizes: list[int]


def everything(source: Source, rows: int = 1000, columns: tuple[str, ...] = ()) -> Everything:
    chunks = list(source.chunks(rows, columns))
    starts = np.cumsum([0] + [len(chunk.rows) for chunk in chunks])
    assert [chunk.start for chunk in chunks] == starts[:-1].tolist()
    assert all(set(chunk.columns) == set(columns) for chunk in chunks)
    return Everything(
        torch.cat([chunk.rows for chunk in chunks]),
        {c: np.concatenate([chunk.columns[c] for chunk in chunks]) for c in columns},
        [len(chunk.rows) for chunk in chunks],
    )


@pytest.fixture(scope="session")
def read() -> Callable[..., Everything]:
    """All rows and the named columns of a source, after checking that its chunks are in order."""
    return everything

"""What a source of embeddings is: rows in chunks, with their columns of metadata."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from numpy.typing import NDArray
from torch import Tensor


@dataclass(frozen=True)
class Chunk:
    """Consecutive rows of a source.

    Attributes:
        rows: k×d floating-point tensor in the stored dtype (float16, bfloat16, float32, float64).
        start: the number of the first row in the source, counted from 0.
        columns: for each column asked for, its k values.
    """

    rows: Tensor
    start: int
    columns: Mapping[str, NDArray[Any]] = field(default_factory=dict)


@runtime_checkable
class Source(Protocol):
    """Rows of embeddings that can be read in chunks, more than once, in bounded memory.

    Opening a source reads no more than its header. Whatever is wrong with it is a `SourceError`
    (unreadable, corrupt, ragged, empty, unknown column) or an `InputError` (dtype, shape). The
    values are not looked at: whoever works on them checks that they are finite.
    """

    @property
    def name(self) -> str:
        """What to call it in tables and messages."""

    @property
    def n_rows(self) -> int | None:
        """How many rows it has, where that is known without reading them."""

    @property
    def features(self) -> int | None:
        """How many features a row has, where that is known without reading any."""

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of the columns beside the embeddings, such as a label or a layer."""

    def chunks(self, rows: int, columns: tuple[str, ...] = ()) -> Iterator[Chunk]:
        """All rows in order, at most `rows` at a time, with the values of the named columns."""

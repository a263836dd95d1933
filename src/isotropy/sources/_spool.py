"""Standard input as a file: a source is read more than once, a stream only once."""

import shutil
import sys
import weakref
from collections.abc import Iterator
from pathlib import Path
from tempfile import mkdtemp
from typing import Self

from isotropy.errors import SourceError
from isotropy.sources._messages import reading
from isotropy.sources._source import Chunk
from isotropy.sources._table import Table

STDIN = "standard input"
_PIECE = 1 << 20


class Spool:
    """A temporary file with all of standard input; it is removed when nothing refers to it."""

    def __init__(self) -> None:
        stream = getattr(sys.stdin, "buffer", None)  # None in a notebook or a service
        if stream is None or stream.closed or stream.isatty():
            raise SourceError(
                "got nothing piped into standard input, expected a file there; "
                "for instance: cat embeddings.npy | isotropy measure -"
            )
        with reading(STDIN):
            folder = mkdtemp(prefix="isotropy-")
            weakref.finalize(self, shutil.rmtree, folder, ignore_errors=True)
            self.path = Path(folder) / "stdin"
            with self.path.open("wb") as file:
                shutil.copyfileobj(stream, file, _PIECE)


class SpooledTable(Table):
    """A table of a spool, which lives as long as the table does."""

    def __init__(self, spool: Spool, table: Table) -> None:
        self._spool = spool
        self._table = table
        self.name = table.name
        self.n_rows, self.features = table.n_rows, table.features
        self.dtype, self.columns = table.dtype, table.columns

    def as_stored(self) -> Self:
        return type(self)(self._spool, self._table.as_stored())

    def _chunks(self, rows: int, columns: tuple[str, ...]) -> Iterator[Chunk]:
        # Not the table's own iterator: this one keeps the spool alive until it is used up.
        yield from self._table.chunks(rows, columns)

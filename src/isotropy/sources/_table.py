"""What every reader here gives: a source that also knows its shape and dtype."""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Self

import torch

from isotropy.errors import SettingError
from isotropy.sources._messages import unknown
from isotropy.sources._source import Chunk


class Table(ABC):
    """A source whose header has been read.

    Attributes:
        name: what to call it in tables and messages.
        n_rows: number of rows, or None where only reading them all would tell.
        features: number of features of a row, or None if there are no rows.
        dtype: dtype of the rows, or None if there are no rows.
        columns: names of the columns beside the embeddings.
        wide: names of the features, where each is a column with a name of its own.
    """

    name: str
    n_rows: int | None
    features: int | None
    dtype: torch.dtype | None
    columns: tuple[str, ...]
    wide: tuple[str, ...] = ()

    def chunks(self, rows: int, columns: tuple[str, ...] = ()) -> Iterator[Chunk]:
        """All rows in order, at most `rows` at a time, with the values of the named columns.

        Raises:
            SourceError: a column that it does not have, or a file that cannot be read to its end.
        """
        if rows < 1:
            raise SettingError(f"got rows={rows}, expected at least 1 row in a chunk")
        for column in columns:
            if column not in self.columns:
                raise unknown("column", column, self.columns, self.name)
        return self._chunks(rows, columns)

    def as_stored(self) -> Self:
        """The same table with its columns as the file has them, to be written to another file.

        Where a format has types of its own, and rows without a value, these columns are its arrays
        and not numpy's, of any type.
        """
        return self

    @abstractmethod
    def _chunks(self, rows: int, columns: tuple[str, ...]) -> Iterator[Chunk]:
        """The same, after the arguments were checked."""

"""Reads what a transform is fitted on: arrays, data frames, files, folders, with row weights."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from isotropy.chunks import numbered_chunks
from isotropy.errors import InputError, UndefinedError
from isotropy.inputs import finite_range, require_rows
from isotropy.output import Progress
from isotropy.sources import Source
from isotropy.transforms._scatter import Scatter


class Chunk(NamedTuple):
    """Rows that count.

    Attributes:
        rows: k×d, finite, in the dtype to compute in.
        numbers: the rows' numbers in the source.
        weights: k positive numbers in float64, or None where all rows count alike.
        bounds: each column's smallest and largest value, where they are known.
    """

    rows: Tensor
    numbers: Tensor
    weights: Tensor | None
    bounds: tuple[Tensor, Tensor] | None


@dataclass(frozen=True)
class Reader:
    """Reads a source chunk by chunk, as often as a transform needs it.

    Attributes:
        source: the rows.
        weights: n numbers, or the name of a column; None where all rows count alike.
        device: where the rows go, or None for where they are.
        chunk_rows: how many rows to read at a time, or None for what suits their length.
        progress: is told how many rows were read.
    """

    source: Source
    weights: Tensor | str | None
    device: torch.device | None
    chunk_rows: int | None
    progress: Progress

    def scatter(self, *, diagonal: bool = False) -> Scatter:
        """The mean and covariance of all rows, in one pass.

        Raises:
            InputError: fewer than 2 rows that count, or values or weights that make no sense.
            UndefinedError: all rows are equal.
        """
        found: Scatter | None = None
        for chunk in self.chunks("reading"):
            part = Scatter.of(chunk.rows, chunk.weights, bounds=chunk.bounds, diagonal=diagonal)
            found = part if found is None else found + part
        require_rows(0 if found is None else found.n, 2, name=self.source.name)
        if found is None or not found.products.any():
            raise equal_rows(0 if found is None else found.n, self.source.name)
        return found

    def chunks(self, stage: str) -> Iterator[Chunk]:
        """All rows with a weight that is not zero, in order."""
        source, done = self.source, 0
        columns = (self.weights,) if isinstance(self.weights, str) else ()
        for rows, numbers, found in numbered_chunks(
            source, stage, columns, self.device, self.chunk_rows, self.progress
        ):
            bounds = finite_range(rows, name=source.name, numbers=numbers)
            done += len(rows)
            if self.weights is None:
                yield Chunk(rows, numbers, None, bounds)
            else:
                weights = self._weights(found, numbers).to(rows.device)
                kept = weights > 0
                if kept.any():
                    yield Chunk(rows[kept], numbers[kept.cpu()], weights[kept], None)
        if isinstance(self.weights, Tensor) and len(self.weights) != done:
            raise _wrong_length(len(self.weights), done, source.name)

    def _weights(self, columns: Any, numbers: Tensor) -> Tensor:
        """The weights of some rows, in float64."""
        first, last = int(numbers[0]), int(numbers[-1])
        if isinstance(self.weights, str):
            values = columns[self.weights]
            if values.dtype.kind not in "fiub":
                raise InputError(
                    f"got weights={self.weights!r}, a column of {self.source.name} that holds no "
                    "numbers, expected one of numbers from 0 up"
                )
            weights = torch.from_numpy(values.astype(np.float64))
        elif self.weights is None:
            weights = torch.ones(len(numbers), dtype=torch.float64)
        else:
            if last >= len(self.weights):
                n = self.source.n_rows or last + 1
                raise _wrong_length(len(self.weights), n, self.source.name)
            weights = self.weights[first : last + 1]
        bad = ~(torch.isfinite(weights) & (weights >= 0))
        if bad.any():
            i = int(bad.nonzero()[0, 0])
            raise InputError(
                f"got weight {float(weights[i]):g} in row {first + i} of {self.source.name}, "
                "expected finite numbers from 0 up"
            )
        return weights


def as_weights(weights: Any) -> Tensor | str | None:
    """Row weights as a tensor in float64, or the name of the column that has them.

    Raises:
        InputError: they are not n numbers.
    """
    if weights is None or isinstance(weights, str):
        return weights
    if isinstance(weights, Tensor):
        values = weights.detach().cpu()
    else:
        array = np.asarray(weights)
        if array.dtype.kind not in "fiub":
            raise InputError(
                f"got weights of dtype {array.dtype}, expected one number a row, or the name of a "
                "column"
            )
        values = torch.from_numpy(array.astype(np.float64))
    if values.ndim != 1:
        raise InputError(f"got weights with shape {tuple(values.shape)}, expected one number a row")
    return values.double()


def equal_rows(n: int, name: str) -> UndefinedError:
    """The error for rows that are one point."""
    return UndefinedError(
        f"got {name} with {n} equal rows, expected rows that differ: there is nothing to fit to a "
        "single point"
    )


def _wrong_length(weights: int, rows: int, name: str) -> InputError:
    return InputError(f"got {weights} weights for {rows} rows of {name}, expected one weight a row")

"""The passes over a source: one for moments and samples, a second where a measure needs it."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy.chunks import numbered_chunks
from isotropy.cloud_stream import CloudStream
from isotropy.errors import InputError, SettingError
from isotropy.inputs import finite_range, require_rows
from isotropy.measures import MeasureSpec, SecondPass
from isotropy.output import Progress as Progress
from isotropy.sources import Source

_MOST_GROUPS = 1000
_MOST_BYTES = 8 << 30
# Matrices beside those of the groups: their sum, a chunk's product, and one about the mean.
_WORKING_COPIES = 3


@dataclass(frozen=True)
class Reader:
    """Reads a source chunk by chunk, as a whole and by the values of a column.

    Attributes:
        source: the rows.
        by: a column whose values are clouds of their own, or None.
        device: where the rows go, or None for where they are.
        chunk_rows: how many rows to read at a time, or None for what suits their length.
        progress: is told how many rows were read.
    """

    source: Source
    by: str | None
    device: torch.device | None
    chunk_rows: int | None
    progress: Progress

    def first_pass(
        self, *, moments: bool, groups: int, sample: int, seed: int
    ) -> tuple[CloudStream, dict[str, CloudStream]]:
        """What is kept of the whole cloud and, with `by`, of each part; see `CloudStream`.

        Raises:
            InputError: no rows, fewer than 2 features, NaN or infinity, too many groups.
        """

        def stream() -> CloudStream:
            return CloudStream(moments=moments, groups=groups, sample=sample, seed=seed)

        whole = stream()
        parts: dict[str, CloudStream] = {}
        held = 0
        for rows, numbers, labels in self._chunks("reading"):
            if moments and not whole.rows and not parts:
                self._require_width(rows.shape[1], groups)
            bounds = finite_range(rows, name=self.source.name, numbers=numbers)
            if labels is None:
                whole.update(rows, numbers, bounds)
                continue
            for label, chosen in _by_label(labels):
                if label not in parts:
                    parts[label] = stream()
                before = parts[label].nbytes
                parts[label].update(rows[chosen.to(rows.device)], numbers[chosen])
                held += parts[label].nbytes - before
                self._require_room(len(parts), held)
        parts = {label: parts[label] for label in sorted(parts, key=_natural)}
        for part in parts.values():
            whole.merge(part)
        require_rows(whole.rows, 2, name=self.source.name)
        return whole, parts

    def second_pass(
        self,
        specs: list[MeasureSpec],
        whole: CloudStream,
        parts: Mapping[str, CloudStream],
    ) -> tuple[dict[str, SecondPass], dict[str, dict[str, SecondPass]]]:
        """For the whole and for each part, the measures that have seen all its rows once more."""

        def begin(stream: CloudStream) -> dict[str, SecondPass]:
            return {
                spec.name: spec.second_pass(stream.moments, **spec.options)
                for spec in specs
                if spec.second_pass is not None
            }

        of_whole = begin(whole)
        of_parts = {label: begin(part) for label, part in parts.items()}
        if of_whole:
            for rows, _, labels in self._chunks("reading again"):
                for measure in of_whole.values():
                    measure.update(rows)
                for label, chosen in [] if labels is None else _by_label(labels):
                    for measure in of_parts[label].values():
                        measure.update(rows[chosen.to(rows.device)])
        return of_whole, of_parts

    def _chunks(self, stage: str) -> Iterator[tuple[Tensor, Tensor, NDArray[Any] | None]]:
        """Rows in the dtype to compute in, their numbers, and their labels."""
        columns = () if self.by is None else (self.by,)
        for rows, numbers, found in numbered_chunks(
            self.source, stage, columns, self.device, self.chunk_rows, self.progress
        ):
            yield rows, numbers, None if self.by is None else found[self.by]

    def _require_width(self, features: int, groups: int) -> None:
        """Refuse moments that do not fit into memory, as of a matrix that lies on its side."""
        needed = (groups + _WORKING_COPIES) * 8 * features**2
        if needed > _MOST_BYTES:
            of_groups = f" for the {groups} groups of an interval" if groups > 1 else ""
            instead = "leave out the interval, or " if groups > 1 else ""
            raise InputError(
                f"got {self.source.name} with {features} features, whose d×d moments take "
                f"{needed / 2**30:.0f} GiB{of_groups}, expected at most {_MOST_BYTES >> 30}; "
                f"{instead}transpose it if rows and columns are mixed up, or call the functions of "
                "isotropy.measures, which work with n×n products where n < d"
            )

    def _require_room(self, parts: int, held: int) -> None:
        """Refuse a column of ids before memory runs out."""
        if parts > _MOST_GROUPS:
            raise SettingError(
                f"got by={self.by!r}, a column with more than {_MOST_GROUPS} different values, "
                "expected one of groups, such as a label or a layer"
            )
        if held > _MOST_BYTES:
            raise SettingError(
                f"got by={self.by!r}, a column with {parts} different values or more, whose "
                f"moments and samples take over {_MOST_BYTES >> 30} GiB, expected fewer groups; "
                "leave out the interval, lower the sample, or group more coarsely"
            )


def _by_label(labels: NDArray[Any]) -> Iterator[tuple[str, Tensor]]:
    """Each label as text, with the places where it stands."""
    if labels.dtype == object:  # text, perhaps with missing values, which do not compare
        labels = np.asarray([str(label) for label in labels])
    values, inverse = np.unique(labels, return_inverse=True)
    order = torch.from_numpy(inverse.reshape(-1).argsort(kind="stable"))
    sizes = np.bincount(inverse.reshape(-1), minlength=len(values)).tolist()
    for value, chosen in zip(values, torch.split(order, sizes), strict=True):
        yield str(value), chosen


def _natural(label: str) -> tuple[int, float, str]:
    """Numbers by their value and before all words, of which "nan" is one."""
    try:
        number = float(label)
    except ValueError:
        number = math.nan
    return (1, 0.0, label) if math.isnan(number) else (0, number, label)

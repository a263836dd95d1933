"""From what one pass keeps of a cloud to its scores, their intervals and warnings."""

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations, count

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy.cloud_stream import CloudStream
from isotropy.errors import InputError, IsotropyWarning, UndefinedError
from isotropy.inputs import COMPUTE_DTYPE, equal_rows_error
from isotropy.intervals import FEWEST_ROWS, GROUPS, Interval, jackknife, subsample_size, subsampling
from isotropy.measures import MeasureSpec, SecondPass
from isotropy.moments import Moments, merge
from isotropy.neighbours import Neighbours, nearest_neighbours
from isotropy.reading import Progress


@dataclass(frozen=True)
class Score:
    """One number that was measured.

    Attributes:
        key: its name, such as `"anisotropy_1"`.
        value: the number, or None where it is undefined for this cloud.
        interval: its interval, where one was asked for and exists.
        rows: how many rows it was computed from.
        sampled: whether these are a random sample of all rows.
    """

    key: str
    value: float | None
    interval: Interval | None
    rows: int
    sampled: bool


@dataclass
class View:
    """Some rows as measures look at them: as moments, or as rows and their neighbours."""

    moments: Moments | None = None
    rows: Tensor | None = None
    second: Mapping[str, SecondPass] = field(default_factory=dict)
    most_neighbours: int = 0
    _neighbours: Neighbours | None = None

    def scores(self, spec: MeasureSpec) -> Sequence[float]:
        """A measure's numbers."""
        if spec.name in self.second:
            return self.second[spec.name].result()
        if spec.from_moments is not None:
            return spec.from_moments(self.moments, **spec.options)
        if spec.from_neighbours is not None:
            return spec.from_neighbours(self._nearest(spec.neighbours), **spec.options)
        if spec.from_rows is not None:
            return spec.from_rows(self.rows, **spec.options)
        # A second pass over so few rows is the function itself.
        return [float(number) for number in spec.function(self.rows, **spec.options)]

    def _nearest(self, k: int) -> Neighbours:
        if self.rows is None:
            raise TypeError("neighbours need rows, which this pass did not keep")
        if self._neighbours is None:  # one search serves all measures
            most = max(k, min(self.most_neighbours, len(self.rows) - 1))
            self._neighbours = nearest_neighbours(self.rows, most)
        return self._neighbours.first(k)


@dataclass(frozen=True)
class Scorer:
    """Scores clouds by the same measures.

    Attributes:
        specs: the measures.
        level: of the intervals, or None for no intervals.
        seed: of the subsamples.
        progress: is told the stage, how much of it is done, and how much there is.
    """

    specs: Sequence[MeasureSpec]
    level: float | None
    seed: int
    progress: Progress

    @property
    def needs_moments(self) -> bool:
        """Whether a measure follows from moments, or begins with them."""
        return any(spec.from_moments or spec.second_pass for spec in self.specs)

    @property
    def needs_sample(self) -> bool:
        """Whether a measure or an interval needs rows."""
        return any(
            not spec.from_moments and (not spec.second_pass or self.level is not None)
            for spec in self.specs
        )

    @property
    def groups(self) -> int:
        """Into how many groups moments have to be divided."""
        return 1 if self.level is None else GROUPS

    def score(
        self,
        stream: CloudStream,
        second: Mapping[str, SecondPass],
        *,
        strict: bool,
    ) -> tuple[dict[str, Score], list[str]]:
        """Every measure's scores by their keys, and warnings.

        With `strict` a score that does not exist is an error; otherwise it has no value, and a
        warning says why.
        """
        view = View(
            stream.moments if self.needs_moments else None,
            _upcast(stream.sample.rows()) if stream.sample else None,
            second,
            max((spec.neighbours for spec in self.specs), default=0),
        )
        used = {spec.name: _rows_used(spec, stream) for spec in self.specs}
        values: dict[str, Sequence[float]] = {}
        notes: list[str] = []
        for i, spec in enumerate(self.specs):
            self.progress("measuring", i, len(self.specs))
            try:
                if stream.constant and stream.rows >= spec.min_rows:
                    raise equal_rows_error(stream.rows, name="a cloud")
                with _warnings_to(notes, spec.name):
                    values[spec.name] = _scores(spec, view, used[spec.name])
            except (InputError, UndefinedError) as error:  # a SettingError is never a warning
                if strict:
                    raise
                notes.append(with_name(spec.name, error))
                continue
            if (reason := spec.warn(used[spec.name], stream.features)) is not None:
                notes.append(reason)
        self.progress("measuring", len(self.specs), len(self.specs))

        intervals = self._intervals(stream, view, values, notes)
        scores = {
            number.key: Score(
                number.key,
                value=float(values[spec.name][i]) if spec.name in values else None,
                interval=intervals.get(number.key),
                rows=used[spec.name],
                sampled=used[spec.name] < stream.rows,
            )
            for spec in self.specs
            for i, number in enumerate(spec.numbers)
        }
        return scores, notes

    def _intervals(
        self,
        stream: CloudStream,
        view: View,
        values: Mapping[str, Sequence[float]],
        notes: list[str],
    ) -> dict[str, Interval]:
        if self.level is None:
            return {}
        measured = [spec for spec in self.specs if spec.name in values]
        by_moments = [spec for spec in measured if spec.from_moments]
        by_rows = [spec for spec in measured if not spec.from_moments]
        found: dict[str, Interval] = {}
        by_pairs = [spec for spec in by_moments if spec.leaves_out_pairs]
        by_groups = [spec for spec in by_moments if not spec.leaves_out_pairs]
        for specs, pairs in ((by_groups, False), (by_pairs, True)):
            if specs and len(stream.parts) > 1:
                limits = self._jackknife(stream, specs, values, pairs=pairs)
                found |= _named(specs, limits, stream.features)
        if by_rows and view.rows is not None and subsample_size(len(view.rows)) >= FEWEST_ROWS:
            whole = [value for spec in by_rows for value in values[spec.name]]
            score = self._subsample_scores(view, by_rows)
            limits = subsampling(score, whole, len(view.rows), self.level, self.seed)
            found |= _named(by_rows, limits, stream.features)
        jumps = [key for key in _jumping(by_moments, stream) if key in found]
        if jumps:
            notes.append(
                f"no interval for {', '.join(jumps)}: the spectrum's values near it are too close "
                f"to be told apart by {stream.rows} rows, and it is too large"
            )
        found = {key: limits for key, limits in found.items() if key not in jumps}
        missing = [
            number.key
            for spec in measured
            for number in spec.numbers
            if number.has_interval and number.key not in found and number.key not in jumps
        ]
        if missing:
            notes.append(f"no interval for {', '.join(missing)}: too few rows ({stream.rows})")
        biased = [
            number.key
            for spec in measured
            for number, value in zip(spec.numbers, values[spec.name], strict=True)
            if number.key in found and not found[number.key][0] <= value <= found[number.key][1]
        ]
        if biased:
            notes.append(
                f"outside of its interval: {', '.join(biased)}; a value of few rows is biased, and "
                "the interval is for the distribution that the rows were drawn from"
            )
        return found

    def _jackknife(
        self,
        stream: CloudStream,
        specs: Sequence[MeasureSpec],
        values: Mapping[str, Sequence[float]],
        *,
        pairs: bool,
    ) -> list[Interval]:
        whole = stream.moments
        parts = [part.about(whole.shift) for part in stream.parts]
        left_out = [[part] for part in parts]
        if pairs:
            left_out += [list(pair) for pair in combinations(parts, 2)]
        scores = []
        for i, out in enumerate(left_out):
            self.progress("intervals by jackknife", i, len(left_out))
            rest = whole.without(merge(out))
            scores.append(_scores_or_nan(specs, View(rest), rest.n))
        self.progress("intervals by jackknife", len(left_out), len(left_out))
        return jackknife(
            [value for spec in specs for value in values[spec.name]],
            scores[: len(parts)],
            [part.n for part in parts],
            self.level or 0,
            scores[len(parts) :] if pairs else None,
        )

    def _subsample_scores(
        self, view: View, specs: Sequence[MeasureSpec]
    ) -> Callable[[NDArray[np.int64]], list[float]]:
        rows, done = view.rows, count(1)
        if rows is None:
            raise TypeError("a subsample needs rows, which this pass did not keep")

        def scores(chosen: NDArray[np.int64]) -> list[float]:
            part = rows[torch.from_numpy(chosen).to(rows.device)]
            result = _scores_or_nan(
                specs, View(rows=part, most_neighbours=view.most_neighbours), len(part)
            )
            self.progress("intervals by subsampling", next(done), GROUPS)
            return result

        return scores


def _rows_used(spec: MeasureSpec, stream: CloudStream) -> int:
    """How many rows a measure sees: all, or a sample."""
    if spec.from_moments or spec.second_pass or stream.sample is None:
        return stream.rows
    return min(stream.rows, stream.sample.size)


def _scores(spec: MeasureSpec, view: View, rows: int) -> Sequence[float]:
    needed = max(spec.min_rows, spec.neighbours + 1)
    if rows < needed:
        raise InputError(
            f"got {rows} row{'s' * (rows != 1)}, expected at least {needed} for {spec.name}"
        )
    return view.scores(spec)


def _scores_or_nan(specs: Sequence[MeasureSpec], view: View, rows: int) -> list[float]:
    """All measures' numbers in a row, NaN where some of the rows do not have them."""
    result: list[float] = []
    for spec in specs:
        try:
            with _warnings_to([], spec.name):
                result += _scores(spec, view, rows)
        except (InputError, UndefinedError):
            result += [math.nan] * len(spec.numbers)
    return result


@contextmanager
def _warnings_to(notes: list[str], name: str) -> Iterator[None]:
    """Turn a measure's own warnings into notes, and pass all others on."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", IsotropyWarning)
        yield
    for warning in caught:
        if issubclass(warning.category, IsotropyWarning):
            notes.append(with_name(name, warning.message))
        else:
            warnings.warn_explicit(
                warning.message, warning.category, warning.filename, warning.lineno
            )


def with_name(name: str, message: Warning | Exception | str) -> str:
    """What a measure says, which begins with its name unless that is in it."""
    return str(message) if name in str(message) else f"{name}: {message}"


def _upcast(rows: Tensor) -> Tensor:
    return rows.to(COMPUTE_DTYPE[rows.dtype])


def _jumping(specs: Sequence[MeasureSpec], stream: CloudStream) -> list[str]:
    """The keys of the numbers that do not change smoothly with the rows of this cloud."""
    return [
        number.key
        for spec in specs
        if spec.smooth is not None
        for number, is_smooth in zip(
            spec.numbers, spec.smooth(stream.moments, **spec.options), strict=True
        )
        if not is_smooth
    ]


def _named(
    specs: Sequence[MeasureSpec], intervals: Sequence[Interval], features: int
) -> dict[str, Interval]:
    """Intervals by their numbers' keys, within each number's bounds, without undefined ones."""
    numbers = [number for spec in specs for number in spec.numbers]
    result = {}
    for number, (low, high) in zip(numbers, intervals, strict=True):
        most = float(features) if number.at_most_d else number.high
        if math.isfinite(low + high) and number.has_interval:
            result[number.key] = (
                float(min(max(low, number.low), most)),
                float(max(min(high, most), number.low)),
            )
    return result

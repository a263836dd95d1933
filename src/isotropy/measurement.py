"""`measure`: from a source of embeddings to numbers that can be trusted, in one pass."""

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from isotropy import markup, tables
from isotropy._version import __version__
from isotropy.cloud_stream import CloudStream
from isotropy.errors import (
    InputError,
    IsotropyWarning,
    SettingError,
    UndefinedError,
    unknown_name,
)
from isotropy.inputs import ArrayLike
from isotropy.measures import SPECS, MeasureSpec, SecondPass
from isotropy.output import progress_bars, reserved
from isotropy.reading import Progress, Reader
from isotropy.scoring import Score as Score, Scorer, with_name
from isotropy.settings import seed_number, whole_number
from isotropy.sources import Source, open_source


class Dimensions(NamedTuple):
    """Each dimension's mean and standard deviation."""

    mean: NDArray[np.float64]
    std: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Measurement(Mapping[str, Score]):
    """What `measure` found: scores by their keys, and how they came about.

    A measure's name gives its main score too: `report["anisotropy"]` is `report["anisotropy_1"]`.

    Attributes:
        source: what was measured.
        rows: how many rows it has.
        features: how many features.
        seed: of everything random.
        level: of the intervals, or None.
        options: the settings of every measure that has some.
        scores: the scores by their keys.
        warnings: what should be known before the numbers are used.
        by: the column whose groups were measured too.
        groups: the measurements of the groups, by the column's value.
        dimensions: each dimension's mean and standard deviation, where moments were taken.
    """

    source: str
    rows: int
    features: int
    seed: int
    level: float | None
    options: Mapping[str, Mapping[str, Any]]
    scores: Mapping[str, Score]
    warnings: tuple[str, ...]
    by: str | None = None
    groups: Mapping[str, "Measurement"] = field(default_factory=dict)
    dimensions: Dimensions | None = None

    def __getitem__(self, key: str) -> Score:
        """The score with this key, or a measure's main score."""
        name = key.replace("-", "_")
        if name in SPECS and name not in self.scores:
            # An option may change the keys, never their beginning.
            name = next((known for known in self.scores if known.startswith(name)), name)
        if name not in self.scores:
            raise KeyError(str(unknown_name("score", key, self.scores)))
        return self.scores[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    def to_dict(self) -> dict[str, Any]:
        """Everything but `dimensions` as numbers, strings, lists and dicts, ready for JSON."""
        result: dict[str, Any] = {
            "isotropy": __version__,
            "source": self.source,
            "rows": self.rows,
            "features": self.features,
            "seed": self.seed,
            "level": self.level,
            "options": {name: dict(options) for name, options in self.options.items()},
            "scores": {
                key: {
                    "value": score.value,
                    "interval": list(score.interval) if score.interval else None,
                    "rows": score.rows,
                    "sampled": score.sampled,
                }
                for key, score in self.items()
            },
            "warnings": list(self.warnings),
        }
        if self.by is not None:
            result["by"] = self.by
            result["groups"] = {name: group.to_dict() for name, group in self.groups.items()}
        return result

    def to_html(self, path: str | Path | None = None) -> str:
        """A page that shows the numbers, written to `path` if one is given."""
        page = markup.page(self)
        with reserved(None if path is None else str(path)) as write:
            write(page)
        return page

    def __repr__(self) -> str:
        return tables.measurement(self)

    def _repr_html_(self) -> str:
        return markup.fragment(self)


def measure(
    source: ArrayLike | str | Path | Source,
    measures: Sequence[str | MeasureSpec] | str | None = None,
    *,
    by: str | None = None,
    interval: float | None = None,
    key: str | None = None,
    format: str | None = None,
    options: Mapping[str, Mapping[str, Any]] | None = None,
    sample: int = 20_000,
    seed: int = 0,
    device: str | torch.device | None = None,
    chunk_rows: int | None = None,
    progress: bool | Progress = False,
) -> Measurement:
    """Measure the isotropy of a cloud of embeddings, which may be far larger than memory.

    All measures that follow from moments share one pass. A second one is made only for a measure
    that needs it. Measures of neighbours, pairs and bars see all rows, or a random sample where
    there are more than `sample`; each score says which.

    Args:
        source: an array, a tensor, a file, a folder of shards, `"-"` for standard input, or any
            `isotropy.sources.Source`.
        measures: names of measures, or specs of your own; by default all that make sense for any
            cloud. A score that is undefined is an error if it was asked for, else a warning.
        by: a column; each of its values is measured by itself too.
        interval: a level such as 0.95, for an interval around every score.
        key: which array or column holds the embeddings, where there are several.
        format: the file's format, where its name does not tell.
        options: settings of measures, such as `{"hubness": {"k": 20}}`. One that makes no sense is
            an error before anything is read.
        sample: how many rows to draw for measures whose work grows with the square of the rows.
        seed: of the sample, the jackknife's groups, and measures that draw at random.
        device: where to compute, such as `"cuda"`; by default where the rows are.
        chunk_rows: how many rows to read at a time.
        progress: True for progress bars, or a function that is told the stage, how much of it is
            done, and how much there is, where that is known.

    Returns:
        The scores, their intervals, warnings, and the groups.

    Raises:
        IsotropyError: a bad source, bad values, an unknown name, or an undefined score.

    Example:
        >>> x = torch.randn(500, 20, generator=torch.Generator().manual_seed(0))
        >>> report = measure(x, measures=["iso_score", "iso_score_unbiased"], interval=0.95)
        >>> low, high = report["iso_score_unbiased"].interval
        >>> low < 1 < high
        True
    """
    _check(interval=interval, sample=sample, seed=seed, chunk_rows=chunk_rows)
    specs = _chosen(measures, options or {}, seed)
    opened = open_source(source, key=key, format=format)
    with _reporting(progress) as bars:
        report = bars or _silent
        scorer = Scorer(specs, interval, seed, report)
        reader = Reader(opened, by, _device(device), chunk_rows, report)
        whole, parts = reader.first_pass(
            moments=scorer.needs_moments,
            groups=scorer.groups,
            sample=sample if scorer.needs_sample else 0,
            seed=seed,
        )
        second, second_by_part = reader.second_pass(specs, whole, parts)

        def result(
            stream: CloudStream, second: Mapping[str, SecondPass], *, strict: bool
        ) -> Measurement:
            scores, notes = scorer.score(stream, second, strict=strict)
            return Measurement(
                source=opened.name,
                rows=stream.rows,
                features=stream.features,
                seed=seed,
                level=interval,
                options={spec.name: spec.options for spec in specs if spec.options},
                scores=scores,
                warnings=tuple(notes),
                dimensions=_dimensions(stream) if scorer.needs_moments else None,
            )

        # A cloud of equal rows has no score at all.
        found = result(whole, second, strict=measures is not None or whole.constant)
        groups = {
            label: result(part, second_by_part[label], strict=False)
            for label, part in parts.items()
        }
    return replace(found, by=by, groups=groups)


def _chosen(
    asked: Sequence[str | MeasureSpec] | str | None,
    options: Mapping[str, Mapping[str, Any]],
    seed: int,
) -> list[MeasureSpec]:
    """The measures asked for, once each, with their options."""
    if asked is None:
        asked = [spec for spec in SPECS.values() if spec.default]
    chosen = [_spec(measure) for measure in ([asked] if isinstance(asked, str) else asked)]
    if not chosen:
        raise SettingError("got no measures, expected at least one; see `isotropy list measures`")
    known = {**SPECS, **{spec.name: spec for spec in chosen}}
    settings = {_spec(name, known).name: given for name, given in options.items()}
    result: dict[str, MeasureSpec] = {}
    for spec in chosen:
        given = settings.pop(spec.name, {})
        if "seed" in spec.options and spec is SPECS.get(spec.name):  # your own has its own seed
            spec = spec.with_options(seed=seed)
        result.setdefault(spec.name, _with_options(spec, given) if given else spec)
    for name in settings:
        raise SettingError(f"got options of {name}, which is not measured; add it to the measures")
    return list(result.values())


def _spec(asked: str | MeasureSpec, known: Mapping[str, MeasureSpec] = SPECS) -> MeasureSpec:
    if isinstance(asked, MeasureSpec):
        return asked
    name = asked.replace("-", "_") if isinstance(asked, str) else None
    if name not in known:
        raise unknown_name("measure", str(asked), known)
    return known[name]


def _with_options(spec: MeasureSpec, given: Mapping[str, Any]) -> MeasureSpec:
    """The measure with these options, after a try on a few rows whether they make sense."""
    if not isinstance(given, Mapping):
        raise SettingError(
            f"got options {given!r} of {spec.name}, expected a mapping such as {dict(spec.options)}"
        )
    rows = np.random.default_rng(0).standard_normal((spec.min_rows, 4))
    try:
        spec = spec.with_options(**given)
        with warnings.catch_warnings(action="ignore", category=IsotropyWarning):
            spec.function(rows, **spec.options)
    except SettingError as error:
        raise SettingError(with_name(spec.name, error)) from error
    except (InputError, UndefinedError):
        pass  # so few rows say nothing of the cloud that is to be measured
    return spec


def _check(*, interval: float | None, sample: int, seed: int, chunk_rows: int | None) -> None:
    level = isinstance(interval, int | float) and 0 < interval < 1
    if interval is not None and not level:
        raise SettingError(f"got interval={interval!r}, expected a level between 0 and 1 like 0.95")
    whole_number("sample", sample, low=2)
    seed_number("seed", seed)
    if chunk_rows is not None:
        whole_number("chunk_rows", chunk_rows, low=1)


def _device(name: str | torch.device | None) -> torch.device | None:
    """The device of that name, after a try whether it is there."""
    if name is None:
        return None
    try:
        found = torch.zeros(1, device=name)
        found.item()  # the meta device has no values
        return found.device
    except (RuntimeError, AssertionError) as error:  # torch raises both for what is not there
        reason = str(error).splitlines()[0]
        raise SettingError(
            f"got device={str(name)!r}, expected one that is here, such as 'cpu' ({reason})"
        ) from error


def _reporting(progress: bool | Progress) -> AbstractContextManager[Progress | None]:
    return progress_bars() if progress is True else nullcontext(progress or None)


def _silent(stage: str, done: int, total: int | None) -> None:
    pass


def _dimensions(stream: CloudStream) -> Dimensions:
    moments = stream.moments
    variance = moments.central.scatter.diagonal() / max(1, moments.n - 1)
    return Dimensions(moments.mean.cpu().numpy(), variance.clamp(min=0).sqrt().cpu().numpy())

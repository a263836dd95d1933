"""Transforms and files of embeddings: `apply` maps files that are larger than memory."""

import os
from collections.abc import Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from isotropy._version import __version__
from isotropy.chunks import rows_at_a_time
from isotropy.errors import InputError, SourceError
from isotropy.inputs import ArrayLike
from isotropy.output import Progress, progress_bars
from isotropy.settings import whole_number
from isotropy.sources import Source, open_source
from isotropy.sources._embedding_writer import EmbeddingWriter, check_out
from isotropy.sources._table import Table
from isotropy.transforms._transform import Transform, silent

ENDINGS = (".safetensors", ".parquet", ".npy")
"""The formats that can be written."""

# What these formats call the embeddings or need for themselves: no column may be called so.
_TAKEN = {".safetensors": ("embeddings", "__metadata__"), ".parquet": ("embedding",), ".npy": ()}


class Applied(NamedTuple):
    """What `apply` wrote.

    Attributes:
        out: the file.
        rows: how many rows.
        features: how many features.
        columns: the columns that it kept.
        left_out: the columns that the format cannot hold.
    """

    out: str
    rows: int
    features: int
    columns: tuple[str, ...]
    left_out: tuple[str, ...]

    def __str__(self) -> str:
        text = f"wrote {self.rows} rows × {self.features} features to {self.out}"
        if self.columns:
            text += f", with {', '.join(self.columns)}"
        if self.left_out:
            taken = self.out.lower().endswith(".parquet")
            why = "as the embeddings are called so" if taken else "which .parquet could hold"
            text += f"; left out {', '.join(self.left_out)}, {why}"
        return text


def apply(
    transform: Transform | str | Path,
    source: ArrayLike | str | Path | Source,
    out: str | Path,
    *,
    key: str | None = None,
    format: str | None = None,
    overwrite: bool = False,
    chunk_rows: int | None = None,
    progress: bool | Progress = False,
) -> Applied:
    """Map a source that may be larger than memory into a file, chunk by chunk.

    The embeddings keep their dtype (bfloat16 becomes float32). The source's other columns go with
    them: all to `.parquet`, as they are; those of numbers and booleans to `.safetensors`, which has
    no room for a missing value (null); none to `.npy`. The file has its name only once it is whole.

    Args:
        transform: a fitted transform, or the path of a saved one.
        source: a file, a folder of shards, or anything else that `isotropy.measure` takes.
        out: the file to write, which ends in .safetensors, .parquet or .npy.
        key: which array or column holds the embeddings, where there are several.
        format: the source's format, where its name does not tell.
        overwrite: whether an existing file may be replaced.
        chunk_rows: how many rows to read at a time.
        progress: True for progress bars, or a function that is told how far it is.

    Raises:
        SettingError: the file exists, or has another ending; nothing is read before that is known.
        InputError: no transform, another number of features than it was fitted on, or bad values.
        SourceError: the source or the transform cannot be read, a column of numbers lacks one where
            there is no room for that, or nothing can be written there.

    Example:
        >>> from tempfile import TemporaryDirectory
        >>> from isotropy import transforms
        >>> x = np.random.default_rng(0).normal(size=(100, 8))
        >>> whitening = transforms.Whitening(k=4).fit(x)
        >>> with TemporaryDirectory() as folder:
        ...     done = transforms.apply(whitening, x, f"{folder}/white.npy")
        >>> done.rows, done.features
        (100, 4)
    """
    check_out(out, overwrite=overwrite, endings=ENDINGS)
    if chunk_rows is not None:
        whole_number("chunk_rows", chunk_rows, low=1)
    transform = _as_transform(transform)
    opened = open_source(source, key=key, format=format)
    if isinstance(opened, Table):
        opened = opened.as_stored()
    features = transform.n_features_in_
    if opened.features not in (None, features):
        raise InputError(
            f"got {opened.name} with {opened.features} features, expected {features}, on which "
            f"this {type(transform).__name__} was fitted"
        )
    at_a_time = rows_at_a_time(opened, chunk_rows)
    ending = Path(out).suffix.lower()
    numbers_only = ending == ".safetensors"
    first = next(opened.chunks(1, opened.columns if numbers_only else ()), None)
    if first is None:
        raise SourceError(f"got {opened.name} with 0 rows, expected embeddings")
    columns = tuple(
        name
        for name in opened.columns
        if ending != ".npy" and name not in _TAKEN[ending]
        if not numbers_only or _is_number(first.columns[name])
    )
    dtype = first.rows.dtype
    if dtype == torch.bfloat16:  # neither numpy nor Parquet has it
        dtype = torch.float32
    bars = progress_bars() if progress is True else nullcontext(progress or silent)
    writer = EmbeddingWriter(
        out, dtype=dtype, columns=columns, overwrite=overwrite, endings=ENDINGS
    )
    with bars as report, torch.no_grad(), writer:
        rows = 0
        report("mapping", 0, opened.n_rows)
        for chunk in opened.chunks(at_a_time, columns):
            if not len(chunk.rows):
                continue
            mapped = transform.map_chunk(chunk, opened.name)
            others: Mapping[str, Any] = chunk.columns
            if numbers_only:
                others = {c: _numbers(v, c, chunk.start, opened.name) for c, v in others.items()}
            writer.write(mapped, others)
            rows += len(chunk.rows)
            report("mapping", rows, opened.n_rows)
        writer.finish(
            {
                "isotropy_version": __version__,
                "transform": type(transform).__name__,
                "source": opened.name,
            }
        )
    left_out = tuple(name for name in opened.columns if name not in columns)
    return Applied(os.fspath(out), rows, mapped.shape[1], columns, left_out)


def _as_transform(transform: Any) -> Transform:
    """A transform, read if it is a path, that is fitted."""
    if isinstance(transform, str | os.PathLike):
        from isotropy.transforms import load  # here: that package imports this file

        loaded: Transform = load(Path(transform))
        return loaded
    if not isinstance(transform, Transform):
        raise InputError(
            f"got a transform of type {type(transform).__name__}, expected a fitted transform or "
            "the path of a saved one"
        )
    check_is_fitted(transform)
    return transform


def _is_number(values: Any) -> bool:
    """Whether a column, of numpy or of Arrow, holds numbers or booleans."""
    if isinstance(values, np.ndarray):
        return values.dtype.kind in "fiub"
    from pyarrow import types

    kind = values.type.value_type if types.is_dictionary(values.type) else values.type
    return any(is_it(kind) for is_it in (types.is_integer, types.is_floating, types.is_boolean))


def _numbers(values: Any, column: str, start: int, name: str) -> NDArray[Any]:
    """A column of numbers, of numpy or of Arrow, as numpy's."""
    if isinstance(values, np.ndarray):
        return values
    if values.null_count:
        row = start + int(np.asarray(values.is_null()).argmax())
        raise SourceError(
            f"got no value (null) for column {column!r} in row {row} of {name}, expected a number "
            "in every row, as .safetensors has no room for less; write .parquet, which keeps the "
            "column as it is, or .npy without columns"
        )
    return np.asarray(values)


class Fitted(NamedTuple):
    """What `fit_file` wrote.

    Attributes:
        out: the file.
        transform: the fitted transform.
    """

    out: str
    transform: Transform

    def __str__(self) -> str:
        fitted = self.transform
        return f"wrote {fitted} for {fitted.n_features_in_} features to {self.out}"

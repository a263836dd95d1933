"""The runs of a store as flat tables, for other programs."""

import csv
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from isotropy.errors import StoreError
from isotropy.experiments._stored import SeriesPoint, StoredRun

# What of a run stands before its spec and its result.
_FIRST = ("id", "status", "plans", "attempts", "error")


def write_csv(
    path: Path, runs: Sequence[StoredRun], series: Sequence[SeriesPoint], *, overwrite: bool
) -> list[Path]:
    """Write runs and series into a folder, or the runs into a file and the series beside it."""

    def write(file: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        with file.open("w", encoding="utf-8", newline="") as opened:
            writer = csv.writer(opened)
            writer.writerow(names)
            writer.writerows([_cell(value) for value in row] for row in rows)

    return _write(_files(path, ".csv", overwrite), runs, series, write)


def write_parquet(
    path: Path, runs: Sequence[StoredRun], series: Sequence[SeriesPoint], *, overwrite: bool
) -> list[Path]:
    """The same as Parquet."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    def write(file: Path, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
        columns = list(zip(*rows, strict=True)) or [()] * len(names)
        table = {name: _column(values) for name, values in zip(names, columns, strict=True)}
        pq.write_table(pa.table(table), file)

    return _write(_files(path, ".parquet", overwrite), runs, series, write)


def flat(run: StoredRun) -> dict[str, Any]:
    """A run as one row: names of nested values are joined by dots, as `train.batch_size`."""
    first = {name: getattr(run, name) for name in _FIRST}
    spec = dict(_flat(run.spec.model_dump(mode="json")))
    result = {}
    if run.result is not None:
        result = dict(_flat(run.result.model_dump(mode="json", exclude={"series"})))
    return {**first, **spec, **result}


def _flat(values: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in values.items():
        if isinstance(value, dict):
            yield from _flat(value, f"{before}{name}.")
        else:
            yield before + name, value


def _files(path: Path, ending: str, overwrite: bool) -> list[Path]:
    """The files of the runs and of the series."""
    with _clear_error(path):
        if path.suffix.lower() == ending and not path.is_dir():
            files = [path, path.with_name(f"{path.stem}-series{path.suffix}")]
        else:
            path.mkdir(exist_ok=True)
            files = [path / f"runs{ending}", path / f"series{ending}"]
    for file in files:
        if file.exists() and not overwrite:
            raise StoreError(
                f"got export file {str(file)!r}, which exists, expected a new name; "
                "or give --overwrite"
            )
    return files


def _write(
    files: list[Path],
    runs: Sequence[StoredRun],
    series: Sequence[SeriesPoint],
    write: Callable[[Path, Sequence[str], Sequence[Sequence[Any]]], None],
) -> list[Path]:
    rows = [flat(run) for run in runs]
    # Runs of several plans differ in their settings and scores: all names, in the order met.
    names = list(dict.fromkeys([*_FIRST, *(name for row in rows for name in row)]))
    with _clear_error(files[0]):
        with _replacing(files[0]) as part:
            write(part, names, [[row.get(name) for name in names] for row in rows])
        with _replacing(files[1]) as part:
            write(part, SeriesPoint._fields, series)
    return files


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list | tuple) else value


def _column(values: Sequence[Any]) -> Any:
    """A column of one type; of several types, as of a setting `identity` or a number, as JSON."""
    import pyarrow as pa

    plain: list[Any] = [list(value) if isinstance(value, tuple) else value for value in values]
    kinds = {type(value) for value in plain if value is not None}
    if kinds == {int, float}:
        plain = [None if value is None else float(value) for value in plain]
    elif len(kinds) > 1:
        plain = [None if value is None else json.dumps(value) for value in plain]
    try:
        return pa.array(plain)
    except (pa.ArrowInvalid, pa.ArrowTypeError):  # a list of several types
        return pa.array([None if value is None else json.dumps(value) for value in plain])


@contextmanager
def _replacing(file: Path) -> Iterator[Path]:
    """A part file that takes the file's name when it is whole."""
    part = file.with_name(f".{file.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(file)
    finally:
        part.unlink(missing_ok=True)


@contextmanager
def _clear_error(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(
            f"got export path {str(path)!r}, which cannot be written "
            f"({error.strerror or error}), expected a folder or a file in a folder that exists and "
            "allows it"
        ) from None

"""Anything that holds embeddings, opened as a `Source`."""

import os
import stat
from collections.abc import Callable
from difflib import get_close_matches
from pathlib import Path
from typing import TypeAlias

import numpy as np
from torch import Tensor

from isotropy.errors import InputError, SettingError, SourceError, unknown_name
from isotropy.inputs import ArrayLike
from isotropy.sources._array import ArrayTable
from isotropy.sources._choose import no_key
from isotropy.sources._csv import open_csv, open_tsv
from isotropy.sources._folder import FolderTable, files_of, is_beside
from isotropy.sources._jsonl import open_jsonl
from isotropy.sources._messages import listing, quoted, reading, shown
from isotropy.sources._npy import open_npy
from isotropy.sources._npz import open_npz
from isotropy.sources._parquet import open_parquet
from isotropy.sources._safetensors import open_safetensors
from isotropy.sources._sniff import LISTS, Look, look
from isotropy.sources._source import Source
from isotropy.sources._spool import STDIN, Spool, SpooledTable
from isotropy.sources._table import Table
from isotropy.sources._torch_file import open_torch

Opener: TypeAlias = Callable[[Path, str, str | None], Table]

FORMATS: dict[str, Opener] = {
    "npy": open_npy,
    "npz": open_npz,
    "safetensors": open_safetensors,
    "parquet": open_parquet,
    "jsonl": open_jsonl,
    "csv": open_csv,
    "tsv": open_tsv,
    "pt": open_torch,
}
"""How a file of each format is opened: its path, its name in messages, the key."""

SUFFIXES = {
    **{f".{name}": name for name in FORMATS},
    ".ndjson": "jsonl",
    ".pq": "parquet",
    ".pth": "pt",
}
"""The format that a file's ending says."""

_TEXT = ("jsonl", "csv", "tsv")


def open_source(
    source: ArrayLike | str | os.PathLike[str] | Source,
    *,
    key: str | None = None,
    format: str | None = None,
) -> Source:
    r"""Open embeddings wherever they are: an array, a tensor, a file, a folder, standard input.

    Nothing in a file is executed: no pickle, no code from elsewhere. Files are read in chunks, in
    bounded memory, in the dtype in which they are stored. What a file holds beside the embeddings
    can be asked for as columns.

    | what | embeddings | columns |
    | --- | --- | --- |
    | array, tensor | itself | none |
    | `.npy` | its array, in any memory or byte order | none |
    | `.npz`, `.safetensors` | a 2-D float array | 1-D arrays of the same length |
    | `.pt`, `.pth` | a tensor, or a 2-D float one in a dict | 1-D tensors or lists of its length |
    | `.parquet`, `.pq` | a column of lists, or columns of floats | columns of single values |
    | `.jsonl`, `.ndjson` | a field with a list, or the line is a list | text, numbers, booleans |
    | `.csv`, `.tsv` | columns of numbers, or one of lists | all others |
    | a folder | its shards, which are files of one format | theirs, `shard`, and of `layer=3/` |
    | `"-"` | standard input, in one of these formats | as there |

    Text is read as float64, which keeps every printed digit. Where there are several candidates,
    the one called embeddings, embedding, vectors or vector is taken, or the one that `key` names.
    In a table without a column of lists the embeddings are the columns that are counted up
    (`x_0, x_1, …`, where `key` is `"x_"`), or else all columns of numbers but those named as
    something about a row: id, idx, index, row, label, labels, class, target, layer, group, cluster,
    split, fold, shard, token, position, and names that end in `_id`. Nothing that looks like a part
    of the embeddings is left out without a word: a gap in the count, a counted column without
    numbers, a shard in another place are errors.

    Args:
        source: n×d array or tensor, a path, `"-"` for standard input, or a source, which is
            returned as it is.
        key: which array or column is the embeddings.
        format: `npy`, `npz`, `safetensors`, `parquet`, `jsonl`, `csv`, `tsv` or `pt`, where the
            file's ending does not tell; standard input tells by its first bytes.

    Raises:
        SourceError: unreadable, corrupt, ragged, empty or ambiguous.
        InputError: wrong shape or dtype.
        SettingError: an unknown format, or a key for something that is one array.

    Example:
        >>> source = open_source(np.eye(5, 3))
        >>> [tuple(chunk.rows.shape) for chunk in source.chunks(2)]
        [(2, 3), (2, 3), (1, 3)]
    """
    if isinstance(source, np.ndarray | Tensor):
        return _open_array(source, key, format)
    if isinstance(source, Source):
        no_key(key, source.name)
        _no_format(format, source.name)
        return source
    if not isinstance(source, str | os.PathLike):
        raise InputError(
            f"got a source of type {type(source).__name__}, expected an array, a tensor, a path or "
            "a source; convert it, for instance with numpy.asarray"
        )
    given = os.fspath(source)
    chosen = None if format is None else _format(format)
    table = _open_stdin(key, chosen) if given == "-" else _open_path(given, key, chosen)
    if table.n_rows == 0:
        raise SourceError(f"got {table.name} with 0 rows, expected embeddings")
    return table


def _format(format: str) -> str:
    low = format.lower().removeprefix(".")
    found = SUFFIXES.get(f".{low}")
    if found is None:
        raise unknown_name("format", format, FORMATS)
    return found


def _no_format(format: str | None, what: str) -> None:
    if format is not None:
        raise SettingError(f"got format={format!r} for {what}, expected none as it is no file")


def _open_array(array: ArrayLike, key: str | None, format: str | None) -> Table:
    table = ArrayTable(array)
    no_key(key, f"the {table.name}")
    _no_format(format, f"the {table.name}")
    if not table.n_rows:
        raise InputError(f"got an empty {table.name} (0 rows), expected embeddings")
    return table


def _open_stdin(key: str | None, format: str | None) -> Table:
    spool = Spool()
    return SpooledTable(spool, _open_file(spool.path, STDIN, key, format, sniffing=True))


def _open_path(given: str, key: str | None, format: str | None) -> Table:
    if "://" in given:
        raise SourceError(
            f"got the address {quoted(given)}, expected a local path; download it first"
        )
    if not given or "\0" in given:
        raise SourceError(f"got the path {quoted(given)}, expected the path of a file or folder")
    path = Path(given).expanduser()
    name = shown(given)
    with reading(name):
        try:
            is_folder = stat.S_ISDIR(path.stat().st_mode)
        except (FileNotFoundError, NotADirectoryError) as error:
            raise _missing(path, name) from error
    if is_folder:
        return _open_folder(path, given, key, format)
    return _open_file(path, name, key, format)


def _open_folder(folder: Path, given: str, key: str | None, format: str | None) -> Table:
    name = shown(given)
    with reading(name):
        if (folder / "config.json").exists() and any(folder.glob("*model*")):
            raise SourceError(
                f"got {name}, which is the folder of a model, expected embeddings; "
                f"make them first: isotropy embed {name} --text FILE --out embeddings.safetensors"
            )
        paths, others = files_of(folder)
    overlooked = [
        path
        for path in others
        if path.suffix.lower() in SUFFIXES or (format is not None and not is_beside(path))
    ]
    if overlooked:
        raise SourceError(
            f"got the folder {name} with files that would be left out "
            f"({listing(path.as_posix() for path in overlooked)}), expected all shards directly in "
            "it or in folders named column=value, and none named _…, README… or LICENSE…; move or "
            "rename these, or hide them with a dot before the name"
        )
    if not paths:
        raise SourceError(
            f"got the folder {name} without files to read, expected files that end in "
            f"{', '.join(SUFFIXES)} directly in it or in folders named column=value"
        )
    formats: dict[str, Path] = {}
    for path in paths:
        found = format or SUFFIXES.get(path.suffix.lower())
        if found is None:
            raise SourceError(
                f"got the folder {name} with the file {quoted(path.as_posix())}, expected only "
                f"files that end in {', '.join(SUFFIXES)}; move it away, or pass format=… for all"
            )
        formats.setdefault(found, path)
    if len(formats) > 1:
        examples = listing(path.as_posix() for path in formats.values())
        raise SourceError(
            f"got the folder {name} with files of several formats ({examples}), "
            "expected one; move the others away"
        )
    return FolderTable(
        name,
        [
            (path, _open_file(folder / path, shown(f"{Path(given) / path}"), key, format))
            for path in paths
        ],
    )


def _missing(path: Path, name: str) -> SourceError:
    if path.is_symlink():
        return SourceError(
            f"got {name}, a link to {quoted(str(path.readlink()))}, which does not exist, "
            "expected an existing file; repair the link"
        )
    try:
        beside = [other.name for other in path.parent.iterdir()]
    except OSError:
        return SourceError(
            f"got {name}, expected an existing file; there is no folder {quoted(str(path.parent))}"
        )
    near = get_close_matches(path.name, beside, n=3)
    hint = f"did you mean {listing(near)}?" if near else "check its name"
    return SourceError(f"got {name}, expected an existing file; {hint}")


def _open_file(
    path: Path, name: str, key: str | None, format: str | None, *, sniffing: bool = False
) -> Table:
    """A file as a table, if its content is of the format that is asked for or that it says."""
    with reading(name):
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise SourceError(
                f"got {name}, which is a pipe or a device, expected a file or folder; "
                "pipe it into standard input and measure '-'"
            )
        seen = look(path)
    expected = format or SUFFIXES.get(path.suffix.lower())
    if expected is None and sniffing and seen is not None:
        expected = seen.format
    if not status.st_size and expected not in _TEXT:
        raise SourceError(f"got {name}, which is empty (0 bytes), expected embeddings")
    if expected is None:
        raise _unknown_format(name, seen, "" if sniffing else path.suffix)
    if seen is not None and not _fits(seen, expected):
        advice = f"pass format={seen.format!r} or rename it" if seen.format else seen.advice
        raise SourceError(
            f"got {name}, which looks like {seen.what}, expected the format {expected!r}; {advice}"
        )
    return FORMATS[expected](path, name, key)


def _fits(seen: Look, expected: str) -> bool:
    if expected in ("csv", "tsv"):
        return seen.format == "csv" or seen.what == LISTS
    return seen.format == expected


def _unknown_format(name: str, seen: Look | None, suffix: str) -> SourceError:
    what = f", whose ending {quoted(suffix)} is unknown" if suffix else " in unknown format"
    if seen is None:
        advice = "name its format with format= (--format on the command line)"
    elif seen.format is None:
        advice = f"it looks like {seen.what}: {seen.advice}"
    else:
        advice = f"it looks like {seen.what}: pass format={seen.format!r}"
    return SourceError(f"got {name}{what}, expected one of {', '.join(FORMATS)}; {advice}")

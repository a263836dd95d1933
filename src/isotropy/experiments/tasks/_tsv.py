"""Tab-separated files as benchmarks have them: no quoting, with or without a header."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from isotropy.errors import SourceError
from isotropy.sources._messages import listing, reading, shown
from isotropy.sources._texts import text_lines


@dataclass(frozen=True, kw_only=True)
class Columns:
    """Which column holds what.

    Attributes:
        names: by field, the names that its column may have in a header.
        places: by field, its column's place in files without a header; None if all have one.
        widths: how many columns a file without a header may have.
        broken: whether a row may be broken over several lines by line ends in a text.
    """

    names: Mapping[str, tuple[str, ...]]
    places: Mapping[str, int] | None = None
    widths: tuple[int, ...] = ()
    broken: bool = False


def tsv_rows(path: Path, columns: Columns) -> Iterator[tuple[int, dict[str, str]]]:
    """The fields of each row, and the number of its line, counted from 1. Blank lines are skipped.

    Raises:
        SourceError: unreadable, empty, without the columns, a row of another width.
    """
    name = shown(str(path))
    with reading(name), path.open("rb") as file:
        lines = ((number + 1, text) for number, text in text_lines(file, name) if text.strip())
        first = next(lines, None)
        if first is None:
            raise SourceError(f"got {name}, which is empty, expected a row in each line")
        cells = first[1].split("\t")
        places: Mapping[str, int]
        widths: tuple[int, ...]
        header = _header(cells, columns.names)
        if header is not None:
            places, widths = header, (len(cells),)
        elif columns.places is not None:
            places, widths = columns.places, columns.widths
            yield first[0], _fields(cells, places, widths, first[0], name)
        else:
            raise _no_columns(name, cells, columns.names)
        for number, text in lines:
            cells = text.split("\t")
            while columns.broken and len(cells) < widths[0]:
                more = next(lines, None)
                if more is None:
                    break
                head, *tail = more[1].split("\t")
                cells = [*cells[:-1], f"{cells[-1]} {head}", *tail]
            yield number, _fields(cells, places, widths, number, name)


def _header(cells: list[str], names: Mapping[str, tuple[str, ...]]) -> dict[str, int] | None:
    """Where the columns are, if this is a header that names them all."""
    found = {}
    for field, known in names.items():
        there = [cells.index(name) for name in known if name in cells]
        if not there:
            return None
        found[field] = there[0]
    return found


def _fields(
    cells: list[str], places: Mapping[str, int], widths: tuple[int, ...], line: int, name: str
) -> dict[str, str]:
    if len(cells) not in widths:
        expected = " or ".join(str(width) for width in widths)
        raise SourceError(
            f"got {len(cells)} columns in line {line} of {name}, expected {expected}, "
            "separated by tabs and without quotes; repair the line"
        )
    return {field: cells[place] for field, place in places.items()}


def _no_columns(name: str, cells: list[str], names: Mapping[str, tuple[str, ...]]) -> SourceError:
    missing = [known for known in names.values() if not set(known) & set(cells)]
    wanted = " and ".join(" or ".join(repr(one) for one in known) for known in missing)
    return SourceError(
        f"got {name} with the columns {listing(cells)} in line 1, expected a header with {wanted}; "
        "rename its columns or choose another file"
    )

"""Results as plain text in 80 columns: what the command line prints, what a `Measurement` shows.

Everything here takes results and returns a string; nothing is computed. Rich is imported at the
first use, so that `isotropy --help` need not wait for it.
"""

from collections.abc import Iterable, Mapping, Sequence
from os.path import commonprefix
from textwrap import fill
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from isotropy.experiments.plan import Plan
    from isotropy.experiments.tasks import Task
    from isotropy.measurement import Measurement, Score
    from isotropy.measures import MeasureSpec
    from isotropy.method import MethodSpec

WIDTH = 80
_GAP = 2  # columns between two columns of a table
_MOST_WARNINGS = 10
# How many groups with the same warning are named.
_MOST_NAMES = 12


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], *, numbers: bool = True) -> str:
    """A table of cells under headers; with `numbers`, all columns but the first end on the right.

    Cells that are too long for 80 columns wrap.

    Example:
        >>> print(table(["name", "value"], [["iso_score", "0.867"], ["two_nn", "12.1"]]))
        name       value
        ────────────────
        iso_score  0.867
        two_nn      12.1
    """
    from io import StringIO

    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    # No padding at the edges: SIMPLE_HEAD's dividers are the gaps between columns.
    drawn = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, padding=(0, _GAP - 1, 0, 0))
    for i, header in enumerate(headers):
        drawn.add_column(Text(header), justify="right" if numbers and i else "left")
    for row in rows:
        drawn.add_row(*(Text(_printable(cell)) for cell in row))
    file = StringIO()
    Console(file=file, width=WIDTH, color_system=None, force_terminal=False).print(drawn)
    return "\n".join(line.rstrip() for line in file.getvalue().rstrip().splitlines())


def measurement(report: "Measurement") -> str:
    """A measurement's title, its numbers (and those of its groups), notes and warnings."""
    if report.groups:
        across = _group_cells(report)
        down = [list(column) for column in zip(*across, strict=True)]
        drawn = min(_split(across), _split(down), key=len)
    else:
        drawn = [table(*_number_cells(report))]
    by = f", by {report.by}" if report.by else ""
    size = f"{report.rows} rows × {report.features} features{by}"
    title = _printable(f"{report.source}: {size}")
    if len(title) > WIDTH:  # a long path keeps its size together on a line of its own
        title = f"{wrapped(report.source)}:\n{wrapped(size)}"
    return "\n\n".join([title, *drawn, *_notes(report)])


def measures(specs: Iterable["MeasureSpec"]) -> str:
    """What can be measured: every measure with the direction that is more isotropic."""
    rows = [
        [
            spec.name + ("" if spec.default else " *"),
            spec.summary,
            spec.numbers[0].more_isotropic or "",
            str(spec.min_rows),
        ]
        for spec in specs
    ]
    drawn = table(["measure", "what it is", "isotropic", "rows"], rows, numbers=False)
    notes = (
        "isotropic: whether a higher or a lower number means more isotropic; "
        "rows: the fewest it needs"
    )
    if not all(spec.default for spec in specs):
        notes += "; *: measured only when named with --measures"
    return f"{drawn}\n\n{wrapped(notes)}"


def methods(specs: Iterable["MethodSpec"]) -> str:
    """What can be done to embeddings: every penalty, layer and transform."""
    rows = [[spec.name, spec.kind, spec.summary] for spec in specs]
    return table(["method", "kind", "what it is"], rows, numbers=False)


def tasks(found: Iterable["Task"]) -> str:
    """What models can be trained and tested on: every task with its kind and main metric."""
    rows = [[task.name, task.kind, task.metric, task.summary] for task in found]
    return table(["task", "kind", "metric", "what it is"], rows, numbers=False)


def plans(found: Iterable["Plan"]) -> str:
    """What experiments there are: every built-in plan."""
    return table(
        ["plan", "what it is"], [[plan.name, plan.summary] for plan in found], numbers=False
    )


def number(value: float | None) -> str:
    """A value with four significant digits; counts and large values are whole.

    Example:
        >>> [number(0.867), number(123456.7), number(-1.5e-9), number(3.0), number(None)]
        ['0.8670', '123457', '-1.500e-09', '3', 'undefined']
    """
    if value is None:
        return "undefined"
    whole = abs(value) < 1e9 and (value.is_integer() or abs(value) >= 1e3)
    return f"{value:.0f}" if whole else f"{value:#.4g}"


def warnings_of(report: "Measurement") -> list[str]:
    """The warnings of the whole and of its groups; what several groups say stands there once."""
    said: dict[str, list[str]] = {}
    for name, group in report.groups.items():
        for warning in group.warnings:
            said.setdefault(warning, []).append(name)
    return [f"warning: {warning}" for warning in report.warnings] + [
        f"warning: {report.by} {_some(names)}: {warning}" for warning, names in said.items()
    ]


def _some(names: list[str]) -> str:
    """The names, or the first few of many."""
    if len(names) <= _MOST_NAMES:
        return ", ".join(names)
    return f"{', '.join(names[:_MOST_NAMES])} and {len(names) - _MOST_NAMES} more"


def _notes(report: "Measurement") -> list[str]:
    notes = []
    if any(score.sampled for part in _each(report).values() for score in part.values()):
        notes.append(wrapped(f"* computed on a random sample of the rows (seed {report.seed})"))
    warnings = warnings_of(report)
    if more := len(warnings[_MOST_WARNINGS:]):
        warnings[_MOST_WARNINGS:] = [f"and {more} more warnings; --json has them all"]
    if warnings:
        notes.append("\n".join(map(wrapped, warnings)))
    return notes


def _number_cells(report: "Measurement") -> tuple[list[str], list[list[str]]]:
    """The headers and rows of a measurement without groups."""
    with_interval = report.level is not None
    exact = " " if any(score.sampled for score in report.values()) else ""
    rows = [
        [
            key,
            number(score.value),
            *[_interval(score)] * with_interval,
            f"{score.rows}{'*' if score.sampled else exact}",
        ]
        for key, score in report.items()
    ]
    return ["measure", "value", *[_level(report)] * with_interval, "rows"], rows


def _level(report: "Measurement") -> str:
    return "" if report.level is None else f"{100 * report.level:g}% interval"


def _interval(score: "Score | None") -> str:
    if score is None or score.interval is None:
        return ""
    low, high = score.interval
    return f"{number(low)} … {number(high)}"


def _each(report: "Measurement") -> Mapping[str, "Measurement"]:
    """The whole and then every group, by the name it has in a table."""
    return {"all": report, **report.groups}


def _group_cells(report: "Measurement") -> list[list[str]]:
    """The headers and rows of a measurement by groups: a column for the whole and each group."""
    each = list(_each(report).values())
    names = ["all", *_clipped([_printable(name) for name in report.groups])]
    across = [[report.by or "group", *names], ["rows", *(str(part.rows) for part in each)]]
    for key in report:
        scores = [part.get(key) for part in each]
        marks = ["*" if score and score.sampled else "" for score in scores]
        values = [number(score.value) if score else "" for score in scores]
        across.append([key, *(value + mark for value, mark in zip(values, marks, strict=True))])
        if any(score and score.interval for score in scores):
            across.append([f"  {_level(report)}", *map(_interval, scores)])
    return across


def _split(rows: Sequence[Sequence[str]]) -> list[str]:
    """One table, or several side parts of it, each with the first column and within the width."""
    columns = list(zip(*rows, strict=True))
    first, *widths = (max(map(len, column)) + _GAP for column in columns)
    room = WIDTH + _GAP - first
    parts = _pack(widths, room)
    # As narrow as so many parts can be: they are then about equally wide.
    parts = next(
        packed
        for narrow in range(max(widths), room + 1)
        if len(packed := _pack(widths, narrow)) <= len(parts)
    )
    drawn = []
    for part in parts:
        headers, *cells = zip(columns[0], *(columns[i + 1] for i in part), strict=True)
        drawn.append(table(headers, cells))
    return drawn


def _pack(widths: Sequence[int], room: int) -> list[list[int]]:
    """The numbers of the columns in as few parts as there is room for, in order."""
    parts: list[list[int]] = []
    used = room
    for i, width in enumerate(widths):
        if used + width > room:
            parts.append([])
            used = 0
        parts[-1].append(i)
        used += width
    return parts


def across(rows: Sequence[Sequence[str]]) -> str:
    """A table whose first row has its headers; one that is too wide in parts below each other.

    Each part has the first column.

    Example:
        >>> print(across([["name", "a"], ["x", "1"]]))
        name  a
        ───────
        x     1
    """
    return "\n\n".join(_split(rows))


def wrapped(text: str) -> str:
    """A text in lines of 80 columns, all but the first with an indent.

    Example:
        >>> wrapped("short")
        'short'
    """
    return fill(_printable(text), WIDTH, subsequent_indent="  ", break_on_hyphens=False)


def _clipped(names: Sequence[str], length: int = 24) -> list[str]:
    """Long names cut to the part where they begin to differ: those of shards do so late."""
    if max(map(len, names)) <= length:
        return list(names)
    start = max(0, len(commonprefix(names)) - length // 2)  # noqa: RUF071, characters are meant
    parts = ["…" * (start > 0) + name[start:] for name in names]
    return [part if len(part) <= length else f"{part[: length - 1]}…" for part in parts]


def _printable(text: str) -> str:
    """Text from data without control characters, which could move a terminal's cursor."""
    return "".join(character if character.isprintable() else "�" for character in text)

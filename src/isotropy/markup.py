"""A measurement as HTML: a table for notebooks, and a page around it."""

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from isotropy.tables import number

if TYPE_CHECKING:
    from isotropy.measurement import Measurement
    from isotropy.scoring import Score

_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    ".isotropy{overflow-x:auto}table{border-collapse:collapse}"
    "caption{text-align:left;padding:.3rem 0}th,td{padding:.2rem .8rem;text-align:right}"
    "th:first-child{text-align:left}thead th{border-bottom:1px solid}"
)


def page(report: "Measurement") -> str:
    """A self-contained page that shows a measurement."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>Isotropy of {escape(report.source)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n<h1>Isotropy of {escape(report.source)}</h1>\n{fragment(report)}\n"
        "</body>\n</html>\n"
    )


def fragment(report: "Measurement") -> str:
    """A measurement as tables, with its warnings."""
    caption = f"{report.source}: {report.rows} rows × {report.features} features"
    parts = [_scores(report, caption)]
    if report.groups:
        parts.append(_groups(report))
    warnings = [escape(warning) for warning in report.warnings]
    warnings += [
        escape(f"{report.by} {name}: {warning}")
        for name, group in report.groups.items()
        for warning in group.warnings
    ]
    if warnings:
        parts.append("<ul>" + "".join(f"<li>{warning}</li>" for warning in warnings) + "</ul>")
    return f'<div class="isotropy">{"".join(parts)}</div>'


def _scores(report: "Measurement", caption: str) -> str:
    level = f"{100 * report.level:g}% interval" if report.level else None
    head = ["measure", "value", *([level] if level else []), "rows"]
    rows = [
        [
            key,
            number(score.value),
            *([_interval(score)] if level else []),
            f"{score.rows}{' (a random sample)' if score.sampled else ''}",
        ]
        for key, score in report.items()
    ]
    return _table(caption, head, rows)


def _groups(report: "Measurement") -> str:
    rows = [
        [key, *(_with_interval(group.scores[key]) for group in report.groups.values())]
        for key in report
    ]
    sizes = ["rows", *(str(group.rows) for group in report.groups.values())]
    return _table(f"by {report.by}", ["measure", *report.groups], [sizes, *rows])


def _interval(score: "Score") -> str:
    if score.interval is None:
        return ""
    low, high = score.interval
    return f"{number(low)} … {number(high)}"


def _with_interval(score: "Score") -> str:
    interval = _interval(score)
    return number(score.value) + (f" ({interval})" if interval else "")


def _table(caption: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = "".join(f'<th scope="col">{escape(title)}</th>' for title in head)
    lines = []
    for first, *cells in rows:
        data = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr><th scope="row">{escape(first)}</th>{data}</tr>')
    return (
        f"<table><caption>{escape(caption)}</caption><thead><tr>{titles}</tr></thead>"
        f"<tbody>{''.join(lines)}</tbody></table>"
    )

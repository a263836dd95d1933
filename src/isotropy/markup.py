"""A measurement as HTML: a table for notebooks, and a page around it."""

from collections.abc import Iterable
from html import escape
from typing import TYPE_CHECKING

from isotropy.tables import number, warnings_of

if TYPE_CHECKING:
    from isotropy.measurement import Measurement
    from isotropy.scoring import Score

_STYLE = (
    ":root{color-scheme:light dark}"
    "body{font:16px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}"
    "h1{font-size:1.5rem;overflow-wrap:anywhere}table{border-collapse:collapse}"
    "caption{text-align:left;padding:.3rem 0}"
    "th,td{padding:.2rem .8rem .2rem 0;text-align:right;white-space:nowrap}"
    # Names of measures stay in view where a table is wider than the screen.
    "th:first-child{text-align:left;position:sticky;left:0;background:Canvas}"
    "thead th{border-bottom:1px solid}tbody th{font-weight:normal}"
    "@media(max-width:40rem){table{font-size:.8rem}th,td{padding-right:.5rem}"
    "tbody th{white-space:normal}}"
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
    notes = warnings_of(report)
    if any(score.sampled for part in (report, *report.groups.values()) for score in part.values()):
        notes.insert(0, f"* computed on a random sample of the rows (seed {report.seed})")
    if notes:
        parts.append("<ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>")
    return f'<div class="isotropy">{"".join(parts)}</div>'


def _scores(report: "Measurement", caption: str) -> str:
    level = f"{100 * report.level:g}% interval" if report.level else None
    head = ["measure", "value", *([level] if level else []), "rows"]
    rows = [
        [
            key,
            number(score.value),
            *([_interval(score)] if level else []),
            f"{score.rows}{_mark(score)}",
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


def _mark(score: "Score") -> str:
    return "*" if score.sampled else ""


def _interval(score: "Score") -> str:
    if score.interval is None:
        return ""
    low, high = score.interval
    return f"{number(low)} … {number(high)}"


def _with_interval(score: "Score") -> str:
    interval = _interval(score)
    return number(score.value) + _mark(score) + (f" ({interval})" if interval else "")


def _table(caption: str, head: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    titles = "".join(f'<th scope="col">{escape(title)}</th>' for title in head)
    lines = []
    for first, *cells in rows:
        data = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        name = escape(first).replace("_", "_<wbr>")  # where it may break on a narrow screen
        lines.append(f'<tr><th scope="row">{name}</th>{data}</tr>')
    return (
        f'<div style="overflow-x:auto"><table><caption>{escape(caption)}</caption>'
        f"<thead><tr>{titles}</tr></thead><tbody>{''.join(lines)}</tbody></table></div>"
    )

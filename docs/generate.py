"""Writes the pages that are made from the code: one a measure, and their index.

A page holds what the measure's `SPEC` and its function's docstring say. `make docs` runs this; a
test compares the pages with what it would write.
"""

import inspect
import re
from math import inf, isinf
from pathlib import Path
from textwrap import dedent

from isotropy.measures import SPECS, MeasureSpec
from isotropy.measures._spec import Number

DOCS = Path(__file__).parent
NOTICE = "<!-- Made by docs/generate.py from the code; `make docs` writes it anew. -->"
SECTION = re.compile(
    r"^(Args|Returns|Raises|References|Example|Examples|Warns|Note|Notes):\n", re.MULTILINE
)
STREAM = {
    "from_moments": "From moments (mean, covariance and a few sums), exactly, in one pass over all "
    "rows.",
    "from_neighbours": "From exact nearest neighbours. Above `--sample` rows (20 000), those of a "
    "random sample; the result says so.",
    "from_rows": "From the rows themselves. Above `--sample` rows (20 000), from a random sample; "
    "the result says so.",
    "second_pass": "Exactly, in a second pass over all rows after the one for the moments.",
}


def pages() -> dict[Path, str]:
    """Every page's path with its text."""
    made = {DOCS / "measures" / f"{name}.md": page(spec) for name, spec in SPECS.items()}
    made[DOCS / "measures" / "README.md"] = index()
    return made


def page(spec: MeasureSpec) -> str:
    """The page of one measure."""
    description, sections = parse(inspect.getdoc(spec.function) or "")
    signature = inspect.signature(spec.function)
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in signature.parameters.values()]
    signature = signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)
    quoted = str(signature).replace("'", '"')  # as the formatter writes it
    parts = [
        f"# {spec.name}",
        NOTICE,
        description,
        f"```python\nisotropy.measures.{spec.name}{quoted}\n```",
        arguments(sections.get("Args", "")),
        f"Returns: {unwrap(sections['Returns'])}" if "Returns" in sections else "",
        "## Its numbers",
        numbers(spec),
        "## Properties",
        properties(spec),
        "## When to trust it",
        spec.trust,
        warning(spec),
        "## Example",
        example(sections.get("Example") or sections.get("Examples") or ""),
        f"```\n{command(spec)}\n```",
        "## Reference",
        unwrap(sections.get("References", "")) or spec.reference,
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def parse(doc: str) -> tuple[str, dict[str, str]]:
    """A Google docstring's description and its sections."""
    description, *rest = SECTION.split(doc)
    bodies = [dedent(body).strip("\n") for body in rest[1::2]]
    return description.strip(), dict(zip(rest[::2], bodies, strict=True))


def arguments(text: str) -> str:
    """The arguments as a list."""
    entries = re.split(r"\n(?=\S)", text) if text else []
    return "\n".join(
        f"- `{name}`: {unwrap(meaning)}"
        for name, _, meaning in (entry.partition(": ") for entry in entries)
    )


def numbers(spec: MeasureSpec) -> str:
    """The numbers with their bounds and directions."""
    lines = [
        "| key in results | range | of an isotropic cloud | more isotropic is |",
        "|---|---|---|---|",
    ]
    for number in spec.numbers:
        isotropic = "" if number.isotropic is None else f"{number.isotropic:g}"
        lines.append(
            f"| `{number.key}` | {bounds(number)} | {isotropic} | {number.more_isotropic or ''} |"
        )
    return "\n".join(lines)


def bounds(number: Number) -> str:
    """The range of a number, as an interval."""
    left = "(−∞" if number.low == -inf else f"[{number.low:g}"
    right = "∞)" if isinf(number.high) else f"{number.high:g}]"
    return f"{left}, {right}".replace("-", "−")


def properties(spec: MeasureSpec) -> str:
    """What else the spec declares, one line each."""
    how = next(text for name, text in STREAM.items() if getattr(spec, name))
    unchanged = ", ".join(sorted(spec.invariant_to)) or "nothing"
    options = ", ".join(f"`{name}` ({value!r})" for name, value in spec.options.items())
    lines = [
        f"- Unchanged by: {unchanged}.",
        f"- Fewest rows: {spec.min_rows}.",
        f"- Differentiable: {'yes' if spec.differentiable else 'no'}.",
        f"- In a stream: {how}",
        f"- Options of `measure()` with their defaults: {options or 'none'}.",
    ]
    if not spec.default:
        lines.append("- Measured only when named: `--measures` on the command line.")
    return "\n".join(lines)


def warning(spec: MeasureSpec) -> str:
    """The warning that few rows get, where there is one."""
    message = spec.warn(64, 768)
    return f"With 64 rows of 768 features `measure()` warns: {message}." if message else ""


def example(text: str) -> str:
    """A doctest as a code block."""
    return f"```python\n{text}\n```" if text else ""


def command(spec: MeasureSpec) -> str:
    """How to measure it on the command line."""
    settings = "".join(
        f" --set {spec.name}.{name}={str(value).lower() if isinstance(value, bool) else value}"
        for name, value in spec.options.items()
        if name != "seed"
    )
    return f"isotropy measure embeddings.npy --measures {spec.name}{settings}"


def unwrap(text: str) -> str:
    """Wrapped lines as one."""
    return " ".join(text.split())


def index() -> str:
    """The table of all measures."""
    lines = [
        "# Measures",
        "",
        NOTICE,
        "",
        "Each is a function in `isotropy.measures`, a row of `isotropy measure`, and a page here.",
        "",
        "| measure | what it is | more isotropic | fewest rows | differentiable | in a stream |",
        "|---|---|---|--:|---|---|",
    ]
    short = {
        "from_moments": "one pass",
        "from_neighbours": "neighbours of a sample",
        "from_rows": "a sample",
        "second_pass": "two passes",
    }
    for name, spec in SPECS.items():
        how = next(text for kind, text in short.items() if getattr(spec, kind))
        cells = (
            f"[{name}]({name}.md)",
            spec.summary.replace("|", r"\|"),
            spec.numbers[0].more_isotropic or "",
            str(spec.min_rows),
            "yes" if spec.differentiable else "no",
            how,
        )
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the pages and remove those of measures that are gone."""
    made = pages()
    folder = DOCS / "measures"
    folder.mkdir(exist_ok=True)
    for old in set(folder.glob("*.md")) - set(made):
        old.unlink()
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
    print(f"{len(made)} pages in {folder.relative_to(DOCS.parent)}/")


if __name__ == "__main__":
    main()

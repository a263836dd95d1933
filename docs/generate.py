"""Writes the pages that are made from the code: one a measure, one a method, and their indexes.

A page holds what the `SPEC` and the docstring of its function or class say. `make docs` runs this;
a test compares the pages with what it would write.
"""

import inspect
import re
from collections.abc import Mapping
from importlib import import_module
from math import inf, isinf
from pathlib import Path
from textwrap import dedent

from isotropy.measures import SPECS, MeasureSpec
from isotropy.measures._spec import Number
from isotropy.method import MethodSpec

DOCS = Path(__file__).parent
NOTICE = "<!-- Made by docs/generate.py from the code; `make docs` writes it anew. -->"
SECTION = re.compile(
    r"^(Args|Shapes|Attributes|Returns|Raises|References|Examples?|Warns|Notes?):\n", re.MULTILINE
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


# Each kind of method: its package, what it does, and how one is made.
METHODS = {
    "penalties": "Terms that are added to the loss: `loss = loss + penalty(representations)`.",
    "layers": "Modules between encoder and head.",
    "transforms": "Fitted on a cloud, they map clouds: `transform.fit(x).transform(x)`.",
}
FOLDERS = ("measures", "methods")


def pages() -> dict[Path, str]:
    """Every page's path with its text."""
    made = {DOCS / "measures" / f"{name}.md": page(spec) for name, spec in SPECS.items()}
    made[DOCS / "measures" / "README.md"] = index()
    for package, specs in methods().items():
        for name, method in specs.items():
            made[DOCS / "methods" / f"{name}.md"] = method_page(package, method)
    made[DOCS / "methods" / "README.md"] = method_index()
    return made


def methods() -> dict[str, Mapping[str, MethodSpec]]:
    """The specs of all methods by their package."""
    return {package: import_module(f"isotropy.{package}").SPECS for package in METHODS}


def page(spec: MeasureSpec) -> str:
    """The page of one measure."""
    description, sections = parse(inspect.getdoc(spec.function) or "")
    parts = [
        f"# {spec.name}",
        NOTICE,
        description,
        f"```python\nisotropy.measures.{spec.name}{signature(spec.function)}\n```",
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


def method_page(package: str, spec: MethodSpec) -> str:
    """The page of one method."""
    name = spec.component.__name__
    description, sections = parse(inspect.getdoc(spec.component) or "")
    settings = ", ".join(f'{key}="{value}"' for key, value in spec.settings.items())
    parts = [
        f"# {spec.name}",
        NOTICE,
        f"A {spec.kind}: {spec.summary}.",
        description,
        f"```python\nisotropy.{package}.{name}{signature(spec.component)}\n```",
        f"This method is `{name}({settings})`." if settings else "",
        arguments(sections.get("Args", "")),
        f"Shapes: {unwrap(sections['Shapes'])}" if "Shapes" in sections else "",
        "After `fit`:" if "Attributes" in sections and spec.kind == "transform" else "",
        arguments(sections.get("Attributes", "")) if spec.kind == "transform" else "",
        "## What it does to a cloud" if spec.measure else "",
        effect(spec),
        "## Where the paper and its code differ, and what is done here",
        spec.differs or "Nowhere that we know of.",
        "## Example",
        example(sections.get("Example") or sections.get("Examples") or ""),
        "## Reference",
        unwrap(sections.get("References", "")) or spec.reference,
    ]
    return "\n\n".join(part.strip("\n") for part in parts if part) + "\n"


def effect(spec: MethodSpec) -> str:
    """Which number it moves, and where."""
    if spec.measure is None:
        return ""
    measure = next(m for m in SPECS.values() if spec.measure in {n.key for n in m.numbers})
    link = f"[`{spec.measure}`](../measures/{measure.name}.md)"
    weight = " with its default weight" if spec.kind == "penalty" else ""
    return f"It moves {link} {spec.moves}{weight}; the tests hold that."


def signature(component: object) -> str:
    """The arguments of a function or class with their defaults, without types."""
    found = inspect.signature(component)
    plain = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    found = found.replace(parameters=plain, return_annotation=inspect.Signature.empty)
    return str(found).replace("'", '"')  # as the formatter writes it


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


def method_index() -> str:
    """The tables of all methods."""
    lines = ["# Methods", "", NOTICE, ""]
    lines += ["What the papers do to embeddings, and what people use today for the same wish."]
    for package, specs in methods().items():
        lines += ["", f"## {package.capitalize()}", "", METHODS[package], ""]
        lines += ["| method | class | what it is |", "|---|---|---|"]
        lines += [
            f"| [{name}]({name}.md) | `{spec.component.__name__}` | {spec.summary} |"
            for name, spec in specs.items()
        ]
    return "\n".join(lines) + "\n"


def main() -> None:
    """Write the pages and remove those of what is gone."""
    made = pages()
    for name in FOLDERS:
        (DOCS / name).mkdir(exist_ok=True)
        for old in set((DOCS / name).glob("*.md")) - set(made):
            old.unlink()
    for path, text in made.items():
        path.write_text(text, encoding="utf-8")
    print(f"{len(made)} pages in {' and '.join(f'docs/{name}/' for name in FOLDERS)}")


if __name__ == "__main__":
    main()

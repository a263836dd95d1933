"""Runs the sections, each in a fresh process, and renders all results as one table.

    python benchmarks/run.py                  all sections
    python benchmarks/run.py iso_score naive  only these; the table keeps the others' results
    python benchmarks/run.py --table          only the table

Ends with exit code 1 if a limit does not hold.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from harness import RESULTS, Row, limit

SECTIONS = {
    "iso_score": "IsoScore and its gradient",
    "unbiased": "The unbiased IsoScore",
    "tree_bars": "Bars",
    "neighbours": "Nearest neighbours",
    "naive": "Formulas as they are written down",
    "penalties": "Penalties beside a training step and beside their formulas",
    "layers": "The isotropy layer's second stage",
    "training": "A run beside the trainer it is built on",
    "streaming": "Larger than memory",
    "transforms": "Transforms of what is larger than memory",
    "intervals": "Intervals at 95 %",
    "engines": "Runs at a time, and their store",
    "accelerator": "On a CUDA device",
}


def seconds(value: float | None) -> str:
    if value is None:
        return ""
    if value >= 1:
        return f"{value:.3g} s"
    return f"{1e3 * value:.3g} ms" if value >= 1e-3 else f"{1e6 * value:.3g} µs"


def table_of(record: dict[str, Any]) -> str:
    circumstances = record["circumstances"]
    versions = ", ".join(f"{name} {number}" for name, number in circumstances["versions"].items())
    lines = [
        f"## {SECTIONS[record['section']]}",
        "",
        "| what | ours | beside | value | limit | |",
        "|---|--:|--:|--:|--:|---|",
    ]
    for cells in record["rows"]:
        passed = cells.pop("passed")
        row = Row(**cells)
        value = f"{row.value:.3g}" if row.value < 1e4 else f"{row.value:.0f}"
        beside = f"{row.against} {seconds(row.theirs)}".strip()
        verdict = {True: "holds", False: "**does not hold**", None: ""}[passed]
        lines.append(
            f"| {row.what} | {seconds(row.ours)} | {beside} | {value}{row.unit} | {limit(row)} "
            f"| {verdict} |"
        )
    lines += [
        "",
        f"Measured {circumstances['when']} on {circumstances['machine']}, "
        f"{circumstances['cores']} cores, {circumstances['threads']} threads; {versions}.",
    ]
    return "\n".join(lines)


def render() -> bool:
    """Write and show the table; whether every limit holds."""
    files = [RESULTS / f"{section}.json" for section in SECTIONS]
    records = [json.loads(file.read_text(encoding="utf-8")) for file in files if file.exists()]
    held = all(row["passed"] is not False for record in records for row in record["rows"])
    text = "\n\n".join(["# Benchmarks", *map(table_of, records)]) + "\n"
    (RESULTS / "table.md").write_text(text, encoding="utf-8")
    print(f"\n{text}")
    return held


def main() -> int:
    names = sys.argv[1:] or list(SECTIONS)
    if unknown := set(names) - {*SECTIONS, "--table"}:
        print(f"error: got {', '.join(sorted(unknown))}, expected: {', '.join(SECTIONS)}")
        return 2
    for name in names:
        if name != "--table":
            print(f"\n{SECTIONS[name]}", flush=True)
            subprocess.run([sys.executable, str(Path(__file__).parent / f"{name}.py")], check=True)
    return 0 if render() else 1


if __name__ == "__main__":
    sys.exit(main())

"""Write sentences from the docstrings of Python's own standard library, one a line.

A text that every machine with Python has, so that nothing is downloaded:

    python examples/docstrings.py sentences.txt --count 3000

The same Python gives the same file on every machine: sentences are ordered by a hash of their
words, so neither the file system's order nor a seed matters.
"""

import argparse
import ast
import hashlib
import inspect
import re
import sys
import sysconfig
import tokenize
from collections.abc import Iterator
from pathlib import Path

SKIPPED_FOLDERS = {"test", "tests", "idlelib", "lib2to3", "site-packages", "dist-packages"}
WORDS = range(4, 41)
END_OF_SENTENCE = re.compile(r"(?<=[.!?])\s+(?=[A-Z])")
# A sentence of English: starts with a capital, has no code in it, and ends.
SENTENCE = re.compile(r"[A-Z][A-Za-z0-9 ,;:'\"()/-]*[.!?]")


def source_files(library: Path) -> list[Path]:
    """The library's Python files that hold neither tests nor other people's packages."""
    return sorted(
        path
        for path in library.rglob("*.py")
        if not SKIPPED_FOLDERS.intersection(path.relative_to(library).parts)
    )


def docstrings(path: Path) -> Iterator[str]:
    """The docstrings of a file's module, classes and functions."""
    try:
        with tokenize.open(path) as file:
            tree = ast.parse(file.read())
    except (SyntaxError, UnicodeDecodeError):
        return  # templates and data that only look like Python
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node, clean=False)
            if text:
                yield inspect.cleandoc(text)


def sentences(docstring: str) -> Iterator[str]:
    """The sentences of a docstring's paragraphs; examples, lists and tables are left out."""
    for paragraph in re.split(r"\n\s*\n", docstring):
        if paragraph.startswith((" ", ">>>", "-", "*")) or "\n " in paragraph:
            continue
        for sentence in END_OF_SENTENCE.split(" ".join(paragraph.split())):
            whole = SENTENCE.fullmatch(sentence) and sentence.count("(") == sentence.count(")")
            if whole and len(sentence.split()) in WORDS:
                yield sentence


def collect(library: Path) -> list[str]:
    """All different sentences of a library, ordered by a hash."""
    found = {
        sentence
        for path in source_files(library)
        for docstring in docstrings(path)
        for sentence in sentences(docstring)
    }
    return sorted(found, key=lambda sentence: hashlib.sha256(sentence.encode()).digest())


def main() -> int:
    """Run the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path, help="the text file to write")
    parser.add_argument("--count", type=int, default=3000, help="how many sentences (3000)")
    arguments = parser.parse_args()
    if arguments.count < 1:
        parser.error(f"got --count {arguments.count}, expected at least 1")

    found = collect(Path(sysconfig.get_path("stdlib")))[: arguments.count]
    if len(found) < arguments.count:
        print(f"found {len(found)} sentences, fewer than {arguments.count}", file=sys.stderr)
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text("".join(f"{sentence}\n" for sentence in found), encoding="utf-8")
    print(f"{len(found)} sentences in {arguments.out}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

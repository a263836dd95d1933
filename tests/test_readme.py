"""The README's examples run, and print what it shows."""

import doctest
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
NUMBER = re.compile(r"\d+\.\d+|\d+")


def console_blocks() -> list[tuple[str, str]]:
    """Every `isotropy` command of the console blocks with its output."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", README, re.DOTALL):
        for part in re.split(r"^\$ ", block.replace("\\\n", " "), flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            found.append((command, output))
    return found


def first_words(table: str) -> list[str]:
    """Of the lines of the first table: its title, models, tasks and methods."""
    lines = [line for line in table.splitlines() if line.strip() and line[0] != "─"]
    return [line.split()[0] for line in lines[:7]]


def test_python_examples() -> None:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    blocks = "\n".join(re.findall(r"```python\n(.*?)```", README, re.DOTALL))
    example = doctest.DocTestParser().get_doctest(blocks, {}, "README", None, None)
    assert len(example.examples) > 5
    result = doctest.DocTestRunner(optionflags=flags).run(example)
    assert result.failed == 0


def test_make_targets_exist() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^make ([a-z-]+)", README, re.MULTILINE)
    assert {"demo", "test"} <= set(targets)
    for target in targets:
        assert re.search(rf"^{target}:", makefile, re.MULTILINE), target


@pytest.mark.long
@pytest.mark.weights
def test_commands_print_what_is_shown(tmp_path: Path) -> None:
    environment = {**os.environ, "COLUMNS": "80", "PYTHONUTF8": "1"}

    def run(*command: str) -> str:
        done = subprocess.run(
            [sys.executable, *command],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=True,
        )  # fmt: skip
        return done.stdout

    # What `make demo` leaves behind.
    run(str(ROOT / "examples" / "docstrings.py"), "demo/sentences.txt", "--count", "3000")
    run("-m", "isotropy", "embed", "minilm", "--text", "demo/sentences.txt",
        "--site", "mean@all", "--out", "demo/embeddings.safetensors")  # fmt: skip
    blocks = console_blocks()
    assert len(blocks) == 4
    for command, shown in blocks:
        program, *arguments = shlex.split(command)
        assert program == "isotropy"
        printed = run("-m", "isotropy", *arguments)
        if arguments[0] == "run":  # scores are a machine's own, marks and notes follow them
            assert first_words(printed) == first_words(shown)
            continue
        assert NUMBER.sub("0", " ".join(printed.split())) == NUMBER.sub(
            "0", " ".join(shown.split())
        )
        if arguments[0] == "measure":  # what `embed` prints besides is how long it took
            numbers = [float(number) for number in NUMBER.findall(printed)]
            assert numbers == pytest.approx([float(n) for n in NUMBER.findall(shown)], rel=0.02)

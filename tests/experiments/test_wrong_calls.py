"""Calls of the commands that make no sense: named in a line, and before anything runs."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from isotropy import cli
from isotropy.errors import IsotropyError
from isotropy.experiments.engines.local import cores

_ADDRESS = "got --address 'auto' with the engine local, expected it with --engine ray"
_FILES = "got files for task minimal-pairs, which makes its own sentences"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("train --threads 0", "got threads=0, expected greater than or equal to 1"),
        ("train --threads 5000", f"got threads=5000 on {cores()} cores, expected at most"),
        ("run demo --dry-run --threads 0", "got threads=0, expected"),
        ("run demo --dry-run --threads 5000", "got threads=5000 on "),
        ("tune i-star-small --trials 1 --threads 0", "got threads=0, expected"),
        ("run demo --dry-run --address auto", _ADDRESS),
        ("tune i-star-small --address auto", _ADDRESS),
        ("run demo --dry-run --data my.csv", _FILES),
        ("train --split dev=my.csv", _FILES),
    ],
)
def test_a_wrong_call(
    call: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data_dir: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = call.split()
    if arguments[0] == "tune":
        arguments += ["--data-dir", str(data_dir)]
    result = CliRunner().invoke(cli.app, arguments)
    said = str(result.exception) if isinstance(result.exception, IsotropyError) else result.output
    assert result.exit_code == 1
    assert message in " ".join(said.split())
    assert not list(tmp_path.glob("*.db"))


def test_a_list_that_is_too_deep() -> None:
    result = CliRunner().invoke(cli.app, ["train", "--set", f"train.epochs={'[' * 100_000}"])
    assert result.exit_code == 2
    assert "expected a list or table in JSON" in " ".join(result.output.replace("│", " ").split())
    assert len(result.output) < 1000

"""Every example runs, and prints what it promises."""

import re
from collections.abc import Callable
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "examples"

# With the settings of a short run, and what must be in its output.
SHORT = {
    "digits": (["--epochs", "2"], r"weight 0: accuracy 0\.\d+.*\nweight .*iso_score 0\.\d+"),
    "plain_pytorch": (["--steps", "2"], r"step 2: task loss \d\.\d+, penalty -?\d\.\d+"),
    "huggingface_trainer": (["--steps", "2", "--held-out", "16"], r"\n   2 .*\d\.\d+"),
    "huggingface_callback": (["--steps", "2", "--points", "500"], "penalty_refresh_seconds"),
    "sentence_transformers_loss": (
        ["--steps", "1", "--held-out", "16"],
        r"before .*iso_score.*\nplain loss .*\nwith penalty .*mean_cosine",
    ),
    "isotropy_layer": (
        ["--steps", "1", "--rows", "32", "--held-out", "32"],
        r"before: accuracy \d\.\d+, iso_score 0\.\d+\nafter: accuracy \d\.\d+, iso_score 0\.\d+",
    ),
    "lightning_callback": (["--steps", "2"], r"iso_score 0\.\d+\npenalty \d"),
}
HELPERS = {"docstrings", "labelled_sentences"}

Run = Callable[[str, list[str]], str]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """The output of an example, as if it were called on the command line."""
    monkeypatch.syspath_prepend(str(FOLDER))

    def ran(name: str, arguments: list[str]) -> str:
        spec = spec_from_file_location(f"example_{name}", FOLDER / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = module_from_spec(spec)
        spec.loader.exec_module(module)
        assert module.main(arguments) == 0
        return capsys.readouterr().out

    return ran


def test_every_example_is_tested() -> None:
    assert {path.stem for path in FOLDER.glob("*.py")} == set(SHORT) | HELPERS


@pytest.mark.parametrize(
    "name",
    ["digits", *(pytest.param(n, marks=pytest.mark.weights) for n in SHORT if n != "digits")],
)
def test_an_example_runs(run: Run, name: str) -> None:
    arguments, expected = SHORT[name]
    assert re.search(expected, run(name, arguments)), name


@pytest.mark.long
@pytest.mark.parametrize(
    "name",
    ["digits", *(pytest.param(n, marks=pytest.mark.weights) for n in SHORT if n != "digits")],
)
def test_an_example_runs_with_its_own_settings(run: Run, name: str) -> None:
    assert re.search(
        SHORT[name][1].replace(r"step 2", "step 20").replace("   2", "  16"), run(name, [])
    )

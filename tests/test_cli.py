"""The command line as its users meet it: output, files, exit codes and one-line errors."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

import isotropy
from isotropy import cli
from isotropy.measures import SPECS

ROWS, FEATURES = 200, 6


def invoke(*arguments: object, **settings: Any) -> Result:
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments], **settings)
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


def run(*arguments: object, **settings: Any) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "isotropy", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **settings)


@pytest.fixture(scope="module")
def cloud() -> np.ndarray:
    x = np.random.default_rng(0).normal(size=(ROWS, FEATURES)).astype(np.float32)
    return x * np.linspace(1, 2, FEATURES, dtype=np.float32)


@pytest.fixture(scope="module")
def npy(cloud: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clouds") / "cloud.npy"
    np.save(path, cloud)
    return path


@pytest.fixture(scope="module")
def parquet(cloud: np.ndarray, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("clouds") / "cloud.parquet"
    layers = [f"layer {i % 10}" for i in range(ROWS)]
    pq.write_table(pa.table({"embedding": list(cloud), "layer": layers}), path)
    return path


def test_the_table_fits_80_columns_and_has_every_default_number(npy: Path) -> None:
    result = invoke("measure", npy)
    lines = result.stdout.splitlines()
    assert result.exit_code == 0
    assert max(map(len, lines)) <= 80
    keys = {number.key for spec in SPECS.values() if spec.default for number in spec.numbers}
    assert keys <= {line.split()[0] for line in lines if line}
    assert f"{ROWS} rows × {FEATURES} features" in result.stdout


def test_values_are_those_of_the_library(npy: Path, cloud: np.ndarray) -> None:
    result = invoke("measure", npy, "--measures", "iso-score, mean_cosine", "--json", "-")
    scores = isotropy.measure(cloud, ["iso_score", "mean_cosine"])
    record = json.loads(result.stdout)
    assert record == {**scores.to_dict(), "source": record["source"]}


def test_a_pipe_gets_plain_text_and_no_progress(npy: Path) -> None:
    done = run("measure", npy, "--measures", "iso_score,two_nn", "--interval", ".95")
    assert done.returncode == 0
    assert done.stderr == ""
    assert "\x1b" not in done.stdout
    assert "95% interval" in done.stdout


@pytest.mark.parametrize("measures", ["iso_score,two_nn", None])
def test_groups_fit_80_columns(parquet: Path, measures: str | None) -> None:
    chosen = ["--measures", measures] if measures else []
    result = invoke("measure", parquet, "--key", "embedding", "--by", "layer", *chosen)
    assert result.exit_code == 0
    assert all(f"layer {i}" in result.stdout for i in range(10))
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_standard_input(npy: Path) -> None:
    from_file = invoke("measure", npy, "--json", "-").stdout
    with npy.open("rb") as file:
        done = run("measure", "-", "--format", "npy", "--json", "-", stdin=file)
    assert done.returncode == 0, done.stderr
    a, b = json.loads(from_file), json.loads(done.stdout)
    assert {**a, "source": ""} == {**b, "source": ""}


def test_an_option_of_a_measure(npy: Path) -> None:
    keys = json.loads(
        invoke(
            "measure", npy, "--measures", "anisotropy", "--set", "anisotropy.k=1", "--json", "-"
        ).stdout
    )
    assert "anisotropy_1" in json.dumps(keys)
    assert "anisotropy_2" not in json.dumps(keys)


def test_files_are_written_beside_the_table(npy: Path, tmp_path: Path) -> None:
    result = invoke("measure", npy, "--json", tmp_path / "s.json", "--html", tmp_path / "s.html")
    assert result.exit_code == 0
    assert "iso_score" in result.stdout
    assert json.loads((tmp_path / "s.json").read_text()) == json.loads(
        invoke("measure", npy, "--json", "-").stdout
    )
    assert "<table" in (tmp_path / "s.html").read_text()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.html", "s.json"]


def test_html_can_be_printed_instead_of_the_table(npy: Path) -> None:
    result = invoke("measure", npy, "--measures", "iso_score", "--html", "-")
    assert result.stdout.startswith("<!doctype html>")
    assert result.stdout.endswith("</html>\n")


def test_json_has_null_for_what_is_undefined(tmp_path: Path) -> None:
    x = np.random.default_rng(0).normal(size=(50, 4))
    x[3] = 0  # a row without a direction
    np.save(tmp_path / "x.npy", x)
    result = invoke("measure", tmp_path / "x.npy", "--json", "-")
    assert result.exit_code == 0
    record = json.loads(result.stdout)
    assert record["scores"]["mean_cosine"]["value"] is None
    assert any("mean_cosine" in warning and "row 3" in warning for warning in record["warnings"])
    assert "NaN" not in result.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--measures", "isoscore"], "did you mean 'iso_score'"),
        (["--measures", "qqq"], "choose from"),
        (["--interval", "1.5"], "1.5"),
        (["--interval", "0"], "interval"),
        (["--interval", "nan"], "interval"),
        (["--by", "label"], "label"),
        (["--set", "anisotropy.q=3"], "option of anisotropy"),
        (["--set", "anisotropy.k=three"], "k='three', expected a value of type int"),
        (["--set", "isotropy.k=3"], "isotropy"),
        (["--set", "anisotropy.k=0"], "anisotropy: got k=0, expected a whole number from 1"),
        (["--seed", "-1"], "got seed=-1, expected a whole number"),
        (["--seed", "99999999999"], "got seed=99999999999"),
        (["--device", "meta"], "got device='meta'"),
        (["--key", "layer"], "layer"),
        (["--format", "xls"], "xls"),
        (["--sample", "0"], "sample"),
        (["--sample", "-3"], "sample"),
        (["--device", "warp"], "warp"),
        (["--json", "missing/f.json"], "cannot be written (No such file or directory)"),
        (["--html", "."], "cannot be written (it is a folder)"),
    ],
)
def test_errors_are_one_line_and_exit_code_1(npy: Path, arguments: list[str], message: str) -> None:
    result = invoke("measure", npy, *arguments)
    assert result.exit_code == 1
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1
    assert message in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Missing argument"),
        (["cloud.npy", "--interval", "abc"], "valid number"),
        (["cloud.npy", "--sample", "1.5"], "valid integer"),
        (["cloud.npy", "--mesures", "iso_score"], "No such option"),
        (["cloud.npy", "--measures", "iso_score,,two_nn"], "expected names with commas"),
        (["cloud.npy", "--set", "k=3"], "expected MEASURE.OPTION=VALUE"),
        (["cloud.npy", "--set", "anisotropy.k"], "expected MEASURE.OPTION=VALUE"),
        (["a.npy", "b.npy"], "unexpected extra argument"),
        (["cloud.npy", "--json", "-", "--html", "-"], "only one of --json and --html can be -"),
        (["cloud.npy", "--json", "a", "--html", "a"], "only one of --json and --html can be a"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], message: str) -> None:
    result = invoke("measure", *arguments)
    assert result.exit_code == 2
    assert result.stdout == ""
    assert message in result.stderr


@pytest.mark.parametrize("source", ["missing.npy", "", "missing/", "two words.npy"])
def test_a_missing_source_is_one_line(source: str) -> None:
    result = invoke("measure", source)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert len(result.stderr.splitlines()) == 1


def test_the_target_is_tried_before_the_work(
    npy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("isotropy.measurement.measure", lambda *a, **k: pytest.fail("it began"))
    assert invoke("measure", npy, "--json", tmp_path / "missing" / "s.json").exit_code == 1


def test_the_table_is_printed_even_if_the_file_cannot_be_written(
    npy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: object, **kwargs: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "write_text", full)
    result = invoke("measure", npy, "--measures", "iso_score", "--json", tmp_path / "s.json")
    assert result.exit_code == 1
    assert "iso_score" in result.stdout
    assert "No space left on device" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_is_one_line_and_exit_code_130(
    npy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stop(*args: object, **kwargs: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("isotropy.measurement.measure", stop)
    result = invoke("measure", npy, "--json", tmp_path / "s.json")
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"
    assert list(tmp_path.iterdir()) == []


def test_an_interruption_before_the_command_begins_is_one_line_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def stop(**given: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "app", stop)
    with pytest.raises(SystemExit) as caught:
        cli.main()
    assert caught.value.code == 130
    assert capsys.readouterr().err == "interrupted\n"


def test_ctrl_c_of_a_process() -> None:
    command = [sys.executable, "-m", "isotropy", "measure", "-", "--format", "jsonl"]
    # It waits for standard input, which stays open, after it has imported torch.
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == "interrupted\n"


def test_any_other_exception_keeps_its_traceback(npy: Path) -> None:
    code = (
        "import isotropy.measurement as m, isotropy.cli as c, sys\n"
        "def measure(*a, **k): secret = 'local value'; return 1 / 0\n"
        "m.measure = measure\n"
        f"sys.argv = ['isotropy', 'measure', {str(npy)!r}]\n"
        "c.main()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 1
    assert "Traceback" in done.stderr
    assert "ZeroDivisionError" in done.stderr


def test_a_reader_that_goes_away_is_no_traceback() -> None:
    command = f"{sys.executable} -m isotropy list measures | true"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.stderr == ""


def test_list_measures_names_every_measure() -> None:
    result = invoke("list", "measures")
    assert result.exit_code == 0
    assert set(SPECS) <= set(result.stdout.split())
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_list_of_something_else() -> None:
    result = invoke("list", "measure")
    assert result.exit_code == 1
    assert "did you mean 'measures'" in result.stderr


@pytest.mark.parametrize("command", [[], ["measure"], ["embed"], ["list"]])
def test_every_command_has_help_with_an_example(command: list[str]) -> None:
    result = invoke(*command, "--help")
    assert result.exit_code == 0
    assert "\n    isotropy " in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_version() -> None:
    assert run("--version").stdout == f"isotropy {isotropy.__version__}\n"


def test_help_answers_at_once() -> None:
    def seconds() -> float:
        start = time.perf_counter()
        assert run("--help").returncode == 0
        return time.perf_counter() - start

    assert min(seconds() for _ in range(5)) < 0.4


def test_embed_needs_its_options() -> None:
    result = invoke("embed", "minilm")
    assert result.exit_code == 2
    assert "Missing option '--text'" in result.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--site", "mean@first"], "site"),
        (["--site", "head@last"], "site"),
        (["--text", "missing.txt"], "missing.txt"),
        (["--dtype", "int8"], "int8"),
        (["--batch-size", "0"], "batch"),
        (["--out", "out.npy"], "out.npy"),
    ],
)
def test_wrong_settings_of_embed(tmp_path: Path, arguments: list[str], message: str) -> None:
    (tmp_path / "t.txt").write_text("one\ntwo\n")
    given = ["--text", str(tmp_path / "t.txt"), "--out", str(tmp_path / "o.safetensors")]
    result = invoke("embed", "minilm", *given, *arguments)
    assert result.exit_code == 1
    assert result.stderr.startswith("error: ")
    assert message in result.stderr
    assert not (tmp_path / "o.safetensors").exists()


@pytest.mark.weights
def test_embed_then_measure(minilm: Path, tmp_path: Path) -> None:
    texts = [f"The number {i} follows the number {i - 1}." for i in range(40)]
    (tmp_path / "t.txt").write_text("\n".join(texts))
    out = tmp_path / "o.parquet"
    embedded = invoke(
        "embed", minilm, "--text", tmp_path / "t.txt", "--site", "mean@all", "--out", out
    )
    assert embedded.exit_code == 0, embedded.stderr
    measured = invoke(
        "measure", out, "--by", "layer", "--measures", "iso_score_unbiased,mean_cosine"
    )
    assert measured.exit_code == 0, measured.stderr
    assert f"{40 * 6} rows × 384 features, by layer" in " ".join(measured.stdout.split())


def test_the_source_is_never_replaced(cloud: np.ndarray, tmp_path: Path) -> None:
    path = tmp_path / "x.npy"
    np.save(path, cloud)
    before = path.read_bytes()
    result = invoke("measure", path, "--json", path)
    assert result.exit_code == 1
    assert "is the source or would be among its files" in result.stderr
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("redirection", "code", "said"),
    [
        (">&-", 0, ""),
        ("> /dev/full", 1, "error: got a standard output that takes no more (No space left on"),
    ],
)
def test_an_output_that_takes_nothing(npy: Path, redirection: str, code: int, said: str) -> None:
    command = f"{sys.executable} -m isotropy measure {npy} --measures iso_score {redirection}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True)
    assert done.returncode == code
    assert done.stderr.startswith(said)
    assert len(done.stderr.splitlines()) == bool(said)


def test_an_output_that_knows_no_line_drawing(npy: Path) -> None:
    environment = {**os.environ, "PYTHONIOENCODING": "cp1252"}
    done = run("measure", npy, "--measures", "iso_score", env=environment, encoding="cp1252")
    assert done.returncode == 0
    assert "iso_score" in done.stdout


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("anisotropy.k=1000000000", "anisotropy: got k=1000000000, expected a whole number from 1"),
        ("explained_variance.k=99999", "got k=99999, expected a whole number from 1 to 10000"),
        ("outlier_dimensions.threshold=inf", "got threshold=inf, expected a finite number above 0"),
    ],
)
def test_settings_without_measure(npy: Path, setting: str, message: str) -> None:
    result = invoke("measure", npy, "--set", setting)
    assert result.exit_code == 1
    assert message in result.stderr

"""`isotropy fit`, `isotropy apply` and `isotropy list methods` as their users meet them."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet
from typer.testing import CliRunner, Result

from isotropy import cli, layers, penalties, transforms
from isotropy.measures import iso_score_unbiased


def invoke(*arguments: object) -> Result:
    result = CliRunner().invoke(cli.app, [str(argument) for argument in arguments])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result


@pytest.fixture
def cloud() -> np.ndarray:
    rng = np.random.default_rng(0)
    return (rng.normal(size=(500, 6)) * np.arange(1, 7) + 5).astype(np.float16)


@pytest.fixture
def npy(cloud: np.ndarray, tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", cloud)
    return tmp_path / "x.npy"


def test_fit_then_apply(npy: Path, cloud: np.ndarray, tmp_path: Path) -> None:
    fitted = invoke("fit", "whitening", npy, "--out", tmp_path / "t.safetensors", "--set", "k=4")
    assert fitted.stdout.startswith("wrote Whitening(k=4) for 6 features to ")
    done = invoke("apply", tmp_path / "t.safetensors", npy, "--out", tmp_path / "y.npy")
    assert done.stdout.startswith("wrote 500 rows × 4 features to ")
    y = np.load(tmp_path / "y.npy")
    assert y.dtype == np.float16
    np.testing.assert_allclose(y, transforms.Whitening(k=4).fit_transform(cloud), atol=1e-3)
    assert iso_score_unbiased(y) == pytest.approx(1, abs=0.03)
    assert {fitted.exit_code, done.exit_code} == {0}


def test_settings_are_read_as_they_are_meant(npy: Path, tmp_path: Path) -> None:
    out = tmp_path / "t.safetensors"
    given = ["--set", "method=zca", "--set", "shrinkage=.25", "--set", "floor = 1e-3"]
    assert invoke("fit", "whitening", npy, "--out", out, *given).exit_code == 0
    loaded = transforms.load(out)
    assert (loaded.method, loaded.shrinkage, loaded.floor) == ("zca", 0.25, 1e-3)


def test_weights_and_columns(cloud: np.ndarray, tmp_path: Path) -> None:
    frequency = 1 / np.arange(1, 501)
    words = [f"word {i}" for i in range(500)]
    table = pa.table({"v": list(cloud), "frequency": frequency, "word": words})
    parquet.write_table(table, tmp_path / "x.parquet")
    out = tmp_path / "t.safetensors"
    weighted = ["--weights", "frequency", "--key", "v"]
    assert (
        invoke("fit", "standardize", tmp_path / "x.parquet", "--out", out, *weighted).exit_code == 0
    )
    expected = np.average(cloud.astype(np.float64), axis=0, weights=frequency)
    np.testing.assert_allclose(transforms.load(out).mean_, expected)
    done = invoke("apply", out, tmp_path / "x.parquet", "--out", tmp_path / "y.parquet")
    assert done.stdout.strip().endswith("with frequency, word")
    assert parquet.read_table(tmp_path / "y.parquet")["word"].to_pylist() == words


def test_columns_with_gaps(cloud: np.ndarray, tmp_path: Path) -> None:
    gap = [None, *range(1, 500)]
    parquet.write_table(pa.table({"v": list(cloud), "n": gap}), tmp_path / "x.parquet")
    transform = tmp_path / "t.safetensors"
    transforms.Standardize().fit(cloud).save(transform)

    def apply(name: str) -> Result:
        return invoke("apply", transform, tmp_path / "x.parquet", "--out", tmp_path / name)

    npy = apply("y.npy")
    assert npy.exit_code == 0
    assert npy.stdout.strip().endswith("left out n, which .parquet could hold")
    assert apply("y.parquet").exit_code == 0
    assert parquet.read_table(tmp_path / "y.parquet")["n"].to_pylist() == gap
    refused = apply("y.safetensors")
    assert refused.exit_code == 1
    assert refused.stderr.count("\n") == 1
    assert "got no value (null) for column 'n' in row 0" in refused.stderr


def test_the_output_s_ending_comes_first(tmp_path: Path) -> None:
    result = invoke("apply", "no-transform", "no-source", "--out", tmp_path / "a.csv")
    assert result.exit_code == 1
    assert "a name that ends in .safetensors, .parquet or .npy" in result.stderr


def test_standard_input(npy: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "isotropy", "fit", "standardize", "-"]
    command += ["--out", "t.safetensors"]
    with npy.open("rb") as file:
        run = subprocess.run(
            command, stdin=file, cwd=tmp_path, capture_output=True, text=True, timeout=60
        )
    assert (run.returncode, run.stderr) == (0, "")
    assert (tmp_path / "t.safetensors").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fit", "whitning", "x.npy"], "got transform 'whitning', .* did you mean 'whitening'"),
        (["fit", "whitening", "x.npy", "--set", "kk=2"], "'kk', .* did you mean 'k'"),
        (["fit", "standardize", "x.npy", "--set", "k=2"], "standardize has no settings"),
        (["fit", "whitening", "x.npy", "--set", "k=many"], "got k='many', expected a whole"),
        (["fit", "whitening", "x.npy", "--set", "k=7"], "got k=7 for 6 features"),
        (["fit", "whitening", "none.npy"], "did you mean"),
        (["fit", "whitening", "x.npy", "--weights", "w"], "got column 'w'"),
        (["fit", "whitening", "x.npy", "--device", "abacus"], "got device='abacus'"),
        (["apply", "t.safetensors", "five.npy"], "with 5 features, expected 6"),
        (["apply", "x.npy", "x.npy"], "cannot be read as safetensors"),
        (["apply", "none.safetensors", "x.npy"], "expected an existing file"),
        (["apply", "t.safetensors", "nan.npy"], "1 NaN or infinite value .* the first in row 7"),
    ],
)
def test_wrong_input_is_one_line_and_leaves_nothing(
    arguments: list[str],
    message: str,
    npy: Path,
    cloud: np.ndarray,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    np.save("five.npy", cloud[:, :5])
    transforms.Whitening().fit(cloud).save("t.safetensors")
    cloud[7, 2] = np.nan
    np.save("nan.npy", cloud)
    before = sorted(Path().iterdir())
    result = invoke(*arguments, "--out", "out.safetensors")
    assert result.exit_code == 1
    assert result.stderr.count("\n") == 1
    assert re.search(message, result.stderr)
    assert sorted(Path().iterdir()) == before


@pytest.mark.parametrize("command", ["fit", "apply"])
def test_an_existing_file_is_kept_without_overwrite(
    command: str, npy: Path, cloud: np.ndarray, tmp_path: Path
) -> None:
    transforms.Whitening().fit(cloud).save(tmp_path / "t.safetensors")
    (tmp_path / "out.safetensors").write_text("precious")
    first = "whitening" if command == "fit" else tmp_path / "t.safetensors"
    call: list[Any] = [command, first, npy, "--out", tmp_path / "out.safetensors"]
    refused = invoke(*call)
    assert refused.exit_code == 1
    assert "which exists" in refused.stderr
    assert (tmp_path / "out.safetensors").read_text() == "precious"
    assert invoke(*call, "--overwrite").exit_code == 0
    assert (tmp_path / "out.safetensors").read_bytes()[:8] != b"precious"


def test_a_setting_without_a_value(npy: Path, tmp_path: Path) -> None:
    result = invoke("fit", "whitening", npy, "--out", tmp_path / "t.safetensors", "--set", "k")
    assert result.exit_code == 2
    assert "expected OPTION=VALUE" in result.stderr


def test_methods_are_listed() -> None:
    result = invoke("list", "methods")
    lines = result.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    first = {line.split()[0] for line in lines if line}
    for specs in (penalties.SPECS, layers.SPECS, transforms.SPECS):
        assert set(specs) <= first


@pytest.mark.parametrize("command", ["fit", "apply"])
def test_help_has_an_example(command: str) -> None:
    assert f"isotropy {command} " in invoke(command, "--help").stdout.split("Examples:")[1]

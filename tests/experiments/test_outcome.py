import pytest
from fakes import FakePlan, fake_spec
from typer.testing import CliRunner

from isotropy import cli
from isotropy.experiments import execution, outcome
from isotropy.experiments.execution import Runs
from isotropy.experiments.store import StoredRun

ERROR = "oh no\n\nTraceback\n\nIts last output:\n99 %"


def runs(*states, folder):
    specs = [fake_spec(seed) for seed in range(len(states))]
    records = tuple(
        StoredRun(id=spec.id, spec=spec, status=status, error=ERROR * (status == "failed"))
        for spec, status in zip(specs, states, strict=True)
    )
    return Runs(FakePlan(specs), folder / "runs.db", records)


@pytest.mark.parametrize(
    ("states", "said"),
    [
        (
            ("failed", "pending", "failed"),
            "got 2 failed of 3 runs, the first fake none none seed=0 (oh no), exp",
        ),
        (("pending", "pending"), "got 2 of 2 runs whose processes ended each time, such as fake"),
    ],
)
def test_what_has_no_result_is_no_success(states, said, tmp_path, monkeypatch):
    found = runs(*states, folder=tmp_path)
    monkeypatch.setattr(execution, "run", lambda *args, **named: found)
    monkeypatch.setattr(outcome, "summary", lambda runs: "the table")
    result = CliRunner().invoke(cli.app, ["run", "demo"])
    assert result.exit_code == 1
    assert result.stdout == "the table\n"
    assert f"error: {said}" in result.stderr


@pytest.mark.parametrize(
    ("name", "said"),
    [("data.csv", "got column 'text', expected one"), ("none.csv", "no file")],
)
def test_a_preview_of_nothing_that_can_run_is_no_success(name, said, tmp_path):
    (tmp_path / "data.csv").write_text("words,label\n" + "a,b\n" * 20)
    given = ["run", "does-it-pay", "--data", str(tmp_path / name), "--dry-run"]
    result = CliRunner().invoke(cli.app, given)
    assert result.exit_code != 0
    assert not result.stdout
    [line] = result.stderr.strip().splitlines()
    assert line.startswith("error: ")
    assert said in line

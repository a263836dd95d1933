"""sentence-transformers and Lightning on two ranks give the training of one."""

import json
import subprocess
import sys
import warnings
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch

SCRIPT = Path(__file__).with_name("train_adapters_on_ranks.py")
# By a clock.
TIMES = {"penalty_refresh_seconds", "train_runtime", "eval_runtime"}
TIMES |= {
    f"{kind}_{unit}_per_second" for kind in ("train", "eval") for unit in ("samples", "steps")
}


def script() -> ModuleType:
    spec = spec_from_file_location("train_adapters_on_ranks", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


TRAINING = script()


@pytest.fixture(scope="module")
def two_ranks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of all trainings on two ranks."""
    folder = tmp_path_factory.mktemp("two-ranks")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", "2", str(SCRIPT), str(folder)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr[-3000:]
    return folder


@pytest.mark.parametrize(("kind", "name"), TRAINING.CASES)
def test_two_ranks_give_the_training_of_one(
    tmp_path: Path, two_ranks: Path, kind: str, name: str
) -> None:
    with warnings.catch_warnings():
        TRAINING.quiet()
        TRAINING.train(tmp_path, kind, name)
    one = torch.load(tmp_path / f"{kind}-{name}-0.pt")
    logs = json.loads((tmp_path / f"{kind}-{name}-0.json").read_text())
    assert any("iso_score" in key for entry in logs for key in entry)
    for rank in (0, 1):
        weights = torch.load(two_ranks / f"{kind}-{name}-{rank}.pt")
        for key, weight in weights.items():
            torch.testing.assert_close(weight, one[key], rtol=1e-6, atol=1e-9)
        theirs = json.loads((two_ranks / f"{kind}-{name}-{rank}.json").read_text())
        for mine, other in zip(logs, theirs, strict=True):
            assert set(mine) == set(other)
            for key in set(mine) - TIMES:
                # sentence-transformers rounds some to four digits.
                assert other[key] == pytest.approx(mine[key], rel=1e-5, abs=1.01e-4), key

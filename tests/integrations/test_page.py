"""What the page on integrations shows runs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "integrations.md"


@pytest.mark.weights
def test_the_examples_of_the_page_run(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == len(re.findall(r"^## ", PAGE.read_text(encoding="utf-8"), re.M)) + 2
    script = tmp_path / "page.py"
    script.write_text("\n".join(blocks), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path, env={**os.environ, "HF_HUB_OFFLINE": "1"}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    for key in ("task_loss", "penalty", "layer_loss", "penalty_gradient_ratio", "iso_score"):
        assert f"'{key}'" in done.stdout, key
    assert "penalty_refresh_seconds" in done.stdout
    assert "[5e-05, 5e-05, 0.001, 0.001]" in done.stdout

"""What is not installed is named, and what is not used is not imported."""

import subprocess
import sys
from importlib import import_module

import pytest

from isotropy.errors import MissingExtraError


@pytest.mark.parametrize(
    ("module", "package", "extra"),
    [
        ("huggingface", "transformers", "train"),
        ("huggingface", "accelerate", "train"),
        ("sentence_transformers", "sentence_transformers", "sentence-transformers"),
        ("sentence_transformers", "transformers", "sentence-transformers"),
        ("lightning", "lightning", "lightning"),
    ],
)
def test_a_missing_package_is_named_with_its_install_command(
    monkeypatch: pytest.MonkeyPatch, module: str, package: str, extra: str
) -> None:
    monkeypatch.delitem(sys.modules, f"isotropy.integrations.{module}", raising=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == package]:
        monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingExtraError, match=rf"pip install 'isotropy\[{extra}\]'"):
        import_module(f"isotropy.integrations.{module}")


def test_importing_the_package_imports_no_framework() -> None:
    code = "import sys, isotropy.integrations; print(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = {name.partition(".")[0] for name in run.stdout.split()}
    assert not loaded & {"torch", "transformers", "sentence_transformers", "lightning", "numpy"}

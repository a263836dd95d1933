"""Examples in docstrings may use `np` and `torch` without importing them."""

from typing import Any

import numpy as np
import pytest
import torch


@pytest.fixture(autouse=True)
def _names_in_examples(doctest_namespace: dict[str, Any]) -> None:
    doctest_namespace.update(np=np, torch=torch)

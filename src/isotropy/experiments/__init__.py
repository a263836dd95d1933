"""Experiments: models × tasks × methods × seeds under one protocol, with honest statistics.

Names are loaded at their first use, so that reading stored runs never imports torch.

Example:
    >>> from isotropy import experiments
    >>> experiments.Plan.load("demo").name
    'demo'
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from isotropy.experiments.comparison import compare
    from isotropy.experiments.execution import Runs, run
    from isotropy.experiments.plan import Plan
    from isotropy.experiments.spec import Place, RunResult, RunSpec
    from isotropy.experiments.store import Store, StoredRun
    from isotropy.experiments.tuning import Tuned, tune

_NAMES = {
    "Place": "spec",
    "Plan": "plan",
    "RunResult": "spec",
    "RunSpec": "spec",
    "Runs": "execution",
    "Store": "store",
    "StoredRun": "store",
    "Tuned": "tuning",
    "compare": "comparison",
    "run": "execution",
    "tune": "tuning",
}

__all__ = [
    "Place",
    "Plan",
    "RunResult",
    "RunSpec",
    "Runs",
    "Store",
    "StoredRun",
    "Tuned",
    "compare",
    "run",
    "tune",
]


def __getattr__(name: str) -> Any:
    if name in _NAMES:
        return getattr(import_module(f"isotropy.experiments.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'isotropy.experiments' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

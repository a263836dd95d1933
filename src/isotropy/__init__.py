"""Measure, shape and test the isotropy of embeddings.

Names are loaded at their first use, so that `import isotropy` is fast and never imports torch.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from isotropy._version import __version__

if TYPE_CHECKING:
    from isotropy import bars, errors, experiments, layers, measures, penalties, transforms
    from isotropy.measurement import Measurement, measure
    from isotropy.representations import Representations

_MODULES = ("bars", "errors", "experiments", "layers", "measures", "penalties", "transforms")
_NAMES = {
    "Measurement": "measurement",
    "Representations": "representations",
    "measure": "measurement",
}

__all__ = [
    "Measurement",
    "Representations",
    "__version__",
    "bars",
    "errors",
    "experiments",
    "layers",
    "measure",
    "measures",
    "penalties",
    "transforms",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"isotropy.{name}")
    if name in _NAMES:
        return getattr(import_module(f"isotropy.{_NAMES[name]}"), name)
    raise AttributeError(f"module 'isotropy' has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__

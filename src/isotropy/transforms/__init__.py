"""Transforms: maps of clouds, fitted on a cloud, and what each says of itself.

A transform is one line here; tables, docs, command line and contract tests read `SPECS`.
"""

from pathlib import Path
from typing import Any

from isotropy.method import MethodSpec
from isotropy.transforms import _saved
from isotropy.transforms._all_but_the_top import (
    SPEC as ALL_BUT_THE_TOP,
    AllButTheTop as AllButTheTop,
)
from isotropy.transforms._cluster_all_but_the_top import (
    SPEC as CLUSTER_ALL_BUT_THE_TOP,
    ClusterAllButTheTop as ClusterAllButTheTop,
)
from isotropy.transforms._standardize import SPEC as STANDARDIZE, Standardize as Standardize
from isotropy.transforms._transform import Invertible as Invertible, Transform as Transform
from isotropy.transforms._whitening import SPEC as WHITENING, Whitening as Whitening

SPECS = {value.name: value for value in list(globals().values()) if isinstance(value, MethodSpec)}
"""Every transform's spec under its name."""


def load(path: str | Path) -> Any:
    """Read any saved transform.

    Raises:
        SourceError: there is no such file, it is damaged, or no saved transform.
    """
    return _saved.read(path, {spec.component.__name__: spec.component for spec in SPECS.values()})

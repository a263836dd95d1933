"""Transforms: maps of clouds, fitted on a cloud, and what each says of itself.

A transform is one line here; tables, docs, command line and contract tests read `SPECS`.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from isotropy.errors import SettingError, unknown_name
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
from isotropy.transforms._files import Applied as Applied, Fitted as Fitted, apply as apply
from isotropy.transforms._flow_post_hoc import SPEC as FLOW_POST_HOC, FlowPostHoc as FlowPostHoc
from isotropy.transforms._isotropy_layer_post_hoc import (
    SPEC as ISOTROPY_LAYER_POST_HOC,
    IsotropyLayerPostHoc as IsotropyLayerPostHoc,
)
from isotropy.transforms._standardize import SPEC as STANDARDIZE, Standardize as Standardize
from isotropy.transforms._transform import Invertible as Invertible, Transform as Transform
from isotropy.transforms._whitening import SPEC as WHITENING, Whitening as Whitening

SPECS = {value.name: value for value in list(globals().values()) if isinstance(value, MethodSpec)}
"""Every transform's spec under its name."""


def make(name: str, **settings: Any) -> Any:
    """The transform of that name with these settings, not fitted.

    Raises:
        SettingError: there is no such transform, or it has no such setting.

    Example:
        >>> make("whitening", k=256)
        Whitening(k=256)
    """
    if name not in SPECS:
        raise unknown_name("transform", name, SPECS)
    known = SPECS[name].component().get_params()
    for setting in settings:
        if setting not in known:
            if not known:
                raise SettingError(
                    f"got setting {setting!r}, expected none: {name} has no settings"
                )
            raise unknown_name(f"setting of {name}", setting, known)
    return SPECS[name].make(**settings)


def fit_file(
    name: str,
    source: str | Path,
    out: str | Path,
    *,
    settings: Mapping[str, Any] | None = None,
    overwrite: bool = False,
    **options: Any,
) -> Fitted:
    """Fit the transform of that name to a source and save it, as `isotropy fit` does.

    Args:
        name: the transform's.
        source: a file, a folder of shards, or anything else that `isotropy.measure` takes.
        out: the `.safetensors` file to write.
        settings: the transform's.
        overwrite: whether an existing file may be replaced.
        options: of `Transform.fit`.

    Raises:
        IsotropyError: whatever is wrong is told before anything is read, where that can be.
    """
    transform = make(name, **(settings or {}))
    _saved.check_target(out, overwrite=overwrite)
    transform.fit(source, **options).save(out)
    return Fitted(str(out), transform)


def load(path: str | Path) -> Any:
    """Read any saved transform.

    Raises:
        SourceError: there is no such file, it is damaged, or no saved transform.
    """
    return _saved.read(path, {spec.component.__name__: spec.component for spec in SPECS.values()})

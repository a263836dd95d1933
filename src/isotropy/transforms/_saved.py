"""Fitted transforms as files: safetensors, with the settings in the metadata; never pickled."""

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from isotropy._version import __version__
from isotropy.errors import IsotropyError, SettingError, SourceError

if TYPE_CHECKING:
    from isotropy.transforms._transform import Transform

FORMAT = 1
"""The number of the format; one that is higher than this cannot be read."""

_SUFFIX = ".safetensors"


def write(transform: "Transform", path: str | Path) -> None:
    """Write a fitted transform, all of it or nothing."""
    from safetensors.numpy import save

    target = check_target(path)
    names = getattr(transform, "feature_names_in_", None)
    metadata = {
        "isotropy_transform": type(transform).__name__,
        "isotropy_format": str(FORMAT),
        "isotropy_version": __version__,
        "settings": json.dumps(settings(transform)),
        "features": str(transform.n_features_in_),
        "feature_names": json.dumps(None if names is None else list(names)),
    }
    arrays = {name: np.ascontiguousarray(getattr(transform, name)) for name in transform.arrays}
    target = target.resolve()  # of a link, the file that it names is replaced
    part = target.with_name(f".{target.name[:100]}.{os.getpid()}.part")
    try:
        part.write_bytes(save(arrays, metadata))
        part.replace(target)
    except OSError as error:
        raise _unwritable(path, error) from error
    finally:
        part.unlink(missing_ok=True)


def check_target(path: str | Path, *, overwrite: bool = True) -> Path:
    """A path to which a transform can be written, as far as that can be told beforehand.

    Raises:
        SettingError: another ending, no such folder, a folder, or a file that exists.
    """
    target = Path(path)
    given = f"got output file {str(path)!r}"
    if target.suffix.lower() != _SUFFIX or "\0" in str(path):
        raise SettingError(f"{given}, expected a name that ends in {_SUFFIX}")
    if target.is_dir():
        raise SettingError(f"{given}, which is a folder, expected a file")
    if target.exists() and not overwrite:
        raise SettingError(
            f"{given}, which exists, expected a new name; choose another, or replace it with "
            "overwrite=True (--overwrite)"
        )
    if not target.parent.is_dir():
        raise SettingError(
            f"{given}, expected a folder {str(target.parent)!r} that exists; create it"
        )
    return target


def settings(transform: "Transform") -> dict[str, Any]:
    """A transform's settings as JSON has them."""
    plain = {}
    for name, value in transform.get_params(deep=False).items():
        plain[name] = value.item() if isinstance(value, np.generic) else value
    return plain


def read(path: str | Path, known: Mapping[str, type]) -> Any:
    """A fitted transform of one of the known classes.

    Raises:
        SourceError: there is no such file, it is damaged, or it is something else.
    """
    from safetensors import SafetensorError, safe_open

    name = str(path)
    if Path(path).is_dir():
        raise SourceError(f"got {name}, which is a folder, expected the file of a saved transform")
    try:
        with safe_open(path, framework="np") as file:
            metadata = file.metadata() or {}
            arrays = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (no dict)
    except FileNotFoundError as error:
        raise SourceError(f"got {name}, expected an existing file; check its name") from error
    except OSError as error:
        reason = error.strerror or " ".join(str(error).split())
        raise SourceError(
            f"got {name}, which cannot be read ({reason}), expected a file of a saved transform"
        ) from error
    except (SafetensorError, TypeError, ValueError) as error:  # TypeError: a dtype unknown to numpy
        reason = " ".join(str(error).split())[:200]
        raise SourceError(
            f"got {name}, which cannot be read as safetensors ({reason}), expected the file of a "
            "saved transform; it is truncated, corrupt or something else: save it again"
        ) from error
    if "isotropy_transform" not in metadata:
        raise SourceError(
            f"got {name}, a safetensors file that holds no transform, expected one written by "
            "save() or isotropy fit"
        )
    if metadata.get("isotropy_format") != str(FORMAT):
        raise SourceError(
            f"got {name} in format {metadata.get('isotropy_format')!r} (written by isotropy "
            f"{metadata.get('isotropy_version')}), expected format {FORMAT}; update isotropy, or "
            "fit and save it again"
        )
    kind = metadata["isotropy_transform"]
    if kind not in known:
        raise SourceError(
            f"got {name}, which holds a transform of kind {kind!r}, expected "
            f"{', '.join(sorted(known))}; isotropy.transforms.load reads any that it knows"
        )
    try:
        return _made(known[kind], metadata, arrays)
    except IsotropyError as error:
        raise _damaged(name, error) from error
    except (ValueError, TypeError, KeyError, IndexError, RuntimeError, AttributeError) as error:
        # All that values of the wrong kind or shape have been seen to raise.
        raise _damaged(name, error) from error


def _made(cls: type, metadata: Mapping[str, str], arrays: Mapping[str, Any]) -> Any:
    transform = cls(**json.loads(metadata["settings"]))
    transform._check_settings()
    if set(arrays) != set(transform.arrays):
        raise ValueError(f"arrays {sorted(arrays)} instead of {sorted(transform.arrays)}")
    for key, array in arrays.items():
        if not np.isfinite(array).all():
            raise ValueError(f"NaN or infinity in {key}")
        setattr(transform, key, array)
    transform.n_features_in_ = int(metadata["features"])
    names = json.loads(metadata["feature_names"])
    if names is not None:
        transform.feature_names_in_ = np.asarray(names, dtype=object)
    # Shapes that do not fit each other show when two rows are mapped.
    rows = transform.transform(torch.zeros(2, transform.n_features_in_, dtype=torch.float64))
    if rows.shape != (2, transform._n_features_out):
        raise ValueError(f"maps 2 rows to shape {tuple(rows.shape)}")
    return transform


def _damaged(name: str, error: Exception) -> SourceError:
    reason = " ".join(str(error).split())[:200]
    return SourceError(
        f"got {name}, whose content makes no transform ({reason}), expected one written by save(); "
        "it is damaged: fit and save it again"
    )


def _unwritable(path: str | Path, error: OSError) -> SettingError:
    return SettingError(
        f"got output file {str(path)!r}, which cannot be written ({error.strerror or error}), "
        "expected a file name in a folder that exists and allows it"
    )

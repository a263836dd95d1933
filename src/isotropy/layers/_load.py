"""Loads a saved model together with its layer."""

import json
import logging
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

from isotropy.errors import SettingError, SourceError, unknown_name
from isotropy.layers._attach import NAME, attach
from isotropy.layers._layer import Layer

_PREFIX = f"{NAME}."
_INDEX = "model.safetensors.index.json"
_FILE = "model.safetensors"
_LOGGERS = ("transformers.modeling_utils", "transformers.utils.loading_report")


def load(auto: Any, folder: str | Path, *, layer: Layer | None = None, **settings: Any) -> Any:
    """A model with its layer, as `save_pretrained` or a Trainer's checkpoint has saved it.

    `load(AutoModelForSequenceClassification, "folder")` is
    `AutoModelForSequenceClassification.from_pretrained("folder")` with the layer, which that alone
    would leave out.

    Args:
        auto: the model's class, or an Auto class.
        folder: where it was saved, on this machine; the name of a model on a hub is none.
        layer: a layer of a class of your own, made as it was; those of `isotropy.layers` are made
            from the model's configuration.
        settings: passed on to `from_pretrained`.

    Raises:
        SourceError: the folder is none, or holds no model with a layer, or not all of it.
    """
    place = Path(folder)
    if not place.is_dir():
        raise SourceError(
            f"got {str(folder)!r}, which is no folder on this machine, expected one that "
            "save_pretrained has written; for a model of a hub, pass "
            f"huggingface_hub.snapshot_download({str(folder)!r})"
        )
    if not (place / "config.json").is_file():
        raise SourceError(
            f"got folder {str(folder)!r} without a config.json, expected one that save_pretrained "
            "has written"
        )
    saved = _saved(place)
    if not saved:
        raise SourceError(
            f"got folder {str(folder)!r}, whose model has no layer, expected one that was saved "
            f"with a layer; load it with {getattr(auto, '__name__', 'its class')}.from_pretrained"
        )
    model, report = _quietly(auto, place, settings)
    missing = [*report["missing_keys"], *(str(key[0]) for key in report["mismatched_keys"])]
    unknown = [key for key in report["unexpected_keys"] if not key.startswith(_PREFIX)]
    if missing or unknown:
        raise SourceError(
            f"got a model that lacks {sorted(missing)} and has {sorted(unknown)} beyond "
            f"{type(model).__name__}, expected a whole one; load it with the class that it was "
            "saved with"
        )
    recipe = getattr(model.config, NAME, None)
    if hasattr(model.config, NAME):
        delattr(model.config, NAME)  # `attach` writes it anew
    attach(model, _made(recipe) if layer is None else layer)
    try:
        model.isotropy_layer.load_state_dict(saved)
    except RuntimeError as error:
        raise SourceError(
            f"got a layer in {str(folder)!r} that does not fit its configuration {recipe}, "
            f"expected the one that it was saved with: {' '.join(str(error).split())}"
        ) from None
    return model


def _saved(folder: Path) -> dict[str, Tensor]:
    """The layer's tensors, read from the files that hold them and no others."""
    index = folder / _INDEX
    if index.is_file():
        where = json.loads(index.read_text(encoding="utf-8"))["weight_map"]
        files = sorted({file for key, file in where.items() if key.startswith(_PREFIX)})
    else:
        files = [_FILE] if (folder / _FILE).is_file() else []
    tensors = {}
    for file in files:
        with safe_open(folder / Path(file).name, framework="pt") as opened:
            for key in opened.keys():  # noqa: SIM118 (it is no mapping)
                if key.startswith(_PREFIX):
                    tensors[key.removeprefix(_PREFIX)] = opened.get_tensor(key)
    return tensors


def _quietly(auto: Any, folder: Path, settings: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """The model, and what did not fit it; transformers would warn of the layer's keys."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        model, report = auto.from_pretrained(folder, output_loading_info=True, **settings)
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
    return model, report


def _made(recipe: Any) -> Layer:
    from isotropy.layers import SPECS  # here: it imports this module

    if not isinstance(recipe, dict) or not isinstance(recipe.get("settings"), dict):
        raise SourceError(
            f"got {NAME}={recipe!r} in a model's config.json, expected a name and settings; pass "
            "layer= with a layer of the same kind"
        )
    name = str(recipe.get("name"))
    if name not in SPECS:
        raise unknown_name("layer", name, SPECS)
    try:
        layer: Layer = SPECS[name].component(**recipe["settings"])
    except TypeError as error:
        raise SettingError(
            f"got settings {recipe['settings']} for the layer {name!r}, expected those of "
            f"{SPECS[name].component.__name__}: {error}"
        ) from None
    return layer

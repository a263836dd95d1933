"""The methods of experiments by name, what a run may do with each, and how each is made."""

import inspect
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch

from isotropy import layers, penalties, transforms
from isotropy.errors import SettingError, unknown_name
from isotropy.experiments.spec import JsonValue, MethodSettings, TrainSettings
from isotropy.experiments.tasks._task import Task
from isotropy.layers import Layer, SecondStage
from isotropy.method import Kind, MethodSpec
from isotropy.penalties import Penalty

NONE = "none"
"""The method that changes nothing, which every other is compared with."""

METHODS: Mapping[str, MethodSpec] = {**penalties.SPECS, **layers.SPECS, **transforms.SPECS}
"""Every method's spec under its name."""

TWO_STAGES = "isotropy-layer"
"""The method whose layer is trained after encoder and head."""

ON_TOKENS = ("flow",)
"""The layers that may also stand before a head that reads every token of a text being written."""

# What a run knows by itself: the model's size, its processes, and what the task scores by.
_NOT_SETTINGS = ("self", "d", "group", "settings")
_NOT_OF_STAGE = ("isotropy", "loss", "score", "seed")
# A size that no setting of a layer is refused for without reason.
_TRIAL_SIZE = 768


def check(settings: MethodSettings, task: Task, train: TrainSettings) -> None:
    """Look at a method and its settings, without loading a model.

    Raises:
        SettingError: an unknown name, a setting that makes no sense, or a method that the task or
            the training does not go with.
        MissingExtraError: the method needs a package that is not installed.

    Example:
        >>> from isotropy.experiments.tasks import find_task
        >>> check(MethodSettings(name="i-star"), find_task("cola"), TrainSettings())
        >>> check(MethodSettings(name="whitening"), find_task("cola"), TrainSettings())
        Traceback (most recent call last):
        ...
        isotropy.errors.SettingError: got method 'whitening' (transform) for task 'cola', ...
    """
    name = settings.name
    if name != NONE and name not in METHODS:
        raise unknown_name("method", name, [NONE, *METHODS])
    kind = kind_of(settings)
    if kind != "penalty" and settings.accumulate != "separate":
        raise SettingError(
            f"got method.accumulate={settings.accumulate!r} with method {name!r}, expected a "
            "penalty, or 'separate'"
        )
    if settings.stage and name != TWO_STAGES:
        raise SettingError(
            f"got method.stage with method {name!r}, expected it with {TWO_STAGES!r} alone; "
            "leave it out"
        )
    if kind is None:
        if settings.settings:
            raise SettingError(
                f"got settings {', '.join(settings.settings)} for method {NONE!r}, expected none"
            )
        return
    _require_fit(name, kind, task, train)
    if kind == "penalty":
        _check_penalty(make_penalty(settings, seed=0), settings, task, train)
    elif kind == "layer":
        make_layer(settings, _TRIAL_SIZE, seed=0)
        if name == TWO_STAGES:
            make_stage(settings, seed=0)
    else:
        make_transform(settings, seed=0)


def kind_of(settings: MethodSettings) -> Kind | None:
    """What a method is; None of the one that changes nothing."""
    return None if settings.name == NONE else METHODS[settings.name].kind


def make_penalty(settings: MethodSettings, *, seed: int) -> Penalty:
    """The penalty of these settings; what it draws at random depends on the seed."""
    spec = METHODS[settings.name]
    given = _with_seed(spec, settings.settings, seed, also=Penalty)
    made: Penalty = spec.make(**given)
    return made


def make_layer(settings: MethodSettings, d: int, *, seed: int) -> Layer:
    """The layer of these settings for d features."""
    spec = METHODS[settings.name]
    given = _with_seed(spec, settings.settings, seed)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        made: Layer = spec.make(d=d, **given)
    return made


def make_stage(settings: MethodSettings, *, seed: int, **others: Any) -> SecondStage:
    """The isotropy layer's second stage of these settings."""
    known = [field.name for field in fields(SecondStage) if field.name not in _NOT_OF_STAGE]
    for name in settings.stage:
        if name not in known:
            raise unknown_name(f"setting of the second stage of {TWO_STAGES}", name, known)
    given: dict[str, Any] = dict(settings.stage)
    return SecondStage(**given, seed=seed, **others)


def make_transform(settings: MethodSettings, *, seed: int) -> Any:
    """The transform of these settings, not fitted."""
    made = transforms.make(
        settings.name, **_with_seed(METHODS[settings.name], settings.settings, seed)
    )
    made._check_settings()  # a transform looks at them when it is fitted, and a plan earlier
    return made


def _require_fit(name: str, kind: str, task: Task, train: TrainSettings) -> None:
    """Raise a SettingError if the task, or the training, does not go with this kind of method."""
    given = f"got method {name!r} ({kind}) for task {task.name!r}"
    if kind == "transform":
        if task.trains:
            raise SettingError(
                f"{given}, which trains a model, expected a task of similarity, such as "
                "'stsb-similarity': transforms map the embeddings of a finished model"
            )
        return
    if not task.trains:
        raise SettingError(
            f"{given}, which trains nothing, expected a transform, such as 'whitening', or 'none'"
        )
    is_placed = task.kind in ("classification", "regression") or (
        task.generates and name in ON_TOKENS
    )
    if kind == "layer" and not is_placed:
        raise SettingError(
            f"{given} ({task.kind}), expected a task of classification or regression: this layer "
            "stands between one embedding a text and the head"
            + (f"; of layers, {', '.join(ON_TOKENS)} goes with such a task" * task.generates)
        )
    if kind == "layer" and train.peft is not None:
        raise SettingError(
            f"{given} with peft={train.peft!r}, expected peft=None: adapters freeze what a layer "
            "has to train"
        )


def _check_penalty(
    penalty: Penalty, settings: MethodSettings, task: Task, train: TrainSettings
) -> None:
    site = penalty.site
    given = f"got method {settings.name!r} at site {str(site)!r}"
    if site.decoder and not task.generates:
        raise SettingError(
            f"{given} for task {task.name!r}, whose model has no decoder, expected a site without "
            "'decoder-'"
        )
    if site.pool == "vocabulary" and train.peft is not None:
        raise SettingError(
            f"{given} with peft={train.peft!r}, which freezes the vocabulary, expected another "
            "site or peft=None"
        )


def _with_seed(
    spec: MethodSpec, given: Mapping[str, JsonValue], seed: int, *, also: type | None = None
) -> dict[str, Any]:
    """The settings, after a look at their names, with the run's seed for what is drawn at random.

    Raises:
        SettingError: the component has no such setting.
    """
    known = _settings_of(spec.component, also)
    for name in given:
        if name not in known:
            if not known:
                raise SettingError(
                    f"got setting {name!r} of {spec.name}, which has no settings; leave it out"
                )
            raise unknown_name(f"setting of {spec.name}", name, known)
        if name in spec.settings:
            raise SettingError(
                f"got setting {name!r} of {spec.name}, which is what this method is; leave it out"
            )
    return {**({"seed": seed} if "seed" in known else {}), **given}


def _settings_of(component: type, also: type | None = None) -> list[str]:
    """The names of a component's keyword arguments that settings may give."""
    signatures = [inspect.signature(part) for part in (component, also) if part is not None]
    names = dict.fromkeys(name for signature in signatures for name in signature.parameters)
    return [name for name in names if name not in _NOT_SETTINGS]

"""Looks at a run's settings before anything is loaded, so that a bad one fails at once."""

from collections import Counter
from collections.abc import Mapping

import torch

from isotropy.errors import SettingError, unknown_name
from isotropy.experiments import methods
from isotropy.experiments._embeddings import EMBEDDING
from isotropy.experiments.spec import RunSpec
from isotropy.experiments.tasks._task import Task
from isotropy.measures import SPECS
from isotropy.sites import Site

_SMOOTHED = ("classification", "translation", "summarisation")


def check(spec: RunSpec, task: Task) -> None:
    """Look at a run's settings, without loading data or a model, wherever it will run.

    Args:
        spec: the run.
        task: the one that `spec.task` names.

    Raises:
        SettingError: a setting that makes no sense, or does not go with another.
        MissingExtraError: the method needs a package that is not installed.

    Example:
        >>> from isotropy.experiments.tasks import find_task
        >>> spec = {"model": "minilm", "task": "cola", "train": {"patience": 2}}
        >>> check(RunSpec.read(spec), find_task("cola"))
        Traceback (most recent call last):
        ...
        isotropy.errors.SettingError: got train.patience=2 with data.tune=0, expected ...
    """
    task.check(spec.data)
    if spec.data.columns and task.name != "custom":
        raise SettingError(
            f"got data.columns for task {task.name!r}, which has its own, expected task 'custom'; "
            "leave columns out"
        )
    methods.check(spec.method, task, spec.train)
    _check_training(spec, task)
    _check_measures(spec, task)


def check_device(spec: RunSpec) -> None:
    """Look at whether a run can run on its device, on this machine.

    Raises:
        SettingError: it cannot.
    """
    if spec.train.precision == "float16" and spec.device != "cuda":
        raise SettingError(
            "got train.precision='float16' with device='cpu', expected a CUDA GPU; on a processor "
            "give --set train.precision=bfloat16 or float32"
        )
    if spec.device == "cuda" and not torch.cuda.is_available():
        raise SettingError("got device='cuda', expected 'cpu', as this machine has no CUDA GPU")


def _check_training(spec: RunSpec, task: Task) -> None:
    train = spec.train
    if train.patience is not None and not spec.data.tune:
        raise SettingError(
            f"got train.patience={train.patience} with data.tune=0, expected a share of train for "
            "early stopping to look at, such as data.tune=0.1"
        )
    if spec.method.accumulate == "cached" and train.accumulation == 1:
        raise SettingError(
            "got accumulate='cached' with train.accumulation=1, expected several micro-batches a "
            "step; raise accumulation, or leave accumulate out"
        )
    if train.label_smoothing and task.kind not in _SMOOTHED:
        raise SettingError(
            f"got train.label_smoothing={train.label_smoothing:g} for task {task.name!r} "
            f"({task.kind}), expected 0: only the labels of classes and tokens can be smoothed"
        )
    if train.peft_settings and train.peft is None:
        raise SettingError("got train.peft_settings without train.peft, expected peft='lora'")
    if train.peft is not None and not task.trains:
        raise SettingError(
            f"got train.peft={train.peft!r} for task {task.name!r}, which trains nothing, expected "
            "None"
        )


def _check_measures(spec: RunSpec, task: Task) -> None:
    settings = spec.measure
    named: Mapping[str, tuple[str, ...]] = {
        "measure.track": settings.track,
        "measure.final": settings.final,
        "measure.each_layer": settings.each_layer,
    }
    for where, names in named.items():
        for name, times in Counter(names).items():
            if name not in SPECS:
                raise unknown_name(f"measure in {where}", name, SPECS)
            if times > 1:
                raise SettingError(
                    f"got measure {name!r} {times} times in {where}, expected it once; leave the "
                    "others out"
                )
    if settings.track and not task.trains:
        raise SettingError(
            f"got measure.track for task {task.name!r}, which trains nothing, expected measures in "
            "measure.final"
        )
    if not settings.track and (settings.on == "batch" or settings.every is not None):
        given = "on='batch'" if settings.on == "batch" else f"every={settings.every}"
        raise SettingError(
            f"got measure.{given} without measure.track, expected names of measures to track; "
            "add track = [...]"
        )
    if settings.site == EMBEDDING:
        if task.kind not in ("classification", "regression"):
            raise SettingError(
                f"got measure.site={EMBEDDING!r} for task {task.name!r} ({task.kind}), expected a "
                "task of classification or regression, or another site"
            )
        if settings.each_layer:
            raise SettingError(
                f"got measure.each_layer at measure.site={EMBEDDING!r}, expected a site of states, "
                "such as 'cls@last'"
            )
        _check_rows(spec)
        return
    site = Site.parse(settings.site)
    if site.decoder and not task.generates:
        raise SettingError(
            f"got measure.site={settings.site!r} for task {task.name!r}, whose model has no "
            "decoder, expected a site without 'decoder-'"
        )
    if settings.each_layer and (site.is_weight or site.pool == "first-last-mean"):
        raise SettingError(
            f"got measure.each_layer at measure.site={settings.site!r}, expected cls, mean or "
            "tokens, which every layer has"
        )
    if settings.on == "batch" and site.is_weight and settings.track:
        raise SettingError(
            f"got measure.on='batch' at measure.site={settings.site!r}, expected a site of states: "
            "weights are the same for every batch; use measure.on='held-out'"
        )
    if site.pool in ("cls", "mean", "first-last-mean"):
        _check_rows(spec)


def _check_rows(spec: RunSpec) -> None:
    """Raise a SettingError if there are too few texts for a measure of one row a text."""
    settings = spec.measure
    batch = settings.on == "batch"
    tracked = (spec.train.batch_size, "train.batch_size") if batch else (settings.rows, "rows")
    rows: Mapping[str, tuple[tuple[str, ...], int, str]] = {
        "track": (settings.track, *tracked),
        "final": (settings.final, settings.final_rows, "final_rows"),
        "each_layer": (settings.each_layer, settings.final_rows, "final_rows"),
    }
    for part, (names, texts, from_where) in rows.items():
        for name in names:
            needed = SPECS[name].min_rows
            if texts < needed:
                raise SettingError(
                    f"got {texts} rows ({from_where}) for {name} in measure.{part}, expected at "
                    f"least {needed}; raise them, or leave it out"
                )

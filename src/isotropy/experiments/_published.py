"""The numbers that the papers print, by the names that runs have here."""

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from isotropy.experiments._reading import SECONDS
from isotropy.experiments.spec import RunSpec

# A printed name of a model and the hub's names that it can mean, without their owners. Paper C
# does not say whether its models are cased.
_MODELS: Mapping[str, Mapping[str, tuple[str, ...]]] = {
    "shrink-the-longest": {
        "bert-base-uncased": ("bert-base-uncased",),
        "roberta-base": ("roberta-base",),
    },
    "isotropy-layer": {
        "bert-base-cased": ("bert-base-cased",),
        "roberta-large": ("roberta-large",),
    },
    "isotropy-calibration": {
        "bert-base": ("bert-base-cased", "bert-base-uncased"),
        "roberta-base": ("roberta-base",),
        "distilbert-base": ("distilbert-base-cased", "distilbert-base-uncased"),
        "bart": ("bart-base",),
        "mbart-large": ("mbart-large-cc25",),
    },
    "i-star": {
        "bert-base": ("bert-base-cased",),
        "distilbert-base": ("distilbert-base-cased",),
        "albert-base": ("albert-base-v2", "albert-base-v1"),
    },
}
_METRICS = {
    "accuracy_matched": "accuracy",
    "accuracy_mismatched": "mismatched/accuracy",
    "i1": "partition_isotropy_1",
    "i2": "partition_isotropy_2",
    "minutes_per_epoch": SECONDS,
}
_SETTINGS = {"lambda": ("weight", -1.0), "zeta": ("zeta", 0.2)}
"""What paper D's table 2 prints, as settings and their defaults."""
_ROWS = {"50k sentences": 50_000, "20k articles": 20_000}
_ELSEWHERE = "taken by B from Zhou et al."


@dataclass(frozen=True)
class Printed:
    """A number as a paper prints it.

    Attributes:
        where: the paper's plan and its table.
        value: of it.
        std: printed beside it, if there is one.
        note: what is to be known of it.
    """

    where: str
    value: float
    std: float | None
    note: str


@dataclass(frozen=True)
class _Entry:
    paper: str
    model: str
    task: str
    method: str
    metric: str
    printed: Printed


def printed(spec: RunSpec, metric: str, plan: str) -> Printed | None:
    """What a paper prints for the cell of a run; None where it prints nothing.

    Args:
        spec: of any run of the cell.
        metric: a metric, a measure's key or `seconds_per_epoch`.
        plan: the plan's name, which is the paper's.

    Example:
        >>> spec = RunSpec(model="google-bert/bert-base-uncased", task="cola")
        >>> printed(spec, "matthews", "shrink-the-longest").value
        0.575
    """
    if plan not in _MODELS:
        return None
    model = spec.model.rstrip("/").rpartition("/")[2]
    name = spec.method.name
    found = [
        entry.printed
        for entry in _entries().get((plan, spec.task, name, metric), ())
        if model in _MODELS[plan].get(entry.model, ())
        and _rows(entry.printed.note) == spec.data.train_rows
        and _as_printed(spec, plan, entry.model)
    ]
    # Paper B prints some cells twice, with a baseline that is another paper's, and table 2 of one
    # seed.
    found.sort(key=lambda one: (_ELSEWHERE not in one.note, one.where))
    return found[-1] if found else None


def _as_printed(spec: RunSpec, paper: str, model: str) -> bool:
    """Whether a method has the settings that the paper's numbers were made with."""
    settings = spec.method.settings
    if paper == "i-star" and spec.method.name == "cosine":
        return settings.get("weight", 1) == 1
    if paper != "i-star" or spec.method.name != "i-star":
        return True
    if settings.get("site", "tokens@all") != "tokens@all":
        return False
    return all(
        settings.get(setting, default) == entry.printed.value
        for name, (setting, default) in _SETTINGS.items()
        for entry in _entries().get((paper, spec.task, "i-star", name), ())
        if entry.model == model
    )


def _rows(note: str) -> int | None:
    return next((rows for said, rows in _ROWS.items() if said in note), None)


@cache
def _entries() -> dict[tuple[str, str, str, str], tuple[_Entry, ...]]:
    folder = files("isotropy.experiments").joinpath("data")
    text = folder.joinpath("published.csv").read_text(encoding="utf-8")
    found: dict[tuple[str, str, str, str], list[_Entry]] = {}
    for row in csv.DictReader(text.splitlines()):
        # Seconds here, minutes there.
        scale = 60.0 if row["metric"] == "minutes_per_epoch" else 1.0
        number = Printed(
            where=f"{row['paper']} table {row['table']}",
            value=float(row["value"]) * scale,
            std=float(row["std"]) * scale if row["std"] else None,
            note=row["note"],
        )
        metric = _METRICS.get(row["metric"], row["metric"])
        entry = _Entry(row["paper"], row["model"], row["task"], row["method"], metric, number)
        found.setdefault((row["paper"], row["task"], row["method"], metric), []).append(entry)
    return {key: tuple(entries) for key, entries in found.items()}

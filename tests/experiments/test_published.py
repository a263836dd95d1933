"""The papers' printed numbers are found for the cells that they are of."""

from typing import Any

import pytest

from isotropy.experiments._published import _MODELS, printed
from isotropy.experiments.spec import RunSpec


def spec(model: str, task: str, method: str, data: Any = None, **settings: Any) -> RunSpec:
    return RunSpec.read(
        {
            "model": model,
            "task": task,
            "method": {"name": method, "settings": settings},
            "data": data or {},
        }
    )


@pytest.mark.parametrize(
    ("plan", "run", "metric", "value", "std"),
    [
        ("shrink-the-longest", spec("bert-base-uncased", "mrpc", "none"), "f1", 0.892, 0.002),
        ("shrink-the-longest", spec("/m/roberta-base", "mrpc", "none"), "f1", 0.908, 0.002),
        # Table 3 of its own experiment, neither table 2 nor another paper's baseline.
        ("isotropy-layer", spec("bert-base-cased", "rte", "none"), "accuracy", 0.6772, 0.0083),
        ("isotropy-layer", spec("bert-base-cased", "rte", "none"), "iso_score", 0.0051, None),
        (
            "isotropy-layer",
            spec("bert-base-cased", "rte", "iso-batch-norm"),
            "accuracy",
            0.7075,
            0.016,
        ),
        (
            "isotropy-calibration",
            spec("google-bert/bert-base-cased", "cola", "flow"),
            "partition_isotropy_1",
            0.91,
            0.01,
        ),
        (
            "isotropy-calibration",
            spec("facebook/mbart-large-cc25", "wmt16-en-ro", "none"),
            "seconds_per_epoch",
            108 * 60,
            0,
        ),
        (
            "isotropy-calibration",
            spec("facebook/bart-base", "cnn-dailymail", "none", {"train_rows": 20_000}),
            "rouge1",
            36.56,
            0.25,
        ),
        ("i-star", spec("albert-base-v2", "rte", "cosine", weight=1), "accuracy", 0.6599, 0.0181),
        (
            "i-star",
            spec("bert-base-cased", "squad", "i-star", weight=-3, zeta=0.6),
            "exact_match",
            0.8002,
            0.001,
        ),
    ],
)
def test_what_is_printed(
    plan: str, run: RunSpec, metric: str, value: float, std: float | None
) -> None:
    found = printed(run, metric, plan)
    assert found is not None
    assert (found.value, found.std) == (pytest.approx(value), std)
    assert found.where.startswith(f"{plan} table ")


@pytest.mark.parametrize(
    ("plan", "run", "metric"),
    [
        ("demo", spec("bert-base-uncased", "mrpc", "none"), "f1"),
        ("shrink-the-longest", spec("minilm", "mrpc", "none"), "f1"),
        ("shrink-the-longest", spec("bert-base-uncased", "mrpc", "none"), "accuracy"),
        ("i-star", spec("bert-base-cased", "squad", "i-star", weight=-1, zeta=0.6), "f1"),
        (
            "i-star",
            spec("bert-base-cased", "cola", "i-star", zeta=0.8, site="tokens@3"),
            "matthews",
        ),
        ("i-star", spec("bert-base-cased", "qnli", "cosine", weight=-1), "accuracy"),
        (
            "isotropy-calibration",
            spec("facebook/bart-base", "cnn-dailymail", "none", {"train_rows": 7}),
            "rouge1",
        ),
    ],
)
def test_what_is_not(plan: str, run: RunSpec, metric: str) -> None:
    assert printed(run, metric, plan) is None


def test_every_printed_model_has_a_name_here() -> None:
    from isotropy.experiments._published import _entries

    for entries in _entries().values():
        for entry in entries:
            assert entry.model in _MODELS[entry.paper]

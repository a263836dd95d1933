"""The contract checks: they pass what keeps its word, and catch each way to break it."""

import math
import re
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from isotropy import testing
from isotropy.errors import InputError, IsotropyWarning
from isotropy.inputs import as_cloud, like
from isotropy.measures import MeasureSpec, Number, mean_norm_ratio
from isotropy.moments import Moments
from isotropy.testing import check_measure, hostile_clouds, numbers


def ratio(cloud: Tensor) -> Tensor:
    """‖μ‖²/mean‖x‖²; of a small measure of the tests' own, which is right."""
    y = cloud / cloud.detach().abs().max()
    return y.mean(dim=0).square().sum() / y.square().sum(dim=1).mean()


def cone(x: Any) -> Any:
    return like(x, ratio(as_cloud(x).double()).clamp(0, 1))


def from_moments(moments: Moments) -> tuple[float]:
    return (float(moments.mean.square().sum() / moments.mean_square),)


RIGHT = MeasureSpec(
    name="cone",
    function=cone,
    numbers=(Number("cone", low=0, high=1, isotropic=0, more_isotropic="lower"),),
    summary="how narrow a cone is",
    invariant_to=frozenset({"rotation", "scale"}),
    differentiable=True,
    min_rows=2,
    trust="It is right.",
    reference="none",
    from_moments=from_moments,
)


def test_a_right_measure_passes() -> None:
    check_measure(RIGHT)


def broken(function: Callable[[Any], Any], **changes: Any) -> MeasureSpec:
    """The measure with another function under its name."""
    function.__name__ = "cone"
    return replace(RIGHT, function=function, **changes)


def wrong_gradient(x: Any) -> Any:
    cloud = as_cloud(x).double()
    value = ratio(cloud)
    return like(x, value.detach() + 2 * (value - value.detach()))


def infinite_gradient(x: Any) -> Any:
    # √ of what is 0 for rows that repeat: the value is right, its gradient is not finite.
    cloud = as_cloud(x).double()
    zero = torch.cdist(cloud[:1] / cloud.detach().abs().max(), cloud[:1]) * 0
    still = (cloud[0] - cloud[1]).square().sum().sqrt() * 0
    return like(x, ratio(cloud) + zero.sum() + still)


def nan_on_lines(x: Any) -> Any:
    cloud = as_cloud(x).double()
    return like(x, ratio(cloud) if torch.linalg.matrix_rank(cloud) > 1 else cloud.sum() * math.nan)


def of_first_rows(x: Any) -> Any:
    return like(x, ratio(as_cloud(x).double()[:40]))


def in_half_precision(x: Any) -> Any:
    cloud = as_cloud(x)
    low = isinstance(x, Tensor) and x.dtype in (torch.float16, torch.bfloat16)
    return like(x, ratio(x).float() if low else ratio(cloud.double()))


def random(x: Any) -> Any:
    return like(x, ratio(as_cloud(x).double()) + 1e-6 * torch.rand(()))


def always_floats(x: Any) -> Any:
    return float(ratio(as_cloud(x).double()))


def without_checks(x: Any) -> Any:
    return like(x, ratio(torch.as_tensor(x).double()))


def several_lines(x: Any) -> Any:
    try:
        return cone(x)
    except InputError as error:
        raise InputError(f"{error}\nand more") from error


BROKEN = {
    "a wrong bound": (
        replace(RIGHT, numbers=(replace(RIGHT.numbers[0], high=0.5),)),
        r"cone = .* leaves \[0, 0.5\]",
    ),
    "a false invariance": (
        replace(RIGHT, invariant_to=frozenset({"rotation", "scale", "translation"})),
        "changes with translation",
    ),
    "an invariance that is not declared": (
        replace(RIGHT, invariant_to=frozenset({"rotation"})),
        "does not change with scale, which its spec does not say",
    ),
    "a wrong gradient": (broken(wrong_gradient), "in _check_gradient of cone"),
    "a gradient that is not finite": (broken(infinite_gradient), "its gradient is not finite"),
    "a gradient that is not declared": (
        replace(RIGHT, differentiable=False),
        "has a gradient, which its spec does not say",
    ),
    "NaN": (broken(nan_on_lines), "cone is nan: rows on a line"),
    "the wrong direction": (
        replace(RIGHT, numbers=(replace(RIGHT.numbers[0], more_isotropic="higher"),)),
        "wrong direction",
    ),
    "the wrong value of an isotropic cloud": (
        replace(RIGHT, numbers=(replace(RIGHT.numbers[0], isotropic=1),)),
        "and not 1",
    ),
    "a function that sees the order": (broken(of_first_rows), "depends on the order of the rows"),
    "products in half precision": (broken(in_half_precision), "differs between torch"),
    "randomness": (broken(random), "differs from one call to the next"),
    "floats for a tensor": (broken(always_floats), "must give tensors for a tensor"),
    "no checks of the input": (broken(without_checks), "expected InputError|in _check_"),
    "messages of several lines": (broken(several_lines), "the message has several lines"),
    "another value in a stream": (
        replace(RIGHT, from_moments=lambda moments: (from_moments(moments)[0] + 1e-4,)),
        r"differs between function and measure\(\)",
    ),
    "two ways to be computed": (
        replace(RIGHT, from_rows=lambda rows: [0.0]),
        "needs exactly one way to be computed",
    ),
    "no way to be computed": (replace(RIGHT, from_moments=None), "exactly one way"),
    "another name": (replace(RIGHT, name="cones"), "must begin with the name"),
    "a key twice": (replace(RIGHT, numbers=RIGHT.numbers * 2), "different keys"),
    "no word on trust": (replace(RIGHT, trust=""), "trust is empty"),
    "a long summary": (replace(RIGHT, summary="x" * 61), "does not fit a table"),
    "numbers that options do not give": (
        replace(RIGHT, numbers_with=lambda: (Number("cone_2"),)),
        "numbers_with and numbers differ",
    ),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_what_is_broken_is_caught(kind: str) -> None:
    spec, message = BROKEN[kind]
    with pytest.raises(Exception) as caught:  # noqa: PT011, its text is looked at below
        check_measure(spec)
    # What torch's own gradient check raises has our words as a note.
    text = "\n".join([str(caught.value), *getattr(caught.value, "__notes__", [])])
    assert spec.name in text
    assert re.search(message, text)


def test_numbers_of_every_kind_of_result() -> None:
    assert numbers(torch.tensor(2.0)) == [2.0]
    assert numbers(torch.tensor([1.0, 2.0], requires_grad=True)) == [1.0, 2.0]
    assert numbers(3) == [3.0]
    assert numbers((np.float64(1.5), torch.tensor(2.0))) == [1.5, 2.0]


@pytest.mark.parametrize("rows", [2, 3, 10])
def test_hostile_clouds_are_what_they_are_called(rows: int) -> None:
    clouds = hostile_clouds(rows)
    assert all(len(cloud) == rows and cloud.isfinite().all() for cloud in clouds.values())
    assert all(cloud.dtype == torch.float64 for cloud in clouds.values())
    assert torch.linalg.matrix_rank(clouds["rows on a line"]) == 1
    assert clouds["a constant feature"].std(dim=0).eq(0).sum() == 1
    assert clouds["two features"].shape == (rows, 2)
    assert clouds["far from the origin"].mean() > 9e3
    if rows > 2:
        assert len(clouds["rows that repeat"].unique(dim=0)) == math.ceil(rows / 2)


def test_warnings_of_a_measure_are_no_failure() -> None:
    def warns(x: Any) -> Any:
        warnings.warn("beware", IsotropyWarning, stacklevel=1)
        return cone(x)

    check_measure(broken(warns))


def test_the_measure_of_the_tests_is_an_independent_one() -> None:
    x = np.random.default_rng(0).normal(size=(20, 3)) + 1
    assert cone(x) == pytest.approx(mean_norm_ratio(x))
    assert testing.check_measure is check_measure

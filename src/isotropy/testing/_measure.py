"""The checks of a measure: numbers, bounds, invariances, gradients, errors, streams."""

import math
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from isotropy.errors import InputError, IsotropyError, IsotropyWarning, UndefinedError
from isotropy.measurement import measure
from isotropy.measures import MeasureSpec
from isotropy.testing._tools import close, hostile_clouds, naming, plain_cloud, require


def check_measure(spec: MeasureSpec) -> None:
    """Check a measure against its spec: numbers, bounds, invariances, gradients, errors.

    Args:
        spec: the measure, which need not be one of `isotropy.measures.SPECS`.

    Raises:
        AssertionError: what the spec says does not hold.

    Example:
        >>> from isotropy.measures import SPECS
        >>> check_measure(SPECS["mean_cosine"])
    """
    for check in (
        _check_spec,
        _check_kinds_of_input,
        _check_hostile_clouds,
        _check_invariances,
        _check_direction,
        _check_gradient,
        _check_errors,
        _check_stream,
    ):
        with naming(spec.name, check):
            check(spec)


def numbers(value: Any) -> list[float]:
    """A measure's result as floats: one, or those of a vector or a named tuple."""
    if isinstance(value, Tensor):
        value = value.detach().reshape(-1).tolist()
    if isinstance(value, int | float):
        return [float(value)]
    return [float(entry) for entry in value]


def _enough(spec: MeasureSpec) -> int:
    return max(60, 2 * spec.min_rows)


def _score(spec: MeasureSpec, x: Any) -> list[float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IsotropyWarning)
        return numbers(spec.function(x, **spec.options))


def _check_spec(spec: MeasureSpec) -> None:
    ways = (spec.from_moments, spec.from_neighbours, spec.from_rows, spec.second_pass)
    require(sum(way is not None for way in ways) == 1, "needs exactly one way to be computed")
    keys = [number.key for number in spec.numbers]
    require(len(keys) == len(set(keys)) > 0, f"needs numbers with different keys, has {keys}")
    require(keys[0].startswith(spec.name), f"the main number {keys[0]} must begin with the name")
    require(spec.function.__name__ == spec.name, "the function must have the measure's name")
    for text in ("summary", "trust", "reference"):
        require(bool(getattr(spec, text)), f"{text} is empty")
    require(len(spec.summary) <= 60, "the summary does not fit a table: 60 characters at most")
    if spec.numbers_with is not None:
        require(
            spec.numbers_with(**spec.options) == spec.numbers, "numbers_with and numbers differ"
        )


def _check_kinds_of_input(spec: MeasureSpec) -> None:
    x = plain_cloud(_enough(spec), 6, seed=1)
    expected = _score(spec, x)
    require(_score(spec, x) == expected, "differs from one call to the next")
    require(_score(spec, x.numpy()) == expected, "differs between a tensor and an array")
    if spec.from_rows is None:
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(2))
        close(_score(spec, x[order]), expected, 1e-6, "depends on the order of the rows")
    close(_score(spec, x.float()), expected, 1e-3, "differs between float32 and float64")
    for dtype in (torch.float16, torch.bfloat16):
        rounded = x.to(dtype)
        close(
            _score(spec, rounded),
            _score(spec, rounded.double()),
            1e-3,
            f"differs between {dtype} and float64",
        )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IsotropyWarning)
        result = spec.function(x.float(), **spec.options)
    entries = result if isinstance(result, tuple) else (result,)
    require(all(isinstance(entry, Tensor) for entry in entries), "must give tensors for a tensor")


def _check_hostile_clouds(spec: MeasureSpec) -> None:
    for rows in sorted({max(2, spec.min_rows), spec.min_rows + 1, _enough(spec)}):
        for name, cloud in hostile_clouds(rows).items():
            for x in (cloud, cloud.float()):
                where = f"{name}, {rows} rows, {x.dtype}"
                try:
                    scores = _score(spec, x)
                except UndefinedError:
                    require(rows <= spec.min_rows + 1 or name != "plain", f"undefined: {where}")
                    continue
                for number, score in zip(spec.numbers, scores, strict=False):
                    require(math.isfinite(score), f"{number.key} is {score}: {where}")
                    require(
                        number.low <= score <= number.high,
                        f"{number.key} = {score} leaves [{number.low}, {number.high}]: {where}",
                    )


def _check_invariances(spec: MeasureSpec) -> None:
    x = plain_cloud(_enough(spec), 16, seed=3)
    x[:, 0] *= 20  # so that there is something to see for measures of single dimensions
    x[:, 1] += 100
    # Exponentials of the large cloud are all 0 or infinite: only the small one shows a change.
    clouds = (x, x / 1000)
    expected = [_score(spec, cloud) for cloud in clouds]
    rotation = torch.linalg.qr(plain_cloud(16, 16, seed=4)).Q
    step = torch.linspace(-300, 300, 16, dtype=x.dtype)
    changes: dict[str, list[Callable[[Tensor], Tensor]]] = {
        "rotation": [lambda x: x @ rotation],
        "scale": [lambda x: x * 3.7, lambda x: x * 1e18, lambda x: x * 1e-18],
        "translation": [lambda x: x + step, lambda x: x + 1e4],
    }
    for name, ways in changes.items():
        if name in spec.invariant_to:
            for change in ways:
                for cloud, before in zip(clouds, expected, strict=True):
                    close(_score(spec, change(cloud)), before, 1e-5, f"changes with {name}")
        else:
            moved = any(
                not math.isclose(a, b, rel_tol=1e-6, abs_tol=1e-9)
                for cloud, before in zip(clouds, expected, strict=True)
                for a, b in zip(_score(spec, ways[0](cloud)), before, strict=True)
            )
            require(moved, f"does not change with {name}, which its spec does not say")


def _check_direction(spec: MeasureSpec) -> None:
    """An isotropic cloud against one that is stretched and far from the origin."""
    generator = torch.Generator().manual_seed(5)
    round_cloud = torch.randn(4000, 8, generator=generator, dtype=torch.float64)
    cone = round_cloud * torch.linspace(1, 12, 8, dtype=torch.float64) ** 2 / 12
    cone[:, 0] += 30
    cone[:, -1] += 300
    good, bad = _score(spec, round_cloud), _score(spec, cone)
    for number, isotropic, other in zip(spec.numbers, good, bad, strict=False):
        said = f"{number.key} is {isotropic} for an isotropic cloud and {other} for a narrow cone"
        if number.isotropic is not None:
            distance = abs(isotropic - number.isotropic)
            require(distance < 0.1, f"{said}, and not {number.isotropic}")
        if number.more_isotropic is not None and isotropic != other:
            higher = isotropic > other
            require(higher == (number.more_isotropic == "higher"), f"{said}: wrong direction")


def _check_gradient(spec: MeasureSpec) -> None:
    x = plain_cloud(max(7, spec.min_rows), 4, seed=6).requires_grad_()

    def scores(x: Tensor) -> Tensor:
        value = spec.function(x, **spec.options)
        return value if isinstance(value, Tensor) else torch.stack(list(value))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", IsotropyWarning)
        if not spec.differentiable:
            require(not scores(x).requires_grad, "has a gradient, which its spec does not say")
            return
        torch.autograd.gradcheck(scores, x)
        for name, cloud in hostile_clouds(max(7, spec.min_rows)).items():
            for dtype in (torch.float64, torch.float32):
                y = cloud.to(dtype).requires_grad_()
                try:
                    (gradient,) = torch.autograd.grad(scores(y).sum(), y)
                except UndefinedError:
                    continue
                finite = bool(torch.isfinite(gradient).all())
                require(finite, f"its gradient is not finite: {name}, {dtype}")


def _check_errors(spec: MeasureSpec) -> None:
    x = plain_cloud(_enough(spec), 5, seed=7)
    broken = x.clone()
    broken[3, 1] = math.nan
    broken[8, 2] = math.inf
    bad: dict[str, tuple[type[IsotropyError], Callable[[], Any]]] = {
        "a row too few": (InputError, lambda: x[: spec.min_rows - 1]),
        "no rows": (InputError, lambda: x[:0]),
        "one feature": (InputError, lambda: x[:, :1]),
        "NaN and infinity": (InputError, lambda: broken),
        "one dimension": (InputError, lambda: x[:, 0]),
        "integers": (InputError, lambda: x.long()),
        "a list": (InputError, lambda: x.tolist()),
        "equal rows": (UndefinedError, lambda: x[:1].expand(len(x), -1)),
    }
    for name, (expected, make) in bad.items():
        try:
            value = _score(spec, make())
        except expected as error:
            require("\n" not in str(error), f"{name}: the message has several lines")
        else:
            require(False, f"{name}: expected {expected.__name__}, got {value}")


def _check_stream(spec: MeasureSpec) -> None:
    """`measure` gives what the function gives, in chunks of any size."""
    for rows, features in ((_enough(spec), 5), (max(12, spec.min_rows), 30)):
        x = plain_cloud(rows, features, seed=8)
        expected = _score(spec, x)
        for chunk_rows in (None, 7):
            report = measure(x, [spec], chunk_rows=chunk_rows)
            found = [report[number.key].value for number in spec.numbers]
            require(None not in found, f"undefined in a stream: {report.warnings}")
            close(
                [value for value in found if value is not None][: len(expected)],
                expected,
                1e-6,
                f"differs between function and measure() in chunks of {chunk_rows} rows",
            )

"""The checks of a penalty: values, gradients, batches that are no clouds, precision, settings."""

import copy
import inspect
import math
import pickle
import tempfile
import types
import typing
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from isotropy.measurement import measure
from isotropy.measures import SPECS as MEASURES
from isotropy.method import MethodSpec
from isotropy.penalties import Penalty
from isotropy.representations import Representations
from isotropy.testing._accelerator import DEVICE, no_host_copies
from isotropy.testing._method import require_refused, require_spec
from isotropy.testing._tools import close, hostile_clouds, naming, plain_cloud, require

_ROWS = 12
_STEPS = 200


def check_penalty(spec: MethodSpec, **settings: Any) -> None:
    """Check a penalty: that no batch breaks a training, and that it does what its spec says.

    Args:
        spec: the penalty, which need not be one of `isotropy.penalties.SPECS`.
        settings: others than its own, such as those with which its gradient is that of its value.

    Raises:
        AssertionError: something does not hold.

    Example:
        >>> from isotropy.penalties import SPECS
        >>> check_penalty(SPECS["zero-mean"])
    """
    for check in (
        _check_spec,
        _check_settings,
        _check_gradient,
        _check_weight,
        _check_padding,
        _check_hostile_batches,
        _check_undefined_batches,
        _check_precision,
        _check_same_again,
        _check_host_copies,
        _check_direction,
    ):
        with naming(spec.name, check):
            check(spec, settings)


class _Found(NamedTuple):
    value: Tensor
    gradient: Tensor
    skipped: int


def _make(spec: MethodSpec, settings: dict[str, Any], **others: Any) -> Penalty:
    penalty: Penalty = spec.make(**{**settings, **others})
    return penalty


def _evaluate(
    penalty: Penalty, x: Tensor, labels: Tensor | None = None, mask: Tensor | None = None
) -> _Found:
    before = int(penalty.skipped)
    x = x.detach().clone().requires_grad_()
    value = penalty(Representations.from_cloud(x, labels, mask))
    (gradient,) = torch.autograd.grad(value, x)
    return _Found(value.detach(), gradient, int(penalty.skipped) - before)


def _labels(rows: int) -> Tensor:
    """Classes with 3, 2, 1 and then again 3, 2, 1 members, in turn and in no order."""
    names = torch.tensor([0, 3, 0, 7, 3, 0, 9, 12, 9, 14, 9, 12])
    return names.repeat(rows // len(names) + 1)[:rows]


def _check_spec(spec: MethodSpec, settings: dict[str, Any]) -> None:
    require_spec(spec, "penalty")
    penalty = _make(spec, settings)
    require(isinstance(penalty, Penalty), f"its component makes a {type(penalty).__name__}")
    shown = repr(penalty)
    for part in (spec.component.__name__, f"weight={penalty.weight:g}", f"site='{penalty.site}'"):
        require(part in shown, f"{shown!r} does not show {part}")


def _check_settings(spec: MethodSpec, settings: dict[str, Any]) -> None:
    require_refused(partial(_make, spec, settings), _bad_settings(spec.component))


def _bad_settings(component: type) -> Iterator[tuple[str, Any]]:
    """Values that no setting of such a type can have."""
    yield from (("site", "cls@lsat"), ("site", "class"), ("site", 3))
    for owner in (component, Penalty):
        for name, parameter in inspect.signature(owner, eval_str=True).parameters.items():
            hint = parameter.annotation
            kinds = typing.get_args(hint) if _is_union(hint) else (hint,)
            if name == "site":
                continue
            if bool in kinds:
                yield from ((name, "no"), (name, 1))
            elif float in kinds:
                yield from ((name, math.nan), (name, -math.inf), (name, "1"), (name, True))
            elif int in kinds:
                yield from ((name, -1), (name, 1.5), (name, "4"))
            elif any(typing.get_origin(kind) is Literal for kind in kinds):
                yield name, "something else"


def _is_union(hint: Any) -> bool:
    return typing.get_origin(hint) in (typing.Union, types.UnionType)


def _check_gradient(spec: MethodSpec, settings: dict[str, Any]) -> None:
    for rows, features in ((_ROWS, 4), (7, 9)):
        for labels in (None, torch.arange(rows) % 2):
            penalty = _make(spec, settings)
            x = plain_cloud(rows, features, seed=1).requires_grad_()
            torch.autograd.gradcheck(
                lambda x, penalty=penalty, labels=labels: penalty(
                    Representations.from_cloud(x, labels)
                ),
                x,
            )
            require(int(penalty.skipped) == 0, f"skips a cloud of {rows} rows")


def _check_weight(spec: MethodSpec, settings: dict[str, Any]) -> None:
    x, labels = plain_cloud(_ROWS, 5, seed=2), torch.arange(_ROWS) % 2
    one = _evaluate(_make(spec, settings, weight=1), x, labels)
    require(bool(one.gradient.any()), "has no gradient")
    for weight in (0.5, -3.0, 0.0):
        found = _evaluate(_make(spec, settings, weight=weight), x, labels)
        _same(found, one._replace(value=weight * one.value, gradient=weight * one.gradient))


def _check_padding(spec: MethodSpec, settings: dict[str, Any]) -> None:
    x, labels = plain_cloud(_ROWS, 5, seed=3), _labels(_ROWS)
    places = torch.tensor([0, 1, 3, 4, 6, 7, 8, 9, 10, 12, 14, 15])
    mask = torch.zeros(17, dtype=torch.bool).index_fill(0, places, True)
    spread = labels.new_zeros(17).index_copy(0, places, labels)
    for names, all_names in ((None, None), (labels, spread)):
        expected = _evaluate(_make(spec, settings), x, names)
        for filling in (0.0, 1e4, math.inf, math.nan):
            padded = torch.full((17, 5), filling, dtype=x.dtype).index_copy(0, places, x)
            found = _evaluate(_make(spec, settings), padded, all_names, mask)
            _same(found._replace(gradient=found.gradient[places]), expected, f"padding={filling}")
            require(not found.gradient[~mask].any(), f"padding of {filling} has a gradient")


def _check_hostile_batches(spec: MethodSpec, settings: dict[str, Any]) -> None:
    """A value and a gradient that are finite numbers, whatever the batch."""
    for rows in (1, 2, 3, 4, 5, _ROWS):
        clouds = {name: x[:rows] for name, x in hostile_clouds(max(rows, 2)).items()}
        clouds["equal rows"] = clouds["plain"][:1].expand(rows, -1)
        clouds["zeros"] = torch.zeros(rows, 6, dtype=torch.float64)
        clouds["some zeros"] = clouds["plain"] * (torch.arange(rows) % 2)[:, None]
        clouds["one direction"] = torch.linspace(1, 2, rows)[:, None] * clouds["plain"][:1]
        classes = (None, torch.zeros(rows, dtype=torch.int64), torch.arange(rows), _labels(rows))
        for name, cloud in clouds.items():
            for labels in classes:
                for dtype in (torch.float64, torch.float32) if labels is None else (torch.float32,):
                    found = _evaluate(_make(spec, settings), cloud.to(dtype), labels)
                    where = f"{name}, {rows} rows, {dtype}, labels {labels}"
                    require(bool(found.value.isfinite()), f"the value is {found.value}: {where}")
                    finite = bool(found.gradient.isfinite().all())
                    require(finite, f"the gradient is not finite: {where}")
                    if found.skipped:
                        nothing = not (found.value or found.gradient.any())
                        require(nothing, f"a skipped batch contributes {found.value}: {where}")


def _check_undefined_batches(spec: MethodSpec, settings: dict[str, Any]) -> None:
    """They contribute nothing, are counted, and leave no trace in what comes after them."""
    x, labels = plain_cloud(_ROWS, 5, seed=4), _labels(_ROWS)
    everything = torch.ones(_ROWS, dtype=torch.bool)
    batches: dict[str, tuple[Tensor, Tensor]] = {
        "no rows": (x[:0], everything[:0]),
        "padding only": (x, ~everything),
        "one padding row": (x[:1], ~everything[:1]),
        "padding of NaN only": (x * math.nan, ~everything),
    }
    for filling in (math.nan, math.inf, -math.inf):
        broken = x.clone()
        broken[3, 1] = filling
        batches[f"a row with {filling}"] = (broken, everything)
    for name, (batch, mask) in batches.items():
        for names in (None, labels):
            here = None if names is None else names[: len(batch)]
            penalty = _make(spec, settings)
            expected = _evaluate(_make(spec, settings), x, names)
            for when in ("at first", "after a sound batch"):
                for dtype in (torch.float64, torch.float32, torch.bfloat16):
                    found = _evaluate(penalty, batch.to(dtype), here, mask)
                    where = f"{name}, {dtype}, {when}"
                    nothing = not (found.value or found.gradient.any())
                    require(nothing, f"contributes {found.value}: {where}")
                    require(found.skipped == 1, f"was not counted: {where}")
                after = _evaluate(penalty, x, names)
                require(torch.equal(after.value, expected.value), f"changes what follows: {where}")


def _check_precision(spec: MethodSpec, settings: dict[str, Any]) -> None:
    x, labels = plain_cloud(_ROWS, 5, seed=5), _labels(_ROWS)
    exact = _evaluate(_make(spec, settings), x, labels)
    require(exact.value.dtype == torch.float64, f"float64 rows give {exact.value.dtype}")
    single = _evaluate(_make(spec, settings), x.float(), labels)
    close([float(single.value)], [float(exact.value)], 1e-4, "differs between float32 and float64")
    for dtype in (torch.float32, torch.bfloat16, torch.float16):
        rows = x.to(dtype)
        expected = _evaluate(_make(spec, settings), rows.float(), labels)
        found = _evaluate(_make(spec, settings), rows, labels)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            cast = rows.clone().requires_grad_()
            value = _make(spec, settings)(Representations.from_cloud(cast, labels))
        (gradient,) = torch.autograd.grad(value, cast)
        for result in (found, _Found(value.detach(), gradient, 0)):
            require(result.value.dtype == torch.float32, f"{dtype} rows give {result.value.dtype}")
            require(
                torch.equal(result.value, expected.value), f"{dtype} is not computed in float32"
            )
            require(result.gradient.dtype == dtype, f"the gradient of {dtype} rows has another")
            same = torch.equal(result.gradient, expected.gradient.to(dtype))
            require(same, f"the gradient of {dtype} rows is not computed in float32")


def _check_same_again(spec: MethodSpec, settings: dict[str, Any]) -> None:
    """The same numbers in another run, from a copy, and from what was saved."""
    first, second = plain_cloud(_ROWS, 5, seed=6), plain_cloud(_ROWS, 5, seed=8)
    labels = _labels(_ROWS)
    penalty = _make(spec, settings)
    _evaluate(penalty, first, labels)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "penalty.safetensors"
        save_file(penalty.state_dict(), file)
        loaded, filed = _make(spec, settings), _make(spec, settings)
        loaded.load_state_dict(penalty.state_dict())
        filed.load_state_dict(load_file(file))
    again = _make(spec, settings)
    _evaluate(again, first, labels)
    others = {
        "another run": again,
        "a copy": copy.deepcopy(penalty),
        "a pickled copy": pickle.loads(pickle.dumps(penalty)),
        "its state_dict": loaded,
        "its file": filed,
    }
    expected = _evaluate(penalty, second, labels)
    for name, other in others.items():
        found = _evaluate(other, second, labels)
        require(torch.equal(found.value, expected.value), f"{name} gives another value")
        require(torch.equal(found.gradient, expected.gradient), f"{name} gives another gradient")


def _check_host_copies(spec: MethodSpec, settings: dict[str, Any]) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.empty(_ROWS, 5, dtype=dtype, device=DEVICE).requires_grad_()
        labels = torch.empty(_ROWS, dtype=torch.int64, device=DEVICE)
        mask = torch.empty(_ROWS, dtype=torch.bool, device=DEVICE)
        for names, counts in ((None, None), (labels, mask)):
            penalty = _make(spec, settings).to(DEVICE)
            with no_host_copies():
                for _ in range(2):  # the first time may differ
                    value = penalty(Representations.from_cloud(x, names, counts))
                    (gradient,) = torch.autograd.grad(value, x)
            require(value.is_meta and gradient.is_meta, "its result has left the device")


def _check_direction(spec: MethodSpec, settings: dict[str, Any]) -> None:
    """Gradient descent on a free cloud moves the number that the spec names."""
    if spec.measure is None:
        return
    name = next(m.name for m in MEASURES.values() if spec.measure in [n.key for n in m.numbers])
    x = plain_cloud(64, 8, seed=7).requires_grad_()
    penalty = _make(spec, settings)
    optimizer = torch.optim.Adam([x], lr=0.02)
    values, before = [], measure(x.detach(), name)[spec.measure].value
    for _ in range(_STEPS):
        optimizer.zero_grad()
        value = penalty(Representations.from_cloud(x))
        value.backward()
        optimizer.step()
        values.append(float(value.detach()))
    after = measure(x.detach(), name)[spec.measure].value
    require(before is not None and after is not None, f"{spec.measure} is undefined")
    require(values[-1] < values[0], f"{_STEPS} steps take it from {values[0]} to {values[-1]}")
    said = f"{_STEPS} steps take {spec.measure} from {before} to {after}"
    moved = (after or 0) - (before or 0)
    require((moved > 0) == (spec.moves == "up"), f"{said}, which is not {spec.moves}")
    require(abs(moved) > 1e-3 * abs(before or 0), f"{said}, which is hardly {spec.moves}")


def _same(found: _Found, expected: _Found, what: str = "weight") -> None:
    close([float(found.value)], [float(expected.value)], 1e-9, f"{what}: value")
    close(
        found.gradient.flatten().tolist(),
        expected.gradient.flatten().tolist(),
        1e-7,
        f"{what}: gradient",
    )

"""The checks of a layer: shapes, gradients, batches of any kind, precision, state, settings."""

import copy
import inspect
import json
import math
import pickle
import tempfile
import typing
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from isotropy.errors import InputError
from isotropy.layers import Layer
from isotropy.method import MethodSpec
from isotropy.testing._accelerator import DEVICE, no_host_copies
from isotropy.testing._method import require_refused, require_spec
from isotropy.testing._tools import hostile_clouds, naming, plain_cloud, require

_D = 8
_ROWS = 12


def check_layer(spec: MethodSpec, **settings: Any) -> None:
    """Check a layer: that no batch breaks a training, and that it survives being saved.

    Args:
        spec: the layer, which need not be one of `isotropy.layers.SPECS`.
        settings: others than its own.

    Raises:
        AssertionError: something does not hold.

    Example:
        >>> from isotropy.layers import SPECS
        >>> check_layer(SPECS["isotropy-layer"])
    """
    for check in (
        _check_spec,
        _check_settings,
        _check_input,
        _check_gradient,
        _check_hostile_batches,
        _check_broken_batches,
        _check_precision,
        _check_same_again,
        _check_training,
        _check_host_copies,
    ):
        with naming(spec.name, check):
            check(spec, settings)


def _make(spec: MethodSpec, settings: dict[str, Any], **others: Any) -> Layer:
    torch.manual_seed(0)
    layer: Layer = spec.make(**{"d": _D, **settings, **others})
    return layer


@torch.enable_grad()
def _seasoned(spec: MethodSpec, settings: dict[str, Any], seed: int = 1) -> Layer:
    """A layer in float64 that has seen some batches of training and is no longer as it was made."""
    layer = _make(spec, settings).double().train()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.01) if _trained(layer) else None
    for step in range(3):
        x = plain_cloud(_ROWS, _D, seed=seed + step)
        out = layer(x.requires_grad_())
        loss = out.square().mean()
        own = layer.own_loss()
        if optimizer is not None:
            (loss if own is None else loss + own).backward()
            optimizer.step()
            optimizer.zero_grad()
    return layer.eval()


def _trained(layer: Layer) -> bool:
    return any(p.requires_grad for p in layer.parameters())


def _check_spec(spec: MethodSpec, settings: dict[str, Any]) -> None:
    require_spec(spec, "layer")
    layer = _make(spec, settings)
    require(isinstance(layer, Layer), f"its component makes a {type(layer).__name__}")
    stored = json.loads(json.dumps(layer.settings, allow_nan=False))
    again = spec.component(**stored)
    require(again.settings == layer.settings, "its settings do not make it again")
    require(again.settings["d"] == _D, f"its settings say d={again.settings['d']}")
    require(f"d={_D}" in repr(layer), f"{layer!r} does not show d={_D}")


def _check_settings(spec: MethodSpec, settings: dict[str, Any]) -> None:
    require_refused(partial(_make, spec, settings), _bad_settings(spec.component))


def _bad_settings(component: type) -> Iterator[tuple[str, Any]]:
    """Values that no setting of such a type can have."""
    for name, parameter in inspect.signature(component, eval_str=True).parameters.items():
        hint = parameter.annotation
        kinds = typing.get_args(hint) if typing.get_origin(hint) is not Literal else (hint,)
        kinds = kinds or (hint,)
        if float in kinds:
            yield from ((name, math.nan), (name, -1.0), (name, "1"), (name, True))
        elif int in kinds:
            yield from ((name, -1), (name, 1.5), (name, "4"), (name, True))
        elif any(typing.get_origin(kind) is Literal for kind in kinds):
            yield name, "something else"


def _check_input(spec: MethodSpec, settings: dict[str, Any]) -> None:
    layer = _make(spec, settings)
    x = plain_cloud(_ROWS, _D, seed=2).float()
    for training in (True, False):
        layer.train(training)
        require(layer(x).shape == x.shape, "does not keep the shape")
        for name, bad in {
            "a feature too many": torch.cat((x, x[:, :1]), dim=1),
            "one dimension": x[0],
            "three dimensions": x[None],
            "integers": x.long(),
            "an array": x.numpy(),
        }.items():
            try:
                layer(bad)
            except InputError as error:
                require("\n" not in str(error), f"{name}: the message has several lines")
            else:
                require(False, f"{name} is accepted")


def _check_gradient(spec: MethodSpec, settings: dict[str, Any]) -> None:
    """In evaluation, where a scale that carries no gradient is a constant."""
    layer = _seasoned(spec, settings)
    x = plain_cloud(5, _D, seed=3).requires_grad_()
    torch.autograd.gradcheck(layer, x)
    if layer.train().own_loss() is not None:
        layer(x)
        own = layer.own_loss()
        require(own is not None and own.requires_grad, "its own loss has no gradient")
        (through,) = torch.autograd.grad(own, x, allow_unused=True) if own is not None else (None,)
        require(through is None, "the gradient of its own loss reaches the embeddings")


def _check_hostile_batches(spec: MethodSpec, settings: dict[str, Any]) -> None:
    """Finite numbers and gradients, whatever the batch, also as the first one and ever after."""
    for rows in (1, 2, 3, 4, 5, _ROWS):
        clouds = {name: x[:rows] for name, x in hostile_clouds(max(rows, 2), _D).items()}
        del clouds["huge"], clouds["simplex"], clouds["two features"]
        clouds["huge"] = clouds["plain"] * 1e6
        clouds["equal rows"] = clouds["plain"][:1].expand(rows, -1)
        clouds["zeros"] = torch.zeros(rows, _D, dtype=torch.float64)
        for name, cloud in clouds.items():
            for dtype in (torch.float64, torch.float32):
                where = f"{name}, {rows} rows, {dtype}"
                layer = _make(spec, settings).to(dtype).train()
                for step in range(2):
                    _finite(layer, cloud.to(dtype), f"step {step} of {where}")
                _finite(layer, plain_cloud(_ROWS, _D, seed=4).to(dtype), f"after {where}")
                _finite(layer.eval(), cloud.to(dtype), f"evaluation of {where}")


def _finite(layer: Layer, cloud: Tensor, where: str) -> None:
    x = cloud.detach().clone().requires_grad_()
    value = layer(x)
    own = layer.own_loss()
    total = value.square().sum() if own is None else value.square().sum() + own
    total.backward()
    require(bool(value.isfinite().all()), f"the value is not finite: {where}")
    grads = [x.grad, *(p.grad for p in layer.parameters())]
    finite = all(bool(g.isfinite().all()) for g in grads if g is not None)
    require(finite, f"a gradient is not finite: {where}")
    layer.zero_grad()


def _check_broken_batches(spec: MethodSpec, settings: dict[str, Any]) -> None:
    """Rows that are not finite, or none at all, leave no trace in what comes after them."""
    x = plain_cloud(_ROWS, _D, seed=5)
    for filling in (math.nan, math.inf, None):
        broken = x[:0] if filling is None else x.clone()
        if filling is not None:
            broken[3, 1] = filling
        for seasoned in (False, True):
            fresh = _seasoned(spec, settings) if seasoned else _make(spec, settings).double()
            layer = copy.deepcopy(fresh)
            require(layer.train()(broken).shape == broken.shape, "does not keep the shape")
            same = torch.equal(layer(x), fresh.train()(x))
            require(same, f"changes the next batch: a batch with {filling}")


@torch.no_grad()
def _check_precision(spec: MethodSpec, settings: dict[str, Any]) -> None:
    x = plain_cloud(_ROWS, _D, seed=6)
    exact = _seasoned(spec, settings)
    expected = exact(x)
    require(expected.dtype == torch.float64, f"float64 rows give {expected.dtype}")
    single = copy.deepcopy(exact).float()
    scale = expected.abs().max()
    error = (single(x.float()).double() - expected).abs().max() / scale
    require(bool(error < 1e-5), f"differs between float32 and float64 by {float(error):g}")
    for dtype in (torch.float16, torch.bfloat16):
        rows = x.to(dtype)
        for layer in (single, copy.deepcopy(single).to(dtype)):
            found = layer(rows)
            require(found.dtype == dtype, f"{dtype} rows give {found.dtype}")
            error = (found.double() - exact(rows.double())).abs().max() / scale
            near = 8 * torch.finfo(dtype).eps
            require(bool(error < near), f"differs for {dtype} by {float(error):g}")
        if single.in_float32:
            half = copy.deepcopy(single).to(dtype)
            kept = all(t.dtype != dtype for t in half.state_dict().values())
            require(kept, f"does not stay in float32 in a model of {dtype}")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = single(x.float())
    if single.in_float32:
        require(torch.equal(cast, single(x.float())), "is not computed in float32 under autocast")
    error = (cast.double() - expected).abs().max() / scale
    require(bool(error < 8 * torch.finfo(torch.bfloat16).eps), "is wrong under autocast")


def _check_same_again(spec: MethodSpec, settings: dict[str, Any]) -> None:
    """The same numbers in another run, from a copy, and from what was saved."""
    x = plain_cloud(_ROWS, _D, seed=7)
    layer = _seasoned(spec, settings)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "layer.safetensors"
        save_file(layer.state_dict(), file)
        loaded, filed = (_make(spec, settings).double().eval() for _ in range(2))
        loaded.load_state_dict(layer.state_dict())
        filed.load_state_dict(load_file(file))
    others = {
        "another run": _seasoned(spec, settings),
        "a copy": copy.deepcopy(layer),
        "a pickled copy": pickle.loads(pickle.dumps(layer)),
        "its state_dict": loaded,
        "its file": filed,
    }
    before = layer.state_dict()
    for name, other in others.items():
        require(torch.equal(other(x), layer(x)), f"{name} gives another value")
    for training in (True, False):
        expected = copy.deepcopy(layer).train(training)(x)
        for name, other in others.items():
            found = copy.deepcopy(other).train(training)(x)
            require(torch.equal(found, expected), f"{name} goes on in another way")
    after = layer.state_dict()
    same = all(torch.equal(before[name], after[name]) for name in before)
    require(same, "evaluation changes its state")


def _check_training(spec: MethodSpec, settings: dict[str, Any]) -> None:
    """Before it has seen anything a layer loses nothing: the rows are there, in some order."""
    x = plain_cloud(_ROWS, _D, seed=8)
    made = _make(spec, settings).double().eval()
    require(
        torch.allclose(made(x).sort(dim=1).values, x.sort(dim=1).values),
        "changes the numbers before any training",
    )
    moved = _seasoned(spec, settings)
    require(not torch.allclose(moved(x), made(x)), "does not change with training")


def _check_host_copies(spec: MethodSpec, settings: dict[str, Any]) -> None:
    layer = _seasoned(spec, settings).float().train().to(DEVICE)
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.empty(_ROWS, _D, dtype=dtype, device=DEVICE).requires_grad_()
        with no_host_copies():
            for _ in range(2):
                value = layer(x)
                own = layer.own_loss()
                total = value.sum() if own is None else value.sum() + own
                (gradient,) = torch.autograd.grad(total, x)
        require(value.is_meta and gradient.is_meta, "its result has left the device")

"""The contract of penalties: it passes what keeps its word, and catches each way to break it."""

import re
from dataclasses import replace

import numpy as np
import pytest
import torch

from isotropy.method import MethodSpec
from isotropy.penalties import Penalty
from isotropy.penalties._penalty import kept
from isotropy.settings import number
from isotropy.testing import check_penalty, no_host_copies


class Centre(Penalty):
    """‖Σx‖²/(n·Σ‖x‖²): a small penalty of the tests' own, which is right."""

    def __init__(self, weight: float = 1.0, *, t: float = 1.0, site="cls@last", **settings):
        super().__init__(weight=weight, site=site, **settings)
        self.t = number("t", t)

    def value(self, rows):
        x, mask, _ = self.everyones(rows)
        return self.t * self.ratio(kept(x, mask), len(x) if mask is None else mask.sum())

    def ratio(self, x, n):
        return x.sum(dim=0).square().sum() / (n * x.square().sum())


def spec_of(component, **changes):
    component.__name__ = "Centre"
    right = MethodSpec(
        name="centre",
        kind="penalty",
        component=component,
        summary="how far off the origin",
        reference="none",
        measure="mean_norm_ratio",
        moves="down",
    )
    return replace(right, **changes)


def test_a_right_penalty_passes():
    check_penalty(spec_of(Centre))
    check_penalty(spec_of(Centre, measure=None, moves=None), t=2.0)


class WrongGradient(Centre):
    def value(self, rows):
        value = super().value(rows)
        return 2 * value - value.detach()


class CountsPadding(Centre):
    def value(self, rows):
        x, mask, _ = self.everyones(rows)
        return super().ratio(kept(x, mask), len(x))


class MeetsNan(Centre):
    def value(self, rows):
        x, mask, _ = self.everyones(rows)
        if mask is None:
            return super().value(rows)
        # NaN times 0 is no 0.
        return super().ratio(x * mask[:, None], mask.sum())


class Unchecked(Centre):
    def __init__(self, weight: float = 1.0, *, t: float = 1.0, site="cls@last", **settings):
        super().__init__(weight, site=site, **settings)
        self.t = t


class NotLinear(Centre):
    def value(self, rows):
        return super().value(rows) * abs(self.weight)


class Fails(Centre):
    def value(self, rows):
        x, _, _ = rows.joined()
        # Cholesky needs more rows than features.
        return super().value(rows) + 0 * torch.linalg.cholesky(x.T @ x).sum()


class CountsNothing(Centre):
    def value(self, rows):
        return super().value(rows).nan_to_num(0)


class RemembersWhatWasBroken(Centre):
    shift = 0.0

    def value(self, rows):
        value = super().value(rows)
        self.shift = self.shift + 0 * value.detach()  # once NaN, always NaN
        return value + self.shift


class HalfPrecision(Centre):
    def ratio(self, x, n):
        rows = x if x.dtype == torch.float64 else x.bfloat16()
        return super().ratio(rows, n).to(x.dtype)


class Random(Centre):
    def value(self, rows):
        return super().value(rows) * (1 + 1e-3 * torch.rand((), device=rows.blocks[0].device))


class Unsaved(Centre):
    first = None

    def value(self, rows):
        value = super().value(rows)
        if self.first is None and bool(torch.isfinite(value.detach())):
            self.first = value.detach()
        return value if self.first is None else value * self.first


class Looks(Centre):
    def ratio(self, x, n):
        value = super().ratio(x, n)
        return value if value.item() == value.item() else value * 0


class Copies(Centre):
    def ratio(self, x, n):
        return super().ratio(x, n) + 0 * x.detach().cpu().sum().to(x.device)


class MakesTensors(Centre):
    def ratio(self, x, n):
        return super().ratio(x, n) * x.new_tensor(1.0)


class WaitsInItsDerivative(Centre):
    def ratio(self, x, n):
        return x.sum(dim=0).square().sum() / (n * (x @ x.T).trace())


class Hides(Centre):
    def extra_repr(self):
        return ""


@pytest.mark.parametrize(
    ("component", "message"),
    [
        (WrongGradient, "Jacobian mismatch"),
        (CountsPadding, "centre: padding=0.0: value"),
        (MeetsNan, "centre: padding=inf: value"),
        (Unchecked, "centre: t=nan is accepted"),
        (NotLinear, "centre: weight: value"),
        (Fails, "cholesky"),
        (CountsNothing, "centre: was not counted: no rows"),
        (RemembersWhatWasBroken, "centre: changes what follows: no rows"),
        (HalfPrecision, "centre: differs between float32 and float64"),
        (Random, "Jacobian mismatch"),
        (Looks, "`item` waits for the device"),
        (Copies, "`cpu` waits for the device"),
        (MakesTensors, "`new_tensor` copies numbers to the device"),
        (WaitsInItsDerivative, "`aten.index_fill.int_Tensor` waits for the device"),
        (Hides, r"centre: 'Centre\(\)' does not show weight=1"),
    ],
)
def test_a_broken_penalty_is_caught(component, message):
    with pytest.raises((AssertionError, RuntimeError), match=message):
        check_penalty(spec_of(component))


def test_what_is_not_saved_is_missed():
    from isotropy.testing._penalty import _check_same_again

    with pytest.raises(AssertionError, match="its state_dict gives another value"):
        _check_same_again(spec_of(Unsaved), {})


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"moves": "up"}, "200 steps take mean_norm_ratio from .* which is not up"),
        ({"measure": "two_nn"}, "200 steps take two_nn from .*, which is (not|hardly) down"),
        ({"moves": None}, "needs both measure and moves, or none"),
        ({"kind": "layer"}, "its kind is layer"),
        ({"summary": ""}, "needs a summary and a reference"),
        ({"summary": "x" * 61}, "does not fit a table"),
        ({"name": "center"}, "its class should have the name Center"),
    ],
)
def test_a_spec_that_is_wrong_is_caught(changes, message):
    with pytest.raises(AssertionError, match=message):
        check_penalty(spec_of(Centre, **changes))


LOOKS = {
    "item": lambda x: x.sum().item(),
    "a condition": lambda x: 1 if x.sum() > 0 else 2,
    "float": lambda x: float(x.sum()),
    "int": lambda x: int(x.sum()),
    "an index": lambda x: [1, 2, 3][x.sum().long()],
    "cpu": lambda x: x.cpu(),
    "to the host": lambda x: x.to("cpu"),
    "tolist": lambda x: x.tolist(),
    "numpy": lambda x: x.numpy(),
    "an array": lambda x: np.asarray(x.detach()),
    "nonzero": lambda x: x.nonzero(),
    "where": lambda x: torch.where(x > 0),
    "a mask": lambda x: x[x > 0],
    "masked_select": lambda x: x.masked_select(x > 0),
    "unique": lambda x: x.unique(),
    "equal": lambda x: torch.equal(x, x),
    "new_tensor": lambda x: x.new_tensor(3.0),
    "tensor": lambda x: torch.tensor([3.0], device=x.device),
    "from the host": lambda x: torch.ones(3).to(x.device),
    "copy_": lambda x: torch.ones(3).copy_(x),
}


@pytest.mark.parametrize("look", LOOKS)
def test_a_wait_for_the_device_is_caught(look):
    x = torch.ones(3, device="meta")
    with pytest.raises(AssertionError, match=re.compile("waits for|copies")), no_host_copies():
        LOOKS[look](x)


def test_what_needs_no_wait_is_allowed():
    x = torch.ones(3, 4, device="meta", requires_grad=True)
    with no_host_copies():
        mask = torch.isfinite(x).all(dim=1)
        y = torch.where(mask[:, None], 2 * x, torch.nan) * x.new_full((), 3) + len(x)
        y = y[:, 1:].masked_fill(~mask[:, None], 0)[
            torch.zeros(2, dtype=torch.int64, device="meta")
        ]
        (gradient,) = torch.autograd.grad(y.sum().log(), x)
        torch.ones(3).sum().item()  # on the host everything may be looked at
    assert gradient.is_meta

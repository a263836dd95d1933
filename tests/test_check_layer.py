"""Layers that break a promise are found."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from isotropy.layers import SPECS, IsoBatchNorm, IsotropyLayer
from isotropy.testing import check_layer


def check(component: type, **others: Any) -> None:
    component.__name__ = "IsoBatchNorm" if issubclass(component, IsoBatchNorm) else "IsotropyLayer"
    name = "iso-batch-norm" if issubclass(component, IsoBatchNorm) else "isotropy-layer"
    check_layer(replace(SPECS[name], component=component, **others))


class WithoutChecks(IsotropyLayer):
    def check(self, x: Tensor) -> None:
        pass


class ForgetsItsState(IsoBatchNorm):
    def __init__(self, d: int, **settings: Any) -> None:
        super().__init__(d, **settings)
        self.register_buffer("std", self.std, persistent=False)


class Unguarded(IsoBatchNorm):
    @torch.no_grad()
    def scale(self) -> Tensor:
        return self.std.reciprocal()


class LooksAtValues(IsoBatchNorm):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        return y if float(y.detach().sum()) else x


class TakesInWhatIsNotFinite(IsotropyLayer):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        if self.training:
            self.first.bias.data += x.detach().sum(dim=0).to(self.first.bias) * 0
        return y


class ChangesInEvaluation(IsoBatchNorm):
    def forward(self, x: Tensor) -> Tensor:
        training = self.training
        self.training = True
        try:
            return super().forward(x)
        finally:
            self.training = training


class Random(IsotropyLayer):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x) + torch.randn_like(x) * 1e-3


@pytest.mark.parametrize(
    ("component", "message"),
    [
        (ForgetsItsState, "gives another value"),
        (Unguarded, "is not finite"),
        (LooksAtValues, "waits for the device"),
        (TakesInWhatIsNotFinite, "changes the next batch"),
        (Random, "Jacobian|gives another value|not reentrant"),
    ],
)
def test_a_broken_layer_is_found(component: type, message: str) -> None:
    with pytest.raises((AssertionError, RuntimeError), match=message):
        check(component)


def test_a_layer_that_takes_anything_is_found() -> None:
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):  # no InputError
        check(WithoutChecks)


def test_a_layer_that_learns_in_evaluation_is_found() -> None:
    with pytest.raises(RuntimeError, match="Jacobian mismatch"):  # each evaluation moves it
        check(ChangesInEvaluation)


def test_a_name_that_is_not_its_class_is_found() -> None:
    with pytest.raises(AssertionError, match="its class should have the name"):
        check_layer(replace(SPECS["iso-batch-norm"], name="batch-norm-iso"))

"""The contract catches transforms that break it."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from isotropy.testing import check_transform
from isotropy.transforms import SPECS, AllButTheTop, Standardize, Whitening
from isotropy.transforms._reader import Reader


class Right(Whitening):
    pass


class Foreign:
    pass


class NeverChecked(Whitening):
    def _mapped(self, X: Any, function: Any, features: int) -> Any:
        return function(torch.as_tensor(X))


class Noisy(Whitening):
    def _map(self, x: Tensor) -> Tensor:
        return super()._map(x) + 1e-3 * torch.rand(len(x), 1)


class CentredOnTheLastChunk(Whitening):
    def _fit(self, reader: Reader) -> Mapping[str, Tensor]:
        *_, last = reader.chunks("reading")
        return {**super()._fit(reader), "mean_": last.rows.mean(dim=0)}


class WithoutWeights(Whitening):
    def _fit(self, reader: Reader) -> Mapping[str, Tensor]:
        return super()._fit(replace(reader, weights=None))


class Blowing(Standardize):
    def _factors(self) -> Tensor:
        return torch.from_numpy(self.deviations_).reciprocal()


class InDoubles(Whitening):
    def _mapped(self, X: Any, function: Any, features: int) -> Any:
        found = super()._mapped(X, function, features)
        return found.double() if isinstance(found, Tensor) else found.astype(np.float64)


class BadInverse(Standardize):
    def _inverse(self, y: Tensor) -> Tensor:
        return super()._inverse(y) * 1.001


class ForgetsItsMean(Whitening):
    arrays = ("components_", "variances_")

    def _fit(self, reader: Reader) -> Mapping[str, Tensor]:
        fitted = super()._fit(reader)
        self.mean_ = fitted["mean_"].numpy()
        return fitted


class NotTheMapItSays(AllButTheTop):
    def as_affine(self) -> tuple[Tensor, Tensor]:
        matrix, mean = super().as_affine()
        return matrix.T * 1.01, mean


class LeavesAllAsItIs(Standardize):
    def _map(self, x: Tensor) -> Tensor:
        return x

    def _inverse(self, y: Tensor) -> Tensor:
        return y

    def as_affine(self) -> tuple[Tensor, Tensor]:
        d = len(self.mean_)
        return torch.eye(d, dtype=torch.float64), torch.zeros(d, dtype=torch.float64)


def spec(component: type, name: str) -> Any:
    return replace(SPECS["whitening"], component=component, name=name)


def test_a_right_one_passes() -> None:
    check_transform(spec(Right, "right"))
    check_transform(spec(Right, "right"), method="zca", shrinkage=0.1)


@pytest.mark.parametrize(
    ("component", "name", "message"),
    [
        (Right, "wrong", "its class should have the name Wrong"),
        (Foreign, "foreign", "must be a Transform"),
        (NeverChecked, "never-checked", "must give an array for an array"),
        (Noisy, "noisy", "differs from one call to the next"),
        (CentredOnTheLastChunk, "centred-on-the-last-chunk", "differs when fitted in chunks"),
        (WithoutWeights, "without-weights", "takes no notice of the weights"),
        (Blowing, "blowing", "gives NaN or infinity: a constant feature"),
        (InDoubles, "in-doubles", "gives torch.float64 for torch.float16"),
        (BadInverse, "bad-inverse", "its inverse does not lead back"),
        (NotTheMapItSays, "not-the-map-it-says", "is not the affine map it says"),
        (LeavesAllAsItIs, "leaves-all-as-it-is", "takes no notice of the weights"),
    ],
)
def test_a_wrong_one_is_caught(component: type, name: str, message: str) -> None:
    with pytest.raises(AssertionError, match=f"{name}: {message}"):
        check_transform(spec(component, name))


def test_what_is_not_in_the_file_is_missed() -> None:
    with pytest.raises(Exception, match="mean_"):
        check_transform(spec(ForgetsItsMean, "forgets-its-mean"))


def test_the_direction_is_looked_at() -> None:
    with pytest.raises(AssertionError, match="right: moves iso_score from"):
        check_transform(replace(spec(Right, "right"), moves="down"))

"""The network of a trained transform is made once, and is no part of its state."""

import copy
import gc
import pickle
import weakref
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from isotropy import transforms
from isotropy.transforms import FlowPostHoc, IsotropyLayerPostHoc

MADE = [FlowPostHoc(levels=2, epochs=1), IsotropyLayerPostHoc(epochs=1)]


@pytest.fixture(params=MADE, ids=lambda made: type(made).__name__)
def fitted(request: pytest.FixtureRequest, rng: np.random.Generator) -> Any:
    return clone(request.param).fit(rng.normal(size=(60, 5)) * np.arange(1, 6))


@pytest.fixture
def rows(rng: np.random.Generator) -> np.ndarray:
    return rng.normal(size=(7, 5))


@pytest.fixture
def made(fitted: Any, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A number for each network that is made."""
    found: list[int] = []
    make = type(fitted)._network

    def counted(self: Any, features: int) -> Any:
        found.append(features)
        return make(self, features)

    monkeypatch.setattr(type(fitted), "_network", counted)
    return found


def test_it_is_made_once(fitted: Any, rows: np.ndarray, made: list[int]) -> None:
    first = fitted.transform(rows)
    for _ in range(3):
        np.testing.assert_array_equal(fitted.transform(rows), first)
    assert made == [5]


def test_another_dtype_fit_or_setting_makes_another(
    fitted: Any, rows: np.ndarray, made: list[int], rng: np.random.Generator
) -> None:
    wide = fitted.transform(rows)
    narrow = fitted.transform(rows.astype(np.float32))
    np.testing.assert_allclose(narrow, wide, atol=1e-4)
    np.testing.assert_array_equal(fitted.transform(rows), wide)
    assert made == [5, 5, 5]
    again = fitted.fit(rng.normal(size=(60, 5)) + 9).transform(rows)
    assert abs(again - wide).max() > 1
    narrower = fitted.fit(rng.normal(size=(60, 4))).transform(rows[:, :4])
    assert narrower.shape == (7, 4)


def test_copies_map_as_it_does(fitted: Any, rows: np.ndarray, tmp_path: Path) -> None:
    expected = fitted.transform(rows)
    fitted.save(tmp_path / "t.safetensors")
    read = pickle.dumps(fitted)
    copies = [
        pickle.loads(read),
        copy.copy(fitted),
        copy.deepcopy(fitted),
        transforms.load(tmp_path / "t.safetensors"),
    ]
    for other in copies:
        np.testing.assert_array_equal(other.transform(rows), expected)
        assert other.__dict__.keys() == fitted.__dict__.keys()
    assert b"torch" not in read
    with pytest.raises(NotFittedError):
        clone(fitted).transform(rows)


def test_a_copy_that_is_fitted_anew_leaves_the_first(
    fitted: Any, rows: np.ndarray, rng: np.random.Generator
) -> None:
    expected = fitted.transform(rows)
    other = copy.copy(fitted).fit(rng.normal(size=(60, 5)) + 9)
    assert abs(other.transform(rows) - expected).max() > 1
    np.testing.assert_array_equal(fitted.transform(rows), expected)


def test_threads_do_not_share_it(fitted: Any, rows: np.ndarray, made: list[int]) -> None:
    expected = fitted.transform(rows)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(fitted.transform, [rows] * 200):
            np.testing.assert_allclose(found, expected, atol=1e-12)
    assert len(made) <= 5


def test_gradients_pass_what_inference_has_made(fitted: Any, rows: np.ndarray) -> None:
    with torch.inference_mode():
        fitted.transform(torch.from_numpy(rows))
    x = torch.from_numpy(rows).requires_grad_()
    (gradient,) = torch.autograd.grad(fitted.transform(x).sum(), x)
    assert bool(gradient.abs().sum() > 0)
    assert not fitted.transform(torch.from_numpy(rows)).requires_grad


def test_it_goes_with_the_transform(rng: np.random.Generator, rows: np.ndarray) -> None:
    fitted = IsotropyLayerPostHoc(epochs=1).fit(rng.normal(size=(60, 5)))
    fitted.transform(rows)
    network = weakref.ref(fitted._trained(torch.from_numpy(rows)))
    del fitted
    gc.collect()
    assert network() is None

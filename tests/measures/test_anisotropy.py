"""Anisotropy against singular values by numpy in float64."""

import numpy as np
import pytest
import torch

from isotropy.errors import InputError, SettingError, UndefinedError
from isotropy.measurement import measure
from isotropy.measures._anisotropy import anisotropy

SHAPES = [(500, 20), (20, 20), (19, 20), (30, 300), (2, 2), (2, 50), (50, 2)]


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def stretched(n, d, seed=0):
    return gaussian(n, d, seed=seed) @ gaussian(d, d, seed=seed + 1) + gaussian(d, seed=seed + 2)


def by_svd(x, k, center):
    squares = np.linalg.svd(x - x.mean(axis=0) * center, compute_uv=False) ** 2
    return (np.pad(squares, (0, k)) / squares.sum())[:k]


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("k", [1, 3, 60])
@pytest.mark.parametrize("shape", SHAPES)
def test_is_the_share_of_squared_singular_values(shape, k, center):
    x = stretched(*shape)
    expected = by_svd(x, k, center)
    found = anisotropy(x, k=k, center=center)
    assert found.shape == (k,)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    single = x.astype(np.float32)
    assert anisotropy(single, k, center).dtype == np.float32
    assert anisotropy(single, k, center) == pytest.approx(
        by_svd(single.astype(float), k, center), rel=1e-5, abs=1e-6
    )


def test_three_shares_without_centring_by_default():
    x = stretched(50, 6)
    assert np.array_equal(anisotropy(x), anisotropy(x, k=3, center=False))


def test_of_known_singular_values():
    frame, _ = np.linalg.qr(gaussian(7, 3))
    other, _ = np.linalg.qr(gaussian(5, 3))
    x = frame * np.sqrt([5, 3, 2]) @ other.T
    assert anisotropy(x, k=5) == pytest.approx([0.5, 0.3, 0.2, 0, 0], abs=1e-12)


def test_a_far_mean_is_all_there_is_without_centring():
    x = gaussian(200, 5) + 1e4
    assert anisotropy(x, k=2) == pytest.approx([1, 0], abs=1e-6)
    assert anisotropy(x, center=True) == pytest.approx(by_svd(x, 3, True), rel=1e-6)


def test_small_shares_keep_their_digits_in_float32():
    frame, _ = np.linalg.qr(gaussian(100, 3))
    x = (frame * [1, 1e-3, 1e-5]).astype(np.float32)
    assert anisotropy(x) == pytest.approx(by_svd(x.astype(float), 3, False), rel=1e-4)


@pytest.mark.parametrize("center", [False, True])
def test_in_a_stream_with_options(center):
    x = stretched(100, 6)
    name = "centered_anisotropy" if center else "anisotropy"
    report = measure(x, [name], options={name: {"k": 8}})
    assert list(report) == [f"{name}_{i}" for i in range(1, 9)]
    values = [score.value for score in report.values()]
    assert values == pytest.approx(by_svd(x, 8, center), rel=1e-9, abs=1e-12)
    assert report[name] == report[f"{name}_1"]


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("shape", [(30, 5), (5, 30)])
def test_gradient_is_that_of_the_singular_values(shape, center):
    x = torch.from_numpy(stretched(*shape)).requires_grad_()
    squares = torch.linalg.svdvals(x - x.mean(dim=0) * center).square()
    weights = torch.tensor([1.0, -2.0, 3.0], dtype=torch.float64)
    (expected,) = torch.autograd.grad(squares[:3] @ weights / squares.sum(), x)
    (grad,) = torch.autograd.grad(anisotropy(x, center=center) @ weights, x)
    torch.testing.assert_close(grad, expected, rtol=1e-7, atol=1e-12)


@pytest.mark.parametrize("k", [0, -1])
def test_at_least_one_share(k):
    with pytest.raises(SettingError, match=f"got k={k}, expected a whole number from 1"):
        anisotropy(gaussian(5, 3), k=k)
    with pytest.raises(SettingError, match=f"got k={k}, expected a whole number from 1"):
        measure(gaussian(50, 3), ["anisotropy"], options={"anisotropy": {"k": k}})


def test_errors():
    with pytest.raises(InputError, match="1 row"):
        anisotropy(gaussian(1, 3))
    with pytest.raises(UndefinedError, match="equal rows"):
        anisotropy(np.ones((5, 3)))


def test_types():
    x = stretched(100, 8)
    assert isinstance(anisotropy(x), np.ndarray)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        value = anisotropy(torch.from_numpy(x).to(dtype))
        assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert value.numpy() == pytest.approx(anisotropy(x), rel=0.02)

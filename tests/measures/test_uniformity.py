"""Uniformity against all pairs by scipy in float64, closed forms and autograd."""

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, strategies as st
from scipy.spatial.distance import pdist
from scipy.special import logsumexp

from isotropy.errors import InputError, SettingError, UndefinedError
from isotropy.measures import _uniformity as module
from isotropy.measures._uniformity import SPEC, uniformity


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def by_pairs(x, t=2.0):
    directions = x / np.linalg.norm(x, axis=1, keepdims=True)
    squares = pdist(directions, "sqeuclidean")
    return logsumexp(-t * squares) - np.log(len(squares))


@pytest.mark.parametrize("n", [2, 3, 4, 5, 257])
@pytest.mark.parametrize("t", [0.1, 2.0, 50.0])
def test_is_the_log_mean_potential_of_all_pairs(n, t):
    x = gaussian(n, 7)
    assert uniformity(x, t=t) == pytest.approx(by_pairs(x, t), rel=1e-12)
    assert uniformity(x.astype(np.float32), t=t) == pytest.approx(by_pairs(x, t), rel=1e-5)


@pytest.mark.parametrize("values", [1, 1000, 20_000])
def test_block_size_changes_nothing(monkeypatch, values):
    x = torch.from_numpy(gaussian(103, 5)).requires_grad_()
    whole = uniformity(x)
    (expected,) = torch.autograd.grad(whole, x)
    monkeypatch.setattr(module, "block_values", lambda device: values)
    value = uniformity(x)
    (grad,) = torch.autograd.grad(value, x)
    assert value.item() == pytest.approx(whole.item(), rel=1e-12)
    torch.testing.assert_close(grad, expected, rtol=1e-10, atol=1e-14)


def test_of_a_regular_polygon():
    n = 200
    angles = 2 * np.pi * np.arange(n) / n
    chords = 4 * np.sin(np.pi * np.arange(1, n) / n) ** 2
    value = uniformity(np.stack((np.cos(angles), np.sin(angles)), axis=1))
    assert value == pytest.approx(np.log(np.exp(-2 * chords).mean()), rel=1e-12)


def test_bounds_are_reached_and_kept():
    opposite = np.array([[1.0, 2.0], [-3.0, -6.0]], dtype=np.float32)
    assert uniformity(opposite) == pytest.approx(-8, rel=1e-6)
    assert uniformity(opposite) >= -8
    ray = np.array([[1.0, 2.0], [3.0, 6.0], [0.1, 0.2]], dtype=np.float32)
    assert uniformity(ray) == pytest.approx(0, abs=1e-6)
    assert uniformity(ray) <= 0


def test_potentials_that_underflow():
    x = gaussian(50, 20)
    assert uniformity(x, t=1e5) == pytest.approx(by_pairs(x, 1e5), rel=1e-10)


def by_autograd(x):
    """The value and the gradient of the plain formula in float64."""
    wide = x.detach().double().requires_grad_()
    directions = wide / wide.norm(dim=1, keepdim=True)
    value = torch.nn.functional.pdist(directions).square().mul(-2).expm1().mean().log1p()
    value.backward()
    return value, wide.grad


def test_a_narrow_cone_in_float32():
    x = torch.from_numpy(gaussian(300, 10) + 1e4).float().requires_grad_()
    value, grad = by_autograd(x)
    found = uniformity(x)
    found.backward()
    assert value.item() > -1e-6
    assert found.item() == pytest.approx(value.item(), rel=1e-5)
    assert (x.grad - grad).norm() < 1e-5 * grad.norm()


@pytest.mark.parametrize("scale", [1e-30, 1e-18, 1e18, 1e30])
def test_huge_and_tiny_scales(scale):
    x = gaussian(60, 5)
    scaled = torch.from_numpy(x * scale).float().requires_grad_()
    value = uniformity(scaled)
    assert value.item() == pytest.approx(by_pairs(x), rel=1e-5)
    value.backward()
    assert torch.isfinite(scaled.grad).all()


def test_gradcheck():
    x = torch.from_numpy(gaussian(7, 3)).requires_grad_()
    assert torch.autograd.gradcheck(uniformity, x)
    assert torch.autograd.gradcheck(lambda rows: uniformity(rows, t=0.5), x)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gradient_is_autograds(dtype):
    x = torch.from_numpy(gaussian(300, 16)).to(dtype).requires_grad_()
    _, expected = by_autograd(x)
    uniformity(x).mul(3).backward()
    tolerance = 1e-5 if dtype == torch.float32 else 1e-11
    assert (x.grad - 3 * expected).norm() < tolerance * expected.norm()


def test_gradient_under_autocast_is_the_same():
    x = torch.from_numpy(gaussian(300, 16)).float().requires_grad_()
    (expected,) = torch.autograd.grad(uniformity(x), x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (grad,) = torch.autograd.grad(uniformity(x), x)
    torch.testing.assert_close(grad, expected)


def test_memory_stays_bounded_in_the_backward_too(monkeypatch):
    x = torch.randn(10_000, 8).requires_grad_()  # all pairs would take 400 MB in float32
    process = psutil.Process()
    uniformity(x[:100]).backward()
    before = process.memory_info().rss
    peaks = []
    blocks = module._blocks

    def watched(points, t):
        for block in blocks(points, t):
            peaks.append(process.memory_info().rss)
            yield block

    monkeypatch.setattr(module, "_blocks", watched)
    uniformity(x).backward()
    assert len(peaks) > 10
    assert max(peaks) - before < 150e6


def test_errors():
    with pytest.raises(UndefinedError, match="2 rows of zeros, the first is row 1"):
        uniformity(np.array([[1.0, 0.0], [0.0, 0.0], [0.0, 0.0]]))
    with pytest.raises(InputError, match="1 row"):
        uniformity(gaussian(1, 3))
    for t in (0.0, -1.0, float("inf"), float("nan")):
        with pytest.raises(SettingError, match="expected a finite number above 0"):
            uniformity(gaussian(5, 3), t=t)


def test_types():
    x = gaussian(100, 8)
    assert isinstance(uniformity(x), float)
    assert uniformity(torch.from_numpy(x)).dtype == torch.float64
    half = uniformity(torch.from_numpy(x).half())
    assert half.dtype == torch.float32
    assert half.item() == pytest.approx(uniformity(x), rel=1e-2)


@given(st.integers(2, 40), st.integers(2, 8), st.integers(0, 1000), st.floats(0.01, 100))
def test_bounds_and_invariances(n, d, seed, t):
    x = gaussian(n, d, seed=seed)
    frame, _ = np.linalg.qr(gaussian(d, d, seed=seed + 1))
    value = uniformity(x, t=t)
    assert -4 * t <= value <= 0
    for other in (x @ frame, x * 1e18, x * 1e-18, x[::-1], x * np.exp(gaussian(n, 1))):
        assert uniformity(other, t=t) == pytest.approx(value, rel=1e-9, abs=1e-12)


def test_spec():
    rows = torch.from_numpy(gaussian(100, 8)).float()
    spec = SPEC.with_options(t=3)
    assert spec.numbers[0].low == -12
    assert spec.from_rows(rows, **spec.options) == pytest.approx((uniformity(rows, t=3.0).item(),))

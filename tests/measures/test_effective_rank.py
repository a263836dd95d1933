"""Effective rank against the entropy of numpy's singular values and closed forms."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from scipy.stats import entropy

from isotropy.errors import InputError, UndefinedError
from isotropy.measurement import measure
from isotropy.measures._effective_rank import effective_rank


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def by_svd(x):
    sigma = np.linalg.svd(x - x.mean(axis=0), compute_uv=False)
    return np.exp(entropy(sigma))


@pytest.mark.parametrize("shape", [(500, 20), (20, 20), (10, 20), (30, 300), (3, 2)])
def test_is_the_exponential_of_the_entropy_of_the_singular_values(shape):
    x = gaussian(*shape) @ gaussian(shape[1], shape[1], seed=1) + 5
    # Centring leaves a singular value that is rounding for n ≤ d, and numpy counts it.
    assert effective_rank(x) == pytest.approx(by_svd(x), rel=1e-9)
    assert effective_rank(x.astype(np.float32)) == pytest.approx(by_svd(x), rel=1e-5)
    assert measure(x, ["effective_rank"])["effective_rank"].value == pytest.approx(
        by_svd(x), rel=1e-6
    )


def axes(lengths, d):
    """Rows ± lengths along the first axes of d: their singular values are √2·lengths."""
    rows = np.diag(np.pad(np.array(lengths, dtype=float), (0, d - len(lengths))))[: len(lengths)]
    return np.concatenate((rows, -rows))


@pytest.mark.parametrize(
    ("lengths", "expected"),
    [([5], 1), ([1, 1], 2), ([2] * 7, 7), ([3, 1], 4 / 3**0.75), ([2, 1, 1], 2**1.5)],
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_closed_forms(lengths, expected, dtype):
    x = axes(lengths, 9).astype(dtype)
    assert effective_rank(x) == pytest.approx(expected, rel=1e-6)


def test_weak_directions_count_in_float32_and_rounding_does_not():
    x = axes([1, 1e-4, 1e-6], 50).astype(np.float32)
    assert effective_rank(x) == pytest.approx(by_svd(x.astype(float)), rel=1e-6)
    flat = gaussian(300, 3) @ gaussian(3, 200)
    assert effective_rank(flat) == pytest.approx(
        np.exp(entropy(np.linalg.svd(flat - flat.mean(axis=0), compute_uv=False)[:3])), rel=1e-6
    )


def test_gradient_is_that_of_the_singular_values():
    x = torch.from_numpy(gaussian(12, 4)).requires_grad_()
    sigma = torch.linalg.svdvals(x - x.mean(dim=0))
    share = sigma / sigma.sum()
    (expected,) = torch.autograd.grad((-share * share.log()).sum().exp(), x)
    (grad,) = torch.autograd.grad(effective_rank(x), x)
    torch.testing.assert_close(grad, expected, rtol=1e-8, atol=1e-12)


def test_gradient_is_finite_where_singular_values_are_zero_or_equal():
    for x in (axes([1, 1], 5), axes([1], 3), gaussian(3, 8)):
        rows = torch.from_numpy(x).requires_grad_()
        effective_rank(rows).backward()
        assert torch.isfinite(rows.grad).all()


def test_errors_and_types():
    with pytest.raises(InputError, match="1 row"):
        effective_rank(gaussian(1, 3))
    with pytest.raises(UndefinedError, match="equal rows"):
        effective_rank(np.ones((5, 3)))
    assert isinstance(effective_rank(gaussian(5, 3)), float)
    assert effective_rank(torch.from_numpy(gaussian(5, 3)).half()).dtype == torch.float32


@given(st.integers(2, 20), st.integers(2, 10), st.integers(0, 1000))
def test_between_one_and_the_number_of_directions(n, d, seed):
    value = effective_rank(gaussian(n, d, seed=seed))
    assert 1 <= value <= min(n - 1, d) * (1 + 1e-12)

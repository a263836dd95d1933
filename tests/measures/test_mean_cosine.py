"""The mean cosine against all pairs by scikit-learn in float64."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from sklearn.metrics.pairwise import cosine_similarity

from isotropy.errors import InputError, UndefinedError
from isotropy.measurement import measure
from isotropy.measures._mean_cosine import mean_cosine


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def by_pairs(x):
    return cosine_similarity(x)[np.triu_indices(len(x), k=1)].mean()


@pytest.mark.parametrize("offset", [0, 1, 100])
@pytest.mark.parametrize("shape", [(300, 20), (20, 300), (2, 2), (3, 5)])
def test_is_the_mean_over_all_pairs(shape, offset):
    x = gaussian(*shape) + offset
    assert mean_cosine(x) == pytest.approx(by_pairs(x), rel=1e-10, abs=1e-14)
    single = x.astype(np.float32)
    assert mean_cosine(single) == pytest.approx(by_pairs(single.astype(float)), rel=1e-6)
    assert measure(x, ["mean_cosine"])["mean_cosine"].value == pytest.approx(
        by_pairs(x), rel=1e-9, abs=1e-12
    )


def test_many_directions_that_cancel_keep_their_digits_in_float32():
    n = 200_000
    x = gaussian(n, 3).astype(np.float32)
    wide = x.astype(np.longdouble)
    total = (wide / np.sqrt((wide**2).sum(axis=1, keepdims=True))).sum(axis=0)
    assert mean_cosine(x) == pytest.approx(float((total @ total - n) / n / (n - 1)), rel=3e-7)


def test_of_a_simplex_about_the_origin():
    """N unit vectors with the sum zero have the smallest mean cosine there is, −1/(n − 1)."""
    for n in (2, 3, 10):
        simplex = np.eye(n) - 1 / n
        assert mean_cosine(simplex) == pytest.approx(-1 / (n - 1), rel=1e-12)


def test_of_rays_and_opposite_rows():
    ray = np.outer([1.0, 2.0, 1e3], [1.0, 2.0, 3.0])
    assert mean_cosine(ray) == pytest.approx(1, rel=1e-12)
    assert mean_cosine(ray.astype(np.float32)) <= 1
    assert mean_cosine(ray * [[1.0], [-1.0], [1.0]]) == pytest.approx(-1 / 3, rel=1e-12)


def test_the_whole_cloud_twice():
    """Of the pairs among 2n rows, n have a cosine of 1, and all others come four times."""
    x = gaussian(10, 4) + 1
    expected = (4 * 45 * by_pairs(x) + 10) / 190
    assert mean_cosine(np.concatenate((x, x))) == pytest.approx(expected, rel=1e-12)


def test_each_row_may_have_a_scale_of_its_own():
    x = gaussian(50, 5)
    scales = 10.0 ** np.linspace(-150, 150, 50)[:, None]
    assert mean_cosine(x * scales) == pytest.approx(by_pairs(x), rel=1e-10)
    rows = torch.from_numpy(x * 10.0 ** np.linspace(-30, 30, 50)[:, None]).float()
    rows.requires_grad_()
    value = mean_cosine(rows)
    assert value.item() == pytest.approx(by_pairs(x), rel=1e-5)
    value.backward()
    assert torch.isfinite(rows.grad).all()


def test_gradient_is_that_of_the_pairs():
    x = torch.from_numpy(gaussian(8, 3)).requires_grad_()
    i, j = torch.triu_indices(8, 8, offset=1)
    (expected,) = torch.autograd.grad(torch.cosine_similarity(x[i], x[j]).mean(), x)
    (grad,) = torch.autograd.grad(mean_cosine(x), x)
    torch.testing.assert_close(grad, expected, rtol=1e-10, atol=1e-14)


def test_errors():
    rows = gaussian(6, 3)
    rows[[2, 4]] = 0
    with pytest.raises(UndefinedError, match="got 2 rows of zeros, the first is row 2"):
        mean_cosine(rows)
    with pytest.raises(UndefinedError, match="got 2 rows of zeros, the first is row 2"):
        measure(rows, ["mean_cosine"])
    with pytest.raises(InputError, match="1 row"):
        mean_cosine(gaussian(1, 3))


def test_types():
    x = gaussian(50, 4) + 1
    assert isinstance(mean_cosine(x), float)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        value = mean_cosine(torch.from_numpy(x).to(dtype))
        assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert value.item() == pytest.approx(by_pairs(x), rel=0.02)


@given(st.integers(2, 30), st.integers(2, 8), st.integers(0, 1000))
def test_all_pairs_for_any_shape(n, d, seed):
    x = gaussian(n, d, seed=seed)
    assert mean_cosine(x) == pytest.approx(by_pairs(x), rel=1e-8, abs=1e-12)
    assert mean_cosine(x) >= -1 / (n - 1) - 1e-12

"""Participation ratio against eigenvalues by numpy, closed forms and IsoScore."""

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from isotropy.errors import InputError, UndefinedError
from isotropy.measurement import measure
from isotropy.measures._iso_score import iso_score
from isotropy.measures._participation_ratio import participation_ratio


def cloud(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + 10 * rng.standard_normal(d)


def by_eigenvalues(x):
    values = np.linalg.eigvalsh(np.cov(x.T))
    return values.sum() ** 2 / (values**2).sum()


@pytest.mark.parametrize("shape", [(500, 20), (20, 20), (10, 20), (30, 300), (2, 2)])
def test_is_the_ratio_of_the_eigenvalues(shape):
    x = cloud(*shape)
    assert participation_ratio(x) == pytest.approx(by_eigenvalues(x), rel=1e-9)
    assert participation_ratio(x.astype(np.float32)) == pytest.approx(by_eigenvalues(x), rel=1e-5)
    report = measure(x, ["participation_ratio"])
    assert report["participation_ratio"].value == pytest.approx(by_eigenvalues(x), rel=1e-9)


@pytest.mark.parametrize("used", [1, 2, 5, 8])
def test_equal_directions_are_counted(used):
    axes = np.eye(8)[:used]
    assert participation_ratio(np.concatenate((axes, -axes))) == pytest.approx(used, rel=1e-12)


def test_gradient_is_that_of_the_eigenvalues():
    x = torch.from_numpy(cloud(30, 5)).requires_grad_()
    values = torch.linalg.eigvalsh(torch.cov(x.T))
    (expected,) = torch.autograd.grad(values.sum().square() / values.square().sum(), x)
    (grad,) = torch.autograd.grad(participation_ratio(x), x)
    torch.testing.assert_close(grad, expected, rtol=1e-8, atol=1e-12)


def test_errors_and_types():
    with pytest.raises(InputError, match="1 row"):
        participation_ratio(cloud(1, 3))
    with pytest.raises(UndefinedError, match="equal rows"):
        participation_ratio(np.ones((5, 3)))
    assert isinstance(participation_ratio(cloud(5, 3)), float)
    assert participation_ratio(torch.from_numpy(cloud(5, 3)).half()).dtype == torch.float32


@given(st.integers(2, 20), st.integers(2, 10), st.integers(0, 1000))
def test_is_another_scale_of_iso_score(n, d, seed):
    x = cloud(n, d, seed)
    value = participation_ratio(x)
    assert 1 <= value <= min(n - 1, d) * (1 + 1e-12)
    assert value == pytest.approx(1 + (d - 1) * iso_score(x), rel=1e-12)

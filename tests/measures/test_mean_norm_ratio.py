"""The mean's share in the squared norm, against numpy, the variance and closed forms."""

import numpy as np
import pytest
import torch

from isotropy.errors import InputError, UndefinedError
from isotropy.measurement import measure
from isotropy.measures._mean_norm_ratio import mean_norm_ratio


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def by_variance(x):
    """Steiner: the mean squared norm is ‖μ‖² plus the total variance."""
    mean_square, variance = (x.mean(axis=0) ** 2).sum(), x.var(axis=0).sum()
    return mean_square / (mean_square + variance)


@pytest.mark.parametrize("offset", [0, 1, 100, 1e4])
@pytest.mark.parametrize("shape", [(300, 20), (20, 300), (2, 2)])
def test_is_the_means_share(shape, offset):
    x = gaussian(*shape) + offset
    assert mean_norm_ratio(x) == pytest.approx(by_variance(x), rel=1e-9)
    assert mean_norm_ratio(x.astype(np.float32)) == pytest.approx(by_variance(x), rel=1e-5)
    assert measure(x, ["mean_norm_ratio"])["mean_norm_ratio"].value == pytest.approx(
        by_variance(x), rel=1e-9
    )


def test_of_two_rows():
    """Rows of unit length at an angle φ: ‖μ‖² = cos²(φ/2)."""
    for angle in (0.1, 1, 2, 3):
        x = np.array([[1, 0], [np.cos(angle), np.sin(angle)]])
        assert mean_norm_ratio(x) == pytest.approx(np.cos(angle / 2) ** 2, rel=1e-12)


def test_a_centred_cloud_has_none_and_a_narrow_cone_nearly_all():
    x = gaussian(100, 5)
    assert mean_norm_ratio(x - x.mean(axis=0)) == pytest.approx(0, abs=1e-15)
    assert mean_norm_ratio(x + 1e6) == pytest.approx(1, abs=1e-9)
    assert mean_norm_ratio((x + 1e6).astype(np.float32)) <= 1


def test_a_centred_distribution_shows_one_over_n():
    found = np.mean([mean_norm_ratio(gaussian(50, 20, seed=seed)) for seed in range(100)])
    assert found == pytest.approx(1 / 50, rel=0.05)


def test_zero_rows_count():
    assert mean_norm_ratio(np.array([[0.0, 0.0], [2.0, 0.0]])) == 0.5


@pytest.mark.parametrize("scale", [1e-200, 1e-18, 1e18, 1e200])
def test_huge_and_tiny_scales(scale):
    x = gaussian(20, 3) + 1
    assert mean_norm_ratio(x * scale) == pytest.approx(by_variance(x), rel=1e-12)


def test_gradient():
    x = torch.from_numpy(gaussian(7, 3) + 1).requires_grad_()
    assert torch.autograd.gradcheck(mean_norm_ratio, x)
    rows = x.detach().float().mul(1e18).requires_grad_()
    mean_norm_ratio(rows).backward()
    assert torch.isfinite(rows.grad).all()


def test_errors_and_types():
    with pytest.raises(InputError, match="1 row"):
        mean_norm_ratio(gaussian(1, 3))
    with pytest.raises(UndefinedError, match="equal rows"):
        mean_norm_ratio(np.ones((5, 3)))
    assert isinstance(mean_norm_ratio(gaussian(5, 3)), float)
    assert mean_norm_ratio(torch.from_numpy(gaussian(5, 3)).half()).dtype == torch.float32

"""Spectrum control against PyTorch's singular values and their derivatives."""

import numpy as np
import pytest
import torch
from torch import nn

from isotropy import Representations
from isotropy.errors import SettingError
from isotropy.penalties import SpectrumExp, SpectrumPol


def gaussian(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def curve(penalty, size):
    k = np.arange(1, size + 1)
    if isinstance(penalty, SpectrumPol):
        return torch.from_numpy(k**penalty.gamma)
    return torch.from_numpy(np.exp(-penalty.c2 * k**penalty.gamma))


def by_svd(penalty, x, c1):
    sigma = torch.linalg.svdvals(x)
    return (sigma - c1 * curve(penalty, len(sigma))).square().sum()


SETTINGS = [
    (SpectrumPol, {"c1": 3.0}),
    (SpectrumPol, {"c1": 2.0, "gamma": -1.0}),
    (SpectrumExp, {"c1": 3.0}),
    (SpectrumExp, {"c1": 5.0, "c2": 0.3, "gamma": 1.5}),
]


@pytest.mark.parametrize(("kind", "settings"), SETTINGS)
@pytest.mark.parametrize("shape", [(20, 6), (6, 20), (8, 8)])
def test_is_the_distance_of_singular_values_from_the_curve(kind, settings, shape):
    x = gaussian(*shape).requires_grad_()
    penalty = kind(**settings)
    found = penalty(Representations.from_cloud(x))
    expected = by_svd(penalty, x, settings["c1"])
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v, x)[0] for v in (found, expected)))


@pytest.mark.parametrize("kind", [SpectrumPol, SpectrumExp])
def test_without_a_scale_the_first_batch_gives_it(kind):
    penalty = kind()
    first, second = gaussian(20, 6), 4 * gaussian(30, 6, seed=1)
    targets = curve(penalty, 6)
    c1 = float(first.norm() / targets.norm())  # Σ (c1·t)² = ‖W_0‖²
    for x in (first, second):
        found = penalty(Representations.from_cloud(x))
        torch.testing.assert_close(found, by_svd(penalty, x, c1))
    assert float(penalty.c1) == pytest.approx(c1)
    loaded = kind()
    loaded.load_state_dict(penalty.state_dict())
    torch.testing.assert_close(loaded(Representations.from_cloud(second)), found)


def test_a_batch_of_zeros_leaves_the_scale_open():
    penalty = SpectrumPol()
    assert float(penalty(Representations.from_cloud(torch.zeros(5, 3)))) == 0
    assert int(penalty.skipped) == 1
    x = gaussian(5, 3)
    found = penalty(Representations.from_cloud(x))
    torch.testing.assert_close(
        found, by_svd(penalty, x, float(x.norm() / curve(penalty, 3).norm()))
    )


def test_singular_values_that_repeat_or_vanish():
    """On a flat curve the gradient is 2W(1 − c1/σ) in any basis, and nothing where σ is 0."""
    basis = torch.linalg.qr(gaussian(9, 9)).Q
    x = (3 * basis[:, :4] @ torch.linalg.qr(gaussian(6, 6, seed=1)).Q[:4]).requires_grad_()
    penalty = SpectrumPol(c1=2.0, gamma=0)  # σ = 3, 3, 3, 3, 0, 0
    found = penalty(Representations.from_cloud(x))
    torch.testing.assert_close(found, torch.tensor(4 * 1.0 + 2 * 4.0, dtype=torch.float64))
    (gradient,) = torch.autograd.grad(found, x)
    torch.testing.assert_close(gradient, 2 * x.detach() * (1 - 2 / 3))


def test_small_singular_values_of_single_precision_keep_their_digits():
    """In float32 the root of the Gram matrix's small eigenvalues would be rounding alone."""
    u, v = torch.linalg.qr(gaussian(40, 5)).Q, torch.linalg.qr(gaussian(5, 5, seed=1)).Q
    sigma = torch.tensor([1.0, 0.1, 0.01, 1e-3, 1e-5], dtype=torch.float64)
    x = (u * sigma @ v.T).float()
    seen = torch.linalg.svdvals(x.double())
    found = SpectrumPol(c1=1e-5, gamma=0)(Representations.from_cloud(x))
    assert float(found) == pytest.approx(float((seen - 1e-5).square().sum()), rel=1e-6)
    only_small = SpectrumPol(c1=1.0, gamma=-5)
    expected = by_svd(only_small, x.double(), 1.0)
    assert float(only_small(Representations.from_cloud(x))) == pytest.approx(
        float(expected), rel=1e-5
    )


def test_rows_that_do_not_count_have_no_singular_values():
    x = gaussian(3, 8)
    padded, mask = torch.cat((x, gaussian(4, 8, seed=1))), torch.arange(7) < 3
    penalty = SpectrumPol(c1=2.0)
    shown = Representations.from_cloud(padded, mask=mask)
    torch.testing.assert_close(penalty(shown), by_svd(penalty, x, 2.0))
    c1 = float(x.norm() / curve(penalty, 3).norm())
    torch.testing.assert_close(SpectrumPol()(shown), by_svd(penalty, x, c1))


@pytest.mark.parametrize("kind", [SpectrumPol, SpectrumExp])
@pytest.mark.parametrize("site", ["vocabulary", "head"])
def test_a_matrix_of_weights(kind, site):
    weight = nn.Parameter(gaussian(30, 5))
    found = kind(weight=0.5, c1=1.0, site=site)(Representations(**{site: weight}))
    torch.testing.assert_close(found, 0.5 * by_svd(kind(), weight, 1.0))
    found.backward()
    assert weight.grad is not None


@pytest.mark.parametrize("decades", [0.5, 2, 4, 5])
@pytest.mark.parametrize("shape", [(400, 301), (200, 301)])
@pytest.mark.parametrize("c1", [1e-3, 1.0])
def test_gradients_in_single_precision_keep_their_digits_however_wide_the_spectrum(
    decades, shape, c1
):
    rank = min(shape)
    left, right = (torch.linalg.qr(gaussian(n, rank, seed=i))[0] for i, n in enumerate(shape))
    sigma = torch.logspace(0, -decades, rank, dtype=torch.float64)
    x = ((left * sigma) @ right.T).float().requires_grad_()
    wide = x.detach().double().requires_grad_()
    penalty = SpectrumPol(c1=c1)
    (found,) = torch.autograd.grad(penalty(Representations.from_cloud(x)), x)
    (expected,) = torch.autograd.grad(by_svd(penalty, wide, c1), wide)
    assert float((found - expected).norm()) <= 1e-5 * float(expected.norm())


@pytest.mark.parametrize(
    ("penalty", "energy"),
    [
        (SpectrumPol(gamma=200), "inf"),
        (SpectrumPol(gamma=-1e300, c1=2.0), None),  # 1, 0, 0, …: a curve like any other
        (SpectrumExp(gamma=200), None),  # e^-0.05, 0, 0, …
        (SpectrumExp(c2=0, gamma=200), "nan"),
        (SpectrumExp(c2=1e4), "0"),
        (SpectrumExp(c2=1e4, c1=1.0), "0"),
    ],
    ids=repr,
)
def test_a_curve_that_no_spectrum_can_be_near(penalty, energy):
    shown = Representations.from_cloud(gaussian(60, 50))
    if energy is None:
        assert float(penalty(shown)) > 0
        assert int(penalty.skipped) == 0
        return
    message = rf"got {type(penalty).__name__}\(weight=1, .*gamma=.*\), whose 50 targets have an "
    with pytest.raises(
        SettingError, match=message + rf"energy of {energy}, expected a finite curve"
    ):
        penalty(shown)

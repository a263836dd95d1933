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


def with_values(*sigma):
    """9×6 with these singular values, which repeat and vanish exactly."""
    x = torch.zeros(9, 6, dtype=torch.float64)
    x[:6] = torch.diag(torch.tensor(sigma, dtype=torch.float64))
    return x


HOSTILE = {
    "repeated": with_values(3, 3, 3, 2, 2, 1),
    "all equal": with_values(2, 2, 2, 2, 2, 2),
    "one is 0": with_values(5, 4, 3, 2, 1, 0),
    "some are 0": with_values(4, 3, 2, 0, 0, 0),
    "repeated and 0": with_values(3, 3, 1, 1, 0, 0),
    "rank 1": with_values(3, 0, 0, 0, 0, 0),
}
DIFFERENTIABLE = {
    # On a flat curve Σ(σ − t)² = ‖W‖² − 2t Σσ + …, where Σσ has the derivative UVᵀ unless one is 0.
    "a flat curve": (SpectrumPol(c1=2.0, gamma=0), (3, 3, 3, 1, 1, 1)),
    # With t = (c1, 0, 0, …) it is ‖W‖² − 2c1·σ_1 + …, where σ_1 has the derivative u_1v_1ᵀ.
    "a curve of one value": (SpectrumPol(c1=2.0, gamma=-1e300), (5, 2, 2, 0, 0, 0)),
    "zeros that are wanted": (SpectrumPol(c1=5.0, gamma=-1e300), (3, 0, 0, 0, 0, 0)),
}


@pytest.mark.parametrize("case", DIFFERENTIABLE)
def test_the_derivative_at_singular_values_that_repeat_or_vanish(case):
    penalty, sigma = DIFFERENTIABLE[case]
    left, right = torch.linalg.qr(gaussian(9, 9)).Q, torch.linalg.qr(gaussian(6, 6, seed=1)).Q
    x = (left @ with_values(*sigma) @ right.T).requires_grad_()
    (found,) = torch.autograd.grad(penalty(Representations.from_cloud(x)), x)
    targets = penalty.c1 * curve(penalty, 6)
    polar = torch.zeros(9, 6, dtype=torch.float64)
    polar[:6] = torch.diag(targets)
    torch.testing.assert_close(found, 2 * (x.detach() - left @ polar @ right.T))
    for seed in range(5):  # and it is that of the values, by differences
        step = 1e-4 * gaussian(9, 6, seed=2 + seed)
        up, down = (
            float(by_svd(penalty, x.detach() + sign * step, penalty.c1)) for sign in (1, -1)
        )
        assert (up - down) / 2 == pytest.approx(float((found * step).sum()), rel=1e-3, abs=1e-7)


@pytest.mark.parametrize("kind", [SpectrumPol, SpectrumExp])
@pytest.mark.parametrize("case", HOSTILE)
@pytest.mark.parametrize("turned", [False, True])
def test_a_step_down_takes_all_singular_values_nearer_to_their_targets(kind, case, turned):
    """W − h∇ has the singular values σ − 2h(σ − t), where they repeat, too; zeros stay zeros."""
    x = HOSTILE[case].clone()
    if turned:
        left, right = (torch.linalg.qr(gaussian(n, n, seed=n)).Q for n in (9, 6))
        x = left @ x @ right.T
    x.requires_grad_()
    penalty = kind(c1=2.0)
    (gradient,) = torch.autograd.grad(penalty(Representations.from_cloud(x)), x)
    assert gradient.isfinite().all()
    sigma, targets = torch.linalg.svdvals(HOSTILE[case]), 2 * curve(penalty, 6)
    expected = torch.where(sigma > 0, sigma - 0.02 * (sigma - targets), 0)
    found = torch.linalg.svdvals(x.detach() - 0.01 * gradient)
    torch.testing.assert_close(found, expected.sort(descending=True).values)


def test_what_pytorch_s_own_derivatives_are_there():
    """What the docs say of them."""

    def by_vectors(x):
        u, sigma, v = torch.linalg.svd(x, full_matrices=False)
        return (u * (sigma - 2) @ v).square().sum()  # Σ(σ − 2)²

    def by_eigenvalues(x):
        return (torch.linalg.eigvalsh(x.T @ x).sqrt() - 2).square().sum()

    def by_values(x):
        return (torch.linalg.svdvals(x) - 2).square().sum()

    ends = {}
    for work in (by_vectors, by_eigenvalues, by_values):
        for case in ("repeated", "some are 0", "one is 0"):
            x = HOSTILE[case].clone().requires_grad_()
            (gradient,) = torch.autograd.grad(work(x), x)
            ends[work, case] = bool(gradient.isfinite().all())
    assert not any(ends[by_vectors, case] for case in ("repeated", "some are 0"))
    assert ends[by_eigenvalues, "repeated"]
    assert not any(ends[by_eigenvalues, case] for case in ("one is 0", "some are 0"))
    assert all(ends[by_values, case] for case in ("repeated", "some are 0", "one is 0"))


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

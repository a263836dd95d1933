"""IsoScore* against the eigenvalues of the shrunk covariance and the authors' package."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from isotropy.errors import InputError, SettingError
from isotropy.measurement import measure
from isotropy.measures._iso_score import iso_score, iso_score_from_covariance
from isotropy.measures._iso_score_star import iso_score_star

SHAPES = [(500, 20), (20, 20), (19, 20), (64, 300), (2, 2), (2, 50)]


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def stretched(n, d, seed=0):
    return gaussian(n, d, seed=seed) @ gaussian(d, d, seed=seed + 1) + gaussian(d, seed=seed + 2)


def covariance(d, seed=9):
    return np.cov(stretched(3 * d, d, seed).T)


def by_eigenvalues(x, shrinkage, zeta):
    """Algorithm 1 of Rudman & Eickhoff 2024 in float64: ζ is the share of Σ_S."""
    d = x.shape[1]
    values = np.linalg.eigvalsh((1 - zeta) * np.cov(x.T) + zeta * shrinkage)
    normalised = np.sqrt(d) * values / np.linalg.norm(values)
    defect = np.linalg.norm(normalised - 1) / np.sqrt(2 * (d - np.sqrt(d)))
    return ((d - defect**2 * (d - np.sqrt(d))) ** 2 - d) / (d * (d - 1))


@pytest.mark.parametrize("zeta", [0.0, 0.2, 0.8, 1.0])
@pytest.mark.parametrize("shape", SHAPES)
def test_is_algorithm_1(shape, zeta):
    x, shrinkage = stretched(*shape), covariance(shape[1])
    expected = by_eigenvalues(x, shrinkage, zeta)
    assert iso_score_star(x, shrinkage, zeta) == pytest.approx(expected, rel=1e-9, abs=1e-12)
    single = iso_score_star(torch.from_numpy(x).float(), torch.from_numpy(shrinkage), zeta)
    assert single.dtype == torch.float32
    assert single.item() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("shape", SHAPES)
def test_within_1e_5_of_the_authors_package(shape):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # IsoScore's own, on import
        peer = pytest.importorskip("IsoScore.IsoScore", reason="needs IsoScore, a peer")
    x, shrinkage = stretched(*shape), covariance(shape[1])
    theirs = float(peer.IsoScore_star(x, torch.from_numpy(shrinkage), 0.3))
    assert iso_score_star(x, shrinkage, 0.3) == pytest.approx(theirs, abs=1e-5)


def test_both_ends():
    x, shrinkage = stretched(40, 6), covariance(6)
    assert iso_score_star(x, shrinkage, zeta=0) == pytest.approx(iso_score(x), rel=1e-12)
    whole = iso_score_from_covariance(shrinkage)
    assert iso_score_star(x, shrinkage, zeta=1) == pytest.approx(whole, rel=1e-12)
    assert iso_score_star(x, zeta=1) == pytest.approx(1)


def test_identity_is_the_identity_matrix_and_the_default():
    for shape in ((50, 6), (5, 20)):
        x = stretched(*shape)
        expected = by_eigenvalues(x, np.eye(shape[1]), 0.2)
        assert iso_score_star(x) == pytest.approx(expected, rel=1e-9)
        assert iso_score_star(x, "identity", 0.2) == iso_score_star(x, np.eye(shape[1]), 0.2)


def test_few_rows_take_another_route_to_the_same_score_and_gradient():
    """Each row three times has the covariance of once, up to (3n − 1)/(3n − 3)."""
    n, d, zeta = 8, 20, 0.4
    x = torch.from_numpy(stretched(n, d)).requires_grad_()
    shrinkage = torch.from_numpy(covariance(d))
    few = iso_score_star(x, shrinkage, zeta)  # n < d: n×n products
    repeated = x.repeat(3, 1) * np.sqrt((3 * n - 1) / (3 * n - 3))  # 24 > 20: d×d products
    many = iso_score_star(repeated, shrinkage, zeta)
    assert few.item() == pytest.approx(many.item(), rel=1e-12)
    torch.testing.assert_close(*(torch.autograd.grad(s, x)[0] for s in (few, many)))


@pytest.mark.parametrize("zeta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("shape", [(300, 20), (20, 300)])
def test_gradient_is_that_of_the_eigenvalues(shape, zeta):
    x = torch.from_numpy(stretched(*shape)).requires_grad_()
    shrinkage = torch.from_numpy(covariance(shape[1]))
    values = torch.linalg.eigvalsh((1 - zeta) * torch.cov(x.T) + zeta * shrinkage)
    score = (values.sum() ** 2 / values.square().sum() - 1) / (shape[1] - 1)
    (expected,) = torch.autograd.grad(score, x)
    for dtype, tolerance in ((torch.float64, 1e-9), (torch.float32, 1e-4)):
        rows = x.detach().to(dtype).requires_grad_()
        (grad,) = torch.autograd.grad(iso_score_star(rows, shrinkage, zeta), rows)
        assert (grad - expected).norm() <= tolerance * expected.norm()


def test_no_gradient_flows_to_the_shrinkage_matrix():
    x = torch.from_numpy(stretched(30, 4)).requires_grad_()
    shrinkage = torch.from_numpy(covariance(4)).requires_grad_()
    iso_score_star(x, shrinkage, 0.5).backward()
    assert x.grad is not None
    assert shrinkage.grad is None


@pytest.mark.parametrize("zeta", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("scale", [1e-18, 1e18])
@pytest.mark.parametrize("shape", [(40, 6), (6, 40)])
def test_huge_and_tiny_scales_of_cloud_and_matrix(shape, scale, zeta):
    x, shrinkage = stretched(*shape), covariance(shape[1])
    expected = iso_score_star(x, shrinkage, zeta)
    scaled = torch.from_numpy(x * scale).float().requires_grad_()
    value = iso_score_star(scaled, torch.from_numpy(shrinkage * scale**2).float(), zeta)
    assert value.item() == pytest.approx(expected, abs=1e-5)
    value.backward()
    assert torch.isfinite(scaled.grad).all()


@pytest.mark.parametrize("scale", [1e-18, 1e18])
def test_a_matrix_of_another_scale_than_the_cloud(scale):
    """The larger one decides, and the other may vanish beside it."""
    x = torch.from_numpy(stretched(40, 6) * scale).float()
    decides = iso_score(x).item() if scale > 1 else 1.0
    assert iso_score_star(x, zeta=0.5).item() == pytest.approx(decides, abs=1e-5)
    assert iso_score_star(x, zeta=1).item() == pytest.approx(1, abs=1e-6)
    assert iso_score_star(x, zeta=0).item() == pytest.approx(iso_score(x).item(), abs=1e-6)


@pytest.mark.parametrize("zeta", [-0.1, 1.1, float("nan"), float("inf")])
def test_zeta_out_of_range(zeta):
    with pytest.raises(SettingError, match=r"zeta=.*expected a number from 0 to 1"):
        iso_score_star(gaussian(10, 3), zeta=zeta)
    with pytest.raises(SettingError, match=r"zeta=.*expected a number from 0 to 1"):
        measure(gaussian(10, 3), ["iso_score_star"], options={"iso_score_star": {"zeta": zeta}})


@pytest.mark.parametrize("zeta", [0.0, 0.2, 1.0])
@pytest.mark.parametrize(
    ("shrinkage", "message"),
    [
        (np.eye(4), r"shape \(4, 4\) for a cloud of 3 features, expected \(3, 3\)"),
        (np.ones((3, 4)), r"got shrinkage with shape \(3, 4\), expected a square matrix"),
        (np.triu(np.ones((3, 3))), "got shrinkage that is not symmetric"),
        (np.diag([1.0, np.inf, 1.0]), "got shrinkage with 1 NaN or infinite value"),
        (np.zeros((3, 3)), "got shrinkage with zeros only"),
        ("eye", "got shrinkage='eye', expected 'identity' or a d×d matrix"),
        (None, "got shrinkage of type NoneType"),
    ],
)
def test_matrices_that_do_not_fit(shrinkage, message, zeta):
    with pytest.raises((InputError, SettingError), match=message):
        iso_score_star(gaussian(10, 3), shrinkage, zeta)


@pytest.mark.parametrize("zeta", [0, 0.7, 1])
@pytest.mark.parametrize("shape", [(50, 6), (5, 20)])
def test_in_a_stream(shape, zeta):
    x = stretched(*shape)
    report = measure(x, ["iso_score_star"], options={"iso_score_star": {"zeta": zeta}})
    expected = by_eigenvalues(x, np.eye(shape[1]), zeta)
    assert report["iso_score_star"].value == pytest.approx(expected, rel=1e-9)


@given(st.integers(2, 20), st.integers(2, 10), st.integers(0, 1000), st.floats(0, 1))
def test_algorithm_1_for_any_shape_and_share(n, d, seed, zeta):
    x, shrinkage = stretched(n, d, seed), covariance(d, seed + 5)
    value = iso_score_star(x, shrinkage, zeta)
    assert 0 <= value <= 1
    assert value == pytest.approx(by_eigenvalues(x, shrinkage, zeta), rel=1e-7, abs=1e-12)

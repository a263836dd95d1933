"""IsoScore against its published steps with a PCA, the authors' package, and closed forms."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from isotropy.errors import InputError, UndefinedError
from isotropy.measurement import measure
from isotropy.measures._iso_score import iso_score, iso_score_from_covariance

SHAPES = [(500, 20), (21, 20), (20, 20), (19, 20), (64, 768), (3, 2), (2, 2), (2, 50)]


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def stretched(n, d, seed=0):
    """A cloud whose directions have different variances, off the axes and off the origin."""
    return gaussian(n, d, seed=seed) @ gaussian(d, d, seed=seed + 1) + gaussian(d, seed=seed + 2)


def published(x):
    """The nine steps of Rudman et al. 2022, section 4, in float64 with a PCA by SVD."""
    d = x.shape[1]
    centred = x - x.mean(axis=0)
    axes = np.linalg.svd(centred)[2]  # steps 1 and 2: reorient the cloud along its components
    reoriented = centred @ axes.T
    variances = np.cov(reoriented.T).diagonal()  # steps 3 and 4
    normalised = np.sqrt(d) * variances / np.linalg.norm(variances)  # step 5
    distance = np.linalg.norm(normalised - np.ones(d))  # step 6
    defect = distance / np.sqrt(2 * (d - np.sqrt(d)))  # step 7
    fraction = (d - defect**2 * (d - np.sqrt(d))) ** 2 / d**2  # step 8
    return (d * fraction - 1) / (d - 1)  # step 9


@pytest.mark.parametrize("shape", SHAPES)
def test_is_the_published_nine_steps(shape):
    x = stretched(*shape)
    assert iso_score(x) == pytest.approx(published(x), rel=1e-9, abs=1e-12)
    single = x.astype(np.float32)
    assert iso_score(single) == pytest.approx(published(single.astype(float)), abs=1e-5)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("shape", SHAPES)
def test_within_1e_5_of_the_authors_package(shape, dtype):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # IsoScore's own, on import
        peer = pytest.importorskip("IsoScore.IsoScore", reason="needs IsoScore, a peer")
    x = stretched(*shape).astype(dtype)
    assert iso_score(x) == pytest.approx(float(peer.IsoScore(x)), abs=1e-5)


@pytest.mark.parametrize(("used", "d"), [(1, 7), (3, 7), (7, 7), (10, 768)])
def test_of_a_covariance_with_some_equal_directions_of_many(used, d):
    axes = np.eye(d)[:used]
    expected = (used - 1) / (d - 1)
    assert iso_score(np.concatenate((axes, -axes))) == pytest.approx(expected, abs=1e-12)
    covariance = np.diag([3.0] * used + [0.0] * (d - used))
    assert iso_score_from_covariance(covariance) == pytest.approx(expected, abs=1e-12)


def test_of_the_stability_experiments_covariance():
    variances = np.array([10.0, 6, 4, 4] + [1.0] * 764)
    assert iso_score_from_covariance(np.diag(variances)) == pytest.approx(0.867339, abs=5e-7)
    frame, _ = np.linalg.qr(gaussian(768, 768))
    rotated = 1e18 * frame @ np.diag(variances) @ frame.T
    value = iso_score_from_covariance(torch.from_numpy(rotated).float())
    assert value.item() == pytest.approx(0.867339, abs=1e-5)


def test_covariance_in_and_cloud_in_agree():
    x = stretched(100, 6)
    value = iso_score_from_covariance(np.cov(x.T))
    assert value == pytest.approx(iso_score(x), rel=1e-12)
    assert isinstance(value, float)
    for dtype in (torch.float32, torch.float64):
        assert iso_score_from_covariance(torch.eye(4, dtype=dtype)).dtype == dtype


@pytest.mark.parametrize("scale", [1e-300, 1e-18, 1e18, 1e300])
def test_covariances_of_any_scale(scale):
    value = iso_score_from_covariance(np.diag([3.0, 1.0]) * scale)
    assert value == pytest.approx(16 / 10 - 1, rel=1e-12)


def test_a_covariance_carries_a_gradient():
    covariance = torch.from_numpy(np.cov(stretched(100, 4).T)).requires_grad_()
    assert torch.autograd.gradcheck(lambda c: iso_score_from_covariance((c + c.T) / 2), covariance)


@pytest.mark.parametrize(
    ("covariance", "message"),
    [
        (np.ones((2, 3)), r"got covariance with shape \(2, 3\), expected a square matrix"),
        (np.ones(3), r"shape \(3,\), expected two dimensions"),
        (np.array([[1.0, 2.0], [0.0, 1.0]]), "not symmetric.*covariance matrix"),
        (np.zeros((3, 3)), "zeros only"),
        (np.full((3, 3), np.nan), "9 NaN or infinite values"),
        (np.ones((1, 1)), "at least 2 features"),
    ],
)
def test_covariances_that_are_none(covariance, message):
    with pytest.raises(InputError, match=message):
        iso_score_from_covariance(covariance)


@pytest.mark.parametrize("shape", [(300, 20), (20, 300)])
def test_gradient_is_that_of_the_eigenvalues(shape):
    x = torch.from_numpy(stretched(*shape)).requires_grad_()
    values = torch.linalg.eigvalsh(torch.cov(x.T))
    score = (values.sum() ** 2 / values.square().sum() - 1) / (shape[1] - 1)
    (expected,) = torch.autograd.grad(score, x)
    (grad,) = torch.autograd.grad(iso_score(x), x)
    assert (grad - expected).norm() < 1e-9 * expected.norm()
    single = x.detach().float().requires_grad_()
    (grad,) = torch.autograd.grad(iso_score(single), single)
    assert (grad - expected).norm() < 1e-4 * expected.norm()


@pytest.mark.parametrize("offset", [1e2, 1e4])
def test_far_from_the_origin_in_float32(offset):
    for shape in ((400, 10), (30, 100)):
        x = (stretched(*shape) + offset).astype(np.float32)
        assert iso_score(x) == pytest.approx(published(x.astype(float)), abs=1e-5)


def test_too_few_rows_are_named_with_the_measure_that_helps():
    (note,) = measure(gaussian(64, 768), ["iso_score"]).warnings
    assert "iso_score of 64 rows with 768 features is too low" in note
    assert "iso_score_unbiased" in note
    assert measure(gaussian(20, 20), ["iso_score"]).warnings == ()


def test_of_an_isotropic_cloud_it_says_about_n_over_n_plus_d():
    for n, d in ((64, 768), (768, 768), (2000, 50)):
        assert iso_score(gaussian(n, d)) == pytest.approx(n / (n + d), rel=0.05)


def test_errors():
    with pytest.raises(InputError, match="1 row, expected at least 2 rows"):
        iso_score(gaussian(1, 3))
    with pytest.raises(UndefinedError, match="5 equal rows"):
        iso_score(np.ones((5, 3)))


def test_types():
    x = stretched(100, 8)
    assert isinstance(iso_score(x), float)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        value = iso_score(torch.from_numpy(x).to(dtype))
        assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert value.item() == pytest.approx(iso_score(x), rel=0.02)


@given(st.integers(2, 30), st.integers(2, 12), st.integers(0, 1000))
def test_published_steps_for_any_shape(n, d, seed):
    x = stretched(n, d, seed)
    assert iso_score(x) == pytest.approx(published(x), rel=1e-8, abs=1e-12)

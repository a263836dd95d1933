"""The unbiased IsoScore against averages over all quadruples of rows, and on known truths."""

from itertools import permutations

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from isotropy.covariance import invariants
from isotropy.errors import InputError, UndefinedError
from isotropy.measurement import measure
from isotropy.measures._iso_score import iso_score, iso_score_from_covariance
from isotropy.measures._iso_score_unbiased import SPEC, iso_score_unbiased, score_unbiased

VARIANCES = np.array([10.0, 6, 4, 4] + [1.0] * 764)
TRUTH = 0.867339


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def by_quadruples(x):
    """Estimates of (tr Σ)² and tr(Σ²): averages over all (i, j, k, l) of four different rows.

    For independent rows of any distribution, E‖x_i − x_j‖² = 2·tr Σ, and
    E((x_i − x_j)·(x_k − x_l))² = 4·tr(Σ²).
    """
    squares_of, of_squares = [], []
    for i, j, k, m in permutations(range(len(x)), 4):
        a, b = x[i] - x[j], x[k] - x[m]
        squares_of.append((a @ a) * (b @ b) / 4)
        of_squares.append((a @ b) ** 2 / 4)
    return np.mean(squares_of), np.mean(of_squares)


def from_quadruples(x):
    square_of, of_square = by_quadruples(x)
    return (square_of / of_square - 1) / (x.shape[1] - 1)


@pytest.mark.parametrize("d", [2, 3, 9])
@pytest.mark.parametrize("n", [4, 5, 6, 8])
def test_is_the_average_over_all_quadruples(n, d):
    x = np.exp(gaussian(n, d, seed=n)) * np.arange(1, d + 1)  # skewed, with unequal directions
    assert iso_score_unbiased(x) == pytest.approx(from_quadruples(x), rel=1e-9)


def test_both_estimates_are_exactly_unbiased():
    """Over all samples of four rows from a distribution on few points, not normal at all."""
    points = gaussian(5, 3) ** 3
    sigma = np.cov(points.T, ddof=0)
    samples = np.stack(np.meshgrid(*[np.arange(5)] * 4, indexing="ij"), axis=-1).reshape(-1, 4)
    estimates = np.zeros(2)
    for sample in samples:
        estimates += by_quadruples(points[sample])
    expected = [np.trace(sigma) ** 2, np.trace(sigma @ sigma)]
    assert estimates / len(samples) == pytest.approx(expected, rel=1e-9)


@given(st.integers(4, 6), st.integers(2, 5), st.integers(0, 1000))
def test_never_below_zero_but_above_one(n, d, seed):
    """By Cauchy and Schwarz every term of the denominator is at most that of the numerator."""
    x = np.exp(gaussian(n, d, seed=seed))
    square_of, of_square = by_quadruples(x)
    assert of_square <= square_of * (1 + 1e-12)
    assert iso_score_unbiased(x) >= 0
    assert iso_score_unbiased(x) == pytest.approx(from_quadruples(x), rel=1e-6)


def test_is_not_clipped_above():
    values = [iso_score_unbiased(gaussian(16, 100, seed=seed)) for seed in range(50)]
    assert min(values) < 1 < max(values)
    assert np.mean(values) == pytest.approx(1, abs=0.05)


def test_rows_on_a_line_score_zero():
    x = np.outer(gaussian(20), gaussian(5))
    for rows in (x, x + 1e4, x.astype(np.float32).astype(np.float64) * 1e18):
        assert iso_score_unbiased(rows) == pytest.approx(0, abs=1e-9)
        assert iso_score_unbiased(rows) >= 0


def student(rng, shape, freedom=5):
    """Multivariate Student-t: one common scale a row."""
    return rng.standard_normal(shape) / np.sqrt(rng.chisquare(freedom, (shape[0], 1)) / freedom)


DISTRIBUTIONS = {
    "gaussian": (lambda rng, shape: rng.standard_normal(shape), 0.02),
    "multivariate Student-t5": (student, 0.03),
    "independent Student-t5": (lambda rng, shape: rng.standard_t(5, shape), 0.03),
}


@pytest.mark.parametrize("name", DISTRIBUTIONS)
@pytest.mark.parametrize(("n", "d"), [(64, 768), (64, 50)])
def test_mean_of_200_draws_is_the_truth(n, d, name):
    draw, margin = DISTRIBUTIONS[name]
    rng = np.random.default_rng(0)
    variances = VARIANCES[:d]
    truth = iso_score_from_covariance(np.diag(variances))
    if d == 768:
        assert truth == pytest.approx(TRUTH, abs=5e-7)
    clouds = [draw(rng, (n, d)) * np.sqrt(variances) for _ in range(200)]
    assert np.mean([iso_score_unbiased(x) for x in clouds]) == pytest.approx(truth, abs=margin)
    assert np.mean([iso_score(x) for x in clouds[:20]]) < 0.8 * truth  # which it corrects


def test_many_rows_leave_no_bias_to_correct():
    x = gaussian(20_000, 10) * np.sqrt(VARIANCES[:10])
    assert iso_score_unbiased(x) == pytest.approx(iso_score(x), rel=2e-3)


@pytest.mark.parametrize("n", [4, 5, 12, 40, 600])
def test_undefined_where_all_differences_are_at_right_angles(n):
    frame, _ = np.linalg.qr(gaussian(n, n))
    for simplex in (np.eye(n), np.eye(n) * 1e-18, np.eye(n) / 3 + 3, frame * 7):
        with pytest.raises(UndefinedError, match=f"got {n} rows.*right angles.*more rows"):
            iso_score_unbiased(simplex)
        with pytest.raises(UndefinedError, match=f"got {n} rows.*right angles.*more rows"):
            measure(simplex, ["iso_score_unbiased"])


@pytest.mark.parametrize("far", [1e2, 1e4])
@pytest.mark.parametrize("shape", [(4, 768), (64, 768), (200, 30)])
def test_float32_rows_keep_their_digits_beside_one_far_row(shape, far):
    """As the first token's state is in language models, hundreds of times as long as others."""
    x = gaussian(*shape).astype(np.float32)
    x[0] *= far
    h = x.astype(np.longdouble) - x.astype(np.longdouble).mean(axis=0)
    h = h @ h.T
    n, d = shape
    moments = (
        h.trace() / (n - 1),
        (h**2).sum() / (n - 1) ** 2,
        (h.diagonal() ** 2).sum() / (n - 1),
    )
    t, f, q = moments
    square_of = 2 * f + (n**2 - 3 * n + 1) * t**2 - n * q
    of_square = (n - 1) * (n - 2) * f + t**2 - n * q
    expected = float((square_of / of_square - 1) / (d - 1))
    assert iso_score_unbiased(x) == pytest.approx(expected, rel=1e-5)
    assert iso_score_unbiased(torch.from_numpy(x)).dtype == torch.float32
    streamed = measure(x, ["iso_score_unbiased"])["iso_score_unbiased"].value
    assert streamed == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("shape", [(100, 10), (10, 100)])
def test_gradient(shape):
    small = torch.from_numpy(gaussian(6, 3)).requires_grad_()
    assert torch.autograd.gradcheck(iso_score_unbiased, small)
    x = torch.from_numpy(gaussian(*shape)).requires_grad_()
    (expected,) = torch.autograd.grad(iso_score_unbiased(x), x)
    single = x.detach().float().requires_grad_()
    (grad,) = torch.autograd.grad(iso_score_unbiased(single), single)
    assert grad.dtype == torch.float32
    assert (grad - expected).norm() < 1e-4 * expected.norm()


def test_gradient_is_that_of_the_quadruples():
    x = torch.from_numpy(gaussian(5, 3)).requires_grad_()
    i, j, k, m = torch.tensor(list(permutations(range(5), 4))).T
    a, b = x[i] - x[j], x[k] - x[m]
    ratio = (a.square().sum(1) * b.square().sum(1)).mean() / (a * b).sum(1).square().mean()
    (expected,) = torch.autograd.grad((ratio - 1) / 2, x)
    (grad,) = torch.autograd.grad(iso_score_unbiased(x), x)
    torch.testing.assert_close(grad, expected, rtol=1e-8, atol=1e-10)


def test_the_whole_cloud_twice_counts_only_pairs_of_different_rows():
    """Of 2n rows, a quadruple may hold a row and its double; brute force has them all."""
    x = gaussian(4, 3)
    doubled = np.concatenate((x, x))
    assert iso_score_unbiased(doubled) == pytest.approx(from_quadruples(doubled), rel=1e-9)


def test_errors():
    for n in (1, 2, 3):
        with pytest.raises(InputError, match=f"{n} rows?, expected at least 4 rows"):
            iso_score_unbiased(gaussian(n, 3))
    with pytest.raises(UndefinedError, match="6 equal rows"):
        iso_score_unbiased(np.ones((6, 3)))


def test_types():
    x = gaussian(100, 8)
    assert isinstance(iso_score_unbiased(x), float)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        value = iso_score_unbiased(torch.from_numpy(x).to(dtype))
        assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)
        assert value.item() == pytest.approx(iso_score_unbiased(x), rel=0.02)


def test_spec_has_a_lower_bound_only():
    (number,) = SPEC.numbers
    assert (number.low, number.high) == (0, np.inf)


def test_many_rows_with_moments_in_float32_are_no_simplex():
    """As a penalty on many tokens has them, one of which is a hundred times as long as others."""
    x = torch.from_numpy(gaussian(1500, 768))
    x[0] *= 100
    moments = [value.float() for value in invariants(x)]
    value = score_unbiased(1500, 768, *moments)
    assert value.dtype == torch.float32
    assert value.item() == pytest.approx(iso_score_unbiased(x).item(), rel=0.01)


def test_score_from_its_three_moments():
    """Of rows ±a, ±b at right angles there are three ways to make two pairs."""
    one, other = 2.0, 3.0  # ‖a‖², ‖b‖²
    x = np.array([[one**0.5, 0], [-(one**0.5), 0], [0, other**0.5], [0, -(other**0.5)]])
    # 2a beside 2b: lengths 4·one·4·other, product 0. Twice a − b beside b − a, or a + b beside
    # −a − b: lengths and product are (one + other)².
    ratio = (16 * one * other + 2 * (one + other) ** 2) / (2 * (one + other) ** 2)
    assert iso_score_unbiased(x) == pytest.approx(ratio - 1, rel=1e-12)
    h = torch.from_numpy(x @ x.T)
    moments = h.trace() / 3, h.square().sum() / 9, h.diagonal().square().sum() / 3
    assert score_unbiased(4, 2, *moments).item() == pytest.approx(ratio - 1, rel=1e-12)

"""The invariants against sums over rows by numpy in extended precision, and against autograd."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from isotropy import covariance as module
from isotropy.covariance import Centring, blocks, invariants, outer_products, power_of_two, spectrum

SHAPES = [(2, 2), (3, 2), (2, 3), (4, 3), (5, 7), (40, 6), (6, 40), (700, 5)]


def gaussian(n, d, seed=0):
    random = np.random.default_rng(seed)
    return random.standard_normal((n, d)) @ random.standard_normal((d, d))


def exact(x, shrinkage=None, zeta=0.0):
    """Trace, squared norm and fourth moment, row by row in extended precision."""
    x = np.asarray(x, dtype=np.longdouble)
    n, d = x.shape
    y = x - x.sum(axis=0) / n
    sigma = np.zeros((d, d), dtype=np.longdouble)
    fourth = np.longdouble(0)
    for row in y:
        sigma += np.outer(row, row) / (n - 1)
        fourth += (row * row).sum() ** 2 / (n - 1)
    if shrinkage is not None:
        sigma = (1 - np.longdouble(zeta)) * sigma + np.longdouble(zeta) * shrinkage
    return np.trace(sigma), (sigma * sigma).sum(), fourth


def check_values(found, expected, rel):
    """The values up to one unknown power of two."""
    trace, norm, fourth = (np.longdouble(float(value)) for value in found)
    unit = np.sqrt(expected[0] / trace)
    power = np.longdouble(2) ** np.round(np.log2(unit))
    assert float(trace * power**2 / expected[0]) == pytest.approx(1, rel=rel)
    assert float(norm * power**4 / expected[1]) == pytest.approx(1, rel=rel)
    assert float(fourth * power**4 / expected[2]) == pytest.approx(1, rel=rel)


# ---------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("scale", [1e-18, 1, 1e18])
@pytest.mark.parametrize("offset", [0, 1e4])
@pytest.mark.parametrize(("dtype", "rel"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_values_at_any_scale_and_far_from_the_origin(shape, scale, offset, dtype, rel):
    x = ((gaussian(*shape) + offset) * scale).astype(dtype)
    check_values(invariants(torch.from_numpy(x)), exact(x), rel)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("zeta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("dtype", "rel"), [(np.float32, 1e-5), (np.float64, 1e-12)])
def test_values_with_shrinkage(shape, zeta, dtype, rel):
    x = (gaussian(*shape) + 100).astype(dtype)
    shrinkage = np.cov(gaussian(50, shape[1], seed=1).T).astype(dtype)
    found = invariants(torch.from_numpy(x), torch.from_numpy(shrinkage), zeta)
    trace, norm, fourth = exact(x, shrinkage, zeta)
    # The fourth moment stays the cloud's own.
    check_values(found, (trace, norm, fourth), rel)


@pytest.mark.parametrize("shape", [(40, 6), (6, 40)])
@pytest.mark.parametrize(
    ("of_cloud", "of_matrix"), [(1e18, 1), (1, 1e30), (1e-18, 1), (1e-18, 1e-36)]
)
def test_a_shrinkage_matrix_of_another_scale(shape, of_cloud, of_matrix):
    x = (gaussian(*shape) * of_cloud).astype(np.float32)
    shrinkage = (np.cov(gaussian(50, shape[1], seed=1).T) * of_matrix).astype(np.float32)
    cloud = torch.from_numpy(x).requires_grad_()
    trace, norm, _ = invariants(cloud, torch.from_numpy(shrinkage), 0.3)
    expected = exact(x, shrinkage, 0.3)
    ratio = float(expected[0] ** 2 / expected[1])
    assert float((trace**2 / norm).detach()) == pytest.approx(ratio, rel=1e-5)
    (trace**2 / norm).backward()
    assert torch.isfinite(cloud.grad).all()


def test_no_gradient_flows_to_the_shrinkage_matrix():
    x = torch.from_numpy(gaussian(6, 3)).requires_grad_()
    shrinkage = torch.eye(3, dtype=torch.float64, requires_grad=True)
    sum(invariants(x, shrinkage, 0.5)).backward()
    assert shrinkage.grad is None
    assert x.grad is not None


@given(
    n=st.integers(2, 9),
    d=st.integers(2, 9),
    exponent=st.integers(-100, 100),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=60)
def test_ratios_know_no_scale_no_order_and_no_direction(n, d, exponent, seed):
    x = gaussian(n, d, seed)
    random = np.random.default_rng(seed)
    turned = x[random.permutation(n)] @ np.linalg.qr(random.standard_normal((d, d)))[0]
    trace, norm, fourth = invariants(torch.from_numpy(x))
    for y in (x * 2.0**exponent, turned):
        other_trace, other_norm, other_fourth = invariants(torch.from_numpy(y))
        assert float(other_trace**2 / other_norm) == pytest.approx(float(trace**2 / norm), rel=1e-9)
        assert float(other_fourth / other_norm) == pytest.approx(float(fourth / norm), rel=1e-9)


@given(n=st.integers(2, 6), d=st.integers(2, 6), scale=st.sampled_from([1e-18, 1.0, 1e18]))
def test_rank_one_and_repeated_rows(n, d, scale):
    line = np.outer(np.arange(n), np.ones(d)) * scale
    trace, norm, _ = invariants(torch.from_numpy(line))
    assert float(trace**2 / norm) == pytest.approx(1, rel=1e-12)
    x = gaussian(n, d) * scale
    twice = np.repeat(x, 2, axis=0)
    check_values(invariants(torch.from_numpy(twice)), exact(twice), 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("largest", ["max", "tiny"])
def test_the_ends_of_the_range_of_numbers(dtype, largest):
    limit = getattr(torch.finfo(dtype), largest)
    x = torch.tensor([[-1, 1], [1, 0.5], [0, -1]], dtype=dtype) * limit
    trace, norm, fourth = invariants(x)
    unit = exact([[-1, 1], [1, 0.5], [0, -1]])
    assert float(trace**2 / norm) == pytest.approx(float(unit[0] ** 2 / unit[1]), rel=1e-6)
    assert float(fourth / norm) == pytest.approx(float(unit[2] / unit[1]), rel=1e-6)


@pytest.mark.parametrize("shape", [(40, 6), (6, 40)])
def test_known_bounds_change_nothing(shape):
    x = torch.from_numpy(gaussian(*shape)).float()
    known = invariants(x, bounds=(x.amin(dim=0), x.amax(dim=0)))
    assert all(map(torch.equal, known, invariants(x)))


@pytest.mark.parametrize("shape", [(700, 5), (6, 40)])
def test_blocks_of_rows_change_nothing(monkeypatch, shape):
    x = torch.from_numpy(gaussian(*shape)).requires_grad_()
    whole = invariants(x)
    (expected,) = torch.autograd.grad(sum(whole), x)
    monkeypatch.setattr(module, "_BLOCK_VALUES", 1)
    cut = invariants(x)
    (found,) = torch.autograd.grad(sum(cut), x)
    torch.testing.assert_close(cut, whole, rtol=1e-13, atol=0)
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-14)


def test_a_cloud_of_many_rows_in_float32():
    x = (np.random.default_rng(0).standard_normal((60_000, 20)) + 1e4).astype(np.float32)
    y = x.astype(np.float64)
    y -= y.mean(axis=0)
    c = y.T @ y / (len(y) - 1)
    fourth = ((y * y).sum(axis=1) ** 2).sum() / (len(y) - 1)
    check_values(invariants(torch.from_numpy(x)), (np.trace(c), (c * c).sum(), fourth), 1e-5)


# ------------------------------------------------------------------------------------- gradients


def plain(x, shrinkage, zeta):
    """Each output by its formula, differentiated by autograd."""
    y = x - x.mean(dim=0)
    c = y.T @ y / (len(x) - 1)
    fourth = (y * y).sum(dim=1).square().sum() / (len(x) - 1)
    if shrinkage is not None:
        c = (1 - zeta) * c + zeta * shrinkage
    return c.trace(), (c * c).sum(), fourth


def combinations(trace, norm, fourth):
    """Numbers without a unit, in which every output has a part."""
    return {
        "trace and norm": trace**2 / norm,
        "fourth and norm": fourth / norm,
        "fourth and trace": fourth / trace**2,
        "all": fourth * norm / trace**4 + trace / norm**0.5,
    }


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("zeta", [None, 0.0, 0.3, 1.0])
@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 1e-4), (torch.float64, 1e-9)])
@pytest.mark.parametrize("offset", [0, 1e4])
def test_gradient_is_that_of_the_formulas_in_float64(shape, zeta, dtype, rel, offset):
    x = torch.from_numpy(gaussian(*shape) + offset).to(dtype).requires_grad_()
    wide = x.detach().double().requires_grad_()
    shrinkage = None if zeta is None else torch.from_numpy(np.cov(gaussian(50, shape[1], seed=1).T))
    found = combinations(*invariants(x, shrinkage, zeta or 0.0))
    expected = combinations(*plain(wide, shrinkage, zeta or 0.0))
    for name, value in expected.items():
        (good,) = torch.autograd.grad(value, wide, retain_graph=True)
        (ours,) = torch.autograd.grad(found[name], x, retain_graph=True)
        # The score of two rows is a constant: a gradient of 0 is as good as its terms' rounding.
        terms = float(value.detach()) / float((wide - wide.mean(dim=0)).detach().norm())
        assert float((ours - good).norm()) <= rel * max(float(good.norm()), 0.1 * terms), name


@pytest.mark.parametrize("shape", [(2, 2), (5, 3), (3, 5), (4, 4)])
@pytest.mark.parametrize("zeta", [None, 0.4])
@pytest.mark.parametrize("output", [0, 1, 2])
def test_gradient_of_each_output_alone(shape, zeta, output):
    x = torch.from_numpy(gaussian(*shape) + 3).requires_grad_()
    shrinkage = None if zeta is None else torch.eye(shape[1], dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda x: invariants(x, shrinkage, zeta or 0.0)[output], x)


@pytest.mark.parametrize("shape", [(40, 6), (6, 40)])
@pytest.mark.parametrize("scale", [1e-18, 1e18])
def test_gradient_at_extreme_scales_in_float32(shape, scale):
    x = torch.from_numpy(gaussian(*shape)).float()
    grads = []
    for cloud in (x, x * scale):
        cloud.requires_grad_()
        trace, norm, fourth = invariants(cloud)
        (trace**2 / norm + fourth / norm).backward()
        grads.append(cloud.grad)
    torch.testing.assert_close(grads[1] * scale, grads[0], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(2, 2), (9, 4), (4, 9)])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e18, -1e-18])
@pytest.mark.parametrize("zeta", [None, 0.5])
def test_a_constant_cloud_has_the_gradient_zero(dtype, shape, value, zeta):
    x = torch.full(shape, value, dtype=dtype, requires_grad=True)
    shrinkage = None if zeta is None else torch.eye(shape[1], dtype=dtype)
    trace, norm, fourth = invariants(x, shrinkage, zeta or 0.0)
    (trace + norm + fourth).backward()
    assert not x.grad.any()
    if zeta is None:
        assert trace == norm == fourth == 0
    else:
        assert float((trace**2 / norm).detach()) == pytest.approx(shape[1])


@given(
    rows=st.lists(st.sampled_from([0, 1, 2]), min_size=2, max_size=8),
    d=st.integers(2, 10),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    scale=st.sampled_from([1e-18, 1.0, 1e18]),
    offset=st.sampled_from([0.0, 1e4]),
)
def test_a_gradient_is_never_nan(rows, d, dtype, scale, offset):
    x = (torch.from_numpy(gaussian(3, d) + offset) * scale).to(dtype)[rows].requires_grad_()
    outputs = invariants(x)
    assert all(torch.isfinite(value) for value in outputs)
    for value in outputs:
        (gradient,) = torch.autograd.grad(value, x, retain_graph=True)
        assert torch.isfinite(gradient).all()


@pytest.mark.parametrize("shape", [(12, 6), (6, 12)])
@pytest.mark.parametrize(
    "view",
    [
        lambda x: x.T,
        lambda x: x[::2],
        lambda x: x[:, ::2],
        lambda x: x.flip(0),
        lambda x: x[:, :1].expand(-1, 5),
        lambda x: torch.stack((x, x), dim=2)[:, :, 1],
    ],
    ids=["transposed", "rows", "columns", "flipped", "expanded", "last"],
)
def test_layout_in_memory_changes_nothing(shape, view):
    base = torch.from_numpy(gaussian(*shape)).requires_grad_()
    for shrinkage in (None, torch.eye(view(base).shape[1])):
        straight = view(base).detach().clone(memory_format=torch.contiguous_format)
        straight.requires_grad_()
        strided = view(base).detach().requires_grad_()
        expected, found = (invariants(x, shrinkage, 0.4) for x in (straight, strided))
        torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)
        (good,) = torch.autograd.grad(sum(expected), straight)
        (ours,) = torch.autograd.grad(sum(found), strided)
        torch.testing.assert_close(ours, good, rtol=1e-11, atol=1e-14)


def test_without_a_gradient_and_without_a_change_to_the_input():
    x = torch.from_numpy(gaussian(8, 3))
    before = x.clone()
    assert not any(value.requires_grad for value in invariants(x, torch.eye(3), 0.3))
    y = x.clone().requires_grad_()
    sum(invariants(y, torch.eye(3), 0.3)).backward()
    assert torch.equal(x, before)
    assert torch.equal(y.detach(), before)
    with torch.no_grad():
        assert not any(value.requires_grad for value in invariants(y))


@pytest.mark.parametrize("shape", [(300, 20), (20, 300)])
def test_autocast_changes_nothing(shape):
    results = []
    for enabled in (False, True):
        x = torch.from_numpy(gaussian(*shape)).float().requires_grad_()
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            values = invariants(x, torch.eye(shape[1]), 0.3)
            sum(values).backward()
        results.append((*values, x.grad))
    assert all(map(torch.equal, *results))


# -------------------------------------------------------------------------------------- spectrum


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize("scale", [1e-18, 1, 1e18])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_spectrum_is_that_of_a_singular_value_decomposition(shape, center, scale, dtype):
    x = ((gaussian(*shape) + 2) * scale).astype(dtype)
    found = spectrum(torch.from_numpy(x), center=center).numpy()
    wide = x.astype(np.float64)
    if center:
        wide = wide - wide.mean(axis=0)
    expected = np.linalg.svd(wide / scale, compute_uv=False) ** 2
    assert found.dtype == np.float64
    assert found.shape == expected.shape == (min(shape),)
    assert (np.diff(found) <= 0).all()
    np.testing.assert_allclose(found / found.sum(), expected / expected.sum(), rtol=0, atol=1e-14)


def test_spectrum_far_from_the_origin():
    x = gaussian(30, 4) + 1e8
    found = spectrum(torch.from_numpy(x), center=True).numpy()
    y = x.astype(np.longdouble)
    y -= y.sum(axis=0) / len(y)
    expected = np.linalg.svd(y.astype(np.float64), compute_uv=False) ** 2
    np.testing.assert_allclose(found / found.sum(), expected / expected.sum(), atol=1e-14)


@pytest.mark.parametrize("shape", [(5, 3), (3, 5)])
@pytest.mark.parametrize("center", [False, True])
def test_spectrum_is_differentiable(shape, center):
    x = torch.from_numpy(gaussian(*shape) + 1).requires_grad_()

    def shares(x):
        values = spectrum(x, center=center)[:2]
        return values / values.sum()

    assert torch.autograd.gradcheck(shares, x)


def test_spectrum_of_equal_singular_values_has_a_finite_gradient():
    x = torch.eye(4, 6, dtype=torch.float64, requires_grad=True)
    values = spectrum(x, center=False)
    assert values.tolist() == [1.0] * 4
    values.sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_spectrum_of_a_constant_cloud_is_zero():
    x = torch.full((5, 3), 0.1)
    assert not spectrum(x, center=True).any()


# ----------------------------------------------------------------------------------------- parts


@given(st.floats(min_value=0, allow_infinity=False, allow_subnormal=True), st.booleans())
def test_power_of_two_is_one_and_the_next_below(value, single):
    dtype = torch.float32 if single else torch.float64
    largest = torch.tensor(value, dtype=dtype)
    if not torch.isfinite(largest):
        return
    power = float(power_of_two(largest))
    assert math.frexp(power)[0] == 0.5
    tiny = torch.finfo(dtype).tiny
    if largest >= tiny:
        assert power <= float(largest) < 2 * power
    else:
        assert power == (1 if largest == 0 else tiny)


@given(st.integers(2, 40), st.integers(2, 5), st.sampled_from([0.0, 1e4, -1e7]))
def test_centring_centres_and_bounds(n, d, offset):
    x = torch.from_numpy(gaussian(n, d) + offset).float()
    centre = Centring.of(x)
    y = centre(x).double()
    assert float(y.abs().max()) <= 4 * (1 + 1e-6)
    # By the rounding of values near 1: that of values near 1e7 would leave nothing.
    assert float(y.mean(dim=0).abs().max()) < 1e-6
    wide = x.double() - x.double().mean(dim=0)
    torch.testing.assert_close(
        y / centre.inverse.double(), wide, rtol=0, atol=1e-5 * float(wide.abs().max())
    )


def test_sums_over_centred_rows():
    x = torch.from_numpy(gaussian(50, 4) + 3)
    centre = Centring.of(x)
    y = [row.numpy() for row in centre(x)]
    product, cubic, fourth = outer_products(x, centre)
    np.testing.assert_allclose(product, sum(np.outer(row, row) for row in y), atol=1e-12)
    np.testing.assert_allclose(cubic, sum((row @ row) * row for row in y), atol=1e-11)
    np.testing.assert_allclose(fourth, sum((row @ row) ** 2 for row in y), rtol=1e-12)


@given(st.integers(1, 3000), st.sampled_from([2, 300, 5000]))
@settings(max_examples=30)
def test_blocks_are_all_rows_in_order(n, d):
    x = torch.arange(n)[:, None].expand(n, d)
    parts = blocks(x)
    assert torch.equal(torch.cat([part[:, 0] for part in parts]), torch.arange(n))
    assert max(part.numel() for part in parts) <= max(1 << 20, 256 * d)

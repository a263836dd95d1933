"""The pooled invariants against sums over rows in extended precision, and against autograd."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st

from isotropy import covariance
from isotropy.pooled import pooled_invariants

FEATURES = 5
# Rows of each block, and for each block the share of rows that count (None: no mask is given).
LAYOUTS = {
    "one block": ([9], [None]),
    "three blocks": ([7, 2, 11], [None, None, None]),
    "masks": ([12, 8, 20], [0.5, 0.7, 0.4]),
    "a mask for some": ([12, 8, 20], [None, 0.5, None]),
    "a block that does not count": ([12, 8, 20], [0.5, 0.0, None]),
    "blocks of one row": ([1, 1, 1], [None, None, None]),
    "two rows count": ([4, 4], [0.25, 0.25]),
    "many rows": ([700, 300], [0.5, None]),
}


def clouds_of(layout, *, offset=0.0, scale=1.0, dtype=torch.float64, seed=0):
    """Blocks and masks of a layout; rows that do not count hold NaN and infinity."""
    random = np.random.default_rng(seed)
    mix = random.standard_normal((FEATURES, FEATURES))
    clouds, masks = [], []
    for n, share in zip(*LAYOUTS[layout], strict=True):
        x = torch.from_numpy((random.standard_normal((n, FEATURES)) @ mix + offset) * scale)
        mask = None
        if share is not None:
            mask = torch.zeros(n, dtype=torch.bool)
            mask[random.permutation(n)[: round(share * n)]] = True
            x[~mask] = torch.nan
            x[~mask, 0] = torch.inf
        clouds.append(x.to(dtype))
        masks.append(mask)
    return clouds, masks


def counting(clouds, masks):
    """The rows that count, one after the other."""
    return torch.cat(
        [x if mask is None else x[mask] for x, mask in zip(clouds, masks, strict=True)]
    )


def covariance_matrix(seed=1):
    return np.cov(np.random.default_rng(seed).standard_normal((50, FEATURES)).T)


def exact(x, shrinkage=None, zeta=0.0):
    """Trace, squared norm and fourth moment, row by row in extended precision."""
    x = np.asarray(x, dtype=np.longdouble)
    y = x - x.sum(axis=0) / len(x)
    sigma = np.zeros((x.shape[1], x.shape[1]), dtype=np.longdouble)
    fourth = np.longdouble(0)
    for row in y:
        sigma += np.outer(row, row) / (len(x) - 1)
        fourth += (row * row).sum() ** 2 / (len(x) - 1)
    if shrinkage is not None:
        sigma = (1 - np.longdouble(zeta)) * sigma + np.longdouble(zeta) * shrinkage
    return np.trace(sigma), (sigma * sigma).sum(), fourth


def check_values(found, expected, rel):
    """The values up to one unknown power of two."""
    trace, norm, fourth = (np.longdouble(float(value.detach())) for value in found)
    power = np.longdouble(2) ** np.round(np.log2(np.sqrt(expected[0] / trace)))
    assert float(trace * power**2 / expected[0]) == pytest.approx(1, rel=rel)
    assert float(norm * power**4 / expected[1]) == pytest.approx(1, rel=rel)
    assert float(fourth * power**4 / expected[2]) == pytest.approx(1, rel=rel)


# ---------------------------------------------------------------------------------------- values


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("scale", [1e-18, 1, 1e18])
@pytest.mark.parametrize("offset", [0, 1e4])
@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_values_at_any_scale_and_far_from_the_origin(layout, scale, offset, dtype, rel):
    clouds, masks = clouds_of(layout, offset=offset, scale=scale, dtype=dtype)
    n, found = pooled_invariants(clouds, masks)
    rows = counting(clouds, masks)
    assert n == len(rows)
    assert all(value.dtype == dtype for value in found)
    check_values(found, exact(rows), rel)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("zeta", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_values_with_shrinkage(layout, zeta, dtype, rel):
    clouds, masks = clouds_of(layout, offset=100, dtype=dtype)
    shrinkage = covariance_matrix()
    _, found = pooled_invariants(clouds, masks, torch.from_numpy(shrinkage), zeta)
    # The fourth moment stays the cloud's own.
    check_values(found, exact(counting(clouds, masks), shrinkage, zeta), rel)


@pytest.mark.parametrize(
    ("of_cloud", "of_matrix"), [(1e18, 1), (1, 1e30), (1e-18, 1), (1e-18, 1e-36)]
)
def test_a_shrinkage_matrix_of_another_scale(of_cloud, of_matrix):
    clouds, masks = clouds_of("masks", scale=of_cloud, dtype=torch.float32)
    clouds = [cloud.requires_grad_() for cloud in clouds]
    matrix = covariance_matrix() * of_matrix
    _, (trace, norm, _) = pooled_invariants(clouds, masks, torch.from_numpy(matrix).float(), 0.3)
    expected = exact(counting(clouds, masks).detach(), matrix, 0.3)
    ratio = float(expected[0] ** 2 / expected[1])
    assert float((trace**2 / norm).detach()) == pytest.approx(ratio, rel=1e-5)
    grads = torch.autograd.grad(trace**2 / norm, clouds)
    assert all(grad.isfinite().all() for grad in grads)


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    exponent=st.integers(-100, 100),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=60)
def test_how_rows_are_cut_and_masked_changes_nothing(sizes, exponent, seed):
    random = np.random.default_rng(seed)
    whole = torch.from_numpy(random.standard_normal((sum(sizes) + 2, FEATURES)))
    cut = list(whole.split([*sizes, 2]))
    masks = [torch.from_numpy(random.random(len(part)) < 0.8) for part in cut]
    masks[-1][:] = True
    _, (trace, norm, fourth) = pooled_invariants([counting(cut, masks)], [None])
    n, found = pooled_invariants([part * 2.0**exponent for part in cut], masks)
    assert n == sum(int(mask.sum()) for mask in masks)
    assert float(found.trace**2 / found.norm) == pytest.approx(float(trace**2 / norm), rel=1e-9)
    assert float(found.fourth / found.norm) == pytest.approx(float(fourth / norm), rel=1e-9)


def test_pieces_of_blocks_change_nothing(monkeypatch):
    clouds, masks = clouds_of("many rows")
    clouds = [cloud.requires_grad_() for cloud in clouds]
    _, whole = pooled_invariants(clouds, masks)
    expected = torch.autograd.grad(sum(whole), clouds)
    monkeypatch.setattr(covariance, "_BLOCK_VALUES", 1)
    assert len(covariance.blocks(clouds[0])) > 1
    _, cut = pooled_invariants(clouds, masks)
    found = torch.autograd.grad(sum(cut), clouds)
    torch.testing.assert_close(cut, whole, rtol=1e-12, atol=0)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-14)


def test_many_rows_in_float32():
    random = np.random.default_rng(0)
    x = (random.standard_normal((60_000, 20)) * np.linspace(1, 0.1, 20) + 1e4).astype(np.float32)
    y = x.astype(np.float64)
    y -= y.mean(axis=0)
    c = y.T @ y / (len(y) - 1)
    fourth = ((y * y).sum(axis=1) ** 2).sum() / (len(y) - 1)
    parts = torch.from_numpy(x).split([10_000, 20_000, 30_000])
    n, found = pooled_invariants(parts, [None] * 3)
    assert n == 60_000
    check_values(found, (np.trace(c), (c * c).sum(), fourth), 1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("largest", ["max", "tiny"])
def test_the_ends_of_the_range_of_numbers(dtype, largest):
    x = torch.tensor([[-1, 1], [1, 0.5], [0, -1]], dtype=dtype)
    _, (trace, norm, fourth) = pooled_invariants(
        (x * getattr(torch.finfo(dtype), largest)).split(1), [None] * 3
    )
    unit = exact(x)
    assert float(trace**2 / norm) == pytest.approx(float(unit[0] ** 2 / unit[1]), rel=1e-6)
    assert float(fourth / norm) == pytest.approx(float(unit[2] / unit[1]), rel=1e-6)


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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("zeta", [None, 0.0, 0.3, 1.0])
@pytest.mark.parametrize(("dtype", "rel"), [(torch.float32, 1e-4), (torch.float64, 1e-9)])
@pytest.mark.parametrize("offset", [0, 1e4])
def test_gradient_is_that_of_the_formulas_in_float64(layout, zeta, dtype, rel, offset):
    clouds, masks = clouds_of(layout, offset=offset, dtype=dtype)
    clouds = [cloud.requires_grad_() for cloud in clouds]
    wide = counting(clouds, masks).detach().double().requires_grad_()
    shrinkage = None if zeta is None else torch.from_numpy(covariance_matrix())
    _, values = pooled_invariants(clouds, masks, shrinkage, zeta or 0.0)
    found = combinations(*values)
    for name, value in combinations(*plain(wide, shrinkage, zeta or 0.0)).items():
        (good,) = torch.autograd.grad(value, wide, retain_graph=True)
        grads = torch.autograd.grad(found[name], clouds, retain_graph=True)
        ours = counting(grads, masks)
        # The score of two rows is a constant: a gradient of 0 is as good as its terms' rounding.
        terms = float(value.detach()) / float((wide - wide.mean(dim=0)).detach().norm())
        assert float((ours - good).norm()) <= rel * max(float(good.norm()), 0.1 * terms), name
        for grad, mask in zip(grads, masks, strict=True):
            assert mask is None or not grad[~mask].any(), "rows that do not count"


@pytest.mark.parametrize("zeta", [None, 0.4])
@pytest.mark.parametrize("output", [0, 1, 2])
def test_gradient_of_each_output_alone(zeta, output):
    random = np.random.default_rng(0)
    clouds = [torch.from_numpy(random.standard_normal((n, 3)) + 3) for n in (4, 1, 2)]
    masks = [torch.tensor([True, False, True, True]), None, torch.tensor([False, True])]
    shrinkage = None if zeta is None else torch.eye(3, dtype=torch.float64)

    def value(*clouds):
        return pooled_invariants(clouds, masks, shrinkage, zeta or 0.0)[1][output]

    assert torch.autograd.gradcheck(value, [cloud.requires_grad_() for cloud in clouds])


@pytest.mark.parametrize("scale", [1e-18, 1e18])
def test_gradient_at_extreme_scales_in_float32(scale):
    grads = []
    for factor in (1, scale):
        clouds, masks = clouds_of("three blocks", dtype=torch.float32)
        clouds = [(cloud * factor).requires_grad_() for cloud in clouds]
        _, (trace, norm, fourth) = pooled_invariants(clouds, masks)
        parts = torch.autograd.grad(trace**2 / norm + fourth / norm, clouds)
        grads.append(torch.cat(parts) * factor)
    torch.testing.assert_close(grads[1], grads[0], rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.0, 0.1, 1e18, -1e-18])
@pytest.mark.parametrize("zeta", [None, 0.5])
def test_equal_rows_have_the_gradient_zero(dtype, value, zeta):
    clouds = [torch.full((n, 4), value, dtype=dtype, requires_grad=True) for n in (3, 2)]
    shrinkage = None if zeta is None else torch.eye(4, dtype=dtype)
    _, (trace, norm, fourth) = pooled_invariants(clouds, [None, None], shrinkage, zeta or 0.0)
    assert not torch.cat(torch.autograd.grad(trace + norm + fourth, clouds)).any()
    if zeta is None:
        assert trace == norm == fourth == 0
    else:
        assert float((trace**2 / norm).detach()) == pytest.approx(4)


def test_no_gradient_flows_to_the_shrinkage_matrix():
    clouds, masks = clouds_of("masks")
    shrinkage = torch.eye(FEATURES, dtype=torch.float64, requires_grad=True)
    clouds[0].requires_grad_()
    _, values = pooled_invariants(clouds, masks, shrinkage, 0.5)
    sum(values).backward()
    assert shrinkage.grad is None
    assert clouds[0].grad is not None


def test_a_block_without_gradient_beside_one_with():
    clouds, masks = clouds_of("three blocks")
    both = [cloud.clone().requires_grad_() for cloud in clouds]
    expected = torch.autograd.grad(pooled_invariants(both, masks)[1].norm, both[1])
    clouds[1].requires_grad_()
    found = torch.autograd.grad(pooled_invariants(clouds, masks)[1].norm, clouds[1])
    assert torch.equal(*expected, *found)


# ------------------------------------------------------------------------------------ robustness


@pytest.mark.parametrize("rows", [0, 1])
@pytest.mark.parametrize("zeta", [None, 0.5])
def test_of_fewer_than_two_rows_the_invariants_are_not_finite(rows, zeta):
    clouds, _ = clouds_of("three blocks")
    masks = [torch.zeros(len(cloud), dtype=torch.bool) for cloud in clouds]
    masks[1][:rows] = True
    shrinkage = None if zeta is None else torch.eye(FEATURES, dtype=torch.float64)
    n, (trace, norm, _) = pooled_invariants(clouds, masks, shrinkage, zeta or 0.0)
    assert n == rows
    assert not torch.isfinite(trace**2 / norm)


@pytest.mark.parametrize("bad", [torch.nan, torch.inf, -torch.inf])
def test_a_row_that_counts_and_is_not_finite_shows_in_the_values(bad):
    clouds, masks = clouds_of("a mask for some")
    clouds[0][3, 1] = bad
    _, (trace, norm, fourth) = pooled_invariants(clouds, masks)
    assert not torch.isfinite(torch.stack((trace**2 / norm, fourth / norm))).any()


def test_layout_in_memory_changes_nothing():
    base, _ = clouds_of("three blocks")
    straight = [cloud.clone().requires_grad_() for cloud in base]
    strided = [cloud.T.contiguous().T.requires_grad_() for cloud in base]
    assert not strided[0].is_contiguous()
    expected, found = (pooled_invariants(x, [None] * 3)[1] for x in (straight, strided))
    torch.testing.assert_close(found, expected, rtol=1e-13, atol=0)
    torch.testing.assert_close(
        torch.autograd.grad(sum(found), strided),
        torch.autograd.grad(sum(expected), straight),
        rtol=1e-11,
        atol=1e-14,
    )


def test_the_input_stays_as_it_is():
    clouds, masks = clouds_of("masks")
    before = [cloud.clone() for cloud in clouds]
    leaves = [cloud.requires_grad_() for cloud in clouds]
    sum(pooled_invariants(leaves, masks, torch.eye(FEATURES), 0.3)[1]).backward()
    torch.testing.assert_close(leaves, before, rtol=0, atol=0, equal_nan=True)
    with torch.no_grad():
        assert not any(value.requires_grad for value in pooled_invariants(leaves, masks)[1])


def test_autocast_changes_nothing():
    results = []
    for enabled in (False, True):
        clouds, masks = clouds_of("many rows", dtype=torch.float32)
        clouds = [cloud.requires_grad_() for cloud in clouds]
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            _, values = pooled_invariants(clouds, masks, torch.eye(FEATURES), 0.3)
            grads = torch.autograd.grad(sum(values), clouds)
        results.append((*values, *grads))
    assert all(map(torch.equal, *results))

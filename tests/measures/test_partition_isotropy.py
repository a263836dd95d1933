"""Partition isotropy against loops over rows and eigenvectors, and the printed tables."""

from math import exp, sqrt

import numpy as np
import pytest
import torch
from scipy.special import logsumexp

from isotropy.errors import InputError, SettingError, UndefinedError
from isotropy.measurement import measure
from isotropy.measures._partition_isotropy import partition_isotropy


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def eigenvectors(w):
    """As columns. By torch, since LAPACK's choice of signs and null space is part of paper-c."""
    return torch.linalg.eigh(torch.from_numpy(w.T @ w)).eigenvectors.numpy()


def partition(w, v):
    return sum(exp(sum(a * b for a, b in zip(row, v, strict=True))) for row in w)


def by_definition(w):
    vectors = [sign * v for v in eigenvectors(w).T for sign in (1, -1)]
    z = [partition(w, v) for v in vectors]
    mean = sum(z) / len(z)
    variance = sum((value - mean) ** 2 for value in z) / len(z)
    return min(z) / max(z), sqrt(variance) / mean


def as_printed_by_paper_c(w):
    z = [partition(w, row) for row in eigenvectors(w)]
    mean = sum(z) / len(z)
    return min(z) / max(z), sqrt(sum((value - mean) ** 2 for value in z)) / mean


@pytest.mark.parametrize("shape", [(30, 5), (5, 5), (4, 9), (2, 2)])
@pytest.mark.parametrize("scale", [0.02, 1.0])
def test_is_the_definition(shape, scale):
    w = scale * gaussian(*shape) + 0.1
    assert partition_isotropy(w) == pytest.approx(by_definition(w), rel=1e-9)
    single = partition_isotropy(w.astype(np.float32))
    assert single == pytest.approx(by_definition(w), rel=1e-4, abs=1e-7)


@pytest.mark.parametrize("shape", [(30, 5), (9, 8)])
def test_paper_c_takes_rows_and_leaves_out_the_mean(shape):
    w = 0.3 * gaussian(*shape)
    assert partition_isotropy(w, compat="paper-c") == pytest.approx(
        as_printed_by_paper_c(w), rel=1e-6
    )


@pytest.mark.parametrize(
    ("labels", "i1", "i2"), [(2, 0.914, 0.39), (3, 0.933, 0.32), (6, 0.950, 0.23)]
)
def test_an_untrained_head_gives_the_printed_columns(labels, i1, i2):
    heads = [0.02 * gaussian(labels, 768, seed=seed) for seed in range(3)]
    found = np.mean([partition_isotropy(w, compat="paper-c") for w in heads], axis=0)
    assert found == pytest.approx([i1, i2], abs=0.02)
    correct = np.mean([partition_isotropy(w) for w in heads], axis=0)
    assert correct[1] < 0.05  # which is why the printed 0.39 cannot be the definition's


@pytest.mark.parametrize("i1_at_least", [0.9, 0.5])
def test_i1_bounds_i2(i1_at_least):
    """All Z in [a, b] have a std of at most (b − a)/2, and a mean of at least a."""
    for seed in range(20):
        i1, i2 = partition_isotropy((1 - i1_at_least) * gaussian(50, 4, seed=seed))
        assert i2 <= (1 / i1 - 1) / 2


def test_a_symmetric_cross_is_isotropic():
    cross = np.concatenate((np.eye(4), -np.eye(4))) * 3
    assert partition_isotropy(cross) == pytest.approx((1, 0), abs=1e-12)


def test_opposite_directions_both_count():
    """All rows along +e: exp(1) for v = e, exp(−1) for v = −e, 1 for the null space."""
    w = np.tile([1.0, 0.0], (3, 1)) * np.array([[1.0], [1.0], [1.0]])
    w[2, 0] = 1 + 1e-12  # no cloud of equal rows
    i1, i2 = partition_isotropy(w)
    z = np.array([np.e, 1 / np.e, 1, 1])
    assert i1 == pytest.approx(np.exp(-2), rel=1e-9)
    assert i2 == pytest.approx(z.std() / z.mean(), rel=1e-9)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_large_exponents_do_not_overflow(dtype):
    w = torch.from_numpy(gaussian(40, 3) * 400 + 900).to(dtype)
    exponents = w.double().numpy() @ eigenvectors(w.double().numpy())
    log_z = logsumexp(np.concatenate((exponents, -exponents), axis=1), axis=0)
    assert log_z.max() > 1000  # exp of it is infinite
    z = np.exp(log_z - log_z.max())
    assert [v.item() for v in partition_isotropy(w)] == pytest.approx(
        [z.min(), z.std() / z.mean()], rel=1e-5
    )


def test_scale_is_part_of_the_answer():
    w = gaussian(100, 6)
    assert partition_isotropy(w * 1e-18) == pytest.approx((1, 0), abs=1e-12)
    # One Z of 12 is left beside which all others vanish: std/mean = √11.
    for scale in (1e18, 1e300):
        assert partition_isotropy(w * scale) == pytest.approx((0, sqrt(11)), rel=1e-12)


def test_blocks_of_rows_change_nothing():
    w = 0.1 * gaussian(2000, 4)
    halves = np.concatenate((w, w))  # Z doubles everywhere
    assert partition_isotropy(halves) == pytest.approx(partition_isotropy(w), rel=1e-12)
    for chunk_rows in (7, 1500):
        report = measure(w, ["partition_isotropy"], chunk_rows=chunk_rows)
        assert [score.value for score in report.values()] == pytest.approx(
            partition_isotropy(w), rel=1e-9
        )


def test_compat_in_a_stream():
    w = 0.3 * gaussian(40, 5)
    report = measure(
        w, ["partition-isotropy"], options={"partition_isotropy": {"compat": "paper-c"}}
    )
    assert [score.value for score in report.values()] == pytest.approx(
        as_printed_by_paper_c(w), rel=1e-6
    )


def test_errors():
    with pytest.raises(SettingError, match="got compat='paper-d', expected 'none' or 'paper-c'"):
        partition_isotropy(gaussian(5, 3), compat="paper-d")
    with pytest.raises(SettingError, match="got compat='x', expected 'none' or 'paper-c'"):
        measure(
            gaussian(5, 3), ["partition_isotropy"], options={"partition_isotropy": {"compat": "x"}}
        )
    with pytest.raises(InputError, match="1 row"):
        partition_isotropy(gaussian(1, 3))
    with pytest.raises(UndefinedError, match="equal rows"):
        partition_isotropy(np.ones((5, 3)))


def test_types():
    w = gaussian(9, 4)
    assert all(isinstance(value, float) for value in partition_isotropy(w))
    for dtype in (torch.float16, torch.float32, torch.float64):
        for value in partition_isotropy(torch.from_numpy(w).to(dtype)):
            assert value.dtype == (torch.float64 if dtype == torch.float64 else torch.float32)

"""Uniformity against the published formula over all pairs."""

from itertools import combinations
from math import exp, log

import numpy as np
import pytest
import torch

from isotropy import Representations
from isotropy.penalties import Uniformity


def cloud(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) + 0.5


def by_pairs(x, t=2.0):
    rows = [row / np.linalg.norm(row) for row in x]
    potentials = [exp(-t * np.linalg.norm(a - b) ** 2) for a, b in combinations(rows, 2)]
    return log(np.mean(potentials))


def value(x, **settings):
    return Uniformity(**settings)(Representations.from_cloud(torch.from_numpy(x)))


@pytest.mark.parametrize("t", [0.5, 2.0, 10])
@pytest.mark.parametrize("shape", [(2, 2), (30, 3), (9, 60)])
def test_is_the_log_of_the_mean_potential(shape, t):
    x = cloud(*shape)
    assert float(value(x, t=t)) == pytest.approx(by_pairs(x, t), rel=1e-9)


def test_a_narrow_cone_keeps_its_digits():
    """All potentials are 1 − 1e-14 or so: their mean's logarithm is not 0."""
    x = 1e-7 * cloud(20, 3) + np.array([1.0, 0, 0])
    rows = x / np.linalg.norm(x, axis=1, keepdims=True)
    distances = [np.sum((a - b) ** 2) for a, b in combinations(rows, 2)]
    assert float(value(x)) == pytest.approx(-2 * np.mean(distances), rel=0.05)


def test_single_precision_is_computed_in_double():
    x = cloud(30, 8).astype(np.float32)
    assert value(x).dtype == torch.float32
    assert float(value(x)) == pytest.approx(by_pairs(x.astype(float)), rel=1e-6)
    cone = (1e-3 * x + np.eye(8)[0]).astype(np.float32)
    assert float(value(cone)) == pytest.approx(by_pairs(cone.astype(float)), rel=1e-5)


def test_rows_of_zeros_do_not_count():
    x = cloud(10, 4)
    with_zeros = np.concatenate((np.zeros((1, 4)), x, np.zeros((2, 4))))
    assert float(value(with_zeros)) == pytest.approx(float(value(x)), rel=1e-12)

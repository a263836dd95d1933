"""The laplacian penalty against cosines sorted by numpy."""

import numpy as np
import pytest
import torch
from torch import nn

from isotropy import Representations, penalties
from isotropy.penalties import Laplacian


def cloud(n, d, seed=0):
    return np.random.default_rng(seed).standard_normal((n, d)) + 0.3


def by_sorting(x, k):
    rows = x / np.linalg.norm(x, axis=1, keepdims=True)
    means = []
    for i, row in enumerate(rows):
        others = sorted(
            (float(row @ other) for j, other in enumerate(rows) if j != i), reverse=True
        )
        means.append(np.mean(others[:k]))
    return np.mean(means)


def value(x, **settings):
    return float(Laplacian(**settings)(Representations.from_cloud(torch.from_numpy(x))))


@pytest.mark.parametrize("k", [1, 3, 10])
def test_is_the_mean_cosine_to_the_nearest(k):
    x = cloud(40, 6)
    assert value(x, k=k) == pytest.approx(by_sorting(x, k), rel=1e-9)


def test_is_the_trace_with_the_laplacian_of_the_graph():
    """λ(1 − tr ŴᵀLŴ/(nk)) with L = D − A, where half of A and half of its transpose are taken."""
    x, k = cloud(30, 5), 4
    rows = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosines = rows @ rows.T - 9 * np.eye(30)
    joined = np.zeros((30, 30))
    for i in range(30):
        joined[i, cosines[i].argsort()[-k:]] = 1
    joined = (joined + joined.T) / 2
    laplacian = np.diag(joined.sum(axis=1)) - joined
    expected = 1 - np.trace(rows.T @ laplacian @ rows) / (30 * k)
    assert value(x, k=k) == pytest.approx(expected, rel=1e-9)


def test_with_fewer_rows_than_neighbours():
    x = cloud(4, 3)
    assert value(x, k=10) == pytest.approx(by_sorting(x, 3), rel=1e-9)


def test_rows_of_zeros_are_nobody_s_neighbours():
    x = cloud(20, 4)
    with_zeros = np.concatenate((np.zeros((2, 4)), x))
    assert value(with_zeros, k=3) == pytest.approx(by_sorting(x, 3), rel=1e-9)


def test_many_rows_are_searched_in_blocks(monkeypatch):
    x = np.concatenate((cloud(200, 6), np.zeros((20, 6))))
    expected = value(x, k=5)
    monkeypatch.setattr(penalties._laplacian, "_MANY_ROWS", 10)
    assert value(x, k=5) == pytest.approx(expected, rel=1e-12)
    apart = np.eye(12) + 0.1 * cloud(12, 12)  # nearer to the origin than to each other
    with_zeros = np.concatenate((np.zeros((4, 12)), apart))
    assert value(with_zeros, k=3) == pytest.approx(by_sorting(apart, 3), rel=1e-9)
    penalty = Laplacian()
    x[3, 1] = np.nan
    assert float(penalty(Representations.from_cloud(torch.from_numpy(x)))) == 0
    assert int(penalty.skipped) == 1


def test_the_graph_of_weights_is_kept_until_it_is_refreshed():
    weight = nn.Parameter(torch.from_numpy(cloud(30, 4)))
    penalty = Laplacian(k=2)
    shown = Representations(vocabulary=weight)
    before = penalty(shown)
    assert float(before.detach()) == pytest.approx(by_sorting(weight.detach().numpy(), 2))
    before.backward()
    assert weight.grad is not None
    with torch.no_grad():
        weight.copy_(torch.from_numpy(cloud(30, 4, seed=1)))
    moved = by_sorting(weight.detach().numpy(), 2)
    assert float(penalty(shown).detach()) != pytest.approx(moved)
    penalty.refresh(nn.Identity(), [])
    assert float(penalty(shown).detach()) == pytest.approx(moved)


def test_the_graph_of_a_batch_is_found_anew():
    penalty = Laplacian(k=2)
    for seed in range(2):
        x = cloud(30, 4, seed=seed)
        found = penalty(Representations.from_cloud(torch.from_numpy(x)))
        assert float(found) == pytest.approx(by_sorting(x, 2))


@pytest.mark.parametrize("others", [0, 1, 5])
def test_rows_that_do_not_count_change_nothing_even_where_few_are_left(others):
    x = torch.from_numpy(cloud(3, 4))
    filled = torch.cat((x, torch.from_numpy(cloud(others, 4, seed=1))))
    mask = torch.arange(len(filled)) < len(x)
    found = Laplacian(k=10)(Representations.from_cloud(filled, mask=mask))
    assert float(found) == pytest.approx(by_sorting(x.numpy(), 2), rel=1e-9)

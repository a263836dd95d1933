"""Borůvka against scipy's spanning tree, and against a device that has no values at all."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode

import isotropy._boruvka
import isotropy.bars
from isotropy._boruvka import boruvka
from isotropy._spanning_tree import spanning_forest
from isotropy.bars import entropy, h0_bars_by_class


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def scipy_lengths(x):
    # To scipy a zero is no edge, so all edges are one longer.
    return np.sort(minimum_spanning_tree(cdist(x, x) + 1).data - 1)


def lengths(x, left, right):
    left, right = left.numpy(), right.numpy()
    return np.sort(np.linalg.norm(x[left] - x[right], axis=1)[left != right])


def clouds():
    x = gaussian(90, 5)
    grid = np.stack(np.meshgrid(*[np.arange(4.0)] * 3), axis=-1).reshape(-1, 3)
    yield "plain", x
    yield "grid", grid  # every edge of its tree has the length 1
    yield "grid in another order", grid[np.random.default_rng(1).permutation(len(grid))]
    yield "simplex", np.eye(40)
    yield "duplicates", np.repeat(x[:20], 4, axis=0)
    yield "equal rows", np.ones((17, 2))
    yield "line", np.arange(33.0)[:, None] * np.ones(2)
    yield "tight clusters", np.concatenate([x[:30] * 1e-6 + 10 * k for k in range(3)])
    yield "far away", x + 1e3
    yield "two", x[:2]
    yield "one", x[:1]


@pytest.mark.parametrize("x", [pytest.param(x, id=name) for name, x in clouds()])
def test_is_the_minimum_spanning_tree(x):
    left, right = boruvka(torch.from_numpy(x))
    assert len(left) == len(right) == len(x)
    np.testing.assert_allclose(lengths(x, left, right), scipy_lengths(x), rtol=1e-9, atol=1e-12)


@settings(max_examples=40)
@given(st.integers(2, 40), st.integers(1, 3), st.integers(0, 1000))
def test_whole_coordinates_make_many_ties(n, d, seed):
    x = np.random.default_rng(seed).integers(0, 4, size=(n, d)).astype(float)
    left, right = boruvka(torch.from_numpy(x))
    np.testing.assert_allclose(lengths(x, left, right), scipy_lengths(x), atol=1e-12)


def test_one_tree_a_label():
    x = gaussian(100, 4)
    labels = np.random.default_rng(1).integers(-1, 5, size=100)
    left, right = boruvka(torch.from_numpy(x), torch.from_numpy(labels))
    assert (labels[left] == labels[right]).all()
    for label in range(-1, 5):
        members = labels[left] == label
        np.testing.assert_allclose(
            lengths(x, left[members], right[members]), scipy_lengths(x[labels == label]), rtol=1e-12
        )


@pytest.mark.parametrize("with_labels", [False, True])
@pytest.mark.parametrize("clusters", [1, 4])
def test_is_the_tree_that_prim_finds(clusters, with_labels):
    x = gaussian(300, 24) + 20 * gaussian(clusters, 24, seed=1).repeat(300 // clusters, axis=0)
    labels = torch.arange(300) % 7 if with_labels else None
    cloud = torch.from_numpy(x).float()
    ours = lengths(x, *boruvka(cloud, labels))
    np.testing.assert_allclose(ours, lengths(x, *spanning_forest(cloud, labels)), rtol=1e-5)


def test_blocks_change_nothing(monkeypatch):
    cloud = torch.from_numpy(gaussian(101, 3))
    labels = torch.arange(101) % 3
    whole = boruvka(cloud), boruvka(cloud, labels)
    monkeypatch.setattr(isotropy._boruvka, "_BLOCK_DISTANCES", 1000)
    for once, in_blocks in zip(whole, (boruvka(cloud), boruvka(cloud, labels)), strict=True):
        assert torch.equal(torch.stack(once), torch.stack(in_blocks))


def test_a_row_that_is_not_finite_stays_alone():
    x = gaussian(30, 3)
    good = x.copy()
    x[7, 1], x[11, 2] = np.nan, np.inf
    left, right = boruvka(torch.from_numpy(x))
    assert not {7, 11} & set(torch.cat((left, right))[torch.cat((left != right,) * 2)].tolist())
    finite = np.delete(good, [7, 11], axis=0)
    np.testing.assert_allclose(lengths(good, left, right), scipy_lengths(finite), rtol=1e-12)


@pytest.mark.parametrize("n", [2, 5, 64, 6000])
def test_looks_at_no_value(n):
    """A tensor on the meta device has a shape and no values: reading one is an error."""
    cloud = torch.empty(n, 8, device="meta")
    with pytest.raises((RuntimeError, NotImplementedError), match="meta"):
        cloud[0, 0].item()
    left, right = spanning_forest(cloud, torch.empty(n, dtype=torch.long, device="meta"))
    assert left.shape == right.shape == (n,)


def test_training_on_bars_looks_at_no_value(monkeypatch):
    """Nor has a fake tensor, which may say that it is on the CPU."""
    monkeypatch.setattr(isotropy.bars, "spanning_forest", boruvka)
    with FakeTensorMode():
        cloud = torch.empty(64, 8, requires_grad=True)
        labels = torch.zeros(64, dtype=torch.long)
        with pytest.raises(DataDependentOutputException):
            h0_bars_by_class(cloud, labels)  # has to read the greatest label
        bars = h0_bars_by_class(cloud, labels, classes=3)
        assert bars.shape == (3, 63)
        entropy(bars).sum().backward()
        assert cloud.grad is not None
        assert cloud.grad.shape == cloud.shape

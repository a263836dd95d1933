"""Spanning trees against scipy's in float64, over every way they are found."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import cdist

from isotropy import _spanning_tree
from isotropy._spanning_tree import _candidates, _centred, spanning_forest


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def scipy_lengths(x):
    x = x.astype(np.float64)
    size = np.abs(x - x.mean(axis=0)).max() or 1
    x = (x - x.mean(axis=0)) / size
    # To scipy a zero is no edge, so all edges are one longer.
    return np.sort(minimum_spanning_tree(cdist(x, x) + 1).data - 1) * size


def lengths(x, labels=None):
    """The lengths of the forest, in float64, after a check that it has no circle."""
    names = None if labels is None else torch.from_numpy(labels)
    left, right = (ends.numpy() for ends in spanning_forest(torch.from_numpy(x), names))
    real = left != right
    assert len(_spanning_tree._minimal(edges(left[real], right[real]), len(x)).left) == real.sum()
    if labels is not None:
        assert (labels[left] == labels[right]).all()
    x = x.astype(np.float64)
    return np.sort(np.linalg.norm(x[left[real]] - x[right[real]], axis=1))


def edges(left, right):
    return _spanning_tree.Edges(left, right, np.arange(1.0, len(left) + 1))


def clusters(n, d, *, width, count=5, seed=0):
    centres = 3 * gaussian(count, d, seed=seed + 1)
    return centres[np.arange(n) % count] + width * gaussian(n, d, seed=seed)


def spherical(n, d):
    x = gaussian(n, d)
    return x / np.linalg.norm(x, axis=1, keepdims=True)


def grid(side, d, jitter):
    x = np.stack(np.meshgrid(*[np.arange(float(side))] * d), axis=-1).reshape(-1, d)
    return x + jitter * gaussian(*x.shape)


CLOUDS = {
    "plain": gaussian(300, 20),
    "clusters": clusters(300, 20, width=0.3),
    "tight clusters": clusters(300, 20, width=1e-6),
    "sphere": spherical(300, 100),
    "grid": grid(7, 3, 0),
    "nearly a grid": grid(7, 3, 1e-6),
    "duplicates": np.repeat(gaussian(60, 4), 5, axis=0),
    "equal rows": np.ones((50, 3)),
    "one row far away": np.concatenate((gaussian(200, 8), 1e6 * np.ones((1, 8)))),
    "line": np.linspace(-1, 1, 301)[:, None] * np.ones(3),
    "nearly a simplex": np.eye(120) + 1e-7 * gaussian(120, 120),
    "wide": gaussian(12, 400),
    "two rows": gaussian(2, 3),
}
WAYS = {
    "whole, in float64": {},
    "whole, in float32": {"_MANY_ROWS": 2},
    "blocks, in float64": {"_BLOCK_ROWS": 23},
    "blocks, in float32": {"_BLOCK_ROWS": 23, "_MANY_ROWS": 2},
    "float32 decides nothing": {"_MANY_ROWS": 2, "_TIES_PER_ROW": -2},
}


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    for name, value in WAYS[request.param].items():
        monkeypatch.setattr(_spanning_tree, name, value)
    return request.param


@pytest.mark.parametrize("name", CLOUDS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("offset", [0, 1e3])
def test_total_length_is_that_of_the_float64_tree(name, dtype, offset, way):
    x = (CLOUDS[name] + offset).astype(dtype)
    found, expected = lengths(x), scipy_lengths(x)
    assert len(found) == len(x) - 1
    assert found.sum() == pytest.approx(expected.sum(), rel=1e-5)
    # Where distances are not far below the cloud's width, it is the very same tree.
    if name not in ("tight clusters", "one row far away", "equal rows"):
        np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-8 * expected.max())


@pytest.mark.parametrize("scale", [1e-18, 1e18])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scale(scale, dtype, way):
    x = CLOUDS["clusters"].astype(dtype)
    np.testing.assert_allclose(
        lengths(x * dtype(scale)) / scale,
        scipy_lengths(x),
        rtol=1e-9 if dtype is np.float64 else 1e-5,
    )


def test_one_tree_a_label(way):
    for x in (CLOUDS["plain"], CLOUDS["clusters"].astype(np.float32)):
        labels = np.random.default_rng(1).integers(-1, 4, size=len(x))
        labels[labels == 2] = 7  # no row has the label 2
        labels[5] = 99  # one row alone
        expected = [scipy_lengths(x[labels == label]) for label in np.unique(labels)]
        np.testing.assert_allclose(lengths(x, labels), np.sort(np.concatenate(expected)), rtol=1e-9)


@settings(max_examples=40)
@given(
    st.integers(2, 50), st.integers(2, 4), st.integers(2, 6), st.integers(0, 1000), st.booleans()
)
def test_whole_coordinates_make_many_ties(n, d, values, seed, in_blocks):
    x = np.random.default_rng(seed).integers(0, values, size=(n, d)).astype(np.float32)
    with pytest.MonkeyPatch.context() as patch:
        if in_blocks:
            patch.setattr(_spanning_tree, "_BLOCK_ROWS", 8)
            patch.setattr(_spanning_tree, "_MANY_ROWS", 2)
        np.testing.assert_allclose(lengths(x), scipy_lengths(x), atol=1e-7)


def test_many_rows_are_the_float64_tree():
    """With the real sizes: 4500 rows are searched in float32, in two blocks and between them."""
    x = (clusters(4500, 12, width=0.5) + 1e3).astype(np.float32)
    np.testing.assert_allclose(lengths(x), scipy_lengths(x), rtol=1e-9)


def test_many_rows_with_labels():
    x = gaussian(4200, 6).astype(np.float32)
    labels = np.random.default_rng(1).integers(0, 10, size=4200)
    expected = [scipy_lengths(x[labels == label]) for label in range(10)]
    np.testing.assert_allclose(lengths(x, labels), np.sort(np.concatenate(expected)), rtol=1e-9)


def test_float32_finds_few_candidates_and_gives_up_where_it_is_blind():
    few = _candidates(_centred(torch.from_numpy(clusters(600, 30, width=0.5))), None)
    assert few is not None
    assert len(few.left) < 2 * 600
    blind = _centred(torch.from_numpy(clusters(600, 30, width=1e-6)))
    assert _candidates(blind, None) is None


def test_float32_is_not_used_where_torch_may_round_it_more(monkeypatch):
    def forbidden(*_):
        raise AssertionError("float32 products are rounded to fewer bits")

    monkeypatch.setattr(_spanning_tree, "_candidates", forbidden)
    monkeypatch.setattr(_spanning_tree, "_MANY_ROWS", 2)
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("medium")
    try:
        np.testing.assert_allclose(lengths(CLOUDS["plain"]), scipy_lengths(CLOUDS["plain"]))
    finally:
        torch.set_float32_matmul_precision(before)


def test_another_device_takes_boruvka():
    left, right = spanning_forest(torch.empty(5, 3, device="meta"))
    assert left.device.type == right.device.type == "meta"

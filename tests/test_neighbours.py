"""Nearest neighbours against brute force in float64 by scipy."""

import numpy as np
import psutil
import pytest
import torch
from hypothesis import given, strategies as st
from scipy.spatial.distance import cdist

from isotropy import neighbours as module
from isotropy._factor import Factor
from isotropy.errors import InputError, IsotropyWarning, SettingError, UndefinedError
from isotropy.neighbours import (
    DistanceBounds,
    centre_and_scale,
    distance_bounds,
    nearest_neighbours,
    without_duplicates,
)


def draw(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def pick(high, *shape, seed=0):
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(seed))


def assert_right(cloud, k):
    """Distances equal brute force, and each index is a row at that distance, none twice."""
    found = nearest_neighbours(cloud, k)
    rows = cloud.double().numpy()
    everything = cdist(rows, rows)
    np.fill_diagonal(everything, np.inf)
    indices = found.indices.numpy()
    distances = found.distances.numpy()
    assert found.distances.dtype == torch.float64
    np.testing.assert_allclose(distances, np.sort(everything, axis=1)[:, :k], rtol=1e-12)
    np.testing.assert_allclose(distances, np.take_along_axis(everything, indices, 1), rtol=1e-12)
    assert all(len(set(row)) == k for row in indices.tolist())
    return found


def clusters(n, d, spread):
    return draw(10, d)[pick(10, n)] + spread * draw(n, d, seed=1)


CLOUDS = {
    "gaussian": draw(1001, 64),
    "plane": draw(1001, 2),
    "more features than rows": draw(40, 3000),
    "far from the origin": draw(500, 16) + 1e4,
    "far from the origin, float64": draw(500, 16).double() + 1e8,
    "tiny": draw(500, 16) * 1e-18,
    "huge": draw(500, 16) * 1e18,
    "subnormal": draw(100, 8) * 1e-42,
    "integers with ties": pick(3, 800, 6).float(),
    "bits with ties": pick(2, 800, 96).float(),
    "tight clusters": clusters(800, 16, 1e-4),
    "clusters within rounding": clusters(800, 16, 1e-7),
    "very tight clusters, float64": clusters(800, 16, 0).double() + 1e-9 * draw(800, 16).double(),
    "duplicates": draw(200, 16)[pick(200, 800)],
    "mostly one point": torch.cat((torch.zeros(600, 16), draw(200, 16))),
    "one far outlier": torch.cat((draw(800, 16), torch.full((1, 16), 1e6))),
    "heavy tails": draw(800, 16) / draw(800, 1, seed=1).square(),
    "one dominant feature": draw(800, 32) * torch.tensor([1e4] + [1.0] * 31),
    "half precision values": draw(800, 32).half().float(),
    "all equal": torch.ones(60, 3),
}


@pytest.mark.parametrize("k", [1, 2, 20])
@pytest.mark.parametrize("name", CLOUDS)
def test_equals_brute_force(name, k):
    assert_right(CLOUDS[name], k)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 31, 32, 33, 64])
def test_few_rows_and_every_possible_k(n):
    for k in {1, 2, n // 2, n - 1} - {0}:
        if k < n:
            assert_right(draw(n, 3), k)


@pytest.mark.parametrize("side", [32, 96, 320])
def test_size_of_tiles_changes_nothing(monkeypatch, side):
    cloud = draw(333, 20)
    whole = nearest_neighbours(cloud, 5)
    monkeypatch.setattr(module, "_SIDE", side)
    monkeypatch.setattr(module, "_BLOCK_VALUES", 1 << 12)
    found = assert_right(cloud, 5)
    assert torch.equal(found.indices, whole.indices)
    for k in (1, 40, 331, 332):  # 333 rows leave 13 for the last tile of 320
        assert_right(cloud, k)


@pytest.mark.parametrize("k", [1, 2, 20])
@pytest.mark.parametrize("name", CLOUDS)
def test_in_many_tiles_equals_brute_force(monkeypatch, name, k):
    monkeypatch.setattr(module, "_SIDE", 64)
    assert_right(CLOUDS[name], k)


@pytest.mark.parametrize("nearest_first", [False, True])
def test_rows_whose_neighbours_come_tile_by_tile(monkeypatch, nearest_first):
    """Every tile brings all its rows nearer to one far block of rows, or none of them."""
    monkeypatch.setattr(module, "_SIDE", 64)
    near = draw(512, 4) * torch.logspace(0, -3, 512)[:, None]
    cloud = torch.cat((near.flip(0) if nearest_first else near, draw(64, 4, seed=1)))
    for k in (1, 10):
        assert_right(cloud, k)


@given(st.integers(2, 60), st.integers(1, 5), st.integers(0, 3), st.integers(0, 1000))
def test_random_clouds_on_a_grid(n, d, high, seed):
    cloud = pick(high + 1, n, d, seed=seed).double()
    assert_right(cloud, min(3, n - 1))


@pytest.mark.parametrize("exponent", [-250, 250])
def test_scales_whose_squares_leave_float64(exponent):
    cloud = draw(100, 8).double()
    found = nearest_neighbours(cloud, 3)
    scaled = nearest_neighbours(cloud * 10.0**exponent, 3)
    assert torch.equal(found.indices, scaled.indices)
    np.testing.assert_allclose(scaled.distances / 10.0**exponent, found.distances, rtol=1e-12)


def test_equally_distant_candidates_come_in_order():
    square = torch.tensor([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])
    assert nearest_neighbours(square, 2).indices.tolist() == [[1, 2], [0, 3], [0, 3], [1, 2]]


def test_equal_rows_are_each_others_neighbours_and_no_row_its_own():
    found = nearest_neighbours(torch.ones(50, 2), 3)
    assert found.distances.max() == 0
    assert not (found.indices == torch.arange(50)[:, None]).any()


def test_takes_no_gradient_and_leaves_the_cloud_alone():
    cloud = draw(50, 4).requires_grad_()
    before = cloud.detach().clone()
    found = nearest_neighbours(cloud, 2)
    assert not found.distances.requires_grad
    assert torch.equal(cloud.detach(), before)


def test_is_exact_under_autocast():
    cloud = draw(800, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_right(cloud, 5)


def test_sees_products_in_fewer_bits(monkeypatch):
    times = Factor.times

    def in_bfloat16(self, left):
        if left.dtype == torch.float64:
            return times(self, left)
        matrix = self._matrix.to_dense() if self._matrix.is_mkldnn else self._matrix
        return (left.bfloat16() @ matrix.T.bfloat16()).float()

    cloud = clusters(800, 64, 1.0)
    assert distance_bounds(cloud, centre_and_scale(cloud)).dtype == torch.float32
    monkeypatch.setattr(Factor, "times", in_bfloat16)
    assert distance_bounds(cloud, centre_and_scale(cloud)).dtype == torch.float64
    assert_right(cloud, 5)


def test_bounds_are_bounds():
    for name in ("gaussian", "one far outlier", "heavy tails", "tight clusters", "tiny"):
        cloud = CLOUDS[name]
        n = len(cloud)
        squares = cdist(cloud.double(), cloud.double(), "sqeuclidean")
        others = ~torch.eye(n, dtype=torch.bool).numpy()
        for dtype in (torch.float32, torch.float64):
            bounds = DistanceBounds(cloud, dtype, centre_and_scale(cloud))
            keys = bounds.keys(slice(n), bounds.factor(slice(n))).double()
            lower = (keys - bounds.slack) * 2 * bounds.scale**2
            assert (lower.numpy() <= squares)[others].all(), name


def test_first_keeps_the_nearest():
    found = nearest_neighbours(draw(50, 4), 5)
    assert torch.equal(found.first(2).indices, nearest_neighbours(draw(50, 4), 2).indices)
    assert found.first(5) is found
    with pytest.raises(SettingError, match="got k=6, expected 1 to 5"):
        found.first(6)


def test_distinct_is_a_search_among_rows_that_differ():
    points = draw(100, 4)
    points[0] = 0
    cloud = torch.cat((points, points[:30], -points[:1]))  # 0 and −0 are one point
    found = nearest_neighbours(cloud, 5).distinct
    assert torch.equal(found.cloud, points)
    assert torch.equal(found.indices, nearest_neighbours(points, 5).indices)


def test_distinct_without_duplicates_is_the_same():
    found = nearest_neighbours(draw(50, 4), 5)
    assert found.distinct is found


def test_distinct_of_few_different_rows_has_fewer_neighbours():
    cloud = draw(3, 4).repeat(10, 1)
    assert nearest_neighbours(cloud, 5).distinct.k == 2
    with pytest.raises(UndefinedError, match="30 rows of which only 3 differ, expected at least 6"):
        without_duplicates(nearest_neighbours(cloud, 5), 5, "hubness")
    with pytest.raises(UndefinedError, match="60 equal rows"):
        _ = nearest_neighbours(CLOUDS["all equal"], 1).distinct


def test_without_duplicates_counts_them():
    points = draw(50, 4)
    cloud = torch.cat((points, points[:7]))
    with pytest.warns(IsotropyWarning, match="hubness left out 7 of 57 rows"):
        found = without_duplicates(nearest_neighbours(cloud, 5), 2, "hubness")
    assert found.distances.shape == (50, 2)


def test_bad_k():
    with pytest.raises(SettingError, match="got k=0"):
        nearest_neighbours(draw(5, 2), 0)
    with pytest.raises(InputError, match="5 rows, expected at least 6"):
        nearest_neighbours(draw(5, 2), 5)


def test_memory_is_that_of_a_block():
    cloud = draw(20_000, 8)  # all pairs would take 1.6 GB in float32
    process = psutil.Process()
    nearest_neighbours(cloud[:200], 2)
    before = process.memory_info().rss
    peaks = []
    keys = DistanceBounds.keys

    def watched(self, rows, columns):
        peaks.append(process.memory_info().rss)
        return keys(self, rows, columns)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DistanceBounds, "keys", watched)
        nearest_neighbours(cloud, 2)
    assert max(peaks) - before < 100e6


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("tf32", [False, True])
def test_on_an_accelerator(tf32):
    torch.backends.cuda.matmul.allow_tf32 = tf32
    try:
        for name, cloud in CLOUDS.items():
            there, here = nearest_neighbours(cloud.cuda(), 3), nearest_neighbours(cloud, 3)
            np.testing.assert_allclose(
                there.distances.cpu(), here.distances, rtol=1e-12, err_msg=name
            )
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False

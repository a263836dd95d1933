"""Persistent-homology dimension on clouds of known dimension, and against scipy's trees."""

import warnings

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform

from isotropy.errors import InputError, IsotropyWarning, SettingError, UndefinedError
from isotropy.measurement import measure
from isotropy.measures import SPECS, ph_dimension


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def cube(n, dimension, features=50, seed=0):
    """A uniform cube of that dimension in a random subspace."""
    random = np.random.default_rng(seed)
    frame, _ = np.linalg.qr(random.standard_normal((features, dimension)))
    return random.random((n, dimension)) @ frame.T


def circle(n):
    angle = 2 * np.pi * np.random.default_rng(0).random(n)
    return np.stack((np.cos(angle), np.sin(angle)), axis=1)


# Near its boundary a cube looks like one of fewer dimensions, and its estimate is too low by as
# much as that boundary's share: little for a square, 10 % for a cube of dimension 5.
@pytest.mark.parametrize(
    ("x", "low", "high"),
    [
        pytest.param(circle(2000), 0.98, 1.04, id="circle"),
        pytest.param(cube(2000, 1), 0.98, 1.04, id="line"),
        pytest.param(cube(2000, 2, features=2), 1.9, 2.05, id="square"),
        pytest.param(cube(2000, 2), 1.9, 2.05, id="plane"),
        pytest.param(cube(2000, 5), 4.3, 5.1, id="cube of dimension 5"),
        pytest.param(gaussian(2000, 5) @ gaussian(5, 50, seed=1), 4.8, 5.6, id="Gaussian"),
        pytest.param(cube(5000, 2), 1.95, 2.03, id="more rows than the largest subsample"),
        pytest.param(cube(64, 2), 1.6, 2.3, id="fewest rows"),
    ],
)
def test_finds_a_known_dimension(x, low, high):
    found = ph_dimension(x)
    assert low < found.dimension < high
    assert 0 < found.error < 0.1 * found.dimension


def test_follows_from_the_growth_of_scipys_trees():
    """With subsamples of its own, whose scatter both errors measure."""
    x = cube(1024, 3)
    random = np.random.default_rng(5)
    sizes = 2 ** np.arange(7, 11)
    totals = []
    for size in sizes:
        parts = random.permutation(x).reshape(-1, size, x.shape[1])
        trees = [minimum_spanning_tree(squareform(pdist(part))) for part in parts]
        totals.append(np.mean([tree.sum() for tree in trees]))
    line = stats.linregress(np.log(sizes), np.log(totals))
    found = ph_dimension(x)
    both = np.hypot(found.error, line.stderr / (1 - line.slope) ** 2)
    assert abs(found.dimension - 1 / (1 - line.slope)) < 3 * both


def test_error_is_the_scatter_over_seeds():
    found = [ph_dimension(cube(400, 3, features=3, seed=seed), seed=seed) for seed in range(30)]
    scatter = np.std([dimension for dimension, _ in found], ddof=1)
    typical = np.sqrt(np.mean([error**2 for _, error in found]))
    assert 0.5 < typical / scatter < 2


def test_equal_rows_are_left_out_and_counted():
    x = cube(500, 2)
    doubled = np.concatenate((x, x[:200], -0.0 * x[:1] + x[:1]))
    with pytest.warns(IsotropyWarning, match="ph_dimension left out 201 of 701 rows, as each eq"):
        assert ph_dimension(doubled) == ph_dimension(x)


def test_seed():
    x = cube(200, 2)
    assert ph_dimension(x) == ph_dimension(x, seed=0)
    assert ph_dimension(x) != ph_dimension(x, seed=1)
    assert measure(x, ["ph_dimension"], seed=1)["ph_dimension"].value == pytest.approx(
        ph_dimension(x, seed=1).dimension
    )


def test_types():
    x = cube(200, 2)
    assert isinstance(ph_dimension(x).dimension, float)
    for dtype in (torch.float16, torch.float32, torch.float64):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", IsotropyWarning)
            found = ph_dimension(torch.from_numpy(x).to(dtype).requires_grad_())
        assert found.dimension.shape == found.error.shape == ()
        assert not found.dimension.requires_grad
        assert found.dimension.item() == pytest.approx(ph_dimension(x).dimension, rel=0.05)


def test_intervals_are_for_the_dimension():
    report = measure(cube(800, 2), ["ph_dimension"], interval=0.95)
    low, high = report["ph_dimension"].interval
    assert 1.8 < low < report["ph_dimension"].value < high < 2.2
    assert report["ph_dimension_error"].interval is None


def test_costs_too_much_to_be_a_default():
    assert not SPECS["ph_dimension"].default


def test_undefined_where_length_grows_as_fast_as_rows():
    with pytest.raises(UndefinedError, match=r"to the power of 1.*expected a power below 1"):
        ph_dimension(np.eye(100))
    far_row = np.full((1, 50), 1e9)
    with pytest.raises(UndefinedError, match=r"expected a power below 1.*far away from all others"):
        ph_dimension(np.concatenate((cube(2000, 2), far_row)))


def test_a_row_far_away_shows_in_the_error():
    far_row = np.full((1, 50), 1e9)
    found = ph_dimension(np.concatenate((cube(400, 2), far_row)), seed=1)
    assert found.error > 0.9 * found.dimension


def test_undefined_for_few_rows_that_differ():
    with pytest.raises(UndefinedError, match="126 rows of which only 63 differ, expected at least"):
        ph_dimension(np.repeat(gaussian(63, 3), 2, axis=0))
    with pytest.raises(UndefinedError, match="100 equal rows"):
        ph_dimension(np.ones((100, 3)))
    with pytest.raises(InputError, match="x with 63 rows, expected at least 64"):
        ph_dimension(gaussian(63, 3))


def test_a_negative_seed():
    with pytest.raises(SettingError, match="got seed=-1, expected a whole number from 0"):
        ph_dimension(gaussian(64, 3), seed=-1)

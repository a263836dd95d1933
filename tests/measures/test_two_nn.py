"""TwoNN against distances by scipy, a fit by scikit-learn and a likelihood maximised by scipy."""

import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy.optimize import minimize_scalar
from scipy.spatial.distance import cdist
from sklearn.linear_model import LinearRegression

from isotropy.errors import InputError, IsotropyWarning, SettingError, UndefinedError
from isotropy.measures._two_nn import SPEC, two_nn
from isotropy.neighbours import nearest_neighbours


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def log_ratios(x):
    distances = np.sort(cdist(x, x), axis=1)
    return np.sort(np.log(distances[:, 2] / distances[:, 1]))


def embedded_cube(dimension, n=3000):
    rng = np.random.default_rng(dimension)
    frame, _ = np.linalg.qr(rng.standard_normal((20, dimension)))
    return rng.random((n, dimension)) @ frame.T


@pytest.mark.parametrize("shape", [(500, 3), (333, 40), (11, 5), (3, 2), (5, 2)])
def test_is_the_published_fit(shape):
    x = gaussian(*shape)
    ratios = log_ratios(x)
    n = len(ratios)
    kept = int(0.9 * n)
    share = np.arange(1, n + 1) / n
    line = LinearRegression(fit_intercept=False)
    line.fit(ratios[:kept, None], -np.log(1 - share[:kept]))
    assert two_nn(x) == pytest.approx(line.coef_[0], rel=1e-10)


def test_mle_maximises_the_likelihood_of_the_kept_and_the_censored():
    x = gaussian(400, 6)
    ratios = log_ratios(x)
    kept = 360

    def loss(d):
        seen = np.log(d) * kept - d * ratios[:kept].sum()
        return -(seen - 40 * d * ratios[kept - 1])

    best = minimize_scalar(loss, bounds=(0.1, 50), method="bounded", options={"xatol": 1e-9}).x
    assert two_nn(x, method="mle") == pytest.approx(best * (kept - 1) / kept, rel=1e-6)


@pytest.mark.parametrize("method", ["linear", "mle"])
@pytest.mark.parametrize("dimension", [1, 2, 5])
def test_finds_a_known_dimension(dimension, method):
    assert two_nn(embedded_cube(dimension), method=method) == pytest.approx(dimension, rel=0.08)


def test_within_one_percent_of_scikit_dimension():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-dimension's own, on import
        skdim = pytest.importorskip("skdim", reason="needs scikit-dimension, a peer")
        x = gaussian(2000, 64).astype(np.float32)
        assert two_nn(x) == pytest.approx(skdim.id.TwoNN().fit(x).dimension_, rel=0.01)


def test_duplicates_are_left_out_and_counted():
    x = gaussian(300, 4)
    with pytest.warns(IsotropyWarning, match="two_nn left out 200 of 500 rows"):
        assert two_nn(np.concatenate((x, x[:100], x[:100]))) == pytest.approx(two_nn(x), rel=1e-12)


def test_no_dimension_without_three_rows_that_differ():
    with pytest.raises(UndefinedError, match="equal rows"):
        two_nn(np.ones((10, 3)))
    with pytest.raises(UndefinedError, match="10 rows of which only 2 differ"):
        two_nn(np.repeat(gaussian(2, 3), 5, axis=0))
    with pytest.raises(InputError, match="at least 3 rows"):
        two_nn(gaussian(2, 3))


def test_undefined_on_a_grid():
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
    for method in ("linear", "mle"):
        with pytest.raises(UndefinedError, match="equally far"):
            two_nn(grid, method=method)


def test_float64_rows_whose_distance_underflows():
    x = gaussian(50, 2)
    x[1] = x[0] = 0
    x[1, 0] = 1e-300
    assert np.isfinite(two_nn(x))


def test_unknown_method():
    with pytest.raises(SettingError, match="got method='lineal', expected 'linear' or 'mle'"):
        two_nn(gaussian(10, 3), method="lineal")


def test_types():
    x = gaussian(200, 8)
    assert isinstance(two_nn(x), float)
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        value = two_nn(torch.from_numpy(x).to(dtype))
        assert value.ndim == 0
        assert value.item() == pytest.approx(two_nn(x), rel=0.1)
    assert two_nn(torch.from_numpy(x)).dtype == torch.float64
    assert two_nn(torch.from_numpy(x).half()).dtype == torch.float32


@settings(max_examples=25)
@given(st.integers(3, 60), st.integers(2, 8), st.integers(0, 1000), st.sampled_from([1e-18, 1e18]))
def test_rotation_scale_and_translation_change_nothing(n, d, seed, scale):
    x = gaussian(n, d, seed=seed)
    frame, _ = np.linalg.qr(gaussian(d, d, seed=seed + 1))
    for method in ("linear", "mle"):
        value = two_nn(x, method=method)
        assert value > 0
        assert two_nn(x @ frame, method=method) == pytest.approx(value, rel=1e-6)
        assert two_nn(x * scale, method=method) == pytest.approx(value, rel=1e-6)
        assert two_nn(x + 1e4, method=method) == pytest.approx(value, rel=1e-4)
        assert two_nn(x[::-1], method=method) == pytest.approx(value, rel=1e-6)


def test_spec_reads_the_nearest_of_more_neighbours():
    x = torch.from_numpy(gaussian(100, 4))
    found = nearest_neighbours(x, 20)
    assert SPEC.neighbours == 2
    assert SPEC.from_neighbours(found, **SPEC.options) == pytest.approx((two_nn(x).item(),))
    mle = SPEC.with_options(method="mle")
    assert mle.from_neighbours(found, **mle.options) == pytest.approx(
        (two_nn(x, method="mle").item(),)
    )

"""Explained variance against scikit-learn's PCA and numpy's singular values."""

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from isotropy.errors import SettingError
from isotropy.measurement import measure
from isotropy.measures._explained_variance import explained_variance


def cloud(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + 10 * rng.standard_normal(d)


def as_printed(x, k):
    squares = np.linalg.svd(x, compute_uv=False) ** 2
    return (np.cumsum(squares) / squares.sum())[:k]


@pytest.mark.parametrize("shape", [(500, 20), (20, 20), (10, 20)])
def test_is_that_of_a_pca(shape):
    x = cloud(*shape)
    expected = PCA(svd_solver="full").fit(x).explained_variance_ratio_.cumsum()[:9]
    assert explained_variance(x, k=9) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("shape", [(500, 20), (20, 20), (10, 20)])
def test_without_centring_is_the_printed_formula(shape):
    x = cloud(*shape)
    assert explained_variance(x, k=9, center=False) == pytest.approx(as_printed(x, 9), rel=1e-9)


def test_beyond_the_last_component_all_is_explained():
    for x in (cloud(3, 8), cloud(8, 3), cloud(3, 8).astype(np.float32)):
        shares = explained_variance(x, k=12)
        assert shares.shape == (12,)
        assert shares[3:] == pytest.approx(np.ones(9), abs=1e-6)
        assert (np.diff(shares) >= 0).all()
        assert shares.max() <= 1


def test_k_plus_one_rows_are_explained_by_k_components():
    assert explained_variance(cloud(4, 50))[2] == pytest.approx(1, rel=1e-12)


@pytest.mark.parametrize("center", [False, True])
def test_in_a_stream_with_options(center):
    x = cloud(100, 6)
    report = measure(
        x, ["explained_variance"], options={"explained_variance": {"k": 4, "center": center}}
    )
    assert list(report) == [f"explained_variance_{i}" for i in range(1, 5)]
    expected = as_printed(x - x.mean(axis=0) * center, 4)
    assert [score.value for score in report.values()] == pytest.approx(expected, rel=1e-9)


def test_gradient_of_the_first_component():
    x = torch.from_numpy(cloud(30, 5)).requires_grad_()
    values = torch.linalg.eigvalsh(torch.cov(x.T))
    (expected,) = torch.autograd.grad(values[-2:].sum() / values.sum(), x)
    (grad,) = torch.autograd.grad(explained_variance(x)[1], x)
    torch.testing.assert_close(grad, expected, rtol=1e-7, atol=1e-12)


def test_errors_and_types():
    for k in (0, -2):
        with pytest.raises(SettingError, match=f"got k={k}, expected a whole number from 1"):
            explained_variance(cloud(5, 3), k=k)
    assert isinstance(explained_variance(cloud(5, 3)), np.ndarray)
    assert explained_variance(torch.from_numpy(cloud(9, 3)).bfloat16()).dtype == torch.float32

import numpy as np
import pytest
import torch
from sklearn.decomposition import PCA

from isotropy.errors import SettingError
from isotropy.measures import iso_score_unbiased
from isotropy.transforms import Whitening


@pytest.fixture
def cloud() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(500, 20)) @ rng.normal(size=(20, 20)) + 5


@pytest.mark.parametrize("k", [1, 7, 20])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_it_equals_sklearns_pca_up_to_signs(cloud: np.ndarray, k: int, dtype: type) -> None:
    found = Whitening(k=k).fit_transform(cloud.astype(dtype))
    expected = PCA(k, whiten=True).fit_transform(cloud)
    signs = np.sign((found * expected).sum(axis=0))
    np.testing.assert_allclose(found * signs, expected, atol=1e-4)


def test_an_eigenvectors_largest_entry_is_positive(cloud: np.ndarray) -> None:
    components = Whitening().fit(cloud).components_
    largest = np.abs(components).argmax(axis=1)
    assert (components[np.arange(20), largest] > 0).all()


@pytest.mark.parametrize("method", ["pca", "zca"])
def test_a_white_cloud_is_isotropic(method: str) -> None:
    rng = np.random.default_rng(1)
    x = rng.normal(size=(20_000, 16)) * np.linspace(1, 30, 16) + 100
    other = rng.normal(size=(20_000, 16)) * np.linspace(1, 30, 16) + 100
    whitening = Whitening(method=method).fit(x)
    np.testing.assert_allclose(np.cov(whitening.transform(x).T), np.eye(16), atol=1e-9)
    assert iso_score_unbiased(whitening.transform(x)) == pytest.approx(1, abs=0.01)
    assert iso_score_unbiased(whitening.transform(other)) == pytest.approx(1, abs=0.01)


def test_zca_is_the_inverse_root_of_the_covariance(cloud: np.ndarray) -> None:
    values, vectors = np.linalg.eigh(np.cov(cloud.T))
    root = vectors @ np.diag(values**-0.5) @ vectors.T
    expected = (cloud - cloud.mean(axis=0)) @ root
    np.testing.assert_allclose(Whitening(method="zca").fit_transform(cloud), expected, atol=1e-8)


def test_zca_of_k_directions_keeps_the_features_and_has_rank_k(cloud: np.ndarray) -> None:
    y = Whitening(k=3, method="zca").fit_transform(cloud)
    assert y.shape == cloud.shape
    np.testing.assert_allclose(np.linalg.eigvalsh(np.cov(y.T))[-4:], [0, 1, 1, 1], atol=1e-9)


def test_shrinkage_mixes_in_a_round_covariance(cloud: np.ndarray) -> None:
    c = np.cov(cloud.T)
    mixed = 0.7 * c + 0.3 * np.trace(c) / 20 * np.eye(20)
    y = Whitening(shrinkage=0.3).fit(cloud)
    np.testing.assert_allclose(y.variances_, np.linalg.eigvalsh(mixed)[::-1], rtol=1e-9)
    full = Whitening(shrinkage=1.0, method="zca").fit_transform(cloud)
    ratio = full / (cloud - cloud.mean(axis=0))
    np.testing.assert_allclose(ratio, ratio.mean(), rtol=1e-6)  # only centred and scaled


def test_directions_without_variance_are_mapped_to_zero() -> None:
    rng = np.random.default_rng(2)
    flat = rng.normal(size=(100, 3)) @ rng.normal(size=(3, 8))
    whitening = Whitening().fit(flat)
    assert (whitening.variances_ > 0).sum() == 3
    strange = whitening.transform(rng.normal(size=(50, 8)) * 10)
    assert (strange[:, 3:] == 0).all()
    few = Whitening().fit(rng.normal(size=(5, 8)))  # four directions at the most
    assert (few.variances_ > 0).sum() == 4


def test_the_floor_is_a_share_of_the_largest_variance() -> None:
    x = np.random.default_rng(3).normal(size=(1000, 3)) * [1, 0.1, 0.01]
    kept = [(Whitening(floor=floor).fit(x).variances_ > 0).sum() for floor in (0, 1e-3, 0.1)]
    assert kept == [3, 2, 1]


def test_it_can_be_undone_up_to_what_it_drops(cloud: np.ndarray) -> None:
    whitening, pca = Whitening(k=5).fit(cloud), PCA(5).fit(cloud)
    back = whitening.inverse_transform(whitening.transform(cloud))
    np.testing.assert_allclose(back, pca.inverse_transform(pca.transform(cloud)))


def test_zipfian_weights_give_the_weighted_covariance(cloud: np.ndarray) -> None:
    frequency = 1 / np.arange(1, 501)
    y = Whitening(method="zca").fit(cloud, weights=frequency).transform(cloud)
    np.testing.assert_allclose(np.average(y, axis=0, weights=frequency), 0, atol=1e-9)
    np.testing.assert_allclose(np.cov(y.T, aweights=frequency), np.eye(20), atol=1e-9)


def test_float32_keeps_the_digits_far_from_the_origin() -> None:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(300, 6, generator=generator) + 1e4  # rounded to steps of 0.001
    y = Whitening().fit(x).transform(x)
    exact = Whitening().fit(x.double()).transform(x.double())
    assert torch.allclose(y.double(), exact, atol=1e-5)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"k": 0}, "got k=0, expected a whole number from 1 up"),
        ({"k": 21}, "got k=21 for 20 features, expected 20 at most"),
        ({"k": 2.5}, "got k=2.5, expected a whole number"),
        ({"method": "svd"}, "got method='svd', expected 'pca' or 'zca'"),
        ({"shrinkage": 1.5}, "got shrinkage=1.5, expected a number from 0 to 1"),
        ({"shrinkage": float("nan")}, "got shrinkage=nan, expected a number from 0 to 1"),
        ({"floor": 1}, "got floor=1, expected a number from 0 to below 1"),
    ],
)
def test_bad_settings(cloud: np.ndarray, settings: dict, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        Whitening(**settings).fit(cloud)

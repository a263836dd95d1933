import numpy as np
from sklearn.preprocessing import StandardScaler

from isotropy.transforms import Standardize


def test_it_equals_sklearns_scaler_but_for_the_sample_deviation(rng: np.random.Generator) -> None:
    x = rng.normal(size=(50, 6)) * np.arange(1, 7) + 3
    expected = StandardScaler().fit_transform(x) * np.sqrt(49 / 50)
    np.testing.assert_allclose(Standardize().fit_transform(x), expected, atol=1e-12)


def test_weighted_scores(rng: np.random.Generator) -> None:
    x, weights = rng.normal(size=(50, 4)) + 7, rng.uniform(size=50)
    y = Standardize().fit(x, weights=weights).transform(x)
    np.testing.assert_allclose(np.average(y, axis=0, weights=weights), 0, atol=1e-12)
    np.testing.assert_allclose(np.diag(np.cov(y.T, aweights=weights)), 1)


def test_a_constant_feature_becomes_zero_and_comes_back(rng: np.random.Generator) -> None:
    x = rng.normal(size=(50, 3))
    x[:, 1] = 0.1  # no binary number
    fitted = Standardize().fit(x, chunk_rows=7)
    y = fitted.transform(x)
    assert (y[:, 1] == 0).all()
    np.testing.assert_allclose(fitted.inverse_transform(y), x, atol=1e-12)


def test_features_keep_their_names(rng: np.random.Generator) -> None:
    fitted = Standardize().fit(rng.normal(size=(9, 2)))
    assert fitted.get_feature_names_out(["a", "b"]).tolist() == ["a", "b"]

"""Decorrelation against numpy's correlation matrix."""

import numpy as np
import pytest
import torch

from isotropy import Representations
from isotropy.penalties import Decorrelation


def stretched(n, d, seed=0):
    random = np.random.default_rng(seed)
    return random.standard_normal((n, d)) @ random.standard_normal((d, d)) + 3


def value(x, **settings):
    return float(Decorrelation(**settings)(Representations.from_cloud(torch.from_numpy(x))))


@pytest.mark.parametrize("shape", [(3, 2), (50, 7), (5, 20)])
def test_is_the_squared_correlations_off_the_diagonal(shape):
    x = stretched(*shape)
    correlation = np.corrcoef(x.T)
    np.fill_diagonal(correlation, 0)
    assert value(x) == pytest.approx((correlation**2).sum() / shape[1], rel=1e-9)
    assert value(x * np.geomspace(1e-3, 1e3, shape[1])) == pytest.approx(value(x), rel=1e-9)


def test_a_feature_that_does_not_vary_has_no_correlation():
    x = stretched(30, 4)
    with_constant = np.concatenate((x, np.full((30, 1), 7.0)), axis=1)
    assert value(with_constant) == pytest.approx(value(x) * 4 / 5, rel=1e-9)


def test_the_union_of_layers():
    layers = [torch.from_numpy(stretched(12, 5, seed=k)).reshape(3, 4, 5) for k in range(3)]
    shown = Representations.from_output({"hidden_states": tuple(layers)})
    together = torch.cat([layer.flatten(0, 1) for layer in layers[1:]]).numpy()
    assert float(Decorrelation(site="tokens@all")(shown)) == pytest.approx(value(together))

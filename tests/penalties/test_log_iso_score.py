"""The logarithm of the inverse IsoScore against the published nine steps."""

from math import log

import numpy as np
import pytest
import torch

from isotropy import Representations
from isotropy.penalties import LogIsoScore


def stretched(n, d, seed=0):
    random = np.random.default_rng(seed)
    return random.standard_normal((n, d)) @ random.standard_normal((d, d)) + 2


def published(x):
    """IsoScore's nine steps, Rudman et al. 2022, section 4."""
    d = x.shape[1]
    centred = x - x.mean(axis=0)
    reoriented = centred @ np.linalg.svd(centred)[2].T
    variances = np.cov(reoriented.T).diagonal()
    normalised = np.sqrt(d) * variances / np.linalg.norm(variances)
    defect = np.linalg.norm(normalised - 1) / np.sqrt(2 * (d - np.sqrt(d)))
    fraction = (d - defect**2 * (d - np.sqrt(d))) ** 2 / d**2
    return (d * fraction - 1) / (d - 1)


def value(x, **settings):
    penalty = LogIsoScore(**settings)
    return float(penalty(Representations.from_cloud(torch.from_numpy(x))))


@pytest.mark.parametrize("shape", [(40, 6), (5, 20), (64, 100)])
def test_is_the_log_of_one_over_the_score(shape):
    x = stretched(*shape)
    assert value(x) == pytest.approx(log(1 / published(x)), rel=1e-9)
    assert value(x, weight=-2) == pytest.approx(-2 * log(1 / published(x)), rel=1e-9)


def test_the_score_is_clamped_from_below():
    line = torch.arange(5.0)[:, None] * torch.tensor([1.0, 2.0, 3.0])
    for floor in (1e-6, 0.01, 0.5):
        x = line.clone().requires_grad_()
        found = LogIsoScore(floor=floor)(Representations.from_cloud(x))
        assert float(found.detach()) == pytest.approx(-log(floor), rel=1e-5)
        (gradient,) = torch.autograd.grad(found, x)
        assert not gradient.any()


def test_the_union_of_layers():
    layers = [torch.from_numpy(stretched(12, 5, seed=k)).reshape(3, 4, 5) for k in range(3)]
    mask = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]])
    shown = Representations.from_output({"hidden_states": tuple(layers)}, mask)
    together = torch.cat([layer[mask.bool()] for layer in layers[1:]]).numpy()
    found = LogIsoScore(site="tokens@all")(shown)
    assert float(found) == pytest.approx(log(1 / published(together)), rel=1e-9)

"""VICReg's variance and covariance terms against the published pseudo-code."""

import pytest
import torch

from isotropy import Representations
from isotropy.penalties import Vicreg


def gaussian(n, d, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return x @ torch.randn(d, d, generator=generator, dtype=torch.float64) / d + 3


def published(z, mu=25.0, nu=1.0, gamma=1.0):
    """Algorithm 1 of Bardes et al. 2022, of one branch."""
    n, d = z.shape
    spread = torch.sqrt(z.var(dim=0) + 1e-4)
    variance = torch.mean(torch.relu(gamma - spread))
    z = z - z.mean(dim=0)
    covariance = (z.T @ z) / (n - 1)
    off_diagonal = covariance.flatten()[:-1].view(d - 1, d + 1)[:, 1:].flatten()
    return mu * variance + nu * off_diagonal.pow(2).sum() / d


@pytest.mark.parametrize("shape", [(2, 2), (40, 6), (5, 20)])
@pytest.mark.parametrize(
    ("settings", "published_settings"),
    [
        ({}, {}),
        ({"variance": 0}, {"mu": 0}),
        ({"covariance": 0.0, "floor": 2.0}, {"nu": 0, "gamma": 2.0}),
        ({"variance": 3, "covariance": 7}, {"mu": 3, "nu": 7}),
    ],
)
def test_is_the_published_one(shape, settings, published_settings):
    x = gaussian(*shape).requires_grad_()
    expected = published(x, **published_settings)
    found = Vicreg(**settings)(Representations.from_cloud(x))
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(*(torch.autograd.grad(v, x)[0] for v in (found, expected)))


def test_a_cloud_that_is_spread_enough_is_left_alone():
    x = 9 * torch.eye(4).repeat(2, 1) * torch.tensor([1.0] * 4 + [-1.0] * 4)[:, None]
    assert float(Vicreg()(Representations.from_cloud(x))) == 0

import numpy as np
import pytest
import torch
from scipy.stats import norm

from isotropy.errors import SettingError
from isotropy.layers import IsotropyLayer


def cloud(n: int = 9, d: int = 5) -> torch.Tensor:
    return torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def test_one_layer_is_an_affine_map() -> None:
    layer = IsotropyLayer(5, start="random").double()
    weight, bias = (p.detach().numpy() for p in (layer.first.weight, layer.first.bias))
    expected = cloud().numpy() @ weight.T + bias
    np.testing.assert_allclose(layer(cloud()).detach(), expected, rtol=1e-12)


def test_further_layers_add_to_what_comes_in() -> None:
    layer = IsotropyLayer(5, depth=3, start="random").double()
    h = cloud().numpy() @ layer.first.weight.detach().numpy().T + layer.first.bias.detach().numpy()
    for linear in layer.further:
        z = h @ linear.weight.detach().numpy().T + linear.bias.detach().numpy()
        h = h + z * norm.cdf(z)  # GELU is z·Φ(z)
    np.testing.assert_allclose(layer(cloud()).detach(), h, rtol=1e-12)


@pytest.mark.parametrize("depth", [1, 2, 4])
def test_it_starts_as_the_identity_and_learns_in_every_layer(depth: int) -> None:
    layer = IsotropyLayer(5, depth=depth).double()
    assert torch.equal(layer(cloud()), cloud())
    assert sum(p.numel() for p in layer.parameters()) == depth * (25 + 5)
    layer(cloud()).square().sum().backward()
    assert all(p.grad.any() for p in layer.parameters())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"d": 1}, r"got d=1, expected a whole number from 2 up"),
        ({"d": 5, "depth": 0}, r"got depth=0, expected a whole number from 1 up"),
        ({"d": 5, "start": "zero"}, r"got start='zero', expected 'identity' or 'random'"),
    ],
)
def test_bad_settings(settings: dict, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        IsotropyLayer(**settings)

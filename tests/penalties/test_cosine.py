"""The cosine penalty against all pairs of rows, one by one."""

import pytest
import torch
from torch import nn

from isotropy import Representations
from isotropy.penalties import Cosine


def gaussian(*shape, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def by_pairs(x):
    total = x.new_zeros(())
    for i in range(len(x)):
        for j in range(len(x)):
            if i != j:
                total = total + torch.cosine_similarity(x[i], x[j], dim=0)
    return total / len(x) ** 2


@pytest.mark.parametrize("shape", [(2, 2), (7, 3), (12, 40)])
def test_is_the_mean_over_all_pairs(shape):
    x = (gaussian(*shape) + 0.5).requires_grad_()
    expected = by_pairs(x)
    found = Cosine()(Representations.from_cloud(x))
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(
        *(torch.autograd.grad(value, x)[0] for value in (found, expected)), rtol=1e-9, atol=1e-14
    )


def test_the_union_of_layers():
    layers = tuple(gaussian(3, 4, 5, seed=k) for k in range(4))
    mask = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0], [0, 0, 0, 1]])
    shown = Representations.from_output({"hidden_states": layers}, mask)
    together = torch.cat([layer[mask.bool()] for layer in layers[1:]])
    torch.testing.assert_close(Cosine(site="tokens@all")(shown), by_pairs(together))
    torch.testing.assert_close(Cosine()(shown), by_pairs(layers[-1][mask.bool()]))


@pytest.mark.parametrize("site", ["vocabulary", "head"])
def test_a_matrix_of_weights(site):
    weight = nn.Parameter(gaussian(9, 4))
    value = Cosine(weight=2, site=site)(Representations(**{site: weight}))
    torch.testing.assert_close(value, 2 * by_pairs(weight))
    value.backward()
    assert weight.grad is not None


def test_rows_of_zeros_have_no_direction():
    x = gaussian(8, 3)
    padded = torch.cat((x, torch.zeros(2, 3, dtype=x.dtype))).requires_grad_()
    value = Cosine()(Representations.from_cloud(padded))
    torch.testing.assert_close(value, by_pairs(x))
    (gradient,) = torch.autograd.grad(value, padded)
    assert not gradient[8:].any()


@pytest.mark.parametrize("scale", [1e-30, 1e-10, 1e10, 1e30])
def test_lengths_do_not_matter(scale):
    x = gaussian(8, 3).float()
    sizes = torch.tensor([scale, 1] * 4)[:, None]
    expected = Cosine()(Representations.from_cloud(x))
    torch.testing.assert_close(Cosine()(Representations.from_cloud(x * sizes)), expected)


def test_a_vocabulary_keeps_its_digits():
    """In float32 the sum of 20 000 directions is as good as in float64."""
    x = gaussian(20_000, 16).float() + 0.1
    exact = Cosine()(Representations.from_cloud(x.double()))
    found = Cosine()(Representations.from_cloud(x))
    assert float(found) == pytest.approx(float(exact), rel=1e-5)

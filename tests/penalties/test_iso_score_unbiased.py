"""The unbiased IsoScore as a penalty against averages over all quadruples of rows."""

from itertools import permutations

import numpy as np
import pytest
import torch

from isotropy import Representations
from isotropy.penalties import IsoScoreUnbiased


def skewed(n, d, seed=0):
    return np.exp(np.random.default_rng(seed).standard_normal((n, d))) * np.arange(1, d + 1)


def from_quadruples(x):
    """E‖x_i − x_j‖² = 2·tr Σ and E((x_i − x_j)·(x_k − x_l))² = 4·tr(Σ²), of independent rows."""
    squares_of, of_squares = [], []
    for i, j, k, m in permutations(range(len(x)), 4):
        a, b = x[i] - x[j], x[k] - x[m]
        squares_of.append((a @ a) * (b @ b))
        of_squares.append((a @ b) ** 2)
    return (np.mean(squares_of) / np.mean(of_squares) - 1) / (x.shape[1] - 1)


@pytest.mark.parametrize("n", [4, 5, 8])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_is_one_less_the_score(n, dtype):
    x = skewed(n, 4).astype(dtype)
    found = IsoScoreUnbiased(weight=2)(Representations.from_cloud(torch.from_numpy(x)))
    expected = 2 * (1 - from_quadruples(x.astype(float)))
    assert float(found) == pytest.approx(expected, rel=1e-6 if dtype == np.float32 else 1e-9)


def test_fewer_than_four_rows_that_count_contribute_nothing():
    x = torch.from_numpy(skewed(8, 4))
    mask = torch.arange(8) < 3
    penalty = IsoScoreUnbiased()
    assert float(penalty(Representations.from_cloud(x, mask=mask))) == 0
    assert int(penalty.skipped) == 1


def test_the_union_of_layers():
    layers = [torch.from_numpy(skewed(4, 3, seed=k)).reshape(2, 2, 3) for k in range(3)]
    mask = torch.tensor([[1, 0], [1, 1]])
    shown = Representations.from_output({"hidden_states": tuple(layers)}, mask)
    together = torch.cat([layer[mask.bool()] for layer in layers[1:]]).numpy()
    assert float(IsoScoreUnbiased()(shown)) == pytest.approx(1 - from_quadruples(together))


def test_half_of_the_tokens_say_the_same_on_average():
    """Which no plug-in score does: of fewer rows than features IsoScore is far too low."""
    x = torch.from_numpy(np.random.default_rng(1).standard_normal((64, 40)))
    x *= torch.linspace(0.5, 2, 40)
    shown = Representations.from_cloud(x)
    everything = float(IsoScoreUnbiased()(shown))
    drawn = IsoScoreUnbiased(tokens=32, seed=1)
    values = np.array([float(drawn(shown)) for _ in range(300)])
    error = values.std() / np.sqrt(len(values))
    assert values.mean() == pytest.approx(everything, abs=4 * error + 0.01)
    assert len(set(values)) == 300

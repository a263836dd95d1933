"""The mean penalty against its formula in numpy."""

import numpy as np
import pytest
import torch

from isotropy import Representations
from isotropy.measures import mean_norm_ratio
from isotropy.penalties import ZeroMean


@pytest.mark.parametrize("shape", [(1, 4), (2, 2), (40, 6), (5, 50)])
def test_is_the_squared_mean_over_the_mean_square(shape):
    x = np.random.default_rng(0).standard_normal(shape) + 0.7
    found = ZeroMean(weight=3)(Representations.from_cloud(torch.from_numpy(x)))
    mean = x.mean(axis=0)
    expected = mean @ mean / np.mean([row @ row for row in x])
    assert float(found) == pytest.approx(3 * expected, rel=1e-12)
    if len(x) > 1:
        assert float(found) == pytest.approx(3 * mean_norm_ratio(x), rel=1e-9)


def test_equal_rows_and_opposite_rows():
    x = torch.tensor([[3.0, 4.0]])
    assert float(ZeroMean()(Representations.from_cloud(x.expand(5, 2)))) == pytest.approx(1)
    assert float(ZeroMean()(Representations.from_cloud(torch.cat((x, -x))))) == 0

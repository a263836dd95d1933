"""Centred anisotropy against the eigenvalues of numpy's covariance."""

import numpy as np
import pytest
import torch

from isotropy.errors import SettingError
from isotropy.measures._anisotropy import anisotropy
from isotropy.measures._centered_anisotropy import centered_anisotropy
from isotropy.measures._iso_score import iso_score


def cloud(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((n, d)) @ rng.standard_normal((d, d)) + 10 * rng.standard_normal(d)


@pytest.mark.parametrize("shape", [(500, 20), (20, 20), (10, 20), (2, 3)])
def test_is_the_share_of_the_covariances_eigenvalues(shape):
    x = cloud(*shape)
    values = np.linalg.eigvalsh(np.cov(x.T))[::-1]
    expected = values[:3] / values.sum()
    assert centered_anisotropy(x) == pytest.approx(expected, rel=1e-9, abs=1e-12)


def test_is_anisotropy_of_the_centred_cloud():
    x = cloud(60, 8)
    assert centered_anisotropy(x, k=5) == pytest.approx(anisotropy(x - x.mean(axis=0), k=5))
    assert np.array_equal(centered_anisotropy(x, k=5), anisotropy(x, k=5, center=True))


@pytest.mark.parametrize("shape", [(100, 6), (4, 6)])
def test_all_shares_give_iso_score(shape):
    """(tr C)²/‖C‖² is one over the sum of the squared shares."""
    x = cloud(*shape)
    shares = centered_anisotropy(x, k=6)
    assert shares.sum() == pytest.approx(1, rel=1e-12)
    assert (1 / (shares**2).sum() - 1) / 5 == pytest.approx(iso_score(x), rel=1e-9)


def test_no_more_shares_than_rows_less_one():
    assert centered_anisotropy(cloud(3, 8), k=4)[2:] == pytest.approx([0, 0], abs=1e-12)


def test_two_rows_and_rows_on_a_line_have_one_direction():
    line = np.outer(np.linspace(-1, 1, 9), [3.0, 4.0, 12.0]) + 7
    for x in (cloud(2, 5), line, line.astype(np.float32)):
        assert centered_anisotropy(x) == pytest.approx([1, 0, 0], abs=1e-6)


def test_errors_and_types():
    with pytest.raises(SettingError, match="got k=0"):
        centered_anisotropy(cloud(5, 3), k=0)
    assert centered_anisotropy(torch.from_numpy(cloud(9, 3)).half()).dtype == torch.float32

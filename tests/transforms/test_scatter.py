"""Second moments of weighted rows beside numpy's, and beside the library's other moments."""

import numpy as np
import pytest
import torch

from isotropy.errors import InputError
from isotropy.moments import Moments
from isotropy.transforms._scatter import Scatter, principal


@pytest.fixture
def rows(rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(rng.normal(size=(300, 7)) @ rng.normal(size=(7, 7)) + 3)


@pytest.fixture
def weights(rng: np.random.Generator) -> torch.Tensor:
    return torch.from_numpy(rng.uniform(0.01, 5, size=300))


def merged(rows: torch.Tensor, weights: torch.Tensor | None, step: int, **options: bool) -> Scatter:
    parts = [
        Scatter.of(
            rows[i : i + step], None if weights is None else weights[i : i + step], **options
        )
        for i in range(0, len(rows), step)
    ]
    return sum(parts[1:], start=parts[0])


@pytest.mark.parametrize("step", [1, 17, 300])
def test_weighted_rows_beside_numpy(rows: torch.Tensor, weights: torch.Tensor, step: int) -> None:
    found = merged(rows, weights, step)
    np.testing.assert_allclose(found.mean, np.average(rows, axis=0, weights=weights), rtol=1e-12)
    np.testing.assert_allclose(found.covariance, np.cov(rows.T, aweights=weights), rtol=1e-10)
    spread = merged(rows, weights, step, diagonal=True).covariance
    np.testing.assert_allclose(spread, np.diag(np.cov(rows.T, aweights=weights)), rtol=1e-10)


@pytest.mark.parametrize("step", [13, 300])
def test_rows_without_weights_beside_moments(rows: torch.Tensor, step: int) -> None:
    found = merged(rows, None, step)
    np.testing.assert_allclose(found.mean, Moments.of(rows).mean, rtol=1e-12)
    np.testing.assert_allclose(found.covariance, Moments.of(rows).covariance, rtol=1e-10)


@pytest.mark.parametrize("change", [1.0, 1e18, 1e-18])
@pytest.mark.parametrize("offset", [0.0, 1e4])
def test_float32_at_any_place_and_scale(
    rows: torch.Tensor, weights: torch.Tensor, change: float, offset: float
) -> None:
    x = ((rows + offset) * change).float()
    found = merged(x, weights, 100).covariance / change**2
    expected = np.cov(x.double().T / change, aweights=weights)
    np.testing.assert_allclose(found, expected, atol=1e-5 * expected.max())


def test_nearly_all_weight_on_rows_far_from_the_others() -> None:
    x = torch.randn(1000, 3, generator=torch.Generator().manual_seed(0))
    x[:20] = 1e4 + x[:20]
    weights = torch.full((1000,), 1e-12, dtype=torch.float64)
    weights[:20] = 1
    found = Scatter.of(x, weights).covariance
    np.testing.assert_allclose(found, np.cov(x.double().T, aweights=weights), rtol=1e-3)


def test_scales_at_which_squares_are_lost() -> None:
    with pytest.raises(InputError, match=r"got values around 5e\+199 .* rescale the embeddings"):
        Scatter.of(torch.tensor([[1e200, 0.0], [0.0, 1.0]], dtype=torch.float64))


def test_principal_directions(rows: torch.Tensor) -> None:
    c = Scatter.of(rows).covariance
    values, vectors = principal(c)
    assert (values[:-1] >= values[1:]).all()
    np.testing.assert_allclose(vectors.T @ torch.diag(values) @ vectors, c, atol=1e-10)
    assert torch.equal(principal(c * 2.0**100)[1], vectors)

import numpy as np
import pytest
import torch

from isotropy import measure
from isotropy.measures._separation import leading, single


def test_equal_eigenvalues_are_told_apart_by_no_number_of_rows() -> None:
    values = torch.tensor([4.0, 4.0, 1.0, 0.0, 0.0])
    assert single(values, 10**9, 5) == [False, False, True, True, True]
    assert leading(values, 10**9, 5) == [False, True, True, True, True]


def test_the_turn_is_that_of_perturbation_theory() -> None:
    # Mean squared sine between the first axis and the first eigenvector, over many clouds.
    rng, n, deviations = np.random.default_rng(0), 2000, np.array([1.3, 1.0, 0.6])
    sines = []
    for _ in range(400):
        x = rng.standard_normal((n, 3)) * deviations
        vectors = np.linalg.eigh(x.T @ x)[1]
        sines.append(1 - vectors[0, -1] ** 2)
    variances = deviations**2
    theory = sum(variances[0] * v / (n * (variances[0] - v) ** 2) for v in variances[1:])
    assert np.mean(sines) == pytest.approx(theory, rel=0.15)


@pytest.mark.parametrize("seed", range(5))
def test_a_round_cloud_has_no_interval_for_its_spectrum(seed: int) -> None:
    x = np.random.default_rng(seed).standard_normal((2000, 20))
    names = ["anisotropy", "centered_anisotropy", "explained_variance", "participation_ratio"]
    found = measure(x, names, interval=0.95, seed=seed)
    for key, score in found.items():
        assert (score.interval is None) == (key != "participation_ratio"), key
    assert sum("too close to be told apart by 2000 rows" in w for w in found.warnings) == 1


def test_what_stands_apart_has_an_interval() -> None:
    x = np.random.default_rng(0).standard_normal((3000, 20)) * ([5.0, 3.0] + [1.0] * 18)
    found = measure(x, ["centered_anisotropy", "explained_variance"], interval=0.95)
    assert [score.interval is not None for score in found.values()] == [True, True, False] * 2

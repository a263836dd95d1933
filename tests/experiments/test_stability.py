import numpy as np
import pytest

from isotropy.experiments._plan_file import Stability
from isotropy.experiments.stability import simulate, true_iso_score

SMALL = Stability(
    features=24,
    variances=(10, 6, 4, 4),
    sizes=(8, 64, 3000),
    zetas=(0, 0.8, 1),
    shrinkage_points=40_000,
    draws=6,
)


def test_the_truth_is_the_score_of_the_covariance() -> None:
    spectrum = np.array([10, 6, 4, 4, *[1.0] * 20])
    # The definition's own steps: normalise the spectrum, take its distance from all ones.
    normed = np.sqrt(24) * spectrum / np.linalg.norm(spectrum)
    defect = np.linalg.norm(normed - 1) / np.sqrt(2 * (24 - np.sqrt(24)))
    share = (24 - defect**2 * (24 - np.sqrt(24))) ** 2 / 24**2
    assert true_iso_score([10, 6, 4, 4], 24) == pytest.approx((24 * share - 1) / 23)


def test_small_samples_underestimate_and_shrinkage_and_the_unbiased_score_mend_it() -> None:
    study = simulate(SMALL)
    found = {(point.measure, point.zeta, point.size): point for point in study.points}
    truth = study.truth
    plain = [found["iso_score_star", 0, size].mean for size in SMALL.sizes]
    assert plain[0] < plain[1] < plain[2] < truth
    assert plain[0] < truth / 3
    assert plain[2] == pytest.approx(truth, abs=0.01)
    assert abs(found["iso_score_star", 0.8, 8].mean - truth) < truth - plain[0]
    # All of Σ_S, of 40 000 points: the sample says nothing any more.
    assert found["iso_score_star", 1, 8].mean == pytest.approx(truth, abs=0.005)
    assert found["iso_score_star", 1, 8].std == pytest.approx(0, abs=1e-6)
    assert found["iso_score_unbiased", None, 64].mean == pytest.approx(truth, abs=0.08)


def test_equal_seeds_give_equal_studies_and_progress_is_told() -> None:
    tiny = Stability(features=6, sizes=(5, 9), zetas=(0.5,), shrinkage_points=50, draws=2)
    told: list[tuple[str, int, int | None]] = []
    first = simulate(tiny, lambda *step: told.append(step))
    assert first == simulate(tiny)
    assert told == [("samples", i, 4) for i in (1, 2, 3, 4)]
    assert simulate(tiny.model_copy(update={"seed": 1})) != first


def test_the_table_has_a_row_for_each_size_in_80_columns() -> None:
    zetas = (0, 0.2, 0.4, 0.6, 0.8)
    study = simulate(Stability(features=6, sizes=(4, 9), zetas=zetas, shrinkage_points=50, draws=1))
    lines = str(study).splitlines()
    assert lines[3].split() == ["n", "IsoScore", *(f"ζ={z:g}" for z in zetas[1:]), "unbiased"]
    assert [line.split()[0] for line in lines[5:]] == ["4", "9"]
    assert max(map(len, lines)) <= 80

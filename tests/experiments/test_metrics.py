import numpy as np
import pytest
from scipy.stats import pearsonr, spearmanr
from sklearn.metrics import accuracy_score, f1_score, matthews_corrcoef

from isotropy.experiments.metrics import (
    METRICS,
    accuracy,
    f1,
    macro_f1,
    matthews,
    pearson,
    spearman,
)


def classes(seed: int, k: int, rows: int = 60) -> tuple[list[int], list[int]]:
    random = np.random.default_rng(seed)
    labels = random.integers(0, k, rows)
    said = np.where(random.random(rows) < 0.6, labels, random.integers(0, k, rows))
    return labels.tolist(), said.tolist()


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("k", [2, 3, 7])
def test_classes_as_in_sklearn(seed: int, k: int) -> None:
    labels, said = classes(seed, k)
    assert accuracy(labels, said) == pytest.approx(accuracy_score(labels, said), abs=1e-14)
    assert matthews(labels, said) == pytest.approx(matthews_corrcoef(labels, said), abs=1e-12)
    assert macro_f1(labels, said) == pytest.approx(
        f1_score(labels, said, average="macro"), abs=1e-14
    )
    if k == 2:
        assert f1(labels, said) == pytest.approx(f1_score(labels, said), abs=1e-14)


def test_two_classes_by_hand() -> None:
    # TP 3, FN 1, FP 2, TN 4
    labels = [1] * 4 + [0] * 6
    said = [1, 1, 1, 0, 1, 1, 0, 0, 0, 0]
    assert accuracy(labels, said) == 0.7
    assert f1(labels, said) == pytest.approx(2 * 3 / (2 * 3 + 2 + 1))
    assert macro_f1(labels, said) == pytest.approx((6 / 9 + 8 / 11) / 2)
    assert matthews(labels, said) == pytest.approx((3 * 4 - 2 * 1) / np.sqrt(5 * 4 * 6 * 5))


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("steps", [None, 4, 20])
def test_correlations_as_in_scipy(seed: int, steps: int | None) -> None:
    random = np.random.default_rng(seed)
    labels = random.random(80) * 5
    said = labels + random.normal(size=80)
    if steps is not None:  # with ties on both sides
        labels, said = np.round(labels * steps) / steps, np.round(said)
    assert pearson(labels, said) == pytest.approx(pearsonr(labels, said).statistic, abs=1e-12)
    assert spearman(labels, said) == pytest.approx(spearmanr(labels, said).statistic, abs=1e-12)


def test_ties_by_hand() -> None:
    # ranks 1, 2.5, 2.5, 4 and 1, 2, 3, 4: 4.5 / sqrt(4.5 * 5)
    assert spearman([1, 2, 2, 3], [10, 20, 30, 40]) == pytest.approx(4.5 / np.sqrt(4.5 * 5))


def test_a_constant_predictor_leaves_correlations_undefined() -> None:
    assert matthews([0, 1, 0, 1], [1, 1, 1, 1]) is None
    assert matthews([1, 1, 1, 1], [0, 1, 0, 1]) is None
    assert pearson([0.0, 1.0, 2.0], [0.1, 0.1, 0.1]) is None
    assert spearman([0.0, 1.0, 2.0], [0.1, 0.1, 0.1]) is None
    assert spearman([3.0, 3.0, 3.0], [0.1, 0.2, 0.3]) is None
    assert accuracy([0, 1, 0, 1], [1, 1, 1, 1]) == 0.5


def test_f1_without_a_hit_is_zero_and_without_the_class_undefined() -> None:
    assert f1([1, 0, 1], [0, 0, 0]) == 0.0
    assert f1([0, 0], [1, 0]) == 0.0
    assert f1([0, 0], [0, 0]) is None
    assert macro_f1([0, 0], [0, 0]) == 1.0  # of the one class that is there


def test_macro_f1_counts_classes_that_are_only_predicted() -> None:
    assert macro_f1([0, 0], [0, 5]) == pytest.approx((2 / 3 + 0) / 2)


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_what_is_not_finite_has_no_correlation(bad: float) -> None:
    assert pearson([0.0, 1.0, 2.0], [0.0, bad, 2.0]) is None
    assert spearman([0.0, 1.0, 2.0], [0.0, bad, 2.0]) is None


@pytest.mark.parametrize("name", METRICS)
def test_nothing_is_scored_without_rows(name: str) -> None:
    assert METRICS[name]([], []) is None


def test_correlations_at_any_scale_and_far_from_zero() -> None:
    labels = np.array([0.0, 1.0, 2.5, 4.0])
    said = np.array([1.0, 0.0, 3.0, 5.0])
    expected = pearsonr(labels, said).statistic
    for scale in (1e-200, 1e200):
        assert pearson(labels, scale * said) == pytest.approx(expected, abs=1e-12)
    assert pearson(labels, said + 1e6) == pytest.approx(expected, abs=1e-9)
    assert pearson([0.0, 1.0], [3.0, 1.0]) == -1.0

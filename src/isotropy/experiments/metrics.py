"""Metrics of predictions, as fractions of 1; None where one is undefined.

A metric that a constant predictor leaves undefined, such as a correlation, is neither 0 nor NaN: a
mean over runs must not take it for a score.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Metric = Callable[[Sequence[Any], Sequence[Any]], float | None]


def accuracy(labels: Sequence[Any], predictions: Sequence[Any]) -> float | None:
    """The share of predictions that are right.

    Example:
        >>> accuracy([0, 1, 1, 0], [0, 1, 0, 0])
        0.75
    """
    given, said = _classes(labels, predictions)
    return float((given == said).mean()) if len(given) else None


def f1(labels: Sequence[Any], predictions: Sequence[Any]) -> float | None:
    """The harmonic mean of precision and recall of class 1: 2TP/(2TP + FP + FN).

    It is 0 where class 1 is never found, and undefined where it is neither there nor predicted.

    Example:
        >>> f1([1, 1, 0, 0], [1, 0, 0, 0])
        0.6666666666666666
    """
    given, said = _classes(labels, predictions)
    return _f1_of(given == 1, said == 1)


def macro_f1(labels: Sequence[Any], predictions: Sequence[Any]) -> float | None:
    """The mean F1 over the classes that are there or predicted.

    Example:
        >>> macro_f1([2, 2, 0, 0], [2, 0, 0, 0])
        0.7333333333333334
    """
    given, said = _classes(labels, predictions)
    found = [_f1_of(given == one, said == one) for one in np.union1d(given, said)]
    return float(np.mean([value for value in found if value is not None])) if found else None


def matthews(labels: Sequence[Any], predictions: Sequence[Any]) -> float | None:
    r"""Matthews' correlation, of any number of classes (Gorodkin, 2004).

    (c·s − Σₖ tₖpₖ) / √((s² − Σₖ pₖ²)(s² − Σₖ tₖ²)) with s rows, c of them right, tₖ of class k
    and pₖ predicted as class k. Undefined where all labels or all predictions are the same.

    Example:
        >>> matthews([0, 1, 1, 0], [0, 1, 0, 0])
        0.5773502691896258
    """
    given, said = _classes(labels, predictions)
    names = np.union1d(given, said)
    true = np.array([(given == name).sum() for name in names], np.float64)
    predicted = np.array([(said == name).sum() for name in names], np.float64)
    rows = float(len(given))
    spread = (rows**2 - (predicted**2).sum()) * (rows**2 - (true**2).sum())
    if spread <= 0:
        return None
    right = float((given == said).sum())
    return float((right * rows - true @ predicted) / np.sqrt(spread))


def pearson(labels: Sequence[Any], predictions: Sequence[Any]) -> float | None:
    """Pearson's correlation; undefined where either side is constant or not finite.

    Example:
        >>> pearson([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
        1.0
    """
    given, said = _numbers(labels, predictions)
    x, y = _centred(given), _centred(said)
    if x is None or y is None:
        return None
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1, 1))


def spearman(labels: Sequence[Any], predictions: Sequence[Any]) -> float | None:
    """Spearman's correlation: Pearson's of ranks, equal values sharing their mean rank.

    Example:
        >>> spearman([0.0, 1.0, 2.0], [1.0, 30.0, 500.0])
        1.0
    """
    from scipy.stats import rankdata

    given, said = _numbers(labels, predictions)
    if not (np.isfinite(given).all() and np.isfinite(said).all()):
        return None
    return pearson(rankdata(given), rankdata(said))


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "macro_f1": macro_f1,
    "matthews": matthews,
    "pearson": pearson,
    "spearman": spearman,
}


def _classes(
    labels: Sequence[Any], predictions: Sequence[Any]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    return np.asarray(labels, np.int64), np.asarray(predictions, np.int64)


def _numbers(
    labels: Sequence[Any], predictions: Sequence[Any]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return np.asarray(labels, np.float64), np.asarray(predictions, np.float64)


def _f1_of(given: NDArray[np.bool_], said: NDArray[np.bool_]) -> float | None:
    sizes = int(given.sum()) + int(said.sum())
    return 2 * int((given & said).sum()) / sizes if sizes else None


def _centred(values: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Values around 0 and of about size 1; None where they are all the same or not finite."""
    if not len(values) or not np.isfinite(values).all() or values.min() == values.max():
        return None
    centred = values / np.abs(values).max()  # or squares of large ones would overflow
    centred = centred - centred.mean()
    return np.asarray(centred / np.abs(centred).max())

"""The choice of the prominent bars among all."""

from math import ceil, log

import numpy as np
from numpy.typing import NDArray

# Equal bars make neighbouring sums equal; without this, rounding would decide between them.
TOLERANCE = 1 + 1e-12
# Where α is nearer to 1 than this, Q's formula loses digits and its power series takes over.
NEAR_ONE = 1e-2


def count_prominent(lengths: NDArray[np.float64]) -> int:
    r"""How many of the longest bars are prominent.

    Let T be the longest bar, r the shortest, and L = (l_1 ≥ … ≥ l_{m−1} = r, T). To neutralise the
    first i is to give them the length that makes the entropy greatest, l'_i = P_i/exp(E(R_i)) with
    R_i the rest of L, P_i its sum and E its entropy. The sum of all is then S_i = P_i + i·l'_i.

    1. i* is the first i in 1…m−3 with S_i > S_{i−1}, or else m − 3.
    2. Q = ⌈α·m·(α − 1 − log α)/(α − 1)²⌉, α = r/T of all bars, bounds the number of features.
    3. If Q < i*, the bars after l_{i*} but r are noise: without them, m = i* + 2, go to 1.
       Otherwise T and l_1…l_{i*} are prominent.

    With A_i = Σ_{j>i} l_j·log l_j the neutral length is exp(A_i/P_i), so that suffix sums make a
    round O(m). Every round drops a bar. Fewer than 4 bars: T and l_1…l_{m−2}.

    Args:
        lengths: m bars in descending order, finite and positive.

    Reference:
        Atienza et al. 2019, "Persistent entropy for separating topological features from noise in
        Vietoris-Rips complexes", with the decisions of this project where the published
        pseudo-code contradicts its text.

    Example:
        >>> count_prominent(np.array([9.0, 8.0, 1.0, 1.0, 1.0, 0.1]))
        2
    """
    bars = lengths / lengths[:1]
    bars = bars[bars > 0]  # nothing beside the longest once it underflows
    if len(bars) < 4:
        return max(len(bars) - 1, min(len(bars), 1))
    shortest = float(bars[-1])
    limit = _features_per_bar(shortest)
    middle = bars[1:-1]  # l_1…l_{m−2}: a round keeps some first ones of them
    terms = np.stack((middle, middle * np.log(middle)))
    ends = np.array([[1 + shortest], [shortest * log(shortest)]])  # of T and r
    order = np.arange(len(middle))
    kept = len(middle)
    while True:
        sums, logs = (terms[:, kept - 1 :: -1].cumsum(axis=1) + ends)[:, ::-1]
        neutralised = sums + order[:kept] * np.exp(logs / sums)
        grows = neutralised[1:] > neutralised[:-1] * TOLERANCE
        first = int(grows.argmax())
        last = first + 1 if grows[first] else kept - 1
        if ceil(limit * (kept + 2)) >= last:
            return last + 1
        kept = last


def _features_per_bar(alpha: float) -> float:
    """α(α − 1 − log α)/(α − 1)², which is 1/2 at α = 1."""
    gap = 1 - alpha
    if gap > NEAR_ONE:
        return alpha * (-gap - log(alpha)) / gap**2
    return 0.5 - sum(gap**k / ((k + 1) * (k + 2)) for k in range(1, 10))

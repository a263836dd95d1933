"""Persistent entropy of the H0 bars: how even the gaps are at which a cloud falls apart."""

from math import inf
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from torch import Tensor

from isotropy.bars import entropy, h0_bars, prominent_bars
from isotropy.inputs import ArrayLike, as_cloud, like
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.settings import choice

Bars: TypeAlias = Literal["prominent", "all"]


class PersistentEntropy(NamedTuple):
    """What `persistent_entropy` gives.

    Attributes:
        entropy: of the bars.
        normalized: the entropy divided by the logarithm of the number of these bars.
        prominent_bars: how many bars are prominent.
    """

    entropy: Any
    normalized: Any
    prominent_bars: Any


def persistent_entropy(x: ArrayLike, *, bars: Bars = "prominent") -> PersistentEntropy:
    r"""Persistent entropy: how evenly long the H0 bars are, the edges of the minimum spanning tree.

    $$E = -\sum_{i=1}^m p_i \log p_i, \qquad p_i = l_i / \sum_j l_j, \qquad
    \text{normalized} = E / \log m$$

    over the m prominent bars, those that tell features from noise, or over all that are not zero.
    E is log m where all are equally long. Of a single bar both are 0.

    Args:
        x: n×d cloud, n ≥ 2. A gradient flows to the lengths; which bars are prominent is as if
            constant.
        bars: `"prominent"`, or `"all"`.

    Returns:
        Entropy, normalised entropy and the number of prominent bars: 0-d tensors for a tensor,
        floats for an array.

    References:
        Atienza et al. 2019, "Persistent entropy for separating topological features from noise in
        Vietoris-Rips complexes".

    Example:
        Bars of 1 and of 3:

        >>> import numpy as np
        >>> found = persistent_entropy(np.array([[0.0, 0.0], [1.0, 0.0], [4.0, 0.0]]), bars="all")
        >>> round(found.entropy, 3), round(found.normalized, 3), found.prominent_bars
        (0.562, 0.811, 1.0)
    """
    choice("bars", bars, ("prominent", "all"))
    lengths = h0_bars(as_cloud(x))
    prominent = prominent_bars(lengths)
    chosen = prominent if bars == "prominent" else lengths[lengths > 0]
    found = entropy(chosen)
    # Rounding may lift it above log m.
    normalized = (found / torch.log(found.new_tensor(max(len(chosen), 2)))).clamp(max=1)
    count = found.new_tensor(len(prominent))
    return PersistentEntropy(like(x, found), like(x, normalized), like(x, count))


def _from_rows(rows: Tensor, bars: Bars) -> tuple[float, ...]:
    return tuple(float(number) for number in persistent_entropy(rows, bars=bars))


SPEC = MeasureSpec(
    name="persistent_entropy",
    function=persistent_entropy,
    numbers=(
        Number("persistent_entropy", low=0, high=inf, has_interval=False),
        Number("persistent_entropy_normalized", low=0, high=1),
        Number("prominent_bars", low=1, has_interval=False),
    ),
    summary="how even the prominent gaps between rows are",
    invariant_to=frozenset({"rotation", "scale", "translation"}),
    differentiable=True,
    min_rows=2,
    trust=(
        "The entropy grows with the logarithm of the number of bars, and the number of prominent "
        "bars with the rows: compare clouds of the same number of rows, or the normalised "
        "entropy. That one is close to 1 for most clouds, as prominent bars are by their choice "
        "of similar length; differences are in the second or third decimal. The number of "
        "prominent bars jumps when a single row moves; with bars='all' the entropy is smooth. It "
        "takes the minimum spanning tree of all rows, whose time grows with their square."
    ),
    reference=(
        "Atienza et al. 2019, Persistent entropy for separating topological features from noise "
        "in Vietoris-Rips complexes"
    ),
    options={"bars": "prominent"},
    from_rows=_from_rows,
)

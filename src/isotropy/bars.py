r"""Bars: the persistent homology of a cloud in dimension 0.

Grow a ball around every row. Each time two groups of balls meet, a bar ends; the lengths of the
n − 1 finite bars are the edge lengths of the Euclidean minimum spanning tree. The longest tell
clusters apart, the many short ones are noise.
"""

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy._prominent import count_prominent
from isotropy._prominent_tensors import count_prominent_tensors
from isotropy._spanning_tree import spanning_forest
from isotropy.errors import InputError, SettingError
from isotropy.inputs import COMPUTE_DTYPE, ArrayLike, as_tensor, finite_range, like, require_rows

__all__ = ["entropy", "h0_bars", "h0_bars_by_class", "prominent_bars", "prominent_mask"]


def h0_bars(x: ArrayLike) -> Any:
    r"""The lengths of the H0 bars: the edges of the Euclidean minimum spanning tree.

    The tree is found without gradient; the lengths of its edges are computed from `x`, with
    gradient. An edge of length zero has a gradient of zero.

    Args:
        x: n×d cloud, n ≥ 1. Memory is O(nd): of the n×n distances only blocks exist.

    Returns:
        n − 1 lengths in descending order, tensor or array as `x` is.

    References:
        Atienza et al. 2019, "Persistent entropy for separating topological features from noise in
        Vietoris-Rips complexes".

    Example:
        >>> h0_bars(np.array([[0.0, 0.0], [0.0, 1.0], [3.0, 0.0]]))
        array([3., 1.])
    """
    cloud = as_tensor(x)
    require_rows(len(cloud), 1)
    # On a CPU numpy looks at values, as of a small cloud that is less than waking a second thread.
    if cloud.device.type != "cpu" or not np.isfinite(cloud.detach().numpy()).all():
        finite_range(cloud)
    left, right = spanning_forest(cloud.detach())
    lengths = _distances(cloud, left, right).sort(descending=True).values
    return like(x, lengths[: len(cloud) - 1])


def h0_bars_by_class(
    x: ArrayLike, labels: Tensor | NDArray[Any], classes: int | None = None
) -> Any:
    """The H0 bars of each class of rows on its own, all found in one pass.

    Made for training: it looks at no value, so that on an accelerator nothing is copied to the
    host, and shapes depend on shapes alone (give `classes`; otherwise the labels are read). Rows
    that are not finite must be dealt with by the caller.

    Args:
        x: n×d cloud.
        labels: n integers. Rows with a label outside of 0…classes − 1 belong to no class.
        classes: how many classes there are, the greatest label plus one if not given. A class
            may have any number of rows, none too.

    Returns:
        classes × (n − 1) lengths, each row in descending order and padded with zeros; tensor or
        array as `x` is.

    Example:
        >>> x = torch.tensor([[0.0, 0.0], [9.0, 9.0], [0.0, 1.0], [0.0, 3.0]])
        >>> h0_bars_by_class(x, torch.tensor([0, 1, 0, 0]))
        tensor([[2., 1., 0.],
                [0., 0., 0.]])
    """
    cloud = as_tensor(x)
    n = len(cloud)
    names = _as_labels(labels, cloud)
    if classes is None:
        classes = max(0, int(names.max()) + 1) if n else 0
    elif classes < 0:
        raise SettingError(f"got classes={classes}, expected how many classes there are; give it")
    if n < 2 or classes == 0:
        return like(x, cloud.new_zeros((classes, max(0, n - 1))))
    left, right = spanning_forest(cloud.detach(), names)
    lengths = _distances(cloud, left, right)
    name = names[left]
    known = (name >= 0) & (name < classes)
    slots = torch.where(known, name, 0), torch.arange(len(name), device=cloud.device)
    table = cloud.new_zeros((classes, n)).index_put(slots, torch.where(known, lengths, 0))
    # A class of n rows has n − 1 bars at most, so what sorting brings last is padding.
    return like(x, table.sort(dim=1, descending=True).values[:, : n - 1])


def prominent_bars(lengths: ArrayLike) -> Any:
    """The prominent ones among bars: those that tell features from noise.

    They are the longest; how many of them is decided in float64 by neutralising one bar after the
    other, see Atienza et al. Bars of length zero are never prominent. A gradient flows to the
    bars that are kept.

    Args:
        lengths: m lengths in any order, m ≥ 0, finite and not negative.

    Returns:
        The kept lengths in descending order, tensor or array as `lengths` is.

    References:
        Atienza et al. 2019, "Persistent entropy for separating topological features from noise in
        Vietoris-Rips complexes".

    Example:
        >>> prominent_bars(np.array([9.0, 0.1, 8.0, 1.0, 1.0, 1.0]))
        array([9., 8.])
    """
    bars = _as_lengths(lengths, dimensions=(1,)).sort(descending=True).values
    return like(lengths, bars[: int(_counts(bars))])


def prominent_mask(lengths: ArrayLike, *, at_most: int | None = None) -> Any:
    """Which bars are prominent, in one or in many sets of bars.

    On an accelerator nothing is copied to the host, and so lengths are not checked for values that
    are negative, infinite or NaN.

    Args:
        lengths: m lengths, or k×m of them, such as those of `h0_bars_by_class`: its padding of
            zeros is never prominent.
        at_most: how many lengths there can be that are not zero, where that is known, as it is of
            the classes of n rows: n − 1. It saves an accelerator work.

    Returns:
        Booleans of the same shape.

    Example:
        >>> prominent_mask(torch.tensor([9.0, 0.1, 8.0, 1.0, 1.0, 1.0]))
        tensor([ True, False,  True, False, False, False])
    """
    bars, order = _as_lengths(lengths, dimensions=(1, 2)).detach().sort(dim=-1, descending=True)
    counts = _counts(bars, at_most)
    kept = torch.arange(bars.shape[-1], device=bars.device) < counts[..., None]
    return like(lengths, torch.zeros_like(kept).scatter(-1, order, kept))


def entropy(lengths: Tensor) -> Tensor:
    r"""Persistent entropy along the last dimension, $-\sum_i p_i \log p_i$, $p = l/\sum l$.

    Lengths of zero count for nothing, in the gradient too; with nothing else it is 0.

    Args:
        lengths: … × m lengths, not negative.

    Returns:
        …, between 0 and log m.

    Example:
        >>> entropy(torch.tensor([[1.0, 1.0, 0.0], [0.0, 0.0, 0.0]]))
        tensor([0.6931, 0.0000])
    """
    if lengths.shape[-1] == 0:
        return lengths.sum(dim=-1)
    lengths = torch.where(lengths > 0, lengths, 0)
    longest = lengths.detach().amax(dim=-1, keepdim=True)
    lengths = lengths / torch.where(longest > 0, longest, 1)  # their sum might overflow
    total = lengths.sum(dim=-1, keepdim=True)
    shares = lengths / torch.where(total > 0, total, 1)
    safe = torch.where(shares > 0, shares, 1)  # log's gradient at 0 would be infinite
    return 0 - (safe * safe.log()).sum(dim=-1)  # of one bar 0, and not −0


def _distances(cloud: Tensor, left: Tensor, right: Tensor) -> Tensor:
    """The lengths of the edges between rows, exact and with gradient."""
    if cloud.device.type == "cpu" and not (cloud.requires_grad and torch.is_grad_enabled()):
        return torch.from_numpy(_distances_in_numpy(cloud.detach().numpy(), left, right))
    steps = cloud[left] - cloud[right]
    # Next to its largest coordinate an edge's squares neither overflow nor vanish.
    size = steps.detach().abs().amax(dim=1, keepdim=True)
    size = torch.where(size > 0, size, 1)
    lengths: Tensor = torch.linalg.vector_norm(steps / size, dim=1) * size.squeeze(1)
    return lengths


def _distances_in_numpy(rows: NDArray[Any], left: Tensor, right: Tensor) -> NDArray[Any]:
    """The same without gradient, and without a second thread to wake."""
    with np.errstate(over="ignore", invalid="ignore"):  # infinities speak for themselves
        steps = rows[left.numpy()]
        steps -= rows[right.numpy()]
        size = np.abs(steps).max(axis=1)
        size[size == 0] = 1
        steps /= size[:, None]
        lengths: NDArray[Any] = np.sqrt(np.einsum("ij,ij->i", steps, steps)) * size
    return lengths


def _counts(bars: Tensor, at_most: int | None = None) -> Tensor:
    """How many bars are prominent in each set, of bars in descending order.

    A loop over few numbers is fastest in numpy, but there an accelerator would have to wait for it.
    """
    table = bars.detach().double()
    table = table if table.ndim == 2 else table[None]
    if table.device.type == "cpu":
        counts = torch.tensor([count_prominent(row[row > 0]) for row in table.numpy()])
    else:
        counts = count_prominent_tensors(table, at_most=at_most)
    return counts.to(torch.int64).reshape(bars.shape[:-1])


def _as_labels(labels: Tensor | NDArray[Any], cloud: Tensor) -> Tensor:
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "biu":
        labels = torch.from_numpy(labels.astype(np.int64))  # torch knows not every kind of array
    whole = isinstance(labels, Tensor) and not (labels.is_floating_point() or labels.is_complex())
    if not (isinstance(labels, Tensor) and whole and labels.shape == cloud.shape[:1]):
        given = str(getattr(labels, "dtype", type(labels).__name__)).removeprefix("torch.")
        raise InputError(
            f"got labels of {given} with shape {tuple(getattr(labels, 'shape', ()))}, expected a "
            f"tensor or an array of {len(cloud)} integers, one a row"
        )
    return labels.to(cloud.device, torch.int64)


def _as_lengths(lengths: ArrayLike, *, dimensions: tuple[int, ...]) -> Tensor:
    if isinstance(lengths, np.ndarray) and lengths.dtype.kind == "f" and lengths.itemsize <= 8:
        # A copy in native order: torch knows neither byte order, negative strides nor read-only.
        lengths = torch.from_numpy(np.array(lengths, dtype=lengths.dtype.newbyteorder("=")))
    if not isinstance(lengths, Tensor) or lengths.dtype not in COMPUTE_DTYPE:
        given = getattr(lengths, "dtype", type(lengths).__name__)
        raise InputError(
            f"got lengths of {given}, expected a tensor or an array of floating-point numbers; "
            "h0_bars gives them"
        )
    if lengths.ndim not in dimensions:
        raise InputError(
            f"got lengths with shape {tuple(lengths.shape)}, expected "
            f"{' or '.join(map(str, dimensions))} dimension(s); h0_bars gives them"
        )
    values = lengths.detach()
    if values.device.type != "cpu":  # nothing there is looked at
        return lengths
    bad = int((~((values >= 0) & (values < torch.inf))).sum())
    if bad:
        raise InputError(
            f"got {bad} of {values.numel()} lengths that are negative, infinite or NaN, "
            "expected finite lengths from 0 up; h0_bars gives them"
        )
    return lengths

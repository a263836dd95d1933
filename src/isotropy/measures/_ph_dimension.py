"""Intrinsic dimension from how the total length of the H0 bars grows with the number of rows."""

import math
import warnings
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy.bars import h0_bars
from isotropy.errors import IsotropyWarning, UndefinedError
from isotropy.inputs import ArrayLike, as_cloud, like
from isotropy.measures._spec import MeasureSpec, Number
from isotropy.settings import seed_number

# Larger subsamples cost more and say little more: the fit is then limited by the cloud's edges.
_LARGEST = 2048
_SIZES = 7  # of subsamples, in steps of √2: from an eighth of the largest on
_MIN_ROWS = 64  # so that the smallest subsamples have 8


class PhDimension(NamedTuple):
    """What `ph_dimension` gives.

    Attributes:
        dimension: of the cloud.
        error: the dimension's standard error, from how far the fit is from a line.
    """

    dimension: Any
    error: Any


def ph_dimension(x: ArrayLike, *, seed: int = 0) -> PhDimension:
    r"""Persistent-homology dimension, from the slope of log total H0 length against log rows.

    The minimum spanning tree of m rows drawn from a d-dimensional manifold has a total length
    that grows as m^((d−1)/d). With s the slope of the line fitted to (log m, log L_m),

    $$d = \frac{1}{1 - s}, \qquad \text{error} = \frac{\text{standard error of } s}{(1 - s)^2}$$

    There are 7 sizes m, in steps of √2 up to all rows or 2048. For each the rows are
    dealt out at random, without replacement, to ⌊n/m⌋ subsamples, and L_m is the mean of their
    total lengths: as all rows serve every size, all points of the fit are equally exact. Of rows
    that are equal only one is kept.

    Args:
        x: n×d cloud with at least 64 rows that differ. No gradient flows.
        seed: of the subsamples.

    Returns:
        Dimension and its error: 0-d tensors for a tensor, floats for an array.

    References:
        Adams et al. 2020, "A fractal dimension for measures via persistent homology"; Birdal et
        al. 2021, "Intrinsic dimension, persistent homology and generalization in neural networks".

    Example:
        A plane in ten dimensions:

        >>> import torch
        >>> plane = torch.rand(2000, 2, generator=torch.Generator().manual_seed(0))
        >>> round(ph_dimension(plane @ torch.eye(2, 10)).dimension.item(), 1)
        2.0
    """
    seed_number("seed", seed)
    cloud = as_cloud(x, min_rows=_MIN_ROWS)
    rows = _without_duplicates(cloud.detach())
    largest = min(len(rows), _LARGEST)
    # Steps of √2 from 8 on: no two sizes are equal.
    sizes = [round(largest / 2 ** (step / 2)) for step in range(_SIZES)]
    random = np.random.default_rng(seed)
    slope, error = _slope(
        np.log(sizes), np.log([_mean_length(rows, size, random) for size in sizes])
    )
    if not slope < 1:
        raise UndefinedError(
            f"got bars whose total length grows with the number of rows to the power of "
            f"{slope:.3g}, expected a power below 1: ph_dimension is undefined, as with rows far "
            "away from all others, or too few rows for the dimension"
        )
    dimension = 1 / (1 - slope)
    return PhDimension(
        like(x, cloud.new_tensor(dimension)), like(x, cloud.new_tensor(error * dimension**2))
    )


def _without_duplicates(cloud: Tensor) -> Tensor:
    n = len(cloud)
    # Adding 0 makes −0 and 0 the same value.
    kinds = torch.unique(cloud + 0.0, dim=0, return_inverse=True)[1]
    first = torch.full_like(kinds, n)
    first.scatter_reduce_(0, kinds, torch.arange(n, device=cloud.device), "amin")
    # In their old order: the same rows are drawn from a cloud that was rotated.
    kept = first[first < n].sort().values
    if len(kept) < _MIN_ROWS:
        raise UndefinedError(
            f"got {n} rows of which only {len(kept)} differ, expected at least {_MIN_ROWS} that "
            "differ for ph_dimension"
        )
    if len(kept) < n:
        warnings.warn(
            f"ph_dimension left out {n - len(kept)} of {n} rows, as each equals another row",
            IsotropyWarning,
            stacklevel=3,
        )
    return cloud[kept]


def _mean_length(rows: Tensor, size: int, random: np.random.Generator) -> float:
    """The mean total length of the bars of disjoint subsamples of that size."""
    order = torch.from_numpy(random.permutation(len(rows))).to(rows.device)
    parts = order[: len(rows) // size * size].view(-1, size)
    lengths = [h0_bars(rows[part]).sum(dtype=torch.float64) for part in parts]
    return float(torch.stack(lengths).mean())


def _slope(x: NDArray[np.float64], y: NDArray[np.float64]) -> tuple[float, float]:
    """The slope of the fitted line and its standard error."""
    x, y = x - x.mean(), y - y.mean()
    slope = float(x @ y / (x @ x))
    rest = y - slope * x
    return slope, math.sqrt(rest @ rest / (len(x) - 2) / (x @ x))


def _from_rows(rows: Tensor, seed: int) -> tuple[float, float]:
    found = ph_dimension(rows, seed=seed)
    return float(found.dimension), float(found.error)


SPEC = MeasureSpec(
    name="ph_dimension",
    function=ph_dimension,
    numbers=(
        Number("ph_dimension", low=0),
        Number("ph_dimension_error", low=0, has_interval=False),
    ),
    summary="intrinsic dimension from the growth of total bar length",
    invariant_to=frozenset({"rotation", "scale", "translation"}),
    differentiable=False,
    min_rows=_MIN_ROWS,
    trust=(
        "Trust it up to a dimension of about 10, and only with a small error beside it. The error "
        "is that of the fit alone: the bias from the cloud's edges is larger in many dimensions, "
        "as a uniform cube of dimension 5 gives 4.6 even with 2000 rows. It sees coarser scales "
        "than two_nn, so that noise matters less and curvature and clusters more. A single row far "
        "away from all others makes it undefined, or its error as large as itself. Equal rows are "
        "left out. It is not computed by default, as it takes seconds on 20 000 rows, and five "
        "times as long with an interval."
    ),
    reference="Adams et al. 2020, A fractal dimension for measures via persistent homology",
    default=False,
    options={"seed": 0},
    from_rows=_from_rows,
)

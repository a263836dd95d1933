r"""Streaming moments of a cloud: one pass, mergeable in any split, exact far from the origin.

For rows x about a shift c, with y = x − c, a `Moments` holds n, Σy, Σyyᵀ, Σ‖y‖²y, Σ‖y‖⁴, and about
the origin Σx/‖x‖ and Σ‖x‖. From these follow the covariance, the unbiased estimates of its
invariants, the mean direction and the mean norm. Products run in the rows' compute dtype on rows
that are centred by their own block's mean; sums accumulate in float64.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Self

import torch
from torch import Tensor

from isotropy.errors import InputError, UndefinedError
from isotropy.inputs import COMPUTE_DTYPE, require_finite, rows_are_equal
from isotropy.linalg import gram

# A block of this many values stays in the processor's cache between the passes over it.
_BLOCK_VALUES = 1 << 20
# Squares of values between these are safe in float32 and their fourth powers in float64.
_SAFE = (1e-12, 1e12)
_SAFE_FLOAT64 = (1e-70, 1e70)


@dataclass(frozen=True)
class Moments:
    """The moments of n rows with d features; everything in float64.

    Attributes:
        n: number of rows.
        shift: d, the point c about which the sums are taken.
        total: d, Σy.
        scatter: d×d, Σyyᵀ.
        cubic: d, Σ‖y‖²y.
        quartic: scalar, Σ‖y‖⁴.
        directions: d, Σx/‖x‖ over rows that are not zero.
        norms: scalar, Σ‖x‖.
        zero_rows: how many rows are zero.
        first_zero_row: the number of the first of them, counted from 0.
        constant: the point that every row is, or None if rows differ.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
        >>> left, right = Moments.of(x[:1]), Moments.of(x[1:])
        >>> (left + right).mean.tolist()
        [1.0, 1.0]
    """

    n: int
    shift: Tensor
    total: Tensor
    scatter: Tensor
    cubic: Tensor
    quartic: Tensor
    directions: Tensor
    norms: Tensor
    zero_rows: int = 0
    first_zero_row: int | None = None
    constant: Tensor | None = None

    @classmethod
    def of(cls, rows: Tensor, *, start: int = 0) -> Self:
        """The moments of a k×d floating-point tensor whose first row has number `start`.

        Raises:
            InputError: a value is NaN or infinite.
        """
        stream = MomentStream()
        stream.update(rows, start=start)
        return cls(**vars(stream.moments()))

    def about(self, point: Tensor) -> "Moments":
        """The same moments with their sums taken about another point."""
        step = self.shift - point
        length = step.square().sum()
        trace = self.scatter.trace()
        along = self.scatter @ step
        slant = step @ self.total
        outer = torch.outer(self.total, step)
        return Moments(
            n=self.n,
            shift=point,
            total=self.total + self.n * step,
            scatter=self.scatter + outer + outer.T + self.n * torch.outer(step, step),
            cubic=self.cubic
            + 2 * along
            + length * self.total
            + (trace + 2 * slant + self.n * length) * step,
            quartic=self.quartic
            + 4 * (step @ along)
            + 4 * (step @ self.cubic)
            + 2 * length * trace
            + 4 * length * slant
            + self.n * length.square(),
            directions=self.directions,
            norms=self.norms,
            zero_rows=self.zero_rows,
            first_zero_row=self.first_zero_row,
            constant=self.constant,
        )

    def __add__(self, other: "Moments") -> "Moments":
        """The moments of both sets of rows together."""
        if self.shift.shape != other.shift.shape:
            raise InputError(
                f"got moments of {len(self.shift)} and of {len(other.shift)} features, "
                "expected the same number"
            )
        if not torch.equal(self.shift, other.shift):
            other = other.about(self.shift)
        zeros = [m.first_zero_row for m in (self, other) if m.first_zero_row is not None]
        same = (
            self.constant is not None
            and other.constant is not None
            and torch.equal(self.constant, other.constant)
        )
        return Moments(
            n=self.n + other.n,
            shift=self.shift,
            total=self.total + other.total,
            scatter=self.scatter + other.scatter,
            cubic=self.cubic + other.cubic,
            quartic=self.quartic + other.quartic,
            directions=self.directions + other.directions,
            norms=self.norms + other.norms,
            zero_rows=self.zero_rows + other.zero_rows,
            first_zero_row=min(zeros, default=None),
            constant=self.constant if same else None,
        )

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.shift)

    @cached_property
    def mean(self) -> Tensor:
        """d, the mean row μ."""
        return self.shift + self.total / self.n

    @cached_property
    def central(self) -> "Moments":
        """The same moments about the mean."""
        return self.about(self.mean)

    @cached_property
    def covariance(self) -> Tensor:
        """d×d, C = Σ(x − μ)(x − μ)ᵀ/(n − 1)."""
        return self.central.scatter / (self.n - 1)

    @cached_property
    def second(self) -> Tensor:
        """d×d, S = XᵀX, about the origin."""
        return self.about(torch.zeros_like(self.shift)).scatter

    def require_directions(self) -> None:
        """Raise an UndefinedError if a row is zero and so has no direction."""
        if self.zero_rows:
            raise UndefinedError(
                f"got {self.zero_rows} row{'s' * (self.zero_rows > 1)} of zeros, the first is row "
                f"{self.first_zero_row}, expected rows with a direction: a cosine with a row of "
                "zeros is undefined; drop these rows"
            )


class MomentStream:
    """Moments that grow chunk by chunk, in place and in bounded memory.

    Example:
        >>> stream = MomentStream()
        >>> for chunk in torch.eye(4).split(2):
        ...     stream.update(chunk)
        >>> stream.moments().mean.tolist()
        [0.25, 0.25, 0.25, 0.25]
    """

    def __init__(self) -> None:
        self._sums: Moments | None = None
        self._rows_seen = 0

    def update(self, rows: Tensor, *, start: int | None = None) -> None:
        """Take in the next rows, k×d floating point; `start` is the number of the first one.

        Raises:
            InputError: a value is NaN or infinite, or the number of features changes.
        """
        first = self._rows_seen if start is None else start
        self._rows_seen = first + len(rows)
        for block in rows.detach().split(max(256, _BLOCK_VALUES // rows.shape[1])):
            sums = _block_moments(block, first)
            first += len(block)
            self._sums = sums if self._sums is None else self._sums + sums

    def moments(self) -> Moments:
        """The moments of all rows so far."""
        if self._sums is None:
            raise InputError("got an empty cloud (0 rows), expected at least 1 row")
        return self._sums


def merge(parts: Iterable[Moments]) -> Moments:
    """The moments of all parts together."""
    first, *rest = parts
    for part in rest:
        first = first + part
    return first


def _block_moments(block: Tensor, first_row: int) -> Moments:
    rows = block.to(COMPUTE_DTYPE[block.dtype])
    require_finite(rows, first_row=first_row)
    k = len(rows)
    wide = torch.float64

    centre = rows.mean(dim=0)
    y = rows - centre
    # Scaling by a power of two is exact. It is needed only where squares leave float32's range.
    scale = _safe_scale(y)
    if scale != 1:
        y /= scale
    squares = torch.linalg.vector_norm(y, dim=1).square()
    ones = torch.ones_like(squares)
    total, cubic = (torch.stack((ones, squares)) @ y).to(wide)
    scatter = gram(y).to(wide)
    quartic = squares.to(wide).square().sum()

    size = _safe_scale(rows)
    norms = torch.linalg.vector_norm(rows if size == 1 else rows / size, dim=1)
    zero = norms == 0
    zero_rows = int(zero.sum())
    inverse = (norms + zero).reciprocal()
    return Moments(
        n=k,
        shift=centre.to(wide),
        total=total * scale,
        scatter=scatter * scale**2,
        cubic=cubic * scale**3,
        quartic=quartic * scale**4,
        directions=(inverse @ (rows if size == 1 else rows / size)).to(wide),
        norms=norms.sum(dtype=wide) * size,
        zero_rows=zero_rows,
        first_zero_row=first_row + int(zero.nonzero()[0, 0]) if zero_rows else None,
        constant=rows[0].to(wide) if rows_are_equal(rows) else None,
    )


def _safe_scale(x: Tensor) -> float:
    """A power of two near max|x| if squares of x would leave its dtype's range, else 1."""
    low, high = torch.aminmax(x)
    largest = max(abs(low.item()), abs(high.item()))
    safe_low, safe_high = _SAFE if x.dtype == torch.float32 else _SAFE_FLOAT64
    if largest == 0 or safe_low < largest < safe_high:
        return 1.0
    return float(2.0 ** torch.tensor(largest, dtype=torch.float64).log2().floor().item())

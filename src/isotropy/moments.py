r"""Streaming moments of a cloud: one pass, mergeable in any split, exact far from the origin.

For rows x about a shift c, with y = x − c, a `Moments` holds n, Σy, Σyyᵀ, Σ‖y‖²y, Σ‖y‖⁴, and
Σx/‖x‖. From these follow the covariance, the unbiased estimates of its invariants and the mean
direction. Products run in the rows' compute dtype on rows that are centred by their own chunk's
mean; sums over chunks accumulate in float64.
"""

from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import Self

import torch
from torch import Tensor

from isotropy.covariance import Centring, Invariants, blocks, outer_products, power_of_two
from isotropy.directions import zero_rows_error
from isotropy.errors import InputError
from isotropy.inputs import COMPUTE_DTYPE, finite_range, full_precision

# Fourth powers of numbers between these, and sums of many of them, are safe in float64.
_SAFE = (1e-70, 1e70)
# A mean this near, in parts of the variance, costs no digits when it is subtracted at the end.
_NEAR = 1e-2
# A spread of this share of another, from which it was subtracted, is nothing but rounding.
_ROUNDING = 1e-13
# Squared norms between these are exact enough in float32.
_SAFE_SQUARES = (1e-30, 1e30)


@dataclass(frozen=True, eq=False)
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
        zero_rows: how many rows are zero.
        first_zero_row: the number of the first of them, counted from 0.

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
    zero_rows: int = 0
    first_zero_row: int | None = None

    @classmethod
    def of(
        cls,
        rows: Tensor,
        *,
        numbers: Tensor | None = None,
        bounds: tuple[Tensor, Tensor] | None = None,
    ) -> Self:
        """The moments of some rows.

        Args:
            rows: k×d floating-point tensor.
            numbers: the rows' numbers for messages, 0 to k − 1 by default.
            bounds: each column's smallest and largest value, where they are known.

        Raises:
            InputError: no rows, a value that is NaN or infinite, or too large or small a scale.
        """
        if len(rows) == 0:
            raise InputError("got an empty cloud (0 rows), expected at least 1 row")
        rows = rows.detach().to(COMPUTE_DTYPE[rows.dtype])
        low, high = bounds or finite_range(rows, numbers=numbers)
        largest = float(torch.maximum(low.abs().max(), high.abs().max()))
        if largest and not _SAFE[0] < largest < _SAFE[1]:
            raise InputError(
                f"got values up to {largest:.1g}, expected a largest value between "
                f"{_SAFE[0]:.0e} and {_SAFE[1]:.0e}; rescale the embeddings"
            )
        with full_precision(rows):
            centre = Centring.of(rows, bounds=(low, high))
            product, cubic, quartic = outer_products(rows, centre)
            directions, zeros = _directions(rows)
        scale = centre.inverse.double().reciprocal()
        if numbers is not None:
            zeros = numbers[zeros.cpu()]
        return cls(
            n=len(rows),
            shift=centre.middle.double() + centre.mean.double() * scale,
            total=torch.zeros_like(low, dtype=torch.float64),
            scatter=product.double() * scale**2,
            cubic=cubic.double() * scale**3,
            quartic=quartic.double() * scale**4,
            directions=directions,
            zero_rows=len(zeros),
            first_zero_row=int(zeros.min()) if len(zeros) else None,
        )

    def about(self, point: Tensor) -> Self:
        """The same moments with their sums taken about another point."""
        if point is self.shift or torch.equal(point, self.shift):
            return self
        return self._about(point, self.shift - point)

    def _about(self, point: Tensor, step: Tensor) -> Self:
        """The same moments of y + step, which is x − point up to the rounding of `point`."""
        cubic, quartic = self._higher(step)
        half = self.total + self.n / 2 * step
        return replace(
            self,
            shift=point,
            total=self.total + self.n * step,
            # total·stepᵀ + step·totalᵀ + n·step·stepᵀ as one product of rank two.
            scatter=torch.addmm(
                self.scatter, torch.stack((half, step), dim=1), torch.stack((step, half))
            ),
            cubic=cubic,
            quartic=quartic,
        )

    def __add__(self, other: Self) -> Self:
        """The moments of both sets of rows together."""
        if self.shift.shape != other.shift.shape:
            raise InputError(
                f"got moments of {len(self.shift)} and of {len(other.shift)} features, "
                "expected the same number"
            )
        moved = other.about(self.shift)
        # A moved scatter is a matrix of its own: adding in place saves a pass over memory.
        add = Tensor.add if moved is other else Tensor.add_
        zeros = [m.first_zero_row for m in (self, other) if m.first_zero_row is not None]
        return replace(
            self,
            n=self.n + other.n,
            total=self.total + moved.total,
            scatter=add(moved.scatter, self.scatter),
            cubic=self.cubic + moved.cubic,
            quartic=self.quartic + moved.quartic,
            directions=self.directions + other.directions,
            zero_rows=self.zero_rows + other.zero_rows,
            first_zero_row=min(zeros, default=None),
        )

    def without(self, part: Self) -> Self:
        """The moments of the rows that are left when those of `part` go, at least one.

        They lose as many digits as the part's spread has more than theirs; where none is left, the
        rest counts as equal rows.
        """
        part = part.about(self.shift)
        rest = replace(
            self,
            n=self.n - part.n,
            total=self.total - part.total,
            scatter=self.scatter - part.scatter,
            cubic=self.cubic - part.cubic,
            quartic=self.quartic - part.quartic,
            directions=self.directions - part.directions,
            zero_rows=self.zero_rows - part.zero_rows,
        )
        spread = rest.scatter.trace() - rest.total @ rest.total / rest.n
        if spread > _ROUNDING * self.scatter.trace():
            return rest
        zero = torch.zeros_like
        return replace(
            rest,
            shift=rest.mean,
            total=zero(rest.total),
            scatter=zero(rest.scatter),
            cubic=zero(rest.cubic),
            quartic=zero(rest.quartic),
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
    def central(self) -> Self:
        """The same moments about the mean."""
        # By the step itself: far from the origin, rows may differ by less than the mean's rounding.
        return self._about(self.mean, -self.total / self.n) if self.total.any() else self

    @cached_property
    def covariance(self) -> Tensor:
        """d×d, C = Σ(x − μ)(x − μ)ᵀ/(n − 1)."""
        return self.central.scatter / (self.n - 1)

    @cached_property
    def invariants(self) -> Invariants:
        """Trace and squared norm of C, and Σ‖x − μ‖⁴/(n − 1)."""
        apart = self.total @ self.total / self.n
        near = apart <= _NEAR * self.scatter.trace()
        return (self if near else self.central)._invariants()

    def _invariants(self) -> Invariants:
        apart = self.total @ self.total / self.n
        along = self.total @ (self.scatter @ self.total) / self.n
        _, quartic = self._higher(-self.total / self.n)
        flat = self.scatter.flatten()
        return Invariants(
            trace=(self.scatter.trace() - apart) / (self.n - 1),
            norm=(flat @ flat - 2 * along + apart.square()) / (self.n - 1) ** 2,
            fourth=quartic / (self.n - 1),
        )

    @cached_property
    def second(self) -> Tensor:
        """d×d, S = XᵀX, about the origin."""
        return self.about(torch.zeros_like(self.shift)).scatter

    @cached_property
    def mean_square(self) -> Tensor:
        """Scalar, the mean of ‖x‖²."""
        scatter, shift = self.scatter.trace(), self.shift
        return (scatter + 2 * (shift @ self.total)) / self.n + shift @ shift

    @cached_property
    def centred_spectrum(self) -> Tensor:
        """The squared singular values of Xc, in decreasing order; n − 1 at most are not 0."""
        return _spectrum(self.central.scatter, self.n - 1)

    @cached_property
    def spectrum(self) -> Tensor:
        """The squared singular values of X, in decreasing order; n at most are not 0."""
        return _spectrum(self.second, self.n)

    def _higher(self, step: Tensor) -> tuple[Tensor, Tensor]:
        """Σ‖y‖²y and Σ‖y‖⁴ of y = x − c + step."""
        trace, length = self.scatter.trace(), step @ step
        along, slant = self.scatter @ step, step @ self.total
        cubic = (
            self.cubic
            + 2 * along
            + length * self.total
            + (trace + 2 * slant + self.n * length) * step
        )
        quartic = (
            self.quartic
            + 4 * (step @ along)
            + 4 * (step @ self.cubic)
            + 2 * length * trace
            + 4 * length * slant
            + self.n * length.square()
        )
        return cubic, quartic

    def require_directions(self) -> None:
        """Raise an UndefinedError if a row is zero and so has no direction."""
        if self.zero_rows:
            raise zero_rows_error(self.zero_rows, self.first_zero_row or 0)


def merge(parts: list[Moments]) -> Moments:
    """The moments of all parts together."""
    return reduce(Moments.__add__, parts)


def _spectrum(scatter: Tensor, rank: int) -> Tensor:
    scale = power_of_two(scatter.diagonal().max())
    values: Tensor = torch.linalg.eigvalsh(scatter / scale).flip(0).clamp(min=0)
    values[rank:] = 0  # what is left there is rounding
    return values * scale


def _directions(rows: Tensor) -> tuple[Tensor, Tensor]:
    """Σx/‖x‖ in float64, and the numbers of the rows that are zero."""
    total = torch.zeros(rows.shape[1], dtype=torch.float64, device=rows.device)
    zeros = []
    first = 0
    for block in blocks(rows):
        squares = torch.linalg.vecdot(block, block)
        low, high = torch.aminmax(squares)
        if not _SAFE_SQUARES[0] < float(low) <= float(high) < _SAFE_SQUARES[1]:
            largest = torch.linalg.vector_norm(block, torch.inf, dim=1)
            zeros.append((largest == 0).nonzero()[:, 0] + first)
            block = block / largest.where(largest > 0, 1.0)[:, None]
            squares = torch.linalg.vecdot(block, block)
            squares += squares == 0
        total += squares.rsqrt() @ block
        first += len(block)
    return total, torch.cat(zeros) if zeros else torch.empty(0, dtype=torch.int64)

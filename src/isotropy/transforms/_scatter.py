r"""The mean and scatter of weighted rows: one pass, mergeable in any split, exact anywhere.

It is what `isotropy.moments` keeps without the higher orders, and with weights. Products run in the
rows' dtype on rows that are centred and scaled; sums over chunks accumulate in float64.
"""

from dataclasses import dataclass
from typing import Self

import torch
from torch import Tensor

from isotropy.covariance import Centring, blocks, power_of_two
from isotropy.errors import InputError
from isotropy.inputs import full_precision

# Squares of numbers between these, and sums of many of them, are safe in float64.
_SAFE = (1e-100, 1e100)


@dataclass(frozen=True, eq=False)
class Scatter:
    """The second moments of rows x with weights w; tensors in float64.

    Attributes:
        n: number of rows with a weight that is not zero.
        weight: Σw.
        squares: Σw².
        mean: d, μ = Σwx/Σw.
        products: d×d, Σw(x − μ)(x − μ)ᵀ; or d, its diagonal alone.

    Example:
        >>> x = torch.tensor([[1.0, 0.0], [0.0, 1.0], [2.0, 2.0]])
        >>> (Scatter.of(x[:1]) + Scatter.of(x[1:])).mean.tolist()
        [1.0, 1.0]
    """

    n: int
    weight: float
    squares: float
    mean: Tensor
    products: Tensor

    @classmethod
    def of(
        cls,
        rows: Tensor,
        weights: Tensor | None = None,
        *,
        bounds: tuple[Tensor, Tensor] | None = None,
        diagonal: bool = False,
    ) -> Self:
        """The second moments of some rows.

        Args:
            rows: k×d, float32 or float64, finite.
            weights: k positive numbers in float64, 1 for every row by default.
            bounds: each column's smallest and largest value, where they are known.
            diagonal: whether to keep the products of every feature with itself alone.

        Raises:
            InputError: too large or small a scale.
        """
        with full_precision(rows):
            centre = Centring.of(rows, bounds=bounds)
            scale = 1 / float(centre.inverse.double())
            largest = float(centre.middle.abs().max())
            if largest > _SAFE[1] or not _SAFE[0] < scale < _SAFE[1]:
                raise InputError(
                    f"got values around {max(largest, scale):.1g} with a spread of about "
                    f"{scale:.1g}, expected both between {_SAFE[0]:.0e} and {_SAFE[1]:.0e}; "
                    "rescale the embeddings"
                )
            unit, share = 1.0, None
            if weights is not None:
                unit = float(weights.max())  # next to the largest, weights are safe in float32
                share = (weights / unit).to(rows)
                centre = _weighted(rows, share, centre)
            products = rows.new_zeros(rows.shape[1:] if diagonal else (rows.shape[1],) * 2)
            first = 0
            for block in blocks(rows):
                y = centre(block)
                wy = y if share is None else y * share[first : first + len(block), None]
                if diagonal:
                    products += (wy * y).sum(dim=0)
                else:
                    products.addmm_(wy.T, y)
                first += len(block)
        k = len(rows)
        return cls(
            n=k,
            weight=float(k if weights is None else weights.sum()),
            squares=float(k if weights is None else weights.square().sum()),
            mean=centre.middle.double() + centre.mean.double() * scale,
            products=products.double() * (scale**2 * unit),
        )

    def __add__(self, other: Self) -> Self:
        """The second moments of both sets of rows together."""
        weight = self.weight + other.weight
        step = other.mean - self.mean
        apart = step.square() if self.products.ndim == 1 else torch.outer(step, step)
        return type(self)(
            n=self.n + other.n,
            weight=weight,
            squares=self.squares + other.squares,
            mean=self.mean + step * (other.weight / weight),
            products=self.products + other.products + apart * (self.weight * other.weight / weight),
        )

    @property
    def covariance(self) -> Tensor:
        """Products over Σw − Σw²/Σw, which is n − 1 for equal weights; unbiased for any."""
        return self.products / (self.weight - self.squares / self.weight)


def principal(covariance: Tensor) -> tuple[Tensor, Tensor]:
    """The eigenvalues of a covariance in decreasing order and its eigenvectors as rows.

    An eigenvector has no sign: its largest entry is made positive.

    Example:
        >>> values, vectors = principal(torch.diag(torch.tensor([1.0, 4.0], dtype=torch.float64)))
        >>> values.tolist(), vectors.abs().tolist()
        ([4.0, 1.0], [[0.0, 1.0], [1.0, 0.0]])
    """
    scale = power_of_two(covariance.diagonal().max())
    values, vectors = torch.linalg.eigh(covariance / scale)
    rows = vectors.T.flip(0)
    largest = rows.gather(1, rows.abs().argmax(dim=1, keepdim=True))
    return values.flip(0).clamp(min=0) * scale, rows * largest.sign()


def _weighted(rows: Tensor, share: Tensor, centre: Centring) -> Centring:
    """The same centring about the weighted mean."""
    total = torch.zeros_like(centre.mean)
    first = 0
    for block in blocks(rows):
        y = (block - centre.middle) * centre.inverse
        total.addmv_(y.T, share[first : first + len(block)])
        first += len(block)
    return centre._replace(mean=total / share.sum())

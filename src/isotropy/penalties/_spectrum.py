"""Singular values near a slowly falling curve, as a penalty."""

import math
from abc import abstractmethod
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from isotropy import ranks
from isotropy._factor import Factor
from isotropy.covariance import blocks
from isotropy.errors import SettingError
from isotropy.penalties._penalty import Penalty, count, kept
from isotropy.representations import Rows
from isotropy.settings import number

# Below this share of the largest, a singular value drowns in the rounding of its square.
_SMALLEST = 1e-7
# A gradient this many times smaller than the terms of its product keeps five digits in float32.
_WELL_CONDITIONED = 100
# Products of fewer columns than these are not worth cutting.
_FEW_COLUMNS = 128


class Spectrum(Penalty):
    r"""λ Σ_k (σ_k − t_k)², with σ the singular values of the rows and t a falling curve.

    They come from the smaller of the two Gram matrices, in float64, and the gradient
    W·V·diag(2(σ − t)/σ)·Vᵀ needs no derivative of a vector: it is finite where singular values
    repeat or vanish. On a CUDA device the solver waits to hear whether it has converged, as
    PyTorch has no other.

    Args:
        weight: λ.
        c1: the curve's scale; without one, that of the first batch's energy, Σ t² = ‖W_0‖².
        site: which rows.
        settings: see `Penalty`.
    """

    c1: Tensor

    def __init__(self, weight: float, c1: float | None, site: str, **settings: Any) -> None:
        super().__init__(weight=weight, site=site, **settings)
        scale = torch.nan if c1 is None else number("c1", c1, low=0, open=True)
        self.register_buffer("c1", torch.tensor(scale, dtype=torch.float64))
        self._usable: set[int] = set()

    @abstractmethod
    def curve(self, k: Tensor) -> Tensor:
        """The targets over c1 for k = 1, 2, …."""

    def value(self, rows: Rows) -> Tensor:
        """Σ_k (σ_k − t_k)² over k = 1…min(N, d).

        Raises:
            SettingError: a curve that no spectrum can be near.
        """
        x, mask, _ = rows.joined()
        x = kept(x, mask)
        w = x.detach()
        world = 1 if rows.shared else ranks.world_size(self.group)
        is_wide = len(x) < rows.d and world == 1
        gram = _gram(w.T if is_wide else w)
        if not is_wide:
            gram = self.total(gram, rows)
        # The solver would fail on what is not finite.
        energy = gram.trace()
        squares, vectors = torch.linalg.eigh(torch.where(energy.isfinite(), gram, 0))
        sigma, vectors = squares.flip(0).clamp(min=0).sqrt(), vectors.flip(1)

        self._require_curve(len(sigma))
        k = torch.arange(1, len(sigma) + 1, dtype=sigma.dtype, device=sigma.device)
        n = self.total(count(w, mask), rows)
        targets = torch.where(k <= n, self.curve(k), 0)
        c1 = self.c1.to(sigma.device)
        found = (energy / targets.square().sum()).sqrt()
        # A batch without energy says nothing of the scale: the next one may.
        found = torch.where((found > 0) & found.isfinite(), found, torch.nan)
        self.c1 = torch.where(c1.isnan(), found, c1)
        off = torch.where(k <= n, sigma - self.c1 * targets, 0)
        is_seen = sigma > _SMALLEST * sigma[0]
        factors = torch.where(is_seen, 2 * off / torch.where(is_seen, sigma, 1), 0)
        matrix = world * (vectors * factors) @ vectors.T
        terms = energy.sqrt() * factors.abs().max()
        # On a CPU float32 takes half the time, and there looking at a value takes none.
        if x.device.type == "cpu" and terms < _WELL_CONDITIONED * 2 * off.norm():
            matrix = matrix.to(x.dtype)
        total = torch.where((n > 0) & energy.isfinite(), off.square().sum(), torch.nan)
        value: Tensor = _WithGradient.apply(x, total, matrix, is_wide)  # type: ignore[no-untyped-call]
        return value

    def _require_curve(self, length: int) -> None:
        """Raise a SettingError unless the targets of this many values have a finite energy.

        They depend on nothing but their number: one look on the host is enough for each.
        """
        if length in self._usable:
            return
        curve = self.curve(torch.arange(1, length + 1, dtype=torch.float64))
        energy = float(curve.square().sum())
        if not 0 < energy < math.inf:
            raise SettingError(
                f"got {self!r}, whose {length} targets have an energy of {energy:g}, expected a "
                "finite curve that is not zero; give settings nearer to 0"
            )
        self._usable.add(length)


class _WithGradient(torch.autograd.Function):
    """A value whose gradient with respect to x is x·matrix, or matrix·x."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, value: Tensor, matrix: Tensor, is_left: bool) -> Tensor:
        ctx.save_for_backward(x, matrix)
        ctx.is_left = is_left
        return value

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None, None]:
        x, matrix = ctx.saved_tensors
        matrix = grad * matrix
        if ctx.is_left:
            return (matrix @ x.to(matrix.dtype)).to(x.dtype), None, None, None
        result, factor = torch.empty_like(x), Factor(matrix.T)
        for block, out in zip(blocks(x), blocks(result), strict=True):
            out.copy_(factor.times(block.to(matrix.dtype)))
        return result, None, None, None


def _gram(x: Tensor) -> Tensor:
    """XᵀX in float64."""
    product = torch.zeros(x.shape[1], x.shape[1], dtype=torch.float64, device=x.device)
    for block in blocks(x):
        _add_gram(product, block.double())
    return product.triu() + product.triu(1).T


def _add_gram(product: Tensor, x: Tensor) -> None:
    """Add XᵀX on and above the diagonal, which is half the work and says all."""
    d = len(product)
    if d < _FEW_COLUMNS:
        product.addmm_(x.T, x)
        return
    left, right = x[:, : d // 2], x[:, d // 2 :]
    product[: d // 2, d // 2 :].addmm_(left.T, right)
    _add_gram(product[: d // 2, : d // 2], left)
    _add_gram(product[d // 2 :, d // 2 :], right)

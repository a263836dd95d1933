"""Glow on vectors, of zuko's parts; imported only where a flow is made."""

from functools import partial
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.distributions import Transform, constraints
from zuko.flows.coupling import GeneralCouplingTransform
from zuko.lazy import LazyTransform, UnconditionalTransform
from zuko.transforms import (
    AdditiveTransform,
    CouplingTransform,
    LULinearTransform,
    PermutationTransform,
)

from isotropy import ranks

# A feature whose variance is less than this share of the mean one is not blown up to variance 1.
_FLOOR = 1e-6
# Rows of a mean variance under this are as good as equal.
_EQUAL = 1e-12


class Mapped(NamedTuple):
    """What a flow makes of a batch.

    Attributes:
        z: n×d.
        log_det: n, the logarithm of the absolute determinant of the Jacobian at each row.
    """

    z: Tensor
    log_det: Tensor


class Glow(nn.Module):
    """Levels of steps, each on the part of the features that the level before has not put aside.

    Args:
        d: number of features.
        levels: how many levels; each puts half of its features aside.
        steps: how many steps a level has.
        width: neurons in the two hidden layers of a coupling.
        linear: whether a learned linear map follows each permutation.
        seed: of the permutations.
    """

    def __init__(
        self, d: int, *, levels: int, steps: int, width: int, linear: bool, seed: int
    ) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        self.levels = nn.ModuleList()
        active = d
        for _ in range(levels):
            parts: list[nn.Module] = []
            for _ in range(steps):
                parts.append(ActNorm(active))
                order = torch.randperm(active, generator=generator)
                parts.append(UnconditionalTransform(PermutationTransform, order, buffer=True))
                if linear:
                    parts.append(UnconditionalTransform(LULinearTransform, torch.eye(active)))
                parts.append(AdditiveCoupling(active, width))
            self.levels.append(nn.ModuleList(parts))
            active //= 2

    def forward(self, x: Tensor) -> Mapped:
        """The rows' z and the log-determinants."""
        aside, log_det = [], x.new_zeros(len(x))
        if len(x) == 0:  # for which torch cannot tell the features from the rows
            return Mapped(x, log_det)
        for number, level in enumerate(self._parts()):
            if number:
                x, rest = _halves(x)
                aside.append(rest)
            for part in level:
                x, more = part().call_and_ladj(x)
                log_det = log_det + more
        return Mapped(torch.cat((x, *reversed(aside)), dim=1), log_det)

    def inverse(self, z: Tensor) -> Tensor:
        """The rows that give z."""
        if len(z) == 0:
            return z
        sizes = [z.shape[1]]
        for _ in self.levels[1:]:
            sizes.append(sizes[-1] // 2)
        for size, level in zip(reversed(sizes), reversed(self._parts()), strict=True):
            x = z[:, :size]
            for part in reversed(level):
                x = part().inv(x)
            z = torch.cat((x, z[:, size:]), dim=1)
        return z

    def _parts(self) -> list[nn.ModuleList]:
        return cast(list[nn.ModuleList], list(self.levels))

    @torch.no_grad()
    def initialise(self, x: Tensor, group: ranks.Group) -> bool:
        """Give what leaves each ActNorm mean 0 and variance 1 on a batch; whether that went well.

        It does not of rows that are fewer than two on all ranks together, not finite, or as good
        as equal.
        """
        n, _, variance = _moments(x, group)
        if not bool((n > 1) & variance.sum().isfinite() & (variance.mean() > _EQUAL)):
            return False
        for number, level in enumerate(self._parts()):
            x = _halves(x)[0] if number else x
            for part in level:
                if isinstance(part, ActNorm):
                    part.initialise(x, group)
                x = part()(x)
        return True


class ActNorm(LazyTransform):  # type: ignore[misc]
    """A scale and a shift for each feature."""

    def __init__(self, d: int) -> None:
        super().__init__()
        self.log_scale = nn.Parameter(torch.zeros(d))
        self.shift = nn.Parameter(torch.zeros(d))

    def forward(self, c: Tensor | None = None) -> "_ScaleAndShift":
        """The transform."""
        return _ScaleAndShift(self.log_scale, self.shift)

    def initialise(self, x: Tensor, group: ranks.Group) -> None:
        """Set both from a batch on all ranks."""
        _, mean, variance = _moments(x, group)
        least = _FLOOR * variance.mean()
        scale = variance.maximum(torch.where(least > 0, least, 1)).rsqrt()
        self.log_scale.copy_(scale.log())
        self.shift.copy_(-mean * scale)


class AdditiveCoupling(GeneralCouplingTransform):  # type: ignore[misc]
    """The second half of the features moved by what a small network makes of the first."""

    def __init__(self, d: int, width: int) -> None:
        super().__init__(
            d,
            mask=torch.arange(d) < d // 2,
            univariate=AdditiveTransform,
            shapes=((),),
            hidden_features=(width, width),
        )
        nn.init.zeros_(self.hyper[-1].weight)
        nn.init.zeros_(self.hyper[-1].bias)

    def forward(self, c: Tensor | None = None) -> "_HalvesCoupling":
        """The transform."""
        return _HalvesCoupling(partial(self.meta, None))


class _ScaleAndShift(Transform):
    domain = constraints.real_vector
    codomain = constraints.real_vector
    bijective = True

    def __init__(self, log_scale: Tensor, shift: Tensor) -> None:
        super().__init__()
        self.log_scale, self.shift = log_scale, shift

    def _call(self, x: Tensor) -> Tensor:
        return torch.addcmul(self.shift, x, self.log_scale.exp())

    def _inverse(self, y: Tensor) -> Tensor:
        return (y - self.shift) * self.log_scale.neg().exp()

    def log_abs_det_jacobian(self, x: Tensor, y: Tensor) -> Tensor:
        return self.log_scale.sum().expand(len(x))

    def call_and_ladj(self, x: Tensor) -> tuple[Tensor, Tensor]:
        y = self._call(x)
        return y, self.log_abs_det_jacobian(x, y)


class _HalvesCoupling(CouplingTransform):  # type: ignore[misc]
    """zuko's, on halves that lie side by side: slices where it gathers and scatters."""

    def __init__(self, meta: Any) -> None:
        Transform.__init__(self)
        self.meta = meta

    def split(self, x: Tensor) -> tuple[Tensor, ...]:
        half = x.shape[-1] // 2
        return x[..., :half], x[..., half:]

    def merge(self, x_a: Tensor, x_b: Tensor, shape: Any) -> Tensor:
        return torch.cat((x_a, x_b), dim=-1)


def _moments(x: Tensor, group: ranks.Group) -> tuple[Tensor, Tensor, Tensor]:
    """The number, the mean and the variance of the rows on all ranks."""
    sums = ranks.total(torch.cat((x.sum(dim=0), x.new_full((1,), len(x)))), group)
    n, mean = sums[-1], sums[:-1] / sums[-1].clamp(min=1)
    squares = ranks.total((x - mean).square().sum(dim=0), group)
    return n, mean, squares / n.clamp(min=1)


def _halves(x: Tensor) -> tuple[Tensor, Tensor]:
    """What the next level works on, and what is put aside."""
    half = x.shape[1] // 2
    return x[:, :half], x[:, half:]

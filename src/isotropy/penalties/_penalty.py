"""What all penalties share: sites, precision, weights, and that no batch can poison a training."""

import inspect
import math
from abc import ABC, abstractmethod
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from isotropy import ranks
from isotropy.errors import InputError, SettingError
from isotropy.inputs import COMPUTE_DTYPE, full_precision
from isotropy.representations import Representations, Rows
from isotropy.settings import flag, number
from isotropy.sites import Site


class Penalty(nn.Module, ABC):
    """A term of the loss: `penalty(representations)` is a scalar, its weight included.

    It is computed in float32 (float64 for float64 rows) whatever the training's precision, on the
    rows of all ranks. A batch for which it is undefined, as it is too small or all rows are equal,
    contributes 0 with a gradient of 0 and is counted in `skipped`; nothing is copied to the host to
    find that out.

    Args:
        weight: the factor in the loss, negative to do the opposite.
        site: which rows it looks at, such as `"cls@last"`; see `isotropy.sites.Site`.
        include_padding: whether padding counts as tokens.
        group: the process group whose ranks share a batch; all of them by default.
    """

    skipped: Tensor

    def __init__(
        self,
        *,
        weight: float,
        site: str,
        include_padding: bool = False,
        group: ranks.Group = None,
    ) -> None:
        super().__init__()
        self.weight = number("weight", weight)
        self.site = _site(site)
        self.include_padding = flag("include_padding", include_padding)
        self.group = group
        self.register_buffer("skipped", torch.zeros((), dtype=torch.int64), persistent=False)

    @abstractmethod
    def value(self, rows: Rows) -> Tensor:
        """The penalty without its weight, 0-d; NaN or infinite where it is undefined."""

    def forward(self, representations: Representations) -> Tensor:
        """The weighted penalty of a batch, 0-d.

        Raises:
            SettingError: the representations have no such site.
            InputError: they are no representations.
        """
        return self.of(self.rows(representations))

    def rows(self, representations: Representations) -> Rows:
        """The rows of a batch that it looks at."""
        if not isinstance(representations, Representations):
            raise InputError(
                f"got {type(representations).__name__}, expected Representations; make them with "
                "isotropy.Representations.from_cloud(x) of an n×d tensor, or with from_output of a "
                "model's output"
            )
        return representations.rows(self.site, include_padding=self.include_padding)

    def of(self, rows: Rows) -> Tensor:
        """The weighted penalty of rows that were taken from representations before, 0-d."""
        rows = _filled(rows)
        gate = _Gate()
        blocks = tuple(gate(block.to(COMPUTE_DTYPE[block.dtype])) for block in rows.blocks)
        with full_precision(blocks[0]):
            # Some are computed in float64, which would make all of the loss float64.
            value = (self.weight * self.value(rows._replace(blocks=blocks))).to(blocks[0].dtype)
            gate.open = torch.isfinite(value.detach())
            self.skipped = self.skipped.to(value.device) + ~gate.open
            return torch.where(gate.open, value, 0)

    def refresh(self, model: nn.Module, batches: Iterable[Any], points: int = 250_000) -> None:
        """What a penalty has to do at every epoch's start; most have nothing to do.

        Args:
            model: the model in training.
            batches: its inputs, as dicts of tensors.
            points: how many rows to look at.
        """

    def extra_repr(self) -> str:
        """What `print` shows: the settings of its own, and those of all that are not as usual."""
        usual = inspect.signature(Penalty).parameters
        names = dict.fromkeys([*inspect.signature(type(self)).parameters, *usual])
        parts = [f"weight={self.weight:g}", f"site={str(self.site)!r}"]
        for name in [name for name in names if name not in ("weight", "site")]:
            value = getattr(self, name, None)
            text = _shown(value)
            if text is not None and not (name in usual and value == usual[name].default):
                parts.append(f"{name}={text}")
        return ", ".join(parts)

    def total(self, x: Tensor, rows: Rows) -> Tensor:
        """The sum over all ranks of what was computed from `rows`, with gradient."""
        return x if rows.shared else ranks.total(x, self.group)

    def everyones(self, rows: Rows) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """The rows of all ranks in one tensor, which of them count, and their labels.

        There are no labels where a rank has none, as its batch may be of another data set.
        """
        x, mask, labels = rows.joined()
        if rows.shared or ranks.world_size(self.group) == 1:
            return x, mask, labels
        if mask is None:  # other ranks may have one
            mask = torch.ones_like(x[:, 0], dtype=torch.bool)
        lacking = torch.full((), float(labels is None), device=x.device)
        if bool(ranks.largest(lacking, self.group)):
            labels = None
        return (
            ranks.gathered(x, self.group),
            ranks.gathered(mask, self.group),
            None if labels is None else ranks.gathered(labels, self.group),
        )


def _filled(rows: Rows) -> Rows:
    """Blocks of fewer than two rows filled up with rows that do not count.

    Operations fail on shapes with a zero, and a rank without rows must not stop for that.
    """
    few = [max(0, 2 - len(block)) for block in rows.blocks]
    if not any(few):
        return rows
    blocks, masks, labels = [], [], rows.labels
    for block, mask, n in zip(rows.blocks, rows.masks, few, strict=True):
        blocks.append(torch.cat((block, block.new_zeros(n, block.shape[1]))))
        known = torch.ones_like(block[:, 0], dtype=torch.bool) if mask is None else mask
        masks.append(torch.cat((known, known.new_zeros(n))))
    if labels is not None:
        labels = torch.cat((labels, labels.new_zeros(few[0])))
    return Rows(tuple(blocks), tuple(masks), labels, rows.shared)


class _Gate:
    """Lets gradients through once the penalty has turned out to be finite.

    An undefined value has undefined derivatives, and 0 times those is NaN: only where the rows
    come in can they be kept out.
    """

    open: Tensor

    def __call__(self, rows: Tensor) -> Tensor:
        passed: Tensor = _Gated.apply(rows, self)  # type: ignore[no-untyped-call]
        return passed


class _Gated(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rows: Tensor, gate: _Gate) -> Tensor:
        ctx.gate = gate
        return rows.view_as(rows)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        low, high = torch.aminmax(grad)  # both pass NaN on, and are far faster than a norm
        passes = ctx.gate.open & low.isfinite() & high.isfinite()
        if grad.device.type == "cpu" and bool(passes):  # where a look costs less than a copy
            return grad, None
        return torch.where(passes, grad, 0), None


def kept(x: Tensor, mask: Tensor | None) -> Tensor:
    """The rows with zeros for those that do not count, whatever they hold."""
    return x if mask is None else x.masked_fill(~mask[:, None], 0)


def covariance(penalty: Penalty, rows: Rows) -> Tensor:
    """d×d, the covariance of the rows of all ranks; NaN of fewer than two."""
    parts = [(kept(x, mask), mask) for x, mask in zip(rows.blocks, rows.masks, strict=True)]
    sums = [torch.cat((x.sum(dim=0), count(x, mask)[None])) for x, mask in parts]
    both = penalty.total(torch.stack(sums).sum(dim=0), rows)
    # The covariance does not change with the point that is subtracted, if that is near the mean: so
    # no gradient flows through it, which would be that of this rank's rows alone.
    mean, n = (both[:-1] / both[-1]).detach(), both[-1]
    centred = [kept(x - mean, mask) for x, mask in parts]
    product = torch.stack([y.T @ y for y in centred]).sum(dim=0)
    return penalty.total(product, rows) / torch.where(n > 1, n - 1, torch.nan)


def directions(x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor]:
    """Rows of unit length, n×d, zero for those that do not count; and which do, n.

    Rows of zeros have no direction and do not count.
    """
    x = kept(x, mask)
    size = x.detach().abs().amax(dim=1, keepdim=True)
    counts = size != 0  # NaN too, which then shows in the result
    # Next to its largest value a row's squares neither overflow nor vanish.
    x = x / torch.where(counts, size, 1)
    squares = x.square().sum(dim=1, keepdim=True)
    return x / torch.where(counts, squares, 1).sqrt(), counts[:, 0]


def count(x: Tensor, mask: Tensor | None) -> Tensor:
    """How many rows count, 0-d, in the dtype of `x`."""
    if mask is None:
        return x.new_full((), len(x))  # a new tensor of a number would be copied from the host
    return mask.sum(dtype=x.dtype)


def _shown(value: Any) -> str | None:
    """A setting in a few characters, None where nothing has been set or found yet."""
    if isinstance(value, Tensor):
        if value.ndim:
            return f"<{'×'.join(map(str, value.shape))}>"
        value = float(value)
    if isinstance(value, float):
        return None if math.isnan(value) else f"{value:g}"
    return None if value is None else repr(value)


def _site(site: str) -> Site:
    if not isinstance(site, str):
        raise SettingError(f"got site={site!r}, expected a text such as 'cls@last'")
    return Site.parse(site)

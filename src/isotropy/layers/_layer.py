"""What all layers share: their size, their settings, the check of what comes in."""

from abc import ABC
from collections.abc import Callable
from typing import Any, Self

import torch
from torch import Tensor, nn

from isotropy.errors import InputError
from isotropy.settings import whole_number

_HALF = (torch.float16, torch.bfloat16)


class Layer(nn.Module, ABC):
    """A map from n×d embeddings to n×d embeddings that stands between an encoder and its head.

    Args:
        d: number of features.
        settings: what else makes the layer again, as a configuration file can hold it.

    Attributes:
        learning_rate: what the layer's own parameters are trained with, where that is not the rate
            of the rest of the model.
        in_float32: whether the layer stays in float32 in a model of half precision.
    """

    learning_rate: float | None = None
    in_float32 = False

    def __init__(self, d: int, **settings: Any) -> None:
        super().__init__()
        self.d = whole_number("d", d, low=2)
        self.settings = {"d": self.d, **settings}

    def own_loss(self) -> Tensor | None:
        """What the layer adds to the loss for the batch that it saw last; most add nothing."""
        return None

    def check(self, x: Tensor) -> None:
        """Raise an InputError unless `x` is an n×d floating-point tensor."""
        if not isinstance(x, Tensor) or x.shape[1:] != (self.d,) or not x.is_floating_point():
            given = f"shape {tuple(x.shape)}" if isinstance(x, Tensor) else type(x).__name__
            raise InputError(
                f"got embeddings of {given}, expected an n×{self.d} floating-point tensor, as the "
                f"layer was made with d={self.d}"
            )

    def extra_repr(self) -> str:
        """What `print` shows."""
        return ", ".join(f"{name}={value!r}" for name, value in self.settings.items())

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """What `to`, `half` and `cuda` do; running sums and log-determinants need float32."""

        def keeping(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            if self.in_float32 and moved.dtype in _HALF:
                return tensor.to(moved.device, torch.float32)
            return moved

        super()._apply(keeping, recurse)  # type: ignore[no-untyped-call]
        return self

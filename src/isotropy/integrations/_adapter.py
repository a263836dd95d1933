"""A model of any framework as a penalty's refresh and a tracker expect one."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from isotropy.representations import Representations


class Adapter(nn.Module):
    """Calls a function on a batch, and returns representations whatever it returned.

    Args:
        model: whose parts are switched to evaluation mode.
        show: from a batch to representations, or to a cloud of n×d.

    Example:
        >>> import torch
        >>> shown = Adapter(nn.Identity(), lambda batch: batch["x"])(batch={"x": torch.eye(2)})
        >>> shown.cloud.shape
        torch.Size([2, 2])
    """

    def __init__(self, model: nn.Module, show: Callable[[Any], Any]) -> None:
        super().__init__()
        self.model = model
        self._show = show

    def forward(self, batch: Any, **_: Any) -> Representations:
        """What a batch shows."""
        return as_representations(self._show(batch))


def as_representations(shown: Any) -> Representations:
    """Representations, or those of a cloud.

    Raises:
        InputError: neither.
    """
    if isinstance(shown, Representations):
        return shown
    cloud: Tensor = shown
    return Representations.from_cloud(cloud)

"""Two losses on one scale."""

import torch
from torch import Tensor, nn

from isotropy import ranks
from isotropy.settings import number


class BalancedLoss(nn.Module):
    r"""The mean of two losses that are brought to the same scale by their moving averages.

    $$\hat L = \tfrac12 (\hat L_1 + \hat L_2), \qquad
      \hat L_i = L_i \, \frac{\bar L}{\bar L_i}, \qquad \bar L = \tfrac12 (\bar L_1 + \bar L_2)$$

    Each average is first set to its loss's first value; then at step k = 1, 2, …, before it is
    used, $\bar L_i \leftarrow \frac{s}{1+k} L_i + (1 - \frac{s}{1+k}) \bar L_i$. No gradient flows
    through the averages. In evaluation mode they stay as they are. On several ranks they are of the
    losses' means over the ranks. A value that is not finite does not enter them, and a loss whose
    average is 0 keeps its scale.

    Args:
        s: how much a new value weighs.
        group: the process group whose ranks train together; all of them by default.

    References:
        "Optimizing the performance of text classification models by improving the isotropy of the
        embeddings using a joint loss function", equation 3.

    Example:
        >>> balanced = BalancedLoss()
        >>> balanced(torch.tensor(1.0), torch.tensor(3.0))  # both count as their average, 2
        tensor(2.)
    """

    averages: Tensor
    step: Tensor

    def __init__(self, s: float = 0.15, *, group: ranks.Group = None) -> None:
        super().__init__()
        self.s = number("s", s, low=0, high=1)
        self.group = group
        self.register_buffer("averages", torch.zeros(2, dtype=torch.float64))
        self.register_buffer("step", torch.zeros((), dtype=torch.int64))

    def forward(self, task: Tensor, isotropy: Tensor) -> Tensor:
        """The balanced loss of two losses that are not negative, 0-d."""
        if self.training:
            self._update(torch.stack((task.detach().double(), isotropy.detach().double())))
        averages = self.averages
        known = (averages > 0) & (self.step > 0)
        weights = torch.where(known, averages.mean() / torch.where(known, averages, 1), 1)
        weights = weights.to(torch.promote_types(task.dtype, torch.float32))
        return (weights[0] * task + weights[1] * isotropy) / 2

    @torch.no_grad()
    def _update(self, values: Tensor) -> None:
        values = ranks.total(values, self.group) / ranks.world_size(self.group)
        share = torch.where(self.step == 0, 1.0, self.s / (1 + self.step.double()))
        usable = values.isfinite()
        moved = torch.where(usable, values * share + self.averages * (1 - share), self.averages)
        self.averages.copy_(moved)
        self.step += usable.all()

    def extra_repr(self) -> str:
        """What `print` shows."""
        return f"s={self.s:g}"

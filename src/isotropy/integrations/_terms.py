"""A loss of a task and a penalty, and what should be seen of the two in a training's logs."""

from collections.abc import Iterable

import torch
from torch import Tensor, nn

from isotropy.penalties import Penalty
from isotropy.representations import Representations


class Terms:
    """Adds a penalty to a task's loss, and keeps means of both until somebody logs them.

    Means are summed up on the device: a training step waits for nothing.

    Args:
        penalty: the penalty, its weight included.
    """

    def __init__(self, penalty: Penalty) -> None:
        self.penalty = penalty
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def add(self, task: Tensor, shown: Representations) -> Tensor:
        """The weighted penalty of a batch, to be added to the task's loss."""
        value: Tensor = self.penalty(shown)
        self._keep("task_loss", task)
        self._keep("penalty", value)
        return value

    def compare(self, task: Tensor, penalty: Tensor, parameters: Iterable[nn.Parameter]) -> None:
        """Keep the penalty's gradient norm as a multiple of the task's: it costs two backwards."""
        chosen = [parameter for parameter in parameters if parameter.requires_grad]
        norms = [
            _norm(torch.autograd.grad(term, chosen, retain_graph=True, allow_unused=True))
            for term in (penalty, task)
            if term.requires_grad
        ]
        if len(norms) == 2:
            ratio = norms[0] / norms[1]
            self._keep("penalty_gradient_ratio", torch.where(ratio.isfinite(), ratio, 0))

    def logs(self) -> dict[str, float]:
        """The means since the last call, and how many batches the penalty has skipped so far."""
        found = {key: float(total) / self._counts[key] for key, total in self._sums.items()}
        self._sums, self._counts = {}, {}
        if found and (skipped := int(self.penalty.skipped)):
            found["penalty_skipped"] = skipped
        return found

    def _keep(self, key: str, value: Tensor) -> None:
        value = value.detach().double()
        self._sums[key] = self._sums[key] + value if key in self._sums else value
        self._counts[key] = self._counts.get(key, 0) + 1


def _norm(gradients: Iterable[Tensor | None]) -> Tensor:
    norms = [torch.linalg.vector_norm(g.double()) for g in gradients if g is not None]
    return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.tensor(0.0)

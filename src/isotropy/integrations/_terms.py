"""A loss of a task and a penalty, and what should be seen of the two in a training's logs."""

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from isotropy import ranks
from isotropy.penalties import Penalty


class Terms:
    """Keeps means of a loss's terms, and of their gradients, until somebody logs them.

    Means are summed up on the device: a training step waits for nothing.

    Args:
        penalty: the penalty, its weight included; None where there are layers alone.

    Example:
        >>> from isotropy import penalties
        >>> terms = Terms(penalties.Cosine())
        >>> terms.keep(task_loss=torch.tensor(2.0), penalty=torch.tensor(0.5))
        >>> terms.logs()
        {'task_loss': 2.0, 'penalty': 0.5}
    """

    def __init__(self, penalty: Penalty | None) -> None:
        self.penalty = penalty
        self.group = None if penalty is None else penalty.group
        self._sums: dict[str, Tensor] = {}
        self._counts: dict[str, int] = {}

    def keep(self, **values: Tensor) -> None:
        """Add each value to its mean."""
        for key, value in values.items():
            value = value.detach().double()
            self._sums[key] = self._sums[key] + value if key in self._sums else value
            self._counts[key] = self._counts.get(key, 0) + 1

    def compare(self, task: Tensor, penalty: Tensor, parameters: Iterable[nn.Parameter]) -> None:
        """Keep the penalty's gradient norm as a multiple of the task's: it costs two backwards.

        On several ranks it is the norm of the gradient that they share.
        """
        chosen = [parameter for parameter in parameters if parameter.requires_grad]
        norms = [
            _norm(_gradient(term, chosen), self.group)
            for term in (penalty, task)
            if term.requires_grad
        ]
        if len(norms) == 2:
            ratio = norms[0] / norms[1]
            self.keep(penalty_gradient_ratio=torch.where(ratio.isfinite(), ratio, 0))

    def logs(self) -> dict[str, float]:
        """The means over all ranks since the last call, and how many batches were skipped.

        Every rank must call it.
        """
        found = {}
        for key, total in self._sums.items():
            mean = ranks.total(total, self.group) / ranks.world_size(self.group)
            found[key] = float(mean) / self._counts[key]
        self._sums, self._counts = {}, {}
        if found and self.penalty is not None and (skipped := int(self.penalty.skipped)):
            found["penalty_skipped"] = skipped
        return found


def _gradient(term: Tensor, parameters: Sequence[nn.Parameter]) -> Sequence[Tensor | None]:
    return torch.autograd.grad(term, parameters, retain_graph=True, allow_unused=True)


def _norm(gradients: Sequence[Tensor | None], group: ranks.Group) -> Tensor:
    """The norm of the ranks' mean gradient."""
    world = ranks.world_size(group)
    norms = [
        torch.linalg.vector_norm(ranks.total(gradient.double(), group) / world)
        for gradient in gradients
        if gradient is not None
    ]
    return torch.linalg.vector_norm(torch.stack(norms)) if norms else torch.tensor(0.0)

"""Whether a model's loss is what transformers' trainer takes it for.

With gradient accumulation the trainer tells a model how many items all micro-batches have together,
expects a sum over that number, and then adds the micro-batches' losses up. Many models (BERT's
family, BART, T5, as of transformers 5.23) accept the number and return a mean all the same: their
loss then grows with the number of micro-batches, and under torchrun with that of ranks.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from isotropy.states import evaluation


@torch.no_grad()
def ignores_item_count(model: nn.Module, inputs: Mapping[str, Any]) -> bool:
    """Whether a model's loss on a batch is the same, however many items it is told of.

    Example:
        >>> class Model(nn.Module):
        ...     def forward(self, x, num_items_in_batch):
        ...         return {"loss": x.sum() / num_items_in_batch}
        >>> ignores_item_count(Model(), {"x": torch.ones(4)})
        False
    """
    device = next((parameter.device for parameter in model.parameters()), None)
    losses = []
    with evaluation(model):
        for items in (1.0, 2.0):
            count = torch.tensor(items, device=device)
            output = model(**inputs, num_items_in_batch=count)
            loss = output.get("loss") if isinstance(output, dict) else output[0]
            if not isinstance(loss, torch.Tensor):
                return False
            losses.append(loss)
    return torch.equal(*losses)

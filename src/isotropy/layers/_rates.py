"""The layers inside of a model that learn for themselves, and their rates of learning."""

from typing import Any

import torch
from torch import Tensor, nn

from isotropy.layers._layer import Layer


def layers_in(model: nn.Module) -> list[Layer]:
    """The layers anywhere in a model, in the order of its modules."""
    return [module for module in model.modules() if isinstance(module, Layer)]


def own_loss(model: nn.Module) -> Tensor | None:
    """The sum of what the layers in a model add to the loss; None where none adds anything.

    Example:
        >>> from isotropy.layers import Flow
        >>> flow = Flow(8)
        >>> model = nn.Sequential(nn.Linear(8, 8), flow)
        >>> own_loss(model) is None  # it has seen nothing
        True
        >>> _ = model(torch.randn(5, 8, generator=torch.Generator().manual_seed(0)))
        >>> bool(own_loss(model) == flow.own_loss())
        True
    """
    found = [loss for layer in layers_in(model) if (loss := layer.own_loss()) is not None]
    return torch.stack(found).sum() if found else None


def learning_by_themselves(model: nn.Module) -> list[Layer]:
    """The layers in a model that may have a loss of their own."""
    return [layer for layer in layers_in(model) if type(layer).own_loss is not Layer.own_loss]


def parameter_groups(model: nn.Module) -> list[dict[str, Any]]:
    """A model's parameters for an optimizer, those of each layer at the layer's own rate.

    Args:
        model: with layers anywhere inside, or none.

    Returns:
        The group of all parameters that have no rate of their own, and a group with an `lr` for
        each rate that layers ask for.

    Example:
        >>> from isotropy.layers import Flow
        >>> model = nn.Sequential(nn.Linear(8, 8), Flow(8), nn.Linear(8, 2))
        >>> optimizer = torch.optim.AdamW(parameter_groups(model), lr=2e-5)
        >>> [group["lr"] for group in optimizer.param_groups]
        [2e-05, 0.001]
    """
    groups: list[dict[str, Any]] = [{"params": [p for p in model.parameters() if p.requires_grad]}]
    return _apart(groups, model, alone=True)


def set_apart(optimizer: torch.optim.Optimizer, model: nn.Module, *, alone: bool = True) -> None:
    """Give the parameters of layers that ask for it their own rate in a new optimizer.

    Their new groups come last and keep the other settings of the groups that they are taken from,
    such as the weight decay.

    Args:
        optimizer: one that has made no step and has no schedule yet.
        model: whose layers.
        alone: whether a group that holds nothing but a layer's parameters gets its rate, too.
    """
    optimizer.param_groups[:] = _apart(optimizer.param_groups, model, alone=alone)


def mixed_groups(optimizer: torch.optim.Optimizer, model: nn.Module) -> bool:
    """Whether `set_apart` with `alone=False` would change anything."""
    groups = optimizer.param_groups
    return len(_apart(groups, model, alone=False)) > len(groups)


def _apart(groups: list[dict[str, Any]], model: nn.Module, *, alone: bool) -> list[dict[str, Any]]:
    rates = {
        id(parameter): layer.learning_rate
        for layer in layers_in(model)
        if layer.learning_rate is not None
        for parameter in layer.parameters()
    }
    kept: list[dict[str, Any]] = []
    new: list[dict[str, Any]] = []
    for group in groups:
        rest = [p for p in group["params"] if id(p) not in rates]
        if len(rest) == len(group["params"]) or not (rest or alone):
            kept.append(group)
            continue
        kept.append({**group, "params": rest})
        for rate in sorted({rates[id(p)] for p in group["params"] if id(p) in rates}):
            own = [p for p in group["params"] if rates.get(id(p)) == rate]
            new.append({**group, "params": own, "lr": rate})
    return kept + new

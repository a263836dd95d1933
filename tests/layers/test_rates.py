"""The parameters of layers in groups of their own."""

import torch
from torch import nn

from isotropy.layers import Flow, IsoBatchNorm, IsotropyLayer, parameter_groups
from isotropy.layers._rates import own_loss, set_apart


class Slow(IsotropyLayer):
    """A layer with a rate of its own and no loss of its own."""

    learning_rate = 1e-5


def model() -> nn.Sequential:
    return nn.Sequential(nn.Linear(8, 8), Flow(8), IsotropyLayer(8), Slow(8), nn.Linear(8, 2))


def names(group: dict, module: nn.Module) -> set[str]:
    ours = {id(p): name.partition(".")[0] for name, p in module.named_parameters()}
    return {ours[id(p)] for p in group["params"]}


def test_each_rate_has_its_group() -> None:
    module = model()
    module[0].weight.requires_grad_(False)
    optimizer = torch.optim.AdamW(parameter_groups(module), lr=2e-5)
    found = [(group["lr"], names(group, module)) for group in optimizer.param_groups]
    assert found == [(2e-5, {"0", "2", "4"}), (1e-5, {"3"}), (1e-3, {"1"})]
    count = sum(len(group["params"]) for group in optimizer.param_groups)
    assert count == sum(1 for _ in module.parameters()) - 1
    assert len(parameter_groups(nn.Linear(2, 2))) == 1


def test_new_groups_keep_the_settings_of_the_old() -> None:
    module = model()
    biases = [p for p in module.parameters() if p.ndim == 1]
    others = [p for p in module.parameters() if p.ndim != 1]
    optimizer = torch.optim.AdamW(
        [{"params": others, "weight_decay": 0.3}, {"params": biases, "weight_decay": 0.0}], lr=0.1
    )
    set_apart(optimizer, module)
    found = [
        (group["lr"], group["weight_decay"], names(group, module))
        for group in optimizer.param_groups
    ]
    rest = {"0", "2", "4"}
    assert found == [
        (0.1, 0.3, rest),
        (0.1, 0.0, rest),
        (1e-5, 0.3, {"3"}),
        (1e-3, 0.3, {"1"}),
        (1e-5, 0.0, {"3"}),
        (1e-3, 0.0, {"1"}),
    ]
    for group in optimizer.param_groups:
        assert all((p.ndim == 1) == (group["weight_decay"] == 0.0) for p in group["params"])


def test_a_group_of_a_layer_alone_may_stay() -> None:
    flow = Flow(8)
    for alone, rate in ((False, 0.1), (True, 1e-3)):
        optimizer = torch.optim.SGD(flow.parameters(), lr=0.1)
        set_apart(optimizer, flow, alone=alone)
        assert {g["lr"] for g in optimizer.param_groups if g["params"]} == {rate}


def test_own_losses_add_up() -> None:
    module = nn.Sequential(Flow(8), Flow(8, seed=1), IsoBatchNorm(8))
    assert own_loss(module) is None
    module(torch.randn(20, 8, generator=torch.Generator().manual_seed(0)))
    with torch.no_grad():
        expected = float(module[0].own_loss()) + float(module[1].own_loss())
        assert abs(float(own_loss(module)) - expected) < 1e-5

"""Trainers with a flow between encoder and head, beside the same training written out by hand."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import PrinterCallback, Trainer

from isotropy import layers, penalties
from isotropy.integrations.huggingface import IsotropyCallback, IsotropyTrainer

Tiny = SimpleNamespace
Arguments = Callable[..., Any]
RATE = 0.1


class QuickFlow(layers.Flow):
    """A flow with a rate of its own, at which plain gradient descent does not diverge."""

    learning_rate = 0.002


def with_flow(tiny: Tiny, **settings: Any) -> Any:
    torch.manual_seed(1)
    return layers.attach(tiny.classifier(**settings), QuickFlow(8))


@pytest.fixture(params=["trainer", "callback"])
def make(request: pytest.FixtureRequest, tiny: Tiny) -> Callable[..., Any]:
    """A silent trainer of either kind."""

    def made(model: nn.Module, arguments: Any, rows: Any, **ours: Any) -> Any:
        common = {"train_dataset": rows, "data_collator": tiny.collate}
        common |= {k: ours.pop(k) for k in ("optimizers", "eval_dataset") if k in ours}
        if request.param == "trainer":
            trainer: Any = IsotropyTrainer(model, arguments, **common, **ours)
        else:
            trainer = Trainer(model, arguments, **common)
            trainer.add_callback(IsotropyCallback(trainer, **ours))
        trainer.remove_callback(PrinterCallback)
        return trainer

    return made


def norm(parameters: list[nn.Parameter]) -> torch.Tensor:
    return torch.stack([p.grad.square().sum() for p in parameters if p.grad is not None]).sum()


def by_hand(
    model: Any,
    steps: list[list[dict[str, torch.Tensor]]],
    *,
    cosine: Callable[..., Any] | None = None,
    cached: bool = False,
    clip: float = 0.0,
) -> tuple[Any, list[dict[str, float]]]:
    """Two optimizers: the task trains encoder and head, the likelihood the flow."""
    flow = model.isotropy_layer
    rest = [p for name, p in model.named_parameters() if not name.startswith("isotropy_layer.")]
    optimizers = [
        torch.optim.SGD(rest, lr=RATE),
        torch.optim.SGD(flow.parameters(), lr=QuickFlow.learning_rate),
    ]
    model.train()
    logs = []
    for batches in steps:
        tasks, owns, clouds = [], [], []
        for batch in batches:
            seen: list[torch.Tensor] = []
            with flow.register_forward_pre_hook(lambda _, args, to=seen: to.append(args[0])):
                output = model(**batch, output_hidden_states=True)
            tasks.append(nn.functional.cross_entropy(output.logits, batch["labels"]))
            owns.append(flow.negative_log_likelihood(seen[0].detach()).mean())
            clouds.append(output.hidden_states[-1][batch["attention_mask"].bool()])
        task, own = torch.stack(tasks).mean(), torch.stack(owns).mean()
        if cosine is not None:
            task = (
                task
                + torch.stack(
                    [cosine(cloud) for cloud in ([torch.cat(clouds)] if cached else clouds)]
                ).mean()
            )
        model.zero_grad()
        for loss, parameters in ((task, rest), (own, [*flow.parameters()])):
            found = torch.autograd.grad(loss, parameters, retain_graph=True, allow_unused=True)
            for parameter, gradient in zip(parameters, found, strict=True):
                parameter.grad = gradient
            length = norm(parameters).sqrt()
            if clip and length > clip:
                for parameter in parameters:
                    if parameter.grad is not None:
                        parameter.grad *= clip / (length + 1e-6)
        for optimizer in optimizers:
            optimizer.step()
        logs.append({"layer_loss": float(own.detach())})
    return model, logs


def steps_of(tiny: Tiny, rows: list[Any], size: int, accumulation: int) -> list[Any]:
    batches = [tiny.collate(rows[i : i + size]) for i in range(0, len(rows), size)]
    return [batches[i : i + accumulation] for i in range(0, len(batches), accumulation)]


def losses(trainer: Any) -> list[dict[str, float]]:
    return [entry for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("accumulation", [1, 3])
@pytest.mark.parametrize("penalty", [None, "separate", "cached"])
@pytest.mark.parametrize("clip", [0.0, 0.5])
def test_the_steps_are_those_of_two_loops_by_hand(
    make: Callable[..., Any],
    tiny: Tiny,
    arguments: Arguments,
    accumulation: int,
    penalty: str | None,
    clip: float,
) -> None:
    rows, model = tiny.sentences(18 * accumulation), with_flow(tiny)
    settings: dict[str, Any] = {}
    if penalty is not None:
        settings = {"penalty": penalties.Cosine(2.0), "accumulate": penalty}
    trainer = make(
        copy.deepcopy(model),
        arguments(
            per_device_train_batch_size=6,
            gradient_accumulation_steps=accumulation,
            max_grad_norm=clip,
        ),
        rows,
        **settings,
    )
    trainer.train()
    expected, logs = by_hand(
        copy.deepcopy(model),
        steps_of(tiny, rows, 6, accumulation),
        cosine=None if penalty is None else lambda x: 2 * tiny.cosine(x),
        cached=penalty == "cached",
        clip=clip,
    )
    difference = tiny.distance(trainer.model, expected)
    assert difference < 1e-9
    moved = tiny.distance(trainer.model.isotropy_layer, model.isotropy_layer)
    assert moved > 1e-3
    for entry, wanted in zip(losses(trainer), logs, strict=True):
        assert entry["layer_loss"] == pytest.approx(wanted["layer_loss"], rel=1e-9)
        terms = entry["task_loss"] + entry["layer_loss"] + entry.get("penalty", 0)
        assert entry["loss"] == pytest.approx(terms, rel=1e-5)
        assert ("penalty" in entry) == (penalty is not None)


def test_encoder_and_head_get_no_gradient_from_the_likelihood(
    tiny: Tiny, arguments: Arguments
) -> None:
    # A flow that learns at a rate of 0 changes nothing for the rest.
    rows, trained = tiny.sentences(24), []
    for weight in (1.0, 100.0):
        model = with_flow(tiny)
        flow = model.isotropy_layer
        flow.learning_rate = 0.0
        flow.own_loss = lambda flow=flow, weight=weight: weight * QuickFlow.own_loss(flow)
        trainer = IsotropyTrainer(
            model, arguments(max_grad_norm=1.0), tiny.collate, train_dataset=rows
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        trained.append(trainer)
    difference = tiny.distance(trained[0].model, trained[1].model)
    assert difference == 0
    first, second = (losses(trainer)[-1]["layer_loss"] for trainer in trained)
    assert second == pytest.approx(100 * first)


def test_groups_schedule_and_decay(
    make: Callable[..., Any], tiny: Tiny, arguments: Arguments
) -> None:
    trainer = make(
        with_flow(tiny),
        arguments(
            optim="adamw_torch",
            weight_decay=0.1,
            learning_rate=1e-3,
            max_steps=4,
            lr_scheduler_type="linear",
        ),
        tiny.sentences(32),
    )
    trainer.train()
    flow = {id(p) for p in trainer.model.isotropy_layer.parameters()}
    groups = trainer.optimizer.param_groups
    for group in groups:
        inside = {id(p) in flow for p in group["params"]}
        assert len(inside) == 1
        assert group["initial_lr"] == (0.002 if inside == {True} else 1e-3)
    decay = set(trainer.get_decay_parameter_names(trainer.model))
    decays = {id(p): group["weight_decay"] for group in groups for p in group["params"]}
    for name, parameter in trainer.model.named_parameters():
        assert decays[id(parameter)] == (0.1 if name in decay else 0.0), name
    # The schedule has come to an end for all of them, and what is logged is the encoder's rate.
    assert {group["lr"] for group in groups} == {0.0}
    assert [entry["learning_rate"] for entry in losses(trainer)] == [
        pytest.approx(1e-3 * share) for share in (1, 0.75, 0.5, 0.25)
    ]


def test_an_optimizer_of_ones_own_stays(
    make: Callable[..., Any], tiny: Tiny, arguments: Arguments
) -> None:
    model = with_flow(tiny)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    trainer = make(model, arguments(), tiny.sentences(24), optimizers=(optimizer, None))
    trainer.train()
    assert [group["lr"] for group in optimizer.param_groups] == [0.5]


def test_a_layer_without_a_loss_changes_nothing(
    make: Callable[..., Any], tiny: Tiny, arguments: Arguments
) -> None:
    rows, trained = tiny.sentences(24), []
    for maker in (make, lambda m, a, r: Trainer(m, a, tiny.collate, train_dataset=r)):
        torch.manual_seed(0)
        model = layers.attach(tiny.classifier(), layers.IsotropyLayer(8))
        trainer = maker(model, arguments(max_grad_norm=0.5), rows)
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        trained.append(trainer)
    difference = tiny.distance(trained[0].model, trained[1].model)
    assert difference == 0
    assert not any("layer_loss" in entry for entry in trained[0].state.log_history)


def test_evaluation_is_the_tasks_own(
    make: Callable[..., Any], tiny: Tiny, arguments: Arguments
) -> None:
    rows, model = tiny.sentences(20, seed=1), with_flow(tiny)
    trainer = make(model, arguments(), tiny.sentences(24), eval_dataset=rows)
    trainer.train()
    with torch.no_grad():
        output = model.eval()(**tiny.collate(rows))
    assert trainer.evaluate()["eval_loss"] == pytest.approx(float(output.loss), rel=1e-6)


def test_a_resumed_training_is_the_undisturbed_one(
    make: Callable[..., Any], tiny: Tiny, arguments: Arguments
) -> None:
    rows = tiny.sentences(32)

    def trained(resume: str | None) -> Any:
        trainer = make(
            with_flow(tiny, dropout=0.1),
            arguments(
                max_steps=6,
                save_strategy="steps",
                save_steps=1,
                optim="adamw_torch",
                weight_decay=0.1,
                learning_rate=1e-2,
                max_grad_norm=1.0,
                train_sampling_strategy="random",
                lr_scheduler_type="linear",
            ),
            rows,
        )
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    undisturbed = trained(None)
    resumed = trained(f"{undisturbed.args.output_dir}/checkpoint-3")
    difference = tiny.distance(undisturbed.model, resumed.model)
    assert difference == 0
    for one, other in zip(losses(undisturbed), losses(resumed), strict=True):
        for key in ("layer_loss", "task_loss", "learning_rate"):
            assert one[key] == other[key], key

"""Trainings with a penalty, beside the same training written out by hand."""

import copy
import math
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import PrinterCallback, Trainer

import isotropy
from isotropy import layers, penalties
from isotropy.errors import SettingError, SourceError
from isotropy.integrations.huggingface import (
    IsotropyCallback,
    IsotropySeq2SeqTrainer,
    IsotropyTrainer,
)

Tiny = SimpleNamespace
Arguments = Callable[..., Any]
ZETA = 0.3


def maker(kind: str, tiny: Tiny) -> Callable[..., Any]:
    """Makes trainers with a penalty, silent ones."""

    def made(model: nn.Module, arguments: Any, rows: Any, held_out: Any = None, **ours: Any) -> Any:
        common = {
            "model": model,
            "args": arguments,
            "train_dataset": rows,
            "eval_dataset": held_out,
            "data_collator": tiny.collate,
        }
        if kind == "trainer":
            trainer: Any = IsotropyTrainer(**common, **ours)
        else:
            trainer = Trainer(**common)
            trainer.add_callback(IsotropyCallback(trainer, **ours))
        trainer.remove_callback(PrinterCallback)
        return trainer

    return made


@pytest.fixture(params=["trainer", "callback"])
def either(request: pytest.FixtureRequest, tiny: Tiny) -> Callable[..., Any]:
    """A trainer with a penalty, of either kind."""
    return maker(request.param, tiny)


@pytest.fixture
def make(tiny: Tiny) -> Callable[..., Any]:
    """A trainer with a penalty."""
    return maker("trainer", tiny)


def tokens(output: Any, mask: Tensor) -> Tensor:
    """The token states of layers 1 and 2."""
    return torch.cat([states[mask.bool()] for states in output.hidden_states[1:]])


def i_star(x: Tensor) -> Tensor:
    """1 − IsoScore* of a cloud, with the identity for its shrinkage matrix."""
    c = (1 - ZETA) * torch.cov(x.T) + ZETA * torch.eye(x.shape[1], dtype=x.dtype)
    return 1 - (c.trace() ** 2 / (c**2).sum() - 1) / (x.shape[1] - 1)


def by_hand(
    model: nn.Module,
    steps: Iterable[Sequence[dict[str, Tensor]]],
    penalty: Callable[[nn.Module, Sequence[Any], Sequence[dict[str, Tensor]]], Tensor],
    smoothing: float = 0.0,
) -> nn.Module:
    """A training in plain PyTorch, whose penalty sees all micro-batches of a step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()
    for batches in steps:
        outputs = []
        losses = []
        for batch in batches:
            output = model(
                input_ids=batch["input_ids"],
                attention_mask=batch["attention_mask"],
                output_hidden_states=True,
            )
            losses.append(
                nn.functional.cross_entropy(
                    output.logits, batch["labels"], label_smoothing=smoothing, reduction="sum"
                )
            )
            outputs.append(output)
        task = torch.stack(losses).sum() / sum(len(batch["labels"]) for batch in batches)
        optimizer.zero_grad()
        (task + penalty(model, outputs, batches)).backward()
        optimizer.step()
    return model


def loss_logs(trainer: Any) -> list[dict[str, float]]:
    """What was logged with a training's loss."""
    return [entry for entry in trainer.state.log_history if "loss" in entry]


def batched(tiny: Tiny, rows: list[Any], size: int, accumulation: int = 1) -> list[list[Any]]:
    batches = [tiny.collate(rows[i : i + size]) for i in range(0, len(rows), size)]
    return [batches[i : i + accumulation] for i in range(0, len(batches), accumulation)]


def test_the_gradients_are_those_of_a_loop_by_hand(
    either: Callable[..., Any], tiny: Tiny, arguments: Arguments
) -> None:
    rows, model = tiny.sentences(24), tiny.classifier()
    penalty = penalties.IStar(weight=2, zeta=ZETA, shrinkage="identity")
    trainer = either(copy.deepcopy(model), arguments(), rows, penalty=penalty)
    trainer.train()

    plain = by_hand(copy.deepcopy(model), batched(tiny, rows, 8), lambda *_: torch.tensor(0.0))
    expected = by_hand(
        copy.deepcopy(model),
        batched(tiny, rows, 8),
        lambda _, outputs, batches: 2 * i_star(tokens(outputs[0], batches[0]["attention_mask"])),
    )
    difference = tiny.distance(trainer.model, expected)
    assert difference < 1e-9
    difference = tiny.distance(trainer.model, plain)
    assert difference > 1e-3


def test_a_penalty_on_weights_needs_no_states(
    make: Callable[..., Any], tiny: Tiny, arguments: Arguments
) -> None:
    rows, model = tiny.sentences(24), tiny.classifier()
    penalty = penalties.Cosine(3, site="vocabulary")
    trainer = make(copy.deepcopy(model), arguments(), rows, penalty=penalty)
    asked = []
    trainer.model.register_forward_pre_hook(
        lambda _, __, given: asked.append("output_hidden_states" in given), with_kwargs=True
    )
    trainer.train()

    def all_words(model: nn.Module, *_: Any) -> Tensor:
        vocabulary = model.get_input_embeddings().weight  # type: ignore[operator]
        return 3 * tiny.cosine(vocabulary[vocabulary.norm(dim=1) > 0])

    expected = by_hand(copy.deepcopy(model), batched(tiny, rows, 8), all_words)
    difference = tiny.distance(trainer.model, expected)
    assert difference < 1e-9
    assert asked == [False] * 3


@pytest.mark.parametrize("accumulate", ["separate", "cached"])
def test_accumulated_micro_batches_are_clouds_of_their_own_or_one(
    either: Callable[..., Any], tiny: Tiny, arguments: Arguments, accumulate: str
) -> None:
    # 5 micro-batches of 6: steps of 3 and of 2 of them.
    rows, model = tiny.sentences(30), tiny.classifier()
    trainer = either(
        copy.deepcopy(model),
        arguments(
            per_device_train_batch_size=6,
            gradient_accumulation_steps=3,
            max_steps=2,
        ),
        rows,
        penalty=penalties.IStar(weight=2, zeta=ZETA, shrinkage="identity"),
        accumulate=accumulate,
    )
    trainer.train()

    def penalty(_: nn.Module, outputs: Sequence[Any], batches: Sequence[Any]) -> Tensor:
        clouds = [
            tokens(output, batch["attention_mask"])
            for output, batch in zip(outputs, batches, strict=True)
        ]
        if accumulate == "cached":
            clouds = [torch.cat(clouds)]
        return 2 * torch.stack([i_star(cloud) for cloud in clouds]).mean()

    expected = by_hand(copy.deepcopy(model), batched(tiny, rows, 6, 3), penalty)
    difference = tiny.distance(trainer.model, expected)
    assert difference < 1e-9


@pytest.mark.parametrize(
    "penalty",
    [
        penalties.PersistentEntropy(bars="all"),
        penalties.PersistentEntropy(0.5, site="mean@last"),
        penalties.IStar(weight=-1),
        penalties.Cosine(),
        penalties.SpectrumExp(weight=0.01, site="mean@last"),
        penalties.Laplacian(site="vocabulary"),
    ],
    ids=lambda penalty: f"{type(penalty).__name__}-{penalty.site}",
)
def test_cached_micro_batches_equal_the_undivided_batch(
    make: Callable[..., Any], tiny: Tiny, arguments: Arguments, penalty: penalties.Penalty
) -> None:
    rows, model = tiny.sentences(48), tiny.classifier()
    whole = make(
        copy.deepcopy(model),
        arguments(per_device_train_batch_size=24, max_steps=2),
        rows,
        penalty=copy.deepcopy(penalty),
        compare_steps=None,
    )
    parts = make(
        copy.deepcopy(model),
        arguments(per_device_train_batch_size=6, gradient_accumulation_steps=4, max_steps=2),
        rows,
        penalty=copy.deepcopy(penalty),
        accumulate="cached",
        compare_steps=None,
    )
    whole.train()
    parts.train()
    difference = tiny.distance(whole.model, parts.model)
    assert difference < 1e-9
    difference = tiny.distance(whole.model, model)
    assert difference > 1e-3
    for one, other in zip(loss_logs(whole), loss_logs(parts), strict=True):
        for key in ("loss", "task_loss", "penalty"):
            assert one[key] == pytest.approx(other[key], rel=1e-5), key


def test_both_passes_of_cached_micro_batches_drop_the_same_units(
    tiny: Tiny, arguments: Arguments
) -> None:
    trainer = IsotropyTrainer(
        tiny.classifier(dropout=0.3),
        arguments(gradient_accumulation_steps=3, max_steps=1),
        data_collator=tiny.collate,
        train_dataset=tiny.sentences(24),
        penalty=penalties.Cosine(),
        accumulate="cached",
    )
    trainer.remove_callback(PrinterCallback)
    trainer.model_accepts_loss_kwargs = False  # known, so that no batch is tried out
    seen = []
    trainer.model.bert.register_forward_hook(
        lambda _, __, output: seen.append(output.last_hidden_state.detach())
    )
    trainer.train()
    first, second = seen[:3], seen[3:]
    assert len(second) == 3
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)
    assert not torch.equal(first[0][:2, :3], first[1][:2, :3])


def test_smoothed_labels_and_classes(
    make: Callable[..., Any], tiny: Tiny, arguments: Arguments
) -> None:
    # The trainer takes the labels away from the model to smooth them; the penalty needs them.
    rows, model = tiny.sentences(16), tiny.classifier()
    trainer = make(
        copy.deepcopy(model),
        arguments(max_steps=2, label_smoothing_factor=0.2),
        rows,
        penalty=penalties.PersistentEntropy(bars="all"),
    )
    trainer.train()

    def penalty(_: nn.Module, outputs: Sequence[Any], batches: Sequence[Any]) -> Tensor:
        x, labels = outputs[0].hidden_states[-1][:, 0], batches[0]["labels"]
        return -sum(entropy_of_tree(x[labels == label]) for label in (0, 1))

    expected = by_hand(copy.deepcopy(model), batched(tiny, rows, 8), penalty, smoothing=0.2)
    difference = tiny.distance(trainer.model, expected)
    assert difference < 1e-9


def entropy_of_tree(x: Tensor) -> Tensor:
    """The entropy of a minimum spanning tree's edges, found by joining the nearest parts."""
    n = len(x)
    parts = list(range(n))
    edges = []
    pairs = [(i, j) for i in range(n) for j in range(i)]
    for i, j in sorted(pairs, key=lambda pair: float((x[pair[0]] - x[pair[1]]).norm().detach())):
        if parts[i] != parts[j]:
            edges.append((x[i] - x[j]).norm())
            parts = [parts[i] if part == parts[j] else part for part in parts]
    if not edges:
        return x.new_zeros(())
    shares = torch.stack(edges) / torch.stack(edges).sum()
    return -(shares * shares.log()).sum()


def test_a_step_of_micro_batches_is_the_step_of_their_batch(
    tiny: Tiny, arguments: Arguments
) -> None:
    # transformers' own trainer adds up the losses of micro-batches where a model's loss is a mean.
    rows, model = tiny.sentences(24), tiny.classifier()
    trained = []
    for kind, size, steps in ((Trainer, 24, 1), (IsotropyTrainer, 6, 4)):
        settings = {"per_device_train_batch_size": size, "gradient_accumulation_steps": steps}
        trainer = kind(
            copy.deepcopy(model),
            arguments(max_steps=1, **settings),
            tiny.collate,
            train_dataset=rows,
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        trained.append(trainer.model)
    difference = tiny.distance(*trained)
    assert difference < 1e-9


def test_a_model_that_counts_items_is_left_to_the_trainer(tiny: Tiny, arguments: Arguments) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=40,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        initializer_range=0.5,
    )
    model = LlamaForCausalLM(config).double()
    rows = [row | {"labels": row["input_ids"]} for row in tiny.sentences(24)]
    trained = []
    for size, steps in ((24, 1), (6, 4)):
        trainer = IsotropyTrainer(
            copy.deepcopy(model),
            arguments(
                max_steps=1, per_device_train_batch_size=size, gradient_accumulation_steps=steps
            ),
            tiny.collate,
            train_dataset=rows,
            penalty=penalties.Cosine(2.0, site="mean@last"),
            accumulate="cached",
        )
        trainer.remove_callback(PrinterCallback)
        trainer.train()
        assert trainer.model_accepts_loss_kwargs
        trained.append(trainer)
    difference = tiny.distance(trained[0].model, trained[1].model)
    assert difference < 1e-9
    logs = [trainer.state.log_history[0] for trainer in trained]
    for key in ("loss", "task_loss", "penalty"):
        assert logs[0][key] == pytest.approx(logs[1][key], rel=1e-5), key


def test_gradient_checkpointing_changes_nothing(
    make: Callable[..., Any], tiny: Tiny, arguments: Arguments
) -> None:
    rows, model = tiny.sentences(24), tiny.classifier(dropout=0.1)
    trained = []
    for settings in ({}, {"activation_checkpointing": True}):
        trainer = make(
            copy.deepcopy(model),
            arguments(**settings),
            rows,
            penalty=penalties.IStar(weight=2, zeta=ZETA, shrinkage="identity"),
            compare_steps=1,
        )
        trainer.train()
        trained.append(trainer)
    difference = tiny.distance(trained[0].model, trained[1].model)
    assert difference < 1e-9
    ratios = [loss_logs(trainer)[0]["penalty_gradient_ratio"] for trainer in trained]
    assert ratios[0] == pytest.approx(ratios[1])
    assert ratios[0] > 0


def test_checkpointing_that_loses_gradients_is_refused(tiny: Tiny, arguments: Arguments) -> None:
    trainer = IsotropyTrainer(
        tiny.classifier(),
        arguments(
            activation_checkpointing=True, activation_checkpointing_kwargs={"use_reentrant": True}
        ),
        data_collator=tiny.collate,
        train_dataset=tiny.sentences(24),
        penalty=penalties.Cosine(),
    )
    with pytest.raises(SettingError, match=r"use_reentrant=True.*use_reentrant=False"):
        trainer.train()


def test_bfloat16_stays_near_full_precision(
    make: Callable[..., Any], tiny: Tiny, arguments: Arguments
) -> None:
    logs = []
    for settings in ({}, {"bf16": True}):
        trainer = make(
            tiny.classifier().float(),
            arguments(**settings),
            tiny.sentences(24),
            penalty=penalties.IStar(weight=1, zeta=ZETA),
        )
        trainer.train()
        logs.append(loss_logs(trainer))
    full, half = logs
    assert half[0]["penalty"] != full[0]["penalty"]
    for one, other in zip(full[:3], half[:3], strict=True):
        assert one["penalty"] == pytest.approx(other["penalty"], abs=0.03)
        assert one["task_loss"] == pytest.approx(other["task_loss"], abs=0.1)


def test_evaluation_and_prediction_are_the_trainers_own(
    either: Callable[..., Any], tiny: Tiny, arguments: Arguments
) -> None:
    rows, held_out = tiny.sentences(16), tiny.sentences(20, seed=1)
    model = tiny.classifier()
    trainer = either(model, arguments(), rows, held_out, penalty=penalties.Cosine(5.0))
    plain = Trainer(model, arguments(), tiny.collate, eval_dataset=held_out)
    plain.remove_callback(PrinterCallback)
    ours, theirs = trainer.evaluate(), plain.evaluate()
    assert ours["eval_loss"] == theirs["eval_loss"]
    assert set(ours) == set(theirs)
    prediction = trainer.predict(held_out).predictions
    assert prediction.shape == (20, 2)
    assert (prediction == plain.predict(held_out).predictions).all()
    trainer.train()
    assert model.config.output_hidden_states is False
    trainer.model.train()
    batch = tiny.collate(rows[:4])
    trainer.current_gradient_accumulation_steps = 1
    _, output = trainer.compute_loss(model, batch, return_outputs=True)
    assert set(output) == {"loss", "logits"}


def test_the_logs_are_the_terms_of_the_loss(
    either: Callable[..., Any], tiny: Tiny, arguments: Arguments
) -> None:
    rows, model = tiny.sentences(32), tiny.classifier()
    trainer = either(
        copy.deepcopy(model),
        arguments(
            per_device_train_batch_size=4,
            gradient_accumulation_steps=2,
            max_steps=4,
            logging_steps=2,
        ),
        rows,
        penalty=penalties.Cosine(2.0),
        compare_steps=2,
    )
    trainer.train()
    logs = loss_logs(trainer)
    assert [entry["step"] for entry in logs] == [2, 4]
    for entry in logs:
        assert entry["task_loss"] + entry["penalty"] == pytest.approx(entry["loss"], rel=1e-5)
        assert entry["penalty_gradient_ratio"] > 0
        assert "penalty_skipped" not in entry

    # Step 1, by hand: the ratio is that of its first micro-batch.
    clouds, losses = [], []
    for batch in batched(tiny, rows[:8], 4)[0] + batched(tiny, rows[:8], 4)[1]:
        output = model(**batch, output_hidden_states=True)
        clouds.append(output.hidden_states[-1][batch["attention_mask"].bool()])
        losses.append(output.loss)
    norms = [
        math.sqrt(
            sum(
                float(g.square().sum())
                for g in torch.autograd.grad(
                    term, list(model.parameters()), retain_graph=True, allow_unused=True
                )
                if g is not None
            )
        )
        for term in (2 * tiny.cosine(clouds[0]), losses[0])
    ]
    assert logs[0]["penalty_gradient_ratio"] == pytest.approx(norms[0] / norms[1], rel=1e-6)


def test_skipped_batches_are_logged(tiny: Tiny, arguments: Arguments) -> None:
    trainer = IsotropyTrainer(
        tiny.classifier(),
        arguments(per_device_train_batch_size=1),
        data_collator=tiny.collate,
        train_dataset=tiny.sentences(3),
        penalty=penalties.PersistentEntropy(),  # of one point there is no bar
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    assert [entry.get("penalty_skipped") for entry in trainer.state.log_history[:3]] == [1, 2, 3]
    assert trainer.state.log_history[0]["penalty"] == 0


@pytest.mark.parametrize(("track_steps", "at"), [(None, [0, 2, 4, 5]), (3, [0, 3, 5])])
def test_tracked_measures_are_those_of_the_held_out_rows(
    either: Callable[..., Any],
    tiny: Tiny,
    arguments: Arguments,
    track_steps: int | None,
    at: list[int],
) -> None:
    model, held_out = tiny.classifier(), tiny.sentences(20, seed=1)
    trainer = either(
        copy.deepcopy(model),
        arguments(max_steps=5, logging_steps=2),
        tiny.sentences(24),
        held_out,
        track=["iso_score", "mean_cosine"],
        track_steps=track_steps,
        track_site="mean@last",
    )
    trainer.train()
    logs = [entry for entry in trainer.state.log_history if "iso_score" in entry]
    assert [entry["step"] for entry in logs] == at
    for entry, trained in ((logs[0], model), (logs[-1], trainer.model)):
        rows = []
        for row in held_out:
            with torch.no_grad():
                states = trained.eval().bert(torch.tensor([row["input_ids"]])).last_hidden_state
            rows.append(states[0].mean(dim=0))
        cloud = torch.stack(rows)
        assert entry["iso_score"] == pytest.approx(
            float(isotropy.measures.iso_score(cloud)), rel=1e-9
        )
        cosines = tiny.cosine(cloud) * 20 / 19
        assert entry["mean_cosine"] == pytest.approx(float(cosines), rel=1e-9)


def test_tracking_does_not_change_a_training(tiny: Tiny, arguments: Arguments) -> None:
    model, rows = tiny.classifier(dropout=0.2), tiny.sentences(24)
    settings = arguments(train_sampling_strategy="random")
    plain = Trainer(copy.deepcopy(model), settings, tiny.collate, train_dataset=rows)
    plain.remove_callback(PrinterCallback)
    plain.train()
    tracked = IsotropyTrainer(
        copy.deepcopy(model),
        settings,
        tiny.collate,
        train_dataset=rows,
        track="local_isotropy",
        track_dataset=tiny.sentences(60, seed=1),
        track_rows=50,
        track_steps=1,
    )
    tracked.remove_callback(PrinterCallback)
    tracked.train()
    difference = tiny.distance(plain.model, tracked.model)
    assert difference == 0
    assert sum(map(len, (b["input_ids"] for b in tracked.companion.tracker.batches))) == 50


@pytest.mark.parametrize("checkpoint", [4, 5], ids=["epoch's end", "within an epoch"])
def test_a_resumed_training_is_the_undisturbed_one(
    either: Callable[..., Any], tiny: Tiny, arguments: Arguments, tmp_path: Path, checkpoint: int
) -> None:
    rows, model = tiny.sentences(32), tiny.classifier(dropout=0.1)
    settings = {
        "max_steps": 7,
        "save_strategy": "steps",
        "save_steps": 1,
        "optim": "adamw_torch",
        "learning_rate": 1e-2,
        "train_sampling_strategy": "random",
        "lr_scheduler_type": "linear",
    }

    def trained(resume: str | None) -> Any:
        trainer = either(
            copy.deepcopy(model),
            arguments(**settings),
            rows,
            tiny.sentences(20, seed=1),
            penalty=penalties.IStar(weight=1, zeta=ZETA, tokens=32),
            track=["iso_score"],
            refresh_points=100,
        )
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    undisturbed = trained(None)
    resumed = trained(f"{undisturbed.args.output_dir}/checkpoint-{checkpoint}")
    difference = tiny.distance(undisturbed.model, resumed.model)
    assert difference == 0
    ours, theirs = undisturbed.state.log_history, resumed.state.log_history
    refreshes = [entry["step"] for entry in ours if "penalty_refresh_seconds" in entry]
    assert refreshes == [0, 4]
    timed = {"penalty_refresh_seconds", "train_runtime", "train_samples_per_second", "train_loss"}
    timed |= {"train_steps_per_second", "total_flos"}
    for one, other in zip(ours, theirs, strict=True):
        assert set(one) == set(other)
        assert {k: one[k] for k in set(one) - timed} == {k: other[k] for k in set(one) - timed}


def test_a_checkpoint_of_another_penalty_is_refused(tiny: Tiny, arguments: Arguments) -> None:
    def trainer(penalty: penalties.Penalty) -> Any:
        made = IsotropyTrainer(
            tiny.classifier(),
            arguments(save_strategy="steps", save_steps=1),
            tiny.collate,
            train_dataset=tiny.sentences(24),
            penalty=penalty,
        )
        made.remove_callback(PrinterCallback)
        return made

    first = trainer(penalties.Cosine())
    first.train()
    with pytest.raises(SourceError, match="the state of Cosine, expected that of IStar"):
        trainer(penalties.IStar()).train(resume_from_checkpoint=True)


def test_refreshes_see_the_training_data(
    make: Callable[..., Any], tiny: Tiny, arguments: Arguments
) -> None:
    rows, model = tiny.sentences(24), tiny.classifier()
    penalty = penalties.IStar(weight=1)
    trainer = make(copy.deepcopy(model), arguments(max_steps=1), rows, penalty=penalty)
    trainer.train()
    with torch.no_grad():
        batch = tiny.collate(rows)
        output = model.eval()(**batch, output_hidden_states=True)
    expected = torch.cov(tokens(output, batch["attention_mask"]).T)
    assert penalty.shrinkage is not None
    torch.testing.assert_close(penalty.shrinkage.double(), expected, rtol=1e-5, atol=1e-6)
    assert trainer.state.log_history[0]["penalty_refresh_seconds"] > 0


def test_data_without_a_length(make: Callable[..., Any], tiny: Tiny, arguments: Arguments) -> None:
    class Stream(torch.utils.data.IterableDataset[Any]):
        def __iter__(self) -> Any:
            return iter(tiny.sentences(40))

    penalty = penalties.IStar(weight=1)
    trainer = make(
        tiny.classifier(),
        arguments(max_steps=2),
        Stream(),
        Stream(),
        penalty=penalty,
        track="iso_score",
        track_rows=16,
    )
    trainer.train()
    assert penalty.shrinkage is not None
    assert [entry["step"] for entry in trainer.state.log_history if "iso_score" in entry] == [
        0,
        1,
        2,
    ]


@pytest.mark.parametrize("site", ["mean@last", "decoder-tokens@last"])
def test_sequence_to_sequence(tiny: Tiny, arguments: Arguments, site: str) -> None:
    from transformers import BartConfig, BartForConditionalGeneration

    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=40,
        d_model=8,
        encoder_layers=1,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_position_embeddings=32,
        dropout=0.0,
        init_std=0.5,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=2,
    )
    model = BartForConditionalGeneration(config).double()
    rows = [row | {"labels": [*row["input_ids"][::-1], 2]} for row in tiny.sentences(24)]
    trainer = IsotropySeq2SeqTrainer(
        copy.deepcopy(model),
        arguments(max_steps=2, predict_with_generate=True, generation_max_length=8),
        tiny.collate,
        train_dataset=rows,
        eval_dataset=rows[:8],
        penalty=penalties.Cosine(2.0, site=site),
        track=["mean_cosine"],
        track_site=site,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.train()

    batch = tiny.collate(rows[:8])
    with torch.no_grad():
        output = model(**batch, output_hidden_states=True)
    if site == "mean@last":
        mask = batch["attention_mask"][..., None]
        cloud = (output.encoder_last_hidden_state * mask).sum(dim=1) / mask.sum(dim=1)
    else:
        cloud = output.decoder_hidden_states[-1][batch["labels"] != -100]
    assert loss_logs(trainer)[0]["penalty"] == pytest.approx(
        2 * float(tiny.cosine(cloud)), rel=1e-9
    )
    n = len(cloud)
    assert trainer.state.log_history[0]["mean_cosine"] == pytest.approx(
        float(tiny.cosine(cloud)) * n / (n - 1), rel=1e-9
    )
    assert trainer.predict(rows[:8]).predictions.shape[0] == 8


ERRORS: list[tuple[dict[str, Any], str]] = [
    ({"penalty": "i-star"}, "got a penalty of type str, expected one of isotropy.penalties"),
    ({"penalty": nn.Linear(2, 2)}, "got a penalty of type Linear"),
    ({"penalty": penalties.IStar}, r"got the class IStar as the penalty, expected IStar\(...\)"),
    ({"accumulate": "cache"}, "got accumulate 'cache'.*did you mean 'cached'"),
    ({"compare_steps": 0}, "got compare_steps=0, expected a whole number from 1 up"),
    ({"refresh_points": 0}, "got refresh_points=0, expected a whole number from 2 up"),
    ({"refresh_points": "a"}, "got refresh_points='a', expected a whole number from 2 up"),
    ({"track_steps": 2.5}, "got track_steps=2.5, expected a whole number"),
    ({"track": ["iso_scor"], "track_dataset": 1}, "did you mean 'iso_score'"),
    ({"track": "iso_score"}, "neither track_dataset nor eval_dataset.*pass track_dataset="),
    ({"track": "iso_score", "track_dataset": {"a": [], "b": []}}, r"several data sets.*'a', 'b'"),
    ({"track": "iso_score", "track_dataset": []}, "got no rows to track measures on"),
    ({"track": "iso_score", "track_dataset": 1, "track_rows": 0}, "got track_rows=0"),
    ({"track": "iso_score", "track_dataset": 1, "track_site": "cl"}, "got site 'cl'"),
]


@pytest.mark.parametrize(("settings", "message"), ERRORS, ids=lambda value: str(value)[:40])
def test_settings_that_make_no_sense_are_errors(
    make: Callable[..., Any],
    tiny: Tiny,
    arguments: Arguments,
    settings: dict[str, Any],
    message: str,
) -> None:
    if settings.get("track_dataset") == 1:
        settings = settings | {"track_dataset": tiny.sentences(8)}
    with pytest.raises(SettingError, match=message):
        make(tiny.classifier(), arguments(), tiny.sentences(8), **settings)


@pytest.mark.parametrize("with_flow", [False, True])
def test_several_gpus_in_one_process_are_an_error(
    make: Callable[..., Any], tiny: Tiny, arguments: Arguments, with_flow: bool
) -> None:
    two_gpus = arguments()
    assert two_gpus.n_gpu == 0
    two_gpus._n_gpu = 2  # where there are two that CUDA_VISIBLE_DEVICES shows
    model = tiny.classifier()
    make(model, two_gpus, tiny.sentences(8))  # without a penalty, the trainer's own matter
    if with_flow:
        layers.attach(model, layers.Flow(8))
    with pytest.raises(SettingError, match=r"got 2 GPUs in one process .*torchrun --nproc-per-nod"):
        make(
            model,
            two_gpus,
            tiny.sentences(8),
            penalty=None if with_flow else penalties.Cosine(),
        )


def test_a_model_without_states_is_an_error(tiny: Tiny, arguments: Arguments) -> None:
    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words = nn.Embedding(40, 2)

        def forward(self, input_ids: Tensor, labels: Tensor) -> Any:
            logits = self.words(input_ids).mean(dim=1)
            return nn.functional.cross_entropy(logits, labels), logits

    with pytest.raises(SettingError, match="type Plain whose forward takes no output_hidden_state"):
        IsotropyTrainer(
            Plain(), arguments(), train_dataset=tiny.sentences(8), penalty=penalties.Cosine()
        )

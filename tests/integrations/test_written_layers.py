"""Training a model that writes texts with a flow at each of its tokens."""

import copy
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn
from transformers import BartConfig, BartForConditionalGeneration, PrinterCallback

from isotropy import layers
from isotropy.integrations.huggingface import IsotropySeq2SeqTrainer

pytest.importorskip("zuko")

RATE = 0.05


class QuickFlow(layers.Flow):
    """A flow with a rate at which plain gradient descent does not diverge."""

    learning_rate = 0.002


def writer(words: int) -> Any:
    torch.manual_seed(0)
    config = BartConfig(
        vocab_size=words, d_model=8, encoder_layers=1, decoder_layers=1, encoder_ffn_dim=16,
        decoder_ffn_dim=16, encoder_attention_heads=2, decoder_attention_heads=2, dropout=0.0,
        max_position_embeddings=20, init_std=0.3, pad_token_id=0, bos_token_id=1, eos_token_id=2,
        decoder_start_token_id=2, forced_eos_token_id=None,
    )  # fmt: skip
    model = BartForConditionalGeneration(config).double()
    torch.manual_seed(1)
    return layers.attach(model, QuickFlow(8).double())


@pytest.fixture
def pairs(tiny: SimpleNamespace) -> list[dict[str, Any]]:
    """Sentences whose target is their first words."""
    rows = tiny.sentences(24)
    for row in rows:
        row["labels"] = [*row["input_ids"][: 2 + row["input_ids"][0] % 3], 2]
    return rows


def batches_of(tiny: SimpleNamespace, pairs: list[Any], model: Any) -> list[dict[str, Any]]:
    found = [tiny.collate(pairs[i : i + 8]) for i in range(0, len(pairs), 8)]
    for batch in found:
        batch["decoder_input_ids"] = model.prepare_decoder_input_ids_from_labels(batch["labels"])
    return found


def trained(model: Any, arguments: Any, pairs: list[Any], collate: Callable[..., Any]) -> Any:
    trainer = IsotropySeq2SeqTrainer(model, arguments, train_dataset=pairs, data_collator=collate)
    trainer.remove_callback(PrinterCallback)
    trainer.train()
    return trainer


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_the_steps_are_those_of_two_loops_by_hand(
    tiny: SimpleNamespace,
    arguments: Callable[..., Any],
    pairs: list[dict[str, Any]],
    smoothing: float,
) -> None:
    model = writer(40)

    def collate(rows: list[Any]) -> dict[str, Any]:
        return batches_of(tiny, rows, model)[0]

    trainer = trained(
        copy.deepcopy(model),
        arguments(learning_rate=RATE, label_smoothing_factor=smoothing),
        pairs,
        collate,
    )
    flow = model.isotropy_layer
    rest = [p for name, p in model.named_parameters() if not name.startswith("isotropy_layer.")]
    optimizers = [
        torch.optim.SGD(rest, lr=RATE),
        torch.optim.SGD(flow.parameters(), lr=QuickFlow.learning_rate),
    ]
    model.train()
    logged = [entry for entry in trainer.state.log_history if "loss" in entry]
    for batch, entry in zip(batches_of(tiny, pairs, model), logged, strict=True):
        real = batch["labels"] != -100
        assert not real.all()
        seen: list[torch.Tensor] = []
        with flow.register_forward_pre_hook(lambda _, args, to=seen: to.append(args[0])):
            logits = model(**batch).logits[real]
        assert len(seen[0]) == int(real.sum())
        target = batch["labels"][real]
        task = nn.functional.cross_entropy(logits, target, label_smoothing=smoothing)
        own = flow.negative_log_likelihood(seen[0].detach()).mean()
        model.zero_grad()
        (task + own).backward()
        for optimizer in optimizers:
            optimizer.step()
        assert entry["task_loss"] == pytest.approx(float(task.detach()), rel=1e-6)
        assert entry["layer_loss"] == pytest.approx(float(own.detach()), rel=1e-6)
    difference = tiny.distance(trainer.model, model)
    assert difference < 1e-9


def test_it_evaluates_by_writing(
    tiny: SimpleNamespace, arguments: Callable[..., Any], pairs: list[dict[str, Any]]
) -> None:
    model = writer(40)
    settings = {"predict_with_generate": True, "generation_max_length": 6}
    trainer = trained(
        model, arguments(**settings), pairs, lambda rows: batches_of(tiny, rows, model)[0]
    )
    rate = {group["lr"] for group in trainer.optimizer.param_groups if group["params"]}
    assert rate == {0.1, QuickFlow.learning_rate}
    found = trainer.predict(pairs[:5])
    assert found.predictions.shape[0] == 5
    batch = tiny.collate(pairs[:5])
    with torch.no_grad():
        loss = model.eval()(**batches_of(tiny, pairs[:5], model)[0]).loss
        ids = model.generate(
            batch["input_ids"], attention_mask=batch["attention_mask"], max_length=6
        )
    assert found.metrics["test_loss"] == pytest.approx(float(loss), rel=1e-6)
    assert found.predictions[:, : ids.shape[1]].tolist() == ids.tolist()

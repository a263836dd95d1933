"""A layer at every token that an encoder-decoder model writes."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from isotropy import layers
from isotropy.errors import SettingError

pytest.importorskip("zuko")

D, WORDS = 16, 30
PAD, START, END = 0, 1, 2
_BART = {
    "d_model": D,
    "encoder_layers": 2,
    "decoder_layers": 2,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 32,
    "decoder_ffn_dim": 32,
    "max_position_embeddings": 40,
    "init_std": 0.5,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "encoder_layerdrop": 0.0,
    "decoder_layerdrop": 0.0,
    "decoder_start_token_id": START,
    "forced_eos_token_id": None,
}
_T5 = {
    "d_model": D,
    "d_kv": 8,
    "d_ff": 32,
    "num_layers": 2,
    "num_heads": 2,
    "dropout_rate": 0.0,
    "decoder_start_token_id": PAD,
}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "Bart": ("BartForConditionalGeneration", _BART),
    "Bart, not tied": (
        "BartForConditionalGeneration",
        {**_BART, "tie_word_embeddings": False},
    ),
    "MBart": ("MBartForConditionalGeneration", _BART),
    "M2M100": ("M2M100ForConditionalGeneration", _BART),
    "Pegasus": ("PegasusForConditionalGeneration", _BART),
    "Marian": ("MarianMTModel", {**_BART, "decoder_start_token_id": PAD}),
    "T5": ("T5ForConditionalGeneration", _T5),
    "T5 without scaling": ("T5ForConditionalGeneration", {**_T5, "tie_word_embeddings": False}),
    "LongT5": ("LongT5ForConditionalGeneration", _T5),
    "MT5": ("MT5ForConditionalGeneration", _T5),
    "UMT5": ("UMT5ForConditionalGeneration", _T5),
}
SCALED = ("T5", "LongT5", "UMT5")
THREE = ("Bart", "MBart", "T5")

Batch = dict[str, Tensor]


def writer(kind: str) -> Any:
    """A new tiny model in float64 and evaluation mode, without dropout."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    name, settings = KINDS[kind]
    special = {"vocab_size": WORDS, "pad_token_id": PAD, "bos_token_id": 1, "eos_token_id": END}
    made = getattr(transformers, name)
    torch.manual_seed(0)
    model = made(made.config_class(**special, **settings)).double().eval()
    if hasattr(model, "final_logits_bias"):
        nn.init.normal_(model.final_logits_bias)
    return model


def flow() -> layers.Flow:
    """A flow whose couplings do something, and whose scales wait for a first batch."""
    made = layers.Flow(D, levels=2).double()
    torch.manual_seed(1)
    for name, parameter in made.named_parameters():
        if "hyper" in name:
            nn.init.normal_(parameter, std=0.3)
    return made


@pytest.fixture
def batch() -> Batch:
    """Three texts and their targets; sources and targets are padded on the right."""
    generator = torch.Generator().manual_seed(0)
    ids = torch.randint(3, WORDS, (3, 7), generator=generator)
    labels = torch.randint(3, WORDS, (3, 6), generator=generator)
    ids[1, 4:] = PAD
    labels[1, 3:] = -100
    labels[2, 5:] = -100
    labels[[0, 1, 2], [5, 2, 4]] = END
    shifted = labels.roll(1, dims=1).masked_fill(labels.roll(1, dims=1) == -100, PAD)
    shifted[:, 0] = START
    return {
        "input_ids": ids,
        "attention_mask": (ids != PAD).long(),
        "labels": labels,
        "decoder_input_ids": shifted,
    }


def states_by_hand(model: Any, batch: Batch) -> Tensor:
    """The decoder's last states, b×t×d."""
    mask = batch["attention_mask"]
    encoded = model.get_encoder()(input_ids=batch["input_ids"], attention_mask=mask)
    return (
        model.get_decoder()(
            input_ids=batch["decoder_input_ids"],
            encoder_hidden_states=encoded.last_hidden_state,
            encoder_attention_mask=mask,
        )
    ).last_hidden_state


def head_by_hand(model: Any, kind: str, states: Tensor) -> Tensor:
    logits = nn.functional.linear(states, model.lm_head.weight)
    logits = logits * D**-0.5 if kind in SCALED else logits
    return logits + getattr(model, "final_logits_bias", 0)


def gradients(model: Any) -> dict[str, Tensor]:
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_every_token_goes_through_the_layer(kind: str, batch: Batch) -> None:
    model = writer(kind)
    torch.manual_seed(1)
    layer = layers.IsotropyLayer(D, start="random").double()
    before = model(**batch).logits
    states = states_by_hand(model, batch)
    torch.testing.assert_close(head_by_hand(model, kind, states), before)
    expected = head_by_hand(model, kind, layer(states.flatten(0, 1)).view_as(states))
    assert not torch.allclose(before, expected, atol=0.01)
    assert layers.attach(model, layer) is model
    torch.testing.assert_close(model(**batch).logits, expected)
    # Neither labels nor how inputs are passed matter to the logits.
    ids, mask, _, shifted = batch.values()
    torch.testing.assert_close(model(ids, mask, shifted).logits, expected)
    assert layers.detach(model) is layer
    assert torch.equal(model(**batch).logits, before)
    assert not any(name.startswith("isotropy") for name in model.state_dict())
    assert not hasattr(model.config, "isotropy_layer")


@pytest.mark.parametrize("kind", KINDS)
def test_loss_and_gradients_are_those_by_hand(kind: str, batch: Batch) -> None:
    model = layers.attach(writer(kind), flow()).train()
    layer = model.isotropy_layer
    real = batch["labels"] != -100
    with torch.no_grad():
        layer(states_by_hand(model, batch)[real])  # sets its scales
    fixed = copy.deepcopy(layer).requires_grad_(False)
    loss = model(**batch).loss
    (loss + layer.own_loss()).backward()
    found = gradients(model)

    model.zero_grad()
    states = states_by_hand(model, batch)
    z = fixed.glow(states[real]).z
    logits = head_by_hand(model, kind, z)
    expected = nn.functional.cross_entropy(logits, batch["labels"][real])
    likelihood = layer.negative_log_likelihood(states[real].detach()).mean()
    (expected + likelihood).backward()
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(layer.own_loss(), likelihood)
    wanted = gradients(model)
    assert found.keys() == wanted.keys()
    assert any(name.startswith("isotropy_layer") for name in found)
    for name, gradient in wanted.items():
        torch.testing.assert_close(found[name], gradient, msg=lambda m, name=name: f"{name}: {m}")


def test_the_gradient_is_that_of_finite_differences(batch: Batch) -> None:
    model = layers.attach(writer("T5"), flow()).train()
    model(**batch)
    weight = model.decoder.final_layer_norm.weight
    loss = model(**batch).loss
    (found,) = torch.autograd.grad(loss, weight)
    for index in range(0, D, 5):
        values = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                weight[index] += step
                values.append(float(model(**batch).loss))
                weight[index] -= step
        assert float(found[index]) == pytest.approx((values[0] - values[1]) / 2e-6, rel=1e-5)


def padded(batch: Batch) -> Batch:
    """The batch with two more columns of targets and a row whose target is nothing but padding."""
    columns = {"labels": -100, "decoder_input_ids": PAD}
    wide = {
        name: nn.functional.pad(x, (0, 2), value=columns[name]) if name in columns else x
        for name, x in batch.items()
    }
    row = {name: x[:1].clone() for name, x in wide.items()}
    row["labels"][:] = -100
    row["decoder_input_ids"][:, 1:] = PAD
    return {name: torch.cat((x, row[name])) for name, x in wide.items()}


@pytest.mark.parametrize("kind", THREE)
@pytest.mark.parametrize("name", ["flow", "iso-batch-norm"])
def test_padding_of_targets_changes_nothing(kind: str, name: str, batch: Batch) -> None:
    seen = []
    for given in (batch, padded(batch)):
        layer = flow() if name == "flow" else layers.IsoBatchNorm(D).double()
        model = layers.attach(writer(kind), layer).train()
        loss = model(**given).loss
        own = layer.own_loss()
        (loss if own is None else loss + own).backward()
        shown = {"loss": loss, **gradients(model), **dict(layer.state_dict(prefix="state."))}
        seen.append(shown if own is None else shown | {"own": own})
    assert seen[0].keys() == seen[1].keys()
    for key, value in seen[0].items():
        torch.testing.assert_close(seen[1][key], value, msg=lambda m, key=key: f"{key}: {m}")


def test_what_tells_padding_where_there_are_no_labels(batch: Batch) -> None:
    seen: list[Tensor] = []

    def rows(**inputs: Tensor) -> int:
        seen.clear()
        model(input_ids=batch["input_ids"], attention_mask=batch["attention_mask"], **inputs)
        return len(seen[0])

    model = layers.attach(writer("T5"), layers.IsotropyLayer(D).double()).train()
    model.isotropy_layer.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    ids, labels = batch["decoder_input_ids"], batch["labels"]
    ids[:, 0] = PAD  # as T5 begins
    assert rows(labels=labels) == int((labels != -100).sum()) == 6 + 3 + 5
    assert rows(decoder_input_ids=ids, decoder_attention_mask=(labels != -100).long()) == 14
    # The token after a shorter target's end is there too: it is no padding.
    assert rows(decoder_input_ids=ids) == 6 + 4 + 6
    model.config.pad_token_id = None
    assert rows(decoder_input_ids=ids) == ids.numel()
    model.eval()
    assert rows(labels=labels, decoder_input_ids=ids) == ids.numel()


def test_a_batch_of_one_token(batch: Batch) -> None:
    model = layers.attach(writer("Bart"), flow()).train()
    one = {name: x[:1, :1] for name, x in batch.items()}
    assert not model.isotropy_layer.initialised
    model(**one).loss.backward()
    assert not model.isotropy_layer.initialised  # one row says nothing of scales
    none = {**one, "labels": torch.full((1, 1), -100)}
    model(**none)
    assert model.isotropy_layer.own_loss() is None
    model(**batch)
    assert model.isotropy_layer.initialised
    model.zero_grad()
    (model(**one).loss + model.isotropy_layer.own_loss()).backward()
    assert all(torch.isfinite(gradient).all() for gradient in gradients(model).values())


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_it_writes(kind: str, batch: Batch) -> None:
    model = layers.attach(writer(kind), flow()).train()
    model(**batch)
    model.eval()
    sources = {name: batch[name] for name in ("input_ids", "attention_mask")}
    settings: dict[str, Any] = {"max_new_tokens": 6, "do_sample": False, "min_new_tokens": 6}
    greedy = model.generate(**sources, num_beams=1, **settings)
    # By hand: all tokens anew for each.
    ids = greedy[:, :1]
    for _ in range(6):
        states = states_by_hand(model, {**sources, "decoder_input_ids": ids})
        z = model.isotropy_layer(states.flatten(0, 1)).view_as(states)
        logits = head_by_hand(model, kind, z)[:, -1]
        logits[:, END] = -torch.inf
        ids = torch.cat((ids, logits.argmax(dim=1, keepdim=True)), dim=1)
    assert torch.equal(greedy, ids)
    beams = model.generate(**sources, num_beams=3, **settings)
    without_cache = model.generate(**sources, num_beams=3, use_cache=False, **settings)
    assert torch.equal(beams, without_cache)
    single = model.generate(input_ids=sources["input_ids"][:1], num_beams=3, **settings)
    assert torch.equal(single, beams[:1])
    model.train().generate(**sources, num_beams=2, **settings)
    layers.detach(model)
    assert not torch.equal(model.eval().generate(**sources, num_beams=1, **settings), greedy)


@torch.no_grad()
@pytest.mark.parametrize("kind", [*THREE, "Marian"])
def test_it_is_saved_and_loaded_with_the_model(kind: str, batch: Batch, tmp_path: Path) -> None:
    from transformers import AutoModelForSeq2SeqLM

    model = layers.attach(writer(kind), flow()).train()
    model(**batch)
    model.eval().save_pretrained(tmp_path)
    for auto in (AutoModelForSeq2SeqLM, type(model)):
        loaded = layers.load(auto, tmp_path, dtype=torch.float64).eval()
        assert type(loaded) is type(model)
        assert torch.equal(loaded(**batch).logits, model(**batch).logits)
        written = [m.generate(batch["input_ids"], max_new_tokens=5) for m in (model, loaded)]
        assert torch.equal(*written)
        assert loaded.lm_head.weight is loaded.get_input_embeddings().weight
    plain = AutoModelForSeq2SeqLM.from_pretrained(tmp_path, dtype=torch.float64).eval()
    layers.detach(model)
    assert torch.equal(plain(**batch).logits, model(**batch).logits)


@torch.no_grad()
@pytest.mark.parametrize("kind", [*THREE, "Bart, not tied"])
def test_a_new_vocabulary_keeps_the_layer(kind: str, batch: Batch) -> None:
    model = layers.attach(writer(kind), flow())
    plain = model.lm_head
    model.resize_token_embeddings(WORDS + 4, mean_resizing=False)
    assert (model.lm_head is plain) == (kind in THREE)  # another module, without hooks
    states = states_by_hand(model, batch)
    z = model.isotropy_layer(states.flatten(0, 1)).view_as(states)
    torch.testing.assert_close(model(**batch).logits, head_by_hand(model, kind, z))
    layers.detach(model)
    torch.testing.assert_close(model(**batch).logits, head_by_hand(model, kind, states))


@torch.no_grad()
def test_copies_have_a_layer_of_their_own(batch: Batch) -> None:
    model = layers.attach(writer("T5"), flow())
    before = model(**batch).logits
    other = copy.deepcopy(model)
    layers.detach(other)
    assert torch.equal(model(**batch).logits, before)
    assert not torch.allclose(other(**batch).logits, before)


@torch.no_grad()
def test_in_half_precision(batch: Batch) -> None:
    model = layers.attach(writer("T5"), flow()).train().to(torch.bfloat16)
    assert {p.dtype for p in model.isotropy_layer.parameters()} == {torch.float32}
    logits = model(**batch).logits
    assert logits.dtype == torch.bfloat16
    assert bool(logits.isfinite().all())


@pytest.mark.parametrize(
    "act", [layers.Head, lambda model: layers.embeddings(model, [{}])], ids=["head", "embeddings"]
)
def test_what_is_of_classifiers_alone(act: Callable[[Any], Any]) -> None:
    message = "T5ForConditionalGeneration, whose head reads every token .* expected a classifier"
    with pytest.raises(SettingError, match=message) as raised:
        act(writer("T5"))
    assert "\n" not in str(raised.value)


def test_a_layer_that_does_not_fit_is_refused() -> None:
    with pytest.raises(SettingError, match=r"d=8 for a model whose embeddings have 16 features"):
        layers.attach(writer("MBart"), layers.Flow(8))

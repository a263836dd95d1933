import copy
import json
import logging
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from isotropy import Representations, layers
from isotropy.errors import InputError, SettingError, SourceError
from isotropy.sites import Site

KINDS = (
    "Bert", "Roberta", "Albert", "Electra", "MPNet", "Deberta", "DebertaV2", "DistilBert", "GPT2",
    "Llama", "Qwen2",
)  # fmt: skip
POOLED = ("Bert", "Albert", "Deberta", "DebertaV2")
CAUSAL = ("GPT2", "Llama", "Qwen2")

Classifier = Callable[..., Any]
Batch = dict[str, Tensor]


def by_hand(model: Any, kind: str, batch: Batch) -> Tensor:
    """The embedding that the head reads, from what the encoder alone gives."""
    output = model.base_model(**batch)
    if kind in ("Bert", "Albert"):
        return output.pooler_output
    first = output.last_hidden_state[:, 0]
    if kind in POOLED:  # DeBERTa's pooler stands outside of its encoder
        return torch.nn.functional.gelu(model.pooler.dense(first))
    if kind in CAUSAL:
        last = [max(i for i, t in enumerate(row) if t != 0) for row in batch["input_ids"].tolist()]
        return output.last_hidden_state[torch.arange(len(last)), last]
    return first


def head_by_hand(model: Any, kind: str, x: Tensor) -> Tensor:
    """The head's logits of embeddings, from its weights."""
    linear = torch.nn.functional.linear
    if kind in POOLED:
        return linear(x, model.classifier.weight, model.classifier.bias)
    if kind in CAUSAL:
        return linear(x, model.score.weight)
    if kind == "DistilBert":
        hidden = linear(x, model.pre_classifier.weight, model.pre_classifier.bias).relu()
        return linear(hidden, model.classifier.weight, model.classifier.bias)
    head = model.classifier
    hidden = linear(x, head.dense.weight, head.dense.bias)
    hidden = torch.nn.functional.gelu(hidden) if kind == "Electra" else hidden.tanh()
    return linear(hidden, head.out_proj.weight, head.out_proj.bias)


def random_layer() -> layers.IsotropyLayer:
    torch.manual_seed(1)
    return layers.IsotropyLayer(16, start="random")


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_what_the_head_reads_goes_through_the_layer(
    classifier: Classifier, kind: str, batch: Batch
) -> None:
    model, layer = classifier(kind), random_layer()
    before = model(**batch).logits
    rows = by_hand(model, kind, batch)
    torch.testing.assert_close(head_by_hand(model, kind, rows), before)
    expected = head_by_hand(model, kind, layer(rows))
    assert not torch.allclose(before, expected, atol=0.01)
    assert layers.attach(model, layer) is model
    torch.testing.assert_close(model(**batch).logits, expected)
    ids, mask = batch.values()
    torch.testing.assert_close(model(ids, attention_mask=mask).logits, expected)
    assert layers.detach(model) is layer
    assert torch.equal(model(**batch).logits, before)
    assert not any(name.startswith("isotropy") for name in model.state_dict())
    assert not hasattr(model.config, "isotropy_layer")


@torch.no_grad()
@pytest.mark.parametrize("kind", KINDS)
def test_the_embeddings_and_the_head(classifier: Classifier, kind: str, batch: Batch) -> None:
    model = classifier(kind).train()
    expected = by_hand(copy.deepcopy(model).eval(), kind, batch)
    batches = [{k: v[:2] for k, v in batch.items()}, {k: v[2:] for k, v in batch.items()}]
    batches[0]["labels"] = torch.tensor([0, 1])
    for attached in (False, True):
        if attached:
            layers.attach(model, random_layer())
        found = layers.embeddings(model, batches)
        torch.testing.assert_close(found, expected)
        head = layers.Head(model).eval()
        torch.testing.assert_close(head(found), head_by_hand(model, kind, found))
        assert model.base_model.training
    names = {id(p) for p in model.base_model.parameters()}
    assert not any(id(p) in names for p in layers.Head(model).parameters())


@pytest.mark.parametrize("kind", KINDS)
def test_a_gradient_goes_through_the_layer_to_the_encoder(
    classifier: Classifier, kind: str, batch: Batch
) -> None:
    model = layers.attach(classifier(kind), random_layer())
    model(**batch, labels=torch.tensor([0, 1, 2, 0, 1])).loss.backward()
    assert all(p.grad.any() for p in model.isotropy_layer.parameters())
    assert model.get_input_embeddings().weight.grad.any()


@torch.no_grad()
@pytest.mark.parametrize("kind", CAUSAL)
def test_moments_are_those_of_the_texts_not_of_all_tokens(
    classifier: Classifier, kind: str, batch: Batch
) -> None:
    model = classifier(kind)
    rows = by_hand(model, kind, batch)
    layer = layers.IsoBatchNorm(16)
    layers.attach(model, layer)
    layer.train()
    model(**batch)
    expected = rows.std(dim=0, correction=0)
    torch.testing.assert_close(layer.std / layer.weight, expected, rtol=1e-4, atol=1e-6)


@torch.no_grad()
def test_without_tokens_the_last_place_is_the_text(classifier: Classifier, batch: Batch) -> None:
    model, layer = classifier("Llama"), random_layer()
    embedded = {"inputs_embeds": model.get_input_embeddings()(batch["input_ids"][:1])}
    rows = model.base_model(**embedded).last_hidden_state[:, -1]
    layers.attach(model, layer)
    torch.testing.assert_close(model(**embedded).logits, head_by_hand(model, "Llama", layer(rows)))


@pytest.mark.parametrize("kind", ["Bert", "DistilBert", "Electra", "GPT2"])
def test_the_head_that_sites_see_stays_the_head(classifier: Classifier, kind: str) -> None:
    model = classifier(kind)
    weight = next(p for p in model.parameters() if p.shape == (3, 16))
    layers.attach(model, random_layer())
    shown = Representations.from_output({"last_hidden_state": torch.zeros(1, 2, 16)}, model=model)
    assert shown.rows(Site.parse("head")).blocks[0] is weight


def made(name: str) -> layers.Layer:
    """A layer of every kind that has been trained for a step."""
    torch.manual_seed(1)
    settings = {"isotropy-layer": {"depth": 2, "start": "random"}, "flow": {"levels": 2}}
    layer = layers.SPECS[name].make(d=16, **settings.get(name, {})).train()
    layer(torch.randn(20, 16) * torch.linspace(1, 3, 16))
    return layer


@torch.no_grad()
@pytest.mark.parametrize("name", layers.SPECS)
@pytest.mark.parametrize("kind", ["Bert", "Roberta", "GPT2"])
def test_it_is_saved_and_loaded_with_the_model(
    classifier: Classifier, kind: str, name: str, batch: Batch, tmp_path: Path
) -> None:
    from transformers import AutoModelForSequenceClassification

    model = layers.attach(classifier(kind), made(name)).eval()
    model.save_pretrained(tmp_path)
    assert any(file.suffix == ".safetensors" for file in tmp_path.iterdir())
    for auto in (AutoModelForSequenceClassification, type(model)):
        loaded = layers.load(auto, tmp_path).eval()
        assert loaded.isotropy_layer.settings == model.isotropy_layer.settings
        state = loaded.state_dict()
        assert list(state) == list(model.state_dict())
        assert all(torch.equal(state[key], value) for key, value in model.state_dict().items())
        assert torch.equal(loaded(**batch).logits, model(**batch).logits)
    again = tmp_path / "again"
    loaded.save_pretrained(again)
    assert json.loads((again / "config.json").read_text())["isotropy_layer"]["name"] == name


@torch.no_grad()
def test_a_model_in_shards_is_loaded(classifier: Classifier, batch: Batch, tmp_path: Path) -> None:
    model = layers.attach(classifier("Bert"), made("iso-batch-norm")).eval()
    model.save_pretrained(tmp_path, max_shard_size="4KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    loaded = layers.load(type(model), tmp_path).eval()
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)


@torch.no_grad()
def test_in_half_precision_running_moments_stay_exact(
    classifier: Classifier, batch: Batch, tmp_path: Path
) -> None:
    model = layers.attach(classifier("Bert"), made("iso-batch-norm")).to(torch.bfloat16).eval()
    assert model.isotropy_layer.covariance.dtype == torch.float32
    model.save_pretrained(tmp_path)
    loaded = layers.load(type(model), tmp_path).eval()
    assert loaded.dtype == torch.bfloat16
    assert torch.equal(loaded.isotropy_layer.covariance, model.isotropy_layer.covariance)
    assert torch.equal(loaded(**batch).logits, model(**batch).logits)
    layer = layers.attach(classifier("Bert").to(torch.bfloat16), random_layer()).isotropy_layer
    assert layer.first.weight.dtype == torch.bfloat16


@torch.no_grad()
def test_loading_says_nothing_of_the_layer(
    classifier: Classifier, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = layers.attach(classifier("Bert"), made("flow"))
    model.save_pretrained(tmp_path)
    logger = logging.getLogger("transformers")  # its records go no further up
    logger.addHandler(caplog.handler)
    try:
        layers.load(type(model), tmp_path)
        assert "isotropy_layer" not in caplog.text
        type(model).from_pretrained(tmp_path)
        assert "isotropy_layer" in caplog.text
    finally:
        logger.removeHandler(caplog.handler)


@torch.no_grad()
@pytest.mark.parametrize("kind", ["Bert", "Llama"])
def test_copies_have_a_layer_of_their_own(classifier: Classifier, kind: str, batch: Batch) -> None:
    model = layers.attach(classifier(kind), random_layer())
    expected = model(**batch).logits
    for other in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(other(**batch).logits, expected)
        torch.nn.init.zeros_(other.isotropy_layer.first.weight)
        assert not torch.equal(other(**batch).logits, expected)
        assert torch.equal(model(**batch).logits, expected)
        layers.detach(other)
        assert torch.equal(model(**batch).logits, expected)
        rows = by_hand(other, kind, batch)
        torch.testing.assert_close(other(**batch).logits, head_by_hand(other, kind, rows))


def test_a_trainer_goes_on_from_its_checkpoint(classifier: Classifier, tmp_path: Path) -> None:
    from transformers import Trainer, TrainingArguments

    generator = torch.Generator().manual_seed(0)
    data = [
        {"input_ids": torch.randint(3, 30, (6,), generator=generator), "labels": i % 3}
        for i in range(24)
    ]

    def trainer(steps: int, folder: str) -> Any:
        arguments = TrainingArguments(
            str(tmp_path / folder), max_steps=steps, save_steps=3, per_device_train_batch_size=4,
            report_to=[], use_cpu=True, disable_tqdm=True, seed=1, learning_rate=1e-2,
            lr_scheduler_type="constant", logging_strategy="no", dataloader_pin_memory=False,
        )  # fmt: skip
        model = layers.attach(classifier("Bert"), layers.IsoBatchNorm(16))
        for part in model.modules():
            if isinstance(part, torch.nn.Dropout):
                part.p = 0.0
        return Trainer(model, arguments, train_dataset=data)

    whole, first, second = trainer(6, "whole"), trainer(3, "parts"), trainer(6, "parts")
    whole.train()
    first.train()
    second.train(resume_from_checkpoint=True)
    state = second.model.state_dict()
    assert float(state["isotropy_layer.weight"]) == pytest.approx(1 - 0.95**6)
    for key, value in whole.model.state_dict().items():
        torch.testing.assert_close(state[key], value)
    loaded = layers.load(type(whole.model), tmp_path / "whole" / "checkpoint-6")
    key = "isotropy_layer.covariance"
    assert torch.equal(loaded.state_dict()[key], whole.model.state_dict()[key])


def test_a_model_without_a_place_is_refused(classifier: Classifier) -> None:
    for model in (classifier("Bert", "TokenClassification"), torch.nn.Linear(16, 2)):
        for act in (
            lambda model=model: layers.attach(model, random_layer()),
            lambda model=model: layers.Head(model),
            lambda model=model: layers.embeddings(model, []),
        ):
            with pytest.raises(SettingError, match=r"no known place for a layer, expected a Hugg"):
                act()


def test_a_layer_that_does_not_fit_is_refused(classifier: Classifier) -> None:
    model = classifier("Bert")
    with pytest.raises(
        SettingError, match=r"got a layer with d=8 for .* 16 features, expected d=1"
    ):
        layers.attach(model, layers.IsotropyLayer(8))
    with pytest.raises(SettingError, match="got a layer of type Linear"):
        layers.attach(model, torch.nn.Linear(16, 16))
    with pytest.raises(SettingError, match="got a model without a layer"):
        layers.detach(model)
    layers.attach(model, random_layer())
    with pytest.raises(SettingError, match="got a model that has a layer, IsotropyLayer"):
        layers.attach(model, random_layer())


def test_no_batches(classifier: Classifier) -> None:
    with pytest.raises(InputError, match="got no batches"):
        layers.embeddings(classifier("Bert"), [])


def test_folders_that_hold_no_layer(classifier: Classifier, tmp_path: Path) -> None:
    model = classifier("Bert")
    message = r"^got 'org/model', which is no folder.*snapshot_download\('org/model'\)$"
    with pytest.raises(SourceError, match=message):
        layers.load(type(model), "org/model")
    with pytest.raises(SourceError, match=r"without a config.json"):
        layers.load(type(model), tmp_path)
    model.save_pretrained(tmp_path)
    with pytest.raises(SourceError, match=r"no layer, .*BertForSequenceClassification.from_pretr"):
        layers.load(type(model), tmp_path)


def test_folders_that_are_not_as_they_were(classifier: Classifier, tmp_path: Path) -> None:
    from transformers import RobertaForSequenceClassification

    model = layers.attach(classifier("Bert"), made("isotropy-layer"))
    model.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())

    def write(recipe: Any) -> None:
        (tmp_path / "config.json").write_text(json.dumps({**config, "isotropy_layer": recipe}))

    write({"name": "isotropy-lair", "settings": {"d": 16}})
    with pytest.raises(SettingError, match="did you mean 'isotropy-layer'"):
        layers.load(type(model), tmp_path)
    write({"name": "isotropy-layer", "settings": {"d": 16, "width": 3}})
    with pytest.raises(SettingError, match=r"expected those of IsotropyLayer"):
        layers.load(type(model), tmp_path)
    write({"name": "isotropy-layer", "settings": {"d": 16, "depth": 3}})
    with pytest.raises(SourceError, match=r"does not fit its configuration"):
        layers.load(type(model), tmp_path)
    write(None)
    with pytest.raises(SourceError, match=r"expected a name and settings; pass layer="):
        layers.load(type(model), tmp_path)
    loaded = layers.load(type(model), tmp_path, layer=layers.IsotropyLayer(16, depth=2))
    weight = "isotropy_layer.first.weight"
    assert torch.equal(loaded.state_dict()[weight], model.state_dict()[weight])
    write(config["isotropy_layer"])
    with pytest.raises(SourceError, match=r"got a model that lacks"):
        layers.load(RobertaForSequenceClassification, tmp_path)

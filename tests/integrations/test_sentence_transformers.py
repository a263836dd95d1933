"""sentence-transformers' trainer with a penalty, beside the same training written out by hand."""

import copy
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset, disable_progress_bars
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch import Tensor, nn
from transformers import PrinterCallback

import isotropy
from isotropy import layers, penalties
from isotropy.errors import SettingError
from isotropy.integrations.sentence_transformers import (
    IsotropyCallback,
    IsotropyEvaluator,
    IsotropyLoss,
)

Tiny = SimpleNamespace
WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "big", "small", "red", "blue"]
PAIRS = [
    (f"{a} {b} sat", f"{b} {a} ran on the {c} mat")
    for a, b, c in zip(
        WORDS * 2, WORDS[3:] + WORDS + WORDS[:3], WORDS[5:] + WORDS + WORDS[:5], strict=True
    )
]

disable_progress_bars()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a tiny encoder with a tokenizer of twelve words."""
    from tokenizers import Tokenizer, models, pre_tokenizers, processors
    from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

    path = tmp_path_factory.mktemp("tiny-encoder")
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
    words = {word: i for i, word in enumerate(special + WORDS)}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        model_max_length=16,
    )
    fast.save_pretrained(path)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(words),
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=16,
        hidden_dropout_prob=0.0,
        attention_probs_dropout_prob=0.0,
        initializer_range=0.5,
    )
    BertModel(config).save_pretrained(path)
    return path


@pytest.fixture
def model(folder: Path) -> SentenceTransformer:
    transformer = Transformer(str(folder))
    return SentenceTransformer(modules=[transformer, Pooling(8)], device="cpu").double()


@pytest.fixture
def train(tmp_path: Path) -> Callable[..., Any]:
    """Trains with a loss for three steps of eight pairs, in their order."""

    def trained(
        model: SentenceTransformer,
        loss: nn.Module,
        *,
        evaluator: Any = None,
        callback: bool = False,
        resume: str | None = None,
        data: dict[str, list[Any]] | None = None,
        **settings: Any,
    ) -> Any:
        common = {
            "output_dir": str(tmp_path / "out"),
            "per_device_train_batch_size": 8,
            "max_steps": 3,
            "learning_rate": 0.1,
            "lr_scheduler_type": "constant",
            "optim": "sgd",
            "max_grad_norm": 0.0,
            "train_sampling_strategy": "sequential",
            "logging_steps": 1,
            "save_strategy": "no",
            "report_to": "none",
            "disable_tqdm": True,
            "use_cpu": True,
            "dataloader_pin_memory": False,
        }
        columns = data or {"anchor": [a for a, _ in PAIRS], "positive": [b for _, b in PAIRS]}
        dataset = Dataset.from_dict(columns)
        trainer = SentenceTransformerTrainer(
            model=model,
            args=SentenceTransformerTrainingArguments(**{**common, **settings}),
            train_dataset=dataset,
            eval_dataset=dataset.select(range(8)) if evaluator is not None else None,
            loss=loss,
            evaluator=evaluator,
        )
        trainer.remove_callback(PrinterCallback)
        if callback:
            trainer.add_callback(IsotropyCallback(trainer))
        trainer.train(resume_from_checkpoint=resume)
        return trainer

    return trained


class Recorded(losses.MultipleNegativesRankingLoss):
    """The in-batch contrastive loss, which keeps the batches that it sees."""

    def forward(self, sentence_features: Any, labels: Tensor) -> Tensor:
        columns = [dict(column) for column in sentence_features]
        vars(self).setdefault("seen", []).append([dict(column) for column in columns])
        return super().forward(columns, labels)


def by_hand(
    model: SentenceTransformer,
    batches: Sequence[Sequence[dict[str, Tensor]]],
    penalty: Callable[[Tensor], Tensor],
    accumulation: int,
) -> SentenceTransformer:
    """A training with the in-batch contrastive loss, written out."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    model.train()
    for i, columns in enumerate(batches):
        anchors, positives = (model(dict(column))["sentence_embedding"] for column in columns)
        cosines = nn.functional.cosine_similarity(anchors[:, None], positives, dim=-1)
        task = nn.functional.cross_entropy(20 * cosines, torch.arange(len(anchors)))
        ((task + penalty(torch.cat((anchors, positives)))) / accumulation).backward()
        if (i + 1) % accumulation == 0:
            optimizer.step()
            optimizer.zero_grad()
    return model


@pytest.mark.parametrize("accumulation", [1, 2])
def test_the_gradients_are_those_of_a_loop_by_hand(
    model: SentenceTransformer, train: Callable[..., Any], tiny: Tiny, accumulation: int
) -> None:
    start, inner = copy.deepcopy(model), Recorded(model)
    trainer = train(
        model,
        IsotropyLoss(model, inner, penalties.Cosine(2.0)),
        per_device_train_batch_size=8 // accumulation,
        gradient_accumulation_steps=accumulation,
    )
    assert len(inner.seen) == 3 * accumulation
    expected = by_hand(copy.deepcopy(start), inner.seen, lambda x: 2 * tiny.cosine(x), accumulation)
    plain = by_hand(copy.deepcopy(start), inner.seen, lambda x: x.new_zeros(()), accumulation)
    difference = tiny.distance(model, expected)
    assert difference < 1e-9
    difference = tiny.distance(model, plain)
    assert difference > 1e-3
    logs = trainer.state.log_history
    for entry in logs[:3]:
        # sentence-transformers rounds the terms to four digits.
        assert entry["task_loss"] + entry["penalty"] == pytest.approx(entry["loss"], abs=2e-4)


def test_a_penalty_on_tokens(model: SentenceTransformer, tiny: Tiny) -> None:
    loss = IsotropyLoss(
        model, losses.MultipleNegativesRankingLoss(model), penalties.Cosine(), of="tokens"
    )
    columns = [model.preprocess([pair[i] for pair in PAIRS[:5]]) for i in (0, 1)]
    terms = loss.train()([dict(column) for column in columns], None)
    clouds = []
    for column in columns:
        with torch.no_grad():
            features = model(dict(column))
        clouds.append(features["token_embeddings"][features["attention_mask"].bool()])
    expected = tiny.cosine(torch.cat(clouds))
    torch.testing.assert_close(terms["penalty"].detach(), expected)


def test_a_penalty_on_the_vocabulary(model: SentenceTransformer, tiny: Tiny) -> None:
    penalty = penalties.Cosine(site="vocabulary")
    loss = IsotropyLoss(model, losses.MultipleNegativesRankingLoss(model), penalty)
    columns = [model.preprocess([pair[i] for pair in PAIRS[:5]]) for i in (0, 1)]
    terms = loss.train()(columns, None)
    words = model.transformers_model.get_input_embeddings().weight
    expected = tiny.cosine(words[words.norm(dim=1) > 0])
    torch.testing.assert_close(terms["penalty"], expected)


def test_single_sentences_with_labels_have_classes(
    model: SentenceTransformer, train: Callable[..., Any]
) -> None:
    seen = []

    class Seen(penalties.Cosine):
        def value(self, rows: Any) -> Tensor:
            seen.append(rows.labels)
            return super().value(rows)

    given = []

    class Given(losses.BatchAllTripletLoss):
        def forward(self, sentence_features: Any, labels: Tensor) -> Tensor:
            given.append(labels)
            return super().forward(sentence_features, labels)

    data = {"sentence": [a for a, _ in PAIRS], "label": [i % 2 for i in range(len(PAIRS))]}
    train(model, IsotropyLoss(model, Given(model), Seen()), data=data)
    assert len(seen) == 3
    assert all(torch.equal(a, b) for a, b in zip(seen, given, strict=True))


@pytest.mark.parametrize("labels", [torch.rand(8), torch.zeros(8, 2).long()])
def test_labels_of_another_kind_are_no_classes(model: SentenceTransformer, labels: Tensor) -> None:
    class Norms(nn.Module):
        def forward(self, sentence_features: Any, labels: Tensor) -> Tensor:
            (features,) = sentence_features
            norms = model(features)["sentence_embedding"].norm(dim=1)
            return norms.mean() + 0 * labels.sum()

    penalty = penalties.PersistentEntropy()
    loss = IsotropyLoss(model, Norms(), penalty).train()
    found = loss([model.preprocess([pair[0] for pair in PAIRS[:8]])], labels)["penalty"]
    with torch.no_grad():
        cloud = model(model.preprocess([pair[0] for pair in PAIRS[:8]]))["sentence_embedding"]
    expected = penalty(isotropy.Representations.from_cloud(cloud))
    assert float(found.detach()) == pytest.approx(float(expected), rel=1e-6)


def test_a_loss_for_several_dimensions_goes_inside(
    model: SentenceTransformer, train: Callable[..., Any], tiny: Tiny
) -> None:
    seen = []

    class Seen(penalties.Cosine):
        def value(self, rows: Any) -> Tensor:
            seen.append(rows.blocks[0].shape)
            return super().value(rows)

    inner = losses.MatryoshkaLoss(model, losses.MultipleNegativesRankingLoss(model), [8, 4])
    train(model, IsotropyLoss(model, inner, Seen()))
    assert seen == [torch.Size([16, 8])] * 3
    ranking = losses.MultipleNegativesRankingLoss(model)
    outside = losses.MatryoshkaLoss(model, IsotropyLoss(model, ranking, Seen()), [8, 4])
    columns = [model.preprocess([pair[i] for pair in PAIRS[:5]]) for i in (0, 1)]
    with pytest.raises(
        SettingError, match="inside a loss for several dimensions, expected it outside"
    ):
        outside.train()(columns, None)


def test_evaluation_is_the_other_loss_and_the_evaluator_measures(
    model: SentenceTransformer, train: Callable[..., Any]
) -> None:
    ranking = losses.MultipleNegativesRankingLoss(model)
    sentences = [b for _, b in PAIRS]
    evaluator = IsotropyEvaluator(sentences, ["iso_score", "anisotropy"], name="held-out")
    trainer = train(
        model,
        IsotropyLoss(model, ranking, penalties.Cosine(5.0)),
        evaluator=evaluator,
        eval_strategy="steps",
        eval_steps=3,
        per_device_eval_batch_size=8,
    )
    logs = [entry for entry in trainer.state.log_history if "eval_loss" in entry]
    assert [entry["step"] for entry in logs] == [3]
    with torch.no_grad():
        columns = [model.preprocess([pair[i] for pair in PAIRS[:8]]) for i in (0, 1)]
        expected = float(ranking.eval()(columns, None))
        cloud = torch.cat(
            [model(model.preprocess([text]))["sentence_embedding"] for text in sentences]
        )
    assert logs[0]["eval_loss"] == pytest.approx(expected, rel=1e-6)
    assert logs[0]["eval_held-out_iso_score"] == pytest.approx(
        float(isotropy.measures.iso_score(cloud)), rel=1e-6
    )
    assert logs[0]["eval_held-out_anisotropy_1"] == pytest.approx(
        float(isotropy.measures.anisotropy(cloud)[0]), rel=1e-6
    )
    assert evaluator.primary_metric == "held-out_iso_score"


def test_a_resumed_training_is_the_undisturbed_one(
    model: SentenceTransformer, train: Callable[..., Any], tiny: Tiny, tmp_path: Path
) -> None:
    def trained(model: SentenceTransformer, resume: str | None) -> Any:
        penalty = penalties.IStar(weight=1, zeta=0.5)
        loss = IsotropyLoss(
            model, losses.MultipleNegativesRankingLoss(model), penalty, compare_steps=1
        )
        return train(
            model,
            loss,
            callback=True,
            resume=resume,
            max_steps=5,
            save_strategy="steps",
            save_steps=1,
        )

    start = copy.deepcopy(model)
    undisturbed = trained(model, None)
    resumed = trained(start, str(tmp_path / "out" / "checkpoint-4"))
    difference = tiny.distance(undisturbed.model, resumed.model)
    assert difference == 0
    logs = undisturbed.state.log_history
    assert [entry["step"] for entry in logs if "penalty_refresh_seconds" in entry] == [0, 3]
    assert all(entry["penalty_gradient_ratio"] > 0 for entry in logs if "loss" in entry)


def test_a_refresh_sees_the_embeddings_of_the_training_sentences(
    model: SentenceTransformer, train: Callable[..., Any]
) -> None:
    start = copy.deepcopy(model).eval()
    penalty = penalties.IStar(weight=1)
    loss = IsotropyLoss(model, losses.MultipleNegativesRankingLoss(model), penalty)
    train(model, loss, callback=True, max_steps=1)
    texts = [text for pair in PAIRS for text in pair]
    with torch.no_grad():
        rows = [start(start.preprocess([text]))["sentence_embedding"] for text in texts]
    assert penalty.shrinkage is not None
    torch.testing.assert_close(
        penalty.shrinkage.double(), torch.cov(torch.cat(rows).T), rtol=1e-5, atol=1e-6
    )


def cached(model: SentenceTransformer) -> nn.Module:
    return losses.CachedMultipleNegativesRankingLoss(model)


def ranking(model: SentenceTransformer) -> nn.Module:
    return losses.MultipleNegativesRankingLoss(model)


@pytest.mark.parametrize(
    ("loss", "settings", "message"),
    [
        (
            cached,
            {},
            "got CachedMultipleNegativesRankingLoss, which embeds a batch without a graph",
        ),
        (ranking, {"penalty": "cosine"}, "got a penalty of type str, expected one of isotropy"),
        (ranking, {"of": "sentence"}, "got of 'sentence'.*did you mean 'sentences'"),
        (ranking, {"compare_steps": -1}, "got compare_steps=-1, expected a whole number"),
    ],
    ids=["cached", "penalty", "of", "compare_steps"],
)
def test_settings_that_make_no_sense_are_errors(
    model: SentenceTransformer, loss: Callable[..., Any], settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        IsotropyLoss(model, loss(model), **{"penalty": penalties.Cosine(), **settings})


@pytest.mark.parametrize(
    ("sentences", "measures", "message"),
    [
        ([], "iso_score", "got no sentences to measure"),
        ("a cat", "iso_score", "got one string to measure"),
        (["a cat"], [], "got no measures to track"),
    ],
)
def test_an_evaluator_needs_sentences_and_measures(
    sentences: Sequence[str], measures: Any, message: str
) -> None:
    with pytest.raises(SettingError, match=message):
        IsotropyEvaluator(sentences, measures)


def test_too_few_points_for_a_refresh(model: SentenceTransformer) -> None:
    ranking = losses.MultipleNegativesRankingLoss(model)
    trainer = SimpleNamespace(loss=IsotropyLoss(model, ranking, penalties.IStar()))
    with pytest.raises(SettingError, match="got refresh_points=0, expected a whole number from 2"):
        IsotropyCallback(trainer, refresh_points=0)


def test_several_gpus_in_one_process_are_an_error(model: SentenceTransformer) -> None:
    loss = IsotropyLoss(model, ranking(model), penalties.Cosine()).train()
    trainer = SimpleNamespace(loss=loss, args=SimpleNamespace(n_gpu=2, world_size=1))
    with pytest.raises(SettingError, match=r"got 2 GPUs in one process .*torchrun --nproc-per-nod"):
        IsotropyCallback(trainer)
    loss.model = nn.DataParallel(model)  # as the trainer does
    loss.model.device_ids = [0, 1]
    with pytest.raises(SettingError, match="got 2 GPUs in one process"):
        loss([model.preprocess([pair[i] for pair in PAIRS[:4]]) for i in (0, 1)], None)


def test_ranks_need_the_loss_for_every_data_set(model: SentenceTransformer) -> None:
    both = {"a": IsotropyLoss(model, ranking(model), penalties.Cosine()), "b": ranking(model)}
    trainer = SimpleNamespace(loss=both, args=SimpleNamespace(n_gpu=0, world_size=2))
    with pytest.raises(SettingError, match="got 2 losses with 1 IsotropyLoss in them on 2 ranks"):
        IsotropyCallback(trainer)


def test_a_trainer_without_the_loss_is_an_error() -> None:
    with pytest.raises(SettingError, match="whose loss has 0 IsotropyLoss in it, expected one"):
        IsotropyCallback(SimpleNamespace(loss=nn.Identity()))


class SlowFlow(layers.Flow):
    """A flow with a rate of its own, at which plain gradient descent does not diverge."""

    learning_rate = 0.002


class Through(nn.Module):
    """A module of a SentenceTransformer that sends its embeddings through a layer."""

    def __init__(self, layer: layers.Layer) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, features: dict[str, Tensor], **_: Any) -> dict[str, Tensor]:
        return features | {"sentence_embedding": self.layer(features["sentence_embedding"])}


SILENT = {
    "per_device_train_batch_size": 8,
    "max_steps": 2,
    "learning_rate": 0.1,
    "lr_scheduler_type": "constant",
    "optim": "sgd",
    "max_grad_norm": 0.0,
    "train_sampling_strategy": "sequential",
    "logging_steps": 1,
    "save_strategy": "no",
    "report_to": "none",
    "disable_tqdm": True,
    "use_cpu": True,
    "dataloader_pin_memory": False,
}


def flow_by_hand(
    model: nn.Module, flow: layers.Flow, tasks: Sequence[Callable[[], Tensor]]
) -> list[float]:
    """Steps on a task and on the likelihood, each with its own parameters and rate."""
    inside = {id(p) for p in flow.parameters()}
    rest = [p for p in model.parameters() if id(p) not in inside]
    model.train()
    losses = []
    for task in tasks:
        seen: list[Tensor] = []
        with flow.register_forward_pre_hook(lambda _, args, to=seen: to.append(args[0].detach())):
            loss = task()
        own = flow.negative_log_likelihood(seen[-1]).mean()
        losses.append(float(own.detach()))
        for term, parameters, rate in ((loss, rest, 0.1), (own, [*flow.parameters()], 0.002)):
            found = torch.autograd.grad(term, parameters, allow_unused=True)
            with torch.no_grad():
                for parameter, gradient in zip(parameters, found, strict=True):
                    if gradient is not None:
                        parameter -= rate * gradient
    return losses


def test_a_cross_encoder_with_a_flow(folder: Path, tmp_path: Path, tiny: Tiny) -> None:
    from sentence_transformers.cross_encoder import (
        CrossEncoder,
        CrossEncoderTrainer,
        CrossEncoderTrainingArguments,
    )
    from sentence_transformers.cross_encoder.losses import BinaryCrossEntropyLoss

    from isotropy.integrations import huggingface

    class Seen(BinaryCrossEntropyLoss):
        """Keeps the batches that it sees."""

        def forward(self, inputs: Any, labels: Tensor, **named: Any) -> Tensor:
            vars(self).setdefault("seen", []).append((inputs, labels))
            return super().forward(inputs, labels, **named)

    torch.manual_seed(0)
    model = CrossEncoder(str(folder), num_labels=1, device="cpu").double()
    classifier = next(m for m in model.modules() if type(m).__name__.endswith("Classification"))
    layers.attach(classifier, SlowFlow(8))
    start = copy.deepcopy(model)
    columns = {
        "a": [a for a, _ in PAIRS[:16]],
        "b": [b for _, b in PAIRS[:16]],
        "label": [float(i % 2) for i in range(16)],
    }
    inner = Seen(model)
    trainer = CrossEncoderTrainer(
        model=model,
        args=CrossEncoderTrainingArguments(str(tmp_path / "out"), **SILENT),
        train_dataset=Dataset.from_dict(columns),
        loss=inner,
    )
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(huggingface.IsotropyCallback(trainer))
    trainer.train()

    loss = BinaryCrossEntropyLoss(start)
    flow = next(m for m in start.modules() if isinstance(m, SlowFlow))
    expected = flow_by_hand(start, flow, [partial(loss, *batch) for batch in inner.seen])
    difference = tiny.distance(model, start)
    assert difference < 1e-6
    found = [e["layer_loss"] for e in trainer.state.log_history if "layer_loss" in e]
    assert found == pytest.approx(expected, rel=1e-6)


def test_a_sentence_transformer_with_a_flow_and_a_penalty(
    folder: Path, tmp_path: Path, tiny: Tiny
) -> None:
    from isotropy.integrations import huggingface

    modules = [Transformer(str(folder)), Pooling(8), Through(SlowFlow(8))]
    model = SentenceTransformer(modules=modules, device="cpu").double()
    start, inner = copy.deepcopy(model), Recorded(model)
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(str(tmp_path / "out"), **SILENT),
        train_dataset=Dataset.from_dict({"a": [a for a, _ in PAIRS], "b": [b for _, b in PAIRS]}),
        loss=IsotropyLoss(model, inner, penalties.ZeroMean(0.5)),
    )
    trainer.remove_callback(PrinterCallback)
    trainer.add_callback(huggingface.IsotropyCallback(trainer))
    trainer.train()

    def task(columns: list[dict[str, Tensor]]) -> Tensor:
        anchors, positives = (start(dict(column))["sentence_embedding"] for column in columns)
        cosines = nn.functional.cosine_similarity(anchors[:, None], positives, dim=-1)
        labels = torch.arange(len(anchors))
        cloud = torch.cat((anchors, positives))
        centred = cloud.mean(dim=0).square().sum() / cloud.square().sum(dim=1).mean()
        return nn.functional.cross_entropy(20 * cosines, labels) + 0.5 * centred

    flow = next(m for m in start.modules() if isinstance(m, SlowFlow))
    expected = flow_by_hand(start, flow, [partial(task, columns) for columns in inner.seen])
    difference = tiny.distance(model, start)
    assert difference < 1e-6
    found = [e["layer_loss"] for e in trainer.state.log_history if "layer_loss" in e]
    assert found == pytest.approx(expected, rel=1e-6)

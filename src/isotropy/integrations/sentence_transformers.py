"""Penalties and measures in the trainer of sentence-transformers.

`IsotropyLoss` goes around any of its losses, `IsotropyEvaluator` measures isotropy as its other
evaluators measure similarity, and `IsotropyCallback` refreshes a penalty that needs that.
`transform_module` makes a fitted transform one of a model's modules.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_args

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader

from isotropy import ranks
from isotropy.errors import MissingExtraError, SettingError, unknown_name
from isotropy.integrations._adapter import Adapter
from isotropy.integrations._cached import same_randomness
from isotropy.integrations._checks import (
    as_penalty,
    as_steps,
    needs_refresh,
    require_one_device,
)
from isotropy.integrations._saved import load_penalty, save_penalty
from isotropy.integrations._terms import Terms
from isotropy.integrations._tracking import as_measures, numbers
from isotropy.integrations._transform_module import (
    TransformModule as TransformModule,
    transform_module as transform_module,
)
from isotropy.measures import SPECS
from isotropy.penalties import Penalty
from isotropy.representations import Representations
from isotropy.settings import whole_number

try:
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.evaluation import SentenceEvaluator
    from transformers import TrainerCallback
except ImportError:
    raise MissingExtraError("sentence-transformers", "sentence-transformers") from None

Of = Literal["sentences", "tokens"]


class IsotropyLoss(nn.Module):
    """Another loss, and a penalty on the embeddings that it computes.

    The embeddings are taken from the forward passes of the other loss, so that they cost nothing.
    All columns of a batch are one cloud; where there is one integer label a row of it, as in the
    triplet losses on single sentences, they are its classes. The trainer logs `task_loss` and
    `penalty`. In evaluation the loss is the other loss.

    A loss for several dimensions, such as `MatryoshkaLoss`, goes inside: the penalty then sees the
    whole embedding, once. One for several layers (`AdaptiveLayerLoss`) embeds a batch once for
    each, and all of these embeddings are the cloud. Losses that cache gradients go through the
    batch twice, the first time without a graph, and are refused.

    Under `torchrun` the cloud is the batch of all ranks. With several data sets the trainer may
    give the ranks batches of different ones: then the loss of each has to be an `IsotropyLoss`,
    and rows have classes where those of all ranks have labels.

    Args:
        model: the model that is trained.
        loss: the other loss.
        penalty: the penalty, its weight included. Whatever rows of states its site names, it sees
            those of `of`; a site of weights is that of the transformer.
        of: `sentences`: one embedding a sentence; `tokens`: those of the last layer's tokens.
        compare_steps: after how many batches gradients are compared; see `IsotropyCallback`.

    Raises:
        SettingError: no penalty, or a loss that caches gradients.

    References:
        Reimers & Gurevych 2019, "Sentence-BERT".
    """

    def __init__(
        self,
        model: SentenceTransformer,
        loss: nn.Module,
        penalty: Penalty,
        *,
        of: Of = "sentences",
        compare_steps: int | None = 100,
    ) -> None:
        super().__init__()
        if of not in get_args(Of):
            raise unknown_name("of", str(of), get_args(Of))
        caching = [part for part in loss.modules() if getattr(part, "uses_gradient_cache", False)]
        if caching:
            raise SettingError(
                f"got {type(caching[-1]).__name__}, which embeds a batch without a graph first, "
                "expected a loss that embeds it once, such as MultipleNegativesRankingLoss"
            )
        self.model = model
        self.loss = loss
        self.penalty = as_penalty(penalty)
        self.of = of
        self.compare_steps = as_steps("compare_steps", compare_steps)
        self.terms = Terms(penalty)
        self._batches = 0
        # Not as parts of this module, which the trainer looks through.
        self._model = [model]

    def forward(
        self, sentence_features: Iterable[dict[str, Tensor]], labels: Tensor | None = None
    ) -> Any:
        """The terms of the loss by their names; in evaluation the other loss."""
        if not self.training or not torch.is_grad_enabled():
            return self.loss(sentence_features, labels)
        if type(vars(self._model[0]).get("forward")).__name__ == "ForwardDecorator":
            raise SettingError(
                "got an IsotropyLoss inside a loss for several dimensions, expected it outside; "
                "write IsotropyLoss(model, MatryoshkaLoss(model, loss, dimensions), penalty)"
            )
        if isinstance(self.model, nn.DataParallel):
            require_one_device(len(self.model.device_ids))
        outputs: list[dict[str, Any]] = []
        last = list(self._model[0].children())[-1]
        with last.register_forward_hook(lambda _, __, features: outputs.append({**features})):
            task = self.loss(sentence_features, labels)
        if not outputs:
            raise SettingError(
                f"got {type(self.loss).__name__}, which has embedded nothing with the model, "
                "expected a loss of the same model"
            )
        term = self.penalty(self._together(outputs, labels))
        terms = task if isinstance(task, dict) else {"task_loss": task}
        if self.compare_steps is not None and self._batches % self.compare_steps == 0:
            total = torch.stack(list(terms.values())).sum()
            self.terms.compare(total, term, self._model[0].parameters())
        self._batches += 1
        return {**terms, "penalty": term.to(next(iter(terms.values())).dtype)}

    def _together(self, outputs: list[dict[str, Any]], labels: Tensor | None) -> Representations:
        """All columns as one cloud."""
        if self.penalty.site.is_weight:
            transformer = self._model[0].transformers_model or self._model[0]
            return Representations.from_weights(transformer)
        parts = [shown(features, self.of) for features in outputs]
        rows = [part.cloud for part in parts if part.cloud is not None]
        masks = [part.mask for part in parts if part.mask is not None]
        if labels is not None and (
            labels.is_floating_point() or labels.shape != (sum(map(len, rows)),)
        ):
            labels = None  # similarities are no classes, nor are labels of pairs
        return Representations.from_cloud(
            torch.cat(rows),
            labels=labels,
            mask=torch.cat(masks) if masks else None,
        )

    def get_config_dict(self) -> dict[str, Any]:
        """What the model's card says of it."""
        return {
            "loss": type(self.loss).__name__,
            "penalty": f"{type(self.penalty).__name__}({self.penalty.extra_repr()})",
            "of": self.of,
        }


def shown(features: dict[str, Any], of: Of = "sentences") -> Representations:
    """What a model's output shows: a cloud of its sentences, or of its tokens."""
    if of == "sentences":
        return Representations.from_cloud(features["sentence_embedding"])
    tokens = features["token_embeddings"]
    mask = features["attention_mask"].to(tokens.device)
    return Representations.from_cloud(tokens.flatten(0, 1), mask=mask.flatten().bool())


class IsotropyEvaluator(SentenceEvaluator):
    """Measures the embeddings of some sentences; the trainer logs its numbers.

    Args:
        sentences: which, always the same.
        measures: names of measures.
        name: what the numbers' names begin with.
        batch_size: how many sentences are embedded together.
        seed: of measures that draw at random.

    Raises:
        SettingError: no sentences, or an unknown measure.

    Example:
        >>> IsotropyEvaluator(["A cat sat."], ["iso_scor"])
        Traceback (most recent call last):
        ...
        isotropy.errors.SettingError: got measure 'iso_scor', ... did you mean 'iso_score'?
    """

    def __init__(
        self,
        sentences: Sequence[str],
        measures: Sequence[str] | str,
        *,
        name: str = "",
        batch_size: int = 32,
        seed: int = 0,
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.sentences = list(sentences)
        if isinstance(sentences, str) or not self.sentences:
            given = "one string" if isinstance(sentences, str) else "no sentences"
            raise SettingError(f"got {given} to measure embeddings of, expected some sentences")
        self.measures = as_measures(measures)
        self.name = name
        self.batch_size = batch_size
        self.seed = seed
        self.greater_is_better = SPECS[self.measures[0]].numbers[0].more_isotropic != "lower"
        self.primary_metric: str | None = None

    def __call__(  # type: ignore[override]
        self,
        model: SentenceTransformer,
        output_path: str | None = None,
        epoch: int = -1,
        steps: int = -1,
    ) -> dict[str, float]:
        """The numbers by their keys."""
        rows = model.encode(
            self.sentences,
            batch_size=self.batch_size,
            convert_to_tensor=True,
            show_progress_bar=False,
        )
        found = numbers(rows, self.measures, self.seed)
        self.primary_metric = next(iter(found), None)
        found = dict(self.prefix_name_to_metrics(found, self.name))
        self.store_metrics_in_model_card_data(model, found, epoch, steps)
        return found

    @property
    def description(self) -> str:
        """What the model's card calls it."""
        return "Isotropy"


class IsotropyCallback(TrainerCallback):
    """Does for an `IsotropyLoss` what happens between batches.

    It refreshes the penalty at every epoch's start on the embeddings of training data, and logs the
    time; it logs `penalty_gradient_ratio` and `penalty_skipped`; and it saves and loads the
    penalty's state with checkpoints. A penalty without a refresh trains as well without it.

    Args:
        trainer: the trainer, whose loss has an `IsotropyLoss` in it.
        refresh_points: how many rows a refresh looks at.

    Raises:
        SettingError: the trainer has no such loss, or several with different penalties.
    """

    def __init__(self, trainer: Any, *, refresh_points: int = 250_000) -> None:
        given = getattr(trainer, "loss", None)
        losses = list(given.values()) if isinstance(given, dict) else [given]
        found = [
            part
            for loss in losses
            if isinstance(loss, nn.Module)
            for part in loss.modules()
            if isinstance(part, IsotropyLoss)
        ]
        if len({id(loss.penalty) for loss in found}) != 1:
            raise SettingError(
                f"got a trainer whose loss has {len(found)} IsotropyLoss in it, expected one; "
                "write SentenceTransformerTrainer(..., loss=IsotropyLoss(model, loss, penalty))"
            )
        self.trainer = trainer
        self.losses = found
        self.penalty = found[0].penalty
        self.refresh_points = whole_number("refresh_points", refresh_points, low=2)
        self._restored = False
        require_one_device(trainer.args.n_gpu)
        if trainer.args.world_size > 1 and len(found) < len(losses):
            raise SettingError(
                f"got {len(losses)} losses with {len(found)} IsotropyLoss in them on "
                f"{trainer.args.world_size} ranks, expected one in each: ranks may have batches "
                "of different data sets, and would wait for each other"
            )
        for name, method in (
            ("log", self._log),
            ("_save_optimizer_and_scheduler", self._save),
            ("_load_optimizer_and_scheduler", self._load),
        ):
            setattr(trainer, name, partial(method, getattr(trainer, name)))

    def on_epoch_begin(self, *_: Any, **__: Any) -> None:
        """Refresh the penalty, unless a checkpoint has brought what it knew in this epoch."""
        epoch = self.trainer.state.epoch or 0.0
        restored, self._restored = self._restored, False
        if not needs_refresh(self.penalty) or (restored and epoch % 1):
            return
        model, of = self.trainer.model, self.losses[0].of
        start = time.perf_counter()
        with same_randomness():
            self.penalty.refresh(
                Adapter(model, lambda features: shown(model(features), of)),
                ({"batch": features} for features in self._columns(int(epoch))),
                points=self.refresh_points,
            )
        self.trainer.log({"penalty_refresh_seconds": time.perf_counter() - start})

    def _columns(self, epoch: int) -> Iterator[dict[str, Any]]:
        """This rank's share of the training sentences, in batches of one column."""
        trainer = self.trainer
        data = trainer.train_dataset
        for dataset in data.values() if isinstance(data, dict) else [data]:
            generator = torch.Generator().manual_seed(trainer.args.seed + epoch)
            order = torch.randperm(len(dataset), generator=generator)
            loader = DataLoader(
                dataset,
                batch_size=trainer.args.train_batch_size,
                sampler=order[trainer.args.process_index :: ranks.world_size()].tolist(),
                collate_fn=trainer.data_collator,
            )
            for batch in loader:
                features, _ = trainer.collect_features(trainer._prepare_inputs(batch))
                yield from features

    def _log(self, inner: Any, logs: dict[str, float], *arguments: Any) -> None:
        if "loss" in logs:
            for loss in self.losses:
                logs.update(loss.terms.logs())
        inner(logs, *arguments)

    def _save(self, inner: Any, folder: str) -> None:
        inner(folder)
        if self.trainer.args.should_save:
            save_penalty(self.penalty, Path(folder))

    def _load(self, inner: Any, folder: str | None) -> None:
        inner(folder)
        if folder is not None:
            self._restored = load_penalty(self.penalty, Path(folder))

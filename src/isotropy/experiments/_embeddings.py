"""The rows that a run measures: of held-out texts, and what its head reads of them."""

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from isotropy import bars, layers
from isotropy.errors import TrainingError, UndefinedError
from isotropy.experiments.spec import MeasureSettings
from isotropy.layers import layer_of
from isotropy.layers._places import place_in
from isotropy.measurement import measure
from isotropy.measures import SPECS
from isotropy.representations import Representations
from isotropy.sites import Site
from isotropy.states import evaluation, states

EMBEDDING = "embedding"
"""A site of experiments alone: the embedding that a classifier's head reads, with whatever a layer
has made of it. Where a classifier has a layer, `cls@last` means this too."""

# Tokens of all texts and layers could fill any memory: of more than so many some are drawn.
_MOST_ROWS = 100_000

Batch = Mapping[str, Any]


class Sample:
    """Texts on which a model is measured, always the same.

    A site is one of `isotropy.sites.Site`, or `embedding`. Of a classifier with a layer between
    encoder and head, `cls@last` is the embedding after the layer, which is what the head reads; of
    a model that writes texts it is the encoder's state, as without a layer.

    Args:
        batches: the model's inputs, as dicts of tensors; they are kept.
        settings: the site, which measures, and so on.
        seed: of measures that draw at random, and of the draw of tokens.
    """

    def __init__(self, batches: Sequence[Batch], settings: MeasureSettings, seed: int) -> None:
        self.batches = batches
        self.settings = settings
        self.seed = seed
        self.notes: dict[str, None] = {}

    def tracked(self, model: nn.Module) -> dict[str, float]:
        """The measures along training."""
        return self._numbers(self.rows(model), self.settings.track)

    def of_batch(self, rows: Tensor) -> dict[str, float]:
        """The measures along training, of rows that were taken from training itself."""
        return self._numbers(rows, self.settings.track)

    def final(
        self, model: nn.Module, rows: Tensor | None = None
    ) -> tuple[dict[str, float], dict[str, list[float]]]:
        """The measures after training, and the arrays if they are wanted.

        Args:
            model: whose states.
            rows: what is measured instead of the site's rows, such as transformed ones.
        """
        found: dict[str, float] = {}
        arrays: dict[str, list[float]] = {}
        if self.settings.final or self.settings.arrays:
            rows = self.rows(model) if rows is None else rows
            found |= self._numbers(rows, self.settings.final)
            if self.settings.arrays:
                arrays = _arrays(rows, self.settings.final_rows)
        if self.settings.each_layer:
            for number, rows in self._each_layer(model):
                numbers = self._numbers(rows, self.settings.each_layer)
                found |= {f"{key}@{number}": value for key, value in numbers.items()}
        return found, arrays

    def rows(self, model: nn.Module) -> Tensor:
        """The rows of the site, n×d in float32."""
        text = self.settings.site
        if reads_embedding(text, model):
            layer = layer_of(model)
            rows = layers.embeddings(model, self.batches).float()
            if layer is None:
                return rows
            with torch.no_grad(), evaluation(layer):
                mapped: Tensor = layer(rows)
            return mapped
        site = Site.parse(text)
        if site.is_weight:
            weights = Representations.from_weights(model).rows(site).blocks
            return torch.cat([block.detach().float() for block in weights])
        return self._drawn(model, site)

    def _each_layer(self, model: nn.Module) -> Iterator[tuple[int, Tensor]]:
        """The rows of each layer by itself, one layer at a time."""
        pool = Site.parse(self.settings.site)
        config: Any = getattr(model, "config", None)
        config = config.get_text_config(decoder=pool.decoder) if config is not None else config
        depth = int(config.num_hidden_layers)
        for number in range(1, depth + 1):
            site = Site(pool.pool, number, pool.decoder)
            yield number, self._drawn(model, site)

    def _drawn(self, model: nn.Module, site: Site) -> Tensor:
        """The rows of all batches, or where they are too many, as many of each block."""
        generator = torch.Generator().manual_seed(self.seed)
        parts: list[Tensor] = []
        share: int | None = None
        for batch in self.batches:
            blocks = list(states(model, batch, site))
            if share is None:
                share = _MOST_ROWS // (len(self.batches) * len(blocks))
            for block in blocks:
                if site.pool == "tokens" and len(block) > share:
                    kept = torch.randperm(len(block), generator=generator)[:share]
                    block = block[kept.sort().values.to(block.device)]
                    self.notes["measures of tokens saw a random sample of them"] = None
                parts.append(block.float())
        return torch.cat(parts)

    def _numbers(self, rows: Tensor, names: Sequence[str]) -> dict[str, float]:
        """The numbers of a cloud by their keys; those that are undefined are noted."""
        if not bool(torch.isfinite(rows).all()):
            raise TrainingError(
                "got states that are not finite numbers, expected finite ones; lower the learning "
                "rate, or use train.precision='float32'"
            )
        found: dict[str, float] = {}
        for name in names:
            fewest = SPECS[name].min_rows
            if len(rows) < fewest:
                self.notes[f"{name} is undefined for fewer than {fewest} rows"] = None
                continue
            try:
                scores = measure(rows, name, seed=self.seed)
            except UndefinedError:  # such as that of rows that have become equal
                self.notes[f"{name} is undefined for some of the rows measured"] = None
                continue
            for key, score in scores.items():
                if score.value is None or not math.isfinite(score.value):
                    self.notes[f"{key} is undefined for some of the rows measured"] = None
                else:
                    found[key] = float(score.value)
        return found


def reads_embedding(site: str, model: nn.Module) -> bool:
    """Whether a site means what the head reads, rather than an encoder's states."""
    if site == EMBEDDING:
        return True
    has_embedding = layer_of(model) is not None and place_in(model).head is not None
    return has_embedding and str(Site.parse(site)) == str(Site("cls"))


def _arrays(rows: Tensor, most: int) -> dict[str, list[float]]:
    """What figures show: the covariance's eigenvalues, the dimensions' means, the bars."""
    x = rows.double()
    mean = x.mean(dim=0)
    found = {"dimension_means": mean.tolist()}
    if len(x) > 1:
        centred = x - mean
        values = torch.linalg.eigvalsh(centred.T @ centred / (len(x) - 1))
        found["spectrum"] = values.flip(0).clamp(min=0).tolist()
        found["bars"] = bars.h0_bars(rows[:most]).double().tolist()
    return found

"""Runs texts through a model: batches of like length, results in the texts' own order."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from isotropy.errors import SettingError, SourceError, unknown_name
from isotropy.sources._pretrained import Pretrained
from isotropy.sources._sites import Site, pool_states
from isotropy.sources._texts import Row

STORED_DTYPES = {"float32": torch.float32, "float16": torch.float16}
"""In what the embeddings can be stored."""

# Texts are sorted by length within a window, whose results must fit in memory.
_WINDOW_BATCHES = 64
_WINDOW_BYTES = 1 << 28
# Texts are tokenised in groups: many for speed, few enough for memory if they are books.
_GROUP_TEXTS = 1024
_GROUP_CHARACTERS = 1 << 22


@dataclass
class Counts:
    """What became of the texts so far: done = texts + skipped.

    Attributes:
        texts: texts embedded.
        skipped: texts without tokens, mostly blank ones.
        truncated: texts cut at the longest length.
        tokens: tokens of all embedded texts, padding not counted.
        rows: embeddings given.
    """

    texts: int = 0
    skipped: int = 0
    truncated: int = 0
    tokens: int = 0
    rows: int = 0


@dataclass(frozen=True)
class Block:
    """Embeddings of consecutive texts, text by text, then layer by layer, then token by token."""

    rows: Tensor
    columns: dict[str, NDArray[Any]]


@dataclass(frozen=True)
class _Tokens:
    row: int
    ids: NDArray[np.int32]
    types: NDArray[np.int32] | None  # which segment a token is in, for models that ask


class TextEncoder:
    """A model with its site and settings.

    Args:
        model: the loaded model.
        site: what to take of its states.
        batch_size: how many texts the model sees at once.
        max_length: tokens at which a text is cut; None is the model's own limit.
        dtype: in what the embeddings are given, `float32` or `float16`.

    Raises:
        SettingError: a setting that makes no sense for this model.
    """

    def __init__(
        self,
        model: Pretrained,
        *,
        site: Site,
        batch_size: int = 64,
        max_length: int | None = None,
        dtype: str = "float32",
    ) -> None:
        check_settings(batch_size=batch_size, max_length=max_length, dtype=dtype)
        self.model = model
        self.site = site
        self.layers = site.layers(model.depth)
        self.max_length = _cut(model, max_length)
        self.dtype = STORED_DTYPES[dtype]
        self._batch_size = batch_size

    def blocks(
        self,
        texts: Iterable[Row],
        counts: Counts,
        advance: Callable[[], None] = lambda: None,
    ) -> Iterator[Block]:
        """The embeddings of all texts, in order and in bounded memory.

        Args:
            texts: row numbers and texts.
            counts: is kept up to date.
            advance: called after every batch.

        Raises:
            SourceError: the model gives NaN for a text or does not know its tokenizer's tokens.
            SettingError: a value is too large for the dtype asked for.
        """
        row_bytes = self.dtype.itemsize * self.model.features * len(self.layers)
        window: list[_Tokens] = []
        size = 0
        for group in _groups(texts):
            for tokens in self._tokenise(group, counts):
                window.append(tokens)
                size += row_bytes * (len(tokens.ids) if self.site.pool == "tokens" else 1)
                if len(window) == _WINDOW_BATCHES * self._batch_size or size >= _WINDOW_BYTES:
                    yield self._embed(window, counts, advance)
                    window, size = [], 0
        if window:
            yield self._embed(window, counts, advance)

    def _tokenise(self, group: list[Row], counts: Counts) -> Iterator[_Tokens]:
        texts = [text for _, text in group if text.strip()]
        kept = iter(self._tokens_of(texts) if texts else ())
        for row, text in group:
            ids, types, cut = next(kept) if text.strip() else (np.empty(0, np.int32), None, False)
            if not len(ids):
                counts.skipped += 1
                continue
            counts.truncated += cut
            limit = self.model.vocabulary
            if limit is not None and ids.max() >= limit:
                raise SourceError(
                    f"got token {ids.max()} in row {row}, expected tokens below {limit}; the "
                    f"tokenizer of {self.model.name!r} belongs to another model"
                )
            yield _Tokens(row, ids, types)

    def _tokens_of(
        self, texts: list[str]
    ) -> Iterator[tuple[NDArray[np.int32], NDArray[np.int32] | None, bool]]:
        """Each text's tokens, their segments where the model knows such, and whether it was cut."""
        limit = self.max_length
        tokenizer = self.model.tokenizer
        whole = tokenizer(
            texts,
            truncation=limit is not None,
            max_length=limit,
            padding=False,
            return_attention_mask=False,
            verbose=False,
        )
        full = [i for i, ids in enumerate(whole["input_ids"]) if len(ids) == limit]
        # Which of the texts with full length were longer, only their whole length tells.
        uncut = tokenizer([texts[i] for i in full], verbose=False)["input_ids"] if full else []
        cut = {
            i for i, ids in zip(full, uncut, strict=True) if limit is not None and len(ids) > limit
        }
        types = whole.get("token_type_ids") if self.model.segments else None
        for i, ids in enumerate(whole["input_ids"]):
            segments = None if types is None else np.asarray(types[i], dtype=np.int32)
            yield np.asarray(ids, dtype=np.int32), segments, i in cut

    def _embed(self, window: list[_Tokens], counts: Counts, advance: Callable[[], None]) -> Block:
        """The window's embeddings, computed in the order of length and put in that of the texts."""
        per_token = self.site.pool == "tokens"
        lengths = np.array([len(tokens.ids) for tokens in window])
        # A segment is what a text gives at one layer.
        segments = np.repeat(lengths if per_token else np.ones_like(lengths), len(self.layers))
        ends = np.cumsum(segments)
        starts = ends - segments
        rows = torch.empty(int(ends[-1]), self.model.features, dtype=self.dtype)

        # The longest first: if memory does not suffice, that shows at once.
        order = np.argsort(-lengths, kind="stable")
        cuts = [*range(0, len(order), self._batch_size), len(order)]
        for first, last in pairwise(cuts):
            batch = [int(i) for i in order[first:last]]
            for place, states in enumerate(self._states([window[i] for i in batch])):
                at = starts[np.array(batch) * len(self.layers) + place]
                if per_token:
                    for start, length, state in zip(at, lengths[batch], states, strict=True):
                        rows[start : start + length] = state[:length]
                else:
                    rows[torch.from_numpy(at)] = states
            counts.texts += len(batch)
            counts.tokens += int(lengths[batch].sum())
            advance()

        text_rows = np.array([tokens.row for tokens in window], dtype=np.int64)
        columns = {"row": np.repeat(np.repeat(text_rows, len(self.layers)), segments)}
        if "layer" in self.site.columns:
            layers = np.tile(np.array(self.layers, dtype=np.int64), len(window))
            columns["layer"] = np.repeat(layers, segments)
        if per_token:
            columns["token"] = np.arange(len(rows)) - np.repeat(starts, segments)
        counts.rows += len(rows)
        return Block(rows, columns)

    def _states(self, batch: list[_Tokens]) -> Iterator[Tensor]:
        """What the batch gives at each layer: b×d, or b×t×d for tokens; on the CPU, as stored."""
        inputs = self._inputs(batch)
        mask = inputs["attention_mask"]
        try:
            states = self.model.states(inputs, self.layers)
        except torch.OutOfMemoryError as error:
            raise SettingError(
                f"got batch_size={self._batch_size}, too large for the memory of "
                f"{self.model.device} with texts of {mask.shape[1]} tokens; lower it or max_length"
            ) from error
        for state in states:
            if self.site.pool == "tokens":
                values = state.masked_fill(mask.unsqueeze(-1) == 0, 0)
            else:
                values = pool_states(state, mask, self.site.pool, causal=self.model.causal)
            stored = values.to(self.dtype)
            if not bool(torch.isfinite(stored).all()):
                raise self._not_finite(values, [tokens.row for tokens in batch])
            yield stored.cpu()

    def _inputs(self, batch: list[_Tokens]) -> dict[str, Tensor]:
        """The model's inputs, b×t, padded on the right whatever the tokenizer's habit.

        With absolute positions a text's states would otherwise depend on the padding before it.
        """
        tokenizer = self.model.tokenizer
        lengths = [len(tokens.ids) for tokens in batch]
        # Padding is masked, so that any token will do where there is none for it.
        ids = np.full((len(batch), max(lengths)), tokenizer.pad_token_id or 0, dtype=np.int64)
        mask = np.zeros_like(ids)
        types = np.full_like(ids, tokenizer.pad_token_type_id)
        for i, tokens in enumerate(batch):
            ids[i, : lengths[i]] = tokens.ids
            mask[i, : lengths[i]] = 1
            if tokens.types is not None:
                types[i, : lengths[i]] = tokens.types
        inputs = {"input_ids": ids, "attention_mask": mask}
        if all(tokens.types is not None for tokens in batch):
            inputs["token_type_ids"] = types
        return {key: torch.from_numpy(value).to(self.model.device) for key, value in inputs.items()}

    def _not_finite(self, values: Tensor, rows: list[int]) -> Exception:
        if bool(torch.isfinite(values).all()):
            return SettingError(
                f"got dtype='float16' for values up to {values.abs().max().item():.3g}, expected "
                "values up to 65504; use dtype='float32'"
            )
        bad = ~torch.isfinite(values).flatten(1).all(dim=1)
        row = rows[int(bad.nonzero()[0, 0])]
        return SourceError(
            f"got NaN or infinite states from model {self.model.name!r} for the text in row {row} "
            "(from 0), expected finite numbers; try model_dtype='float32'"
        )


def check_settings(*, batch_size: int, max_length: int | None, dtype: str) -> None:
    """Raise a SettingError for a setting that no model could take."""
    if batch_size < 1:
        raise SettingError(f"got batch_size={batch_size}, expected at least 1 text in a batch")
    if max_length is not None and max_length < 1:
        raise SettingError(f"got max_length={max_length}, expected at least 1 token")
    if dtype not in STORED_DTYPES:
        raise unknown_name("dtype", dtype, STORED_DTYPES)


def _cut(model: Pretrained, asked: int | None) -> int | None:
    """The number of tokens at which texts are cut."""
    limit = model.max_length
    if asked is None:
        return limit
    fewest = model.tokenizer.num_special_tokens_to_add() + 1
    if asked < fewest or (limit is not None and asked > limit):
        most = "any number" if limit is None else f"{limit}"
        raise SettingError(
            f"got max_length={asked}, expected from {fewest} to {most} tokens for model "
            f"{model.name!r}"
        )
    return asked


def _groups(texts: Iterable[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    characters = 0
    for row in texts:
        group.append(row)
        characters += len(row[1])
        if len(group) == _GROUP_TEXTS or characters >= _GROUP_CHARACTERS:
            yield group
            group, characters = [], 0
    if group:
        yield group

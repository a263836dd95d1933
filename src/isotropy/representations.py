"""What one forward pass shows of a model, and the rows of it that a method looks at."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor, nn

from isotropy._causal import is_causal
from isotropy.errors import InputError, SettingError
from isotropy.inputs import ACCEPTED, COMPUTE_DTYPE
from isotropy.sites import Site, pool_states

Mask = Tensor | None
"""Booleans, True where a row or a token counts; None where all do."""


class Rows(NamedTuple):
    """The rows of a site, in blocks as they come, so that layers need not be copied together.

    Attributes:
        blocks: n_i×d tensors.
        masks: for each block, which of its rows count.
        labels: for each block the classes of its rows, n_i integers, or None without classes.
        shared: whether every rank has the same rows, as it has of weights.
    """

    blocks: tuple[Tensor, ...]
    masks: tuple[Mask, ...]
    labels: Tensor | None = None
    shared: bool = False

    @property
    def d(self) -> int:
        """Number of features."""
        return self.blocks[0].shape[1]

    def joined(self) -> tuple[Tensor, Mask, Tensor | None]:
        """All rows in one tensor, which of them count, and their labels."""
        if len(self.blocks) == 1:
            return self.blocks[0], self.masks[0], self.labels
        labels = None if self.labels is None else self.labels.repeat(len(self.blocks))
        return torch.cat(self.blocks), joined_masks(self.blocks, self.masks), labels


def joined_masks(blocks: Sequence[Tensor], masks: Sequence[Mask]) -> Mask:
    """Which rows of all blocks together count, None where all do."""
    if all(mask is None for mask in masks):
        return None
    return torch.cat(
        [
            torch.ones_like(block[:, 0], dtype=torch.bool) if mask is None else mask
            for block, mask in zip(blocks, masks, strict=True)
        ]
    )


@dataclass(frozen=True, eq=False)
class Representations:
    """The states of a batch of texts, with their mask and labels, and a model's weight matrices.

    Attributes:
        hidden_states: b×t×d for each layer, the lookup layer first.
        mask: b×t, True for a token; None without padding.
        labels: b class numbers, or None without classes.
        decoder_hidden_states: of an encoder-decoder model, its decoder's, likewise.
        decoder_mask: their mask.
        vocabulary: v×d, the rows of the input embeddings.
        head: k×d, the last matrix of the classifier.
        causal: whether the last token stands for a text, as in decoder-only models.
        only_last: whether `hidden_states` holds the last layer alone.
        cloud: n×d rows that answer for every site, where there is no model.

    Example:
        >>> cloud = Representations.from_cloud(torch.eye(3), labels=torch.tensor([0, 0, 1]))
        >>> cloud.rows(Site.parse("cls@last")).blocks[0].shape
        torch.Size([3, 3])
    """

    hidden_states: tuple[Tensor, ...] = ()
    mask: Mask = None
    labels: Tensor | None = None
    decoder_hidden_states: tuple[Tensor, ...] = ()
    decoder_mask: Mask = None
    vocabulary: Tensor | None = None
    head: Tensor | None = None
    causal: bool = False
    only_last: bool = False
    cloud: Tensor | None = None

    @classmethod
    def from_output(
        cls,
        output: Any,
        attention_mask: Tensor | None = None,
        labels: Tensor | None = None,
        model: nn.Module | None = None,
        *,
        decoder_attention_mask: Tensor | None = None,
        causal: bool | None = None,
    ) -> Self:
        """From a Hugging Face model's output; ask the model for `output_hidden_states=True`.

        Args:
            output: of an encoder, a decoder-only or an encoder-decoder model, with a head or
                without.
            attention_mask: b×t, 0 for padding, which may stand on either side.
            labels: b class numbers. Labels of any other kind (real numbers, one a token) are no
                classes and are left out.
            model: the model itself, for the sites `vocabulary` and `head`, and to know whether it
                is decoder-only.
            decoder_attention_mask: likewise for the decoder's tokens.
            causal: whether the last token stands for a text, as in decoder-only models, where that
                cannot be told from `model`. A trainer cannot be told so: set
                `model.config.is_causal`.

        Raises:
            InputError: the output holds no states, or what belongs to it is no tensor of its shape.
        """
        encoder = _entry(output, "encoder_hidden_states")
        decoder = _entry(output, "decoder_hidden_states")
        # Of an encoder-decoder model `last_hidden_state` is the decoder's.
        last = _entry(output, "encoder_last_hidden_state")
        if last is None:
            last = _entry(output, "last_hidden_state")
        states = encoder or _entry(output, "hidden_states") or None
        model = _unwrapped(model)
        only_last = states is None
        if states is None:
            if last is None:
                raise InputError(
                    f"got an output of type {type(output).__name__} without hidden states, "
                    "expected some; call the model with output_hidden_states=True"
                )
            states = (last,)
        elif last is not None and last.shape == states[-1].shape:
            # Some models list the last states as they are before the final normalisation.
            states = (*states[:-1], last)
        if not isinstance(states[-1], Tensor) or states[-1].ndim != 3:
            raise InputError(
                f"got states of {_given(states[-1])}, expected texts×tokens×features; rows of "
                "another kind go into from_cloud"
            )
        return cls(
            hidden_states=tuple(states),
            mask=_as_mask(attention_mask, states[-1]),
            labels=_as_classes(labels, states[-1]),
            decoder_hidden_states=tuple(decoder or ()),
            decoder_mask=_as_mask(decoder_attention_mask, decoder[-1]) if decoder else None,
            vocabulary=_vocabulary(model),
            head=_head(model),
            causal=is_causal(model) if causal is None else causal,
            only_last=only_last,
        )

    @classmethod
    def from_weights(cls, model: nn.Module) -> Self:
        """From a model's weight matrices alone, for the sites `vocabulary` and `head`.

        The model may be inside of another, such as `DistributedDataParallel`.
        """
        model = _unwrapped(model)
        return cls(vocabulary=_vocabulary(model), head=_head(model))

    @classmethod
    def from_cloud(
        cls, x: Tensor, labels: Tensor | None = None, mask: Tensor | None = None
    ) -> Self:
        """From any n×d cloud, with n class numbers and n booleans that say which rows count.

        Raises:
            InputError: wrong shapes, or labels that are no whole numbers.
        """
        if not isinstance(x, Tensor) or x.ndim != 2 or x.dtype not in COMPUTE_DTYPE:
            raise InputError(f"got a cloud of {_given(x)}, expected an n×d tensor of {ACCEPTED}")
        if isinstance(labels, Tensor) and labels.shape == (len(x), 1):
            labels = labels[:, 0]
        for name, column in (("labels", labels), ("mask", mask)):
            if column is not None:
                _require_shape(name, column, x.shape[:1], f"{len(x)} rows")
        if labels is not None and (labels.is_floating_point() or labels.is_complex()):
            raise InputError(
                f"got labels of {_given(labels)}, expected class numbers of a whole-number dtype; "
                "give labels.long(), or none where there are no classes"
            )
        return cls(cloud=x, labels=labels, mask=None if mask is None else mask.bool())

    def rows(self, site: Site, *, include_padding: bool = False) -> Rows:
        """The rows of a site.

        Args:
            site: which.
            include_padding: whether padding counts as tokens, as in some released code.

        Raises:
            SettingError: these representations have no such site.
        """
        if self.cloud is not None:
            return Rows((self.cloud,), (self.mask,), self.labels)
        if site.is_weight:
            return Rows((self._weight(site),), (None,), shared=True)
        states, mask = self._states(site)
        if include_padding:
            mask = None
        if site.pool == "tokens":
            flat = None if mask is None else mask.flatten()
            labels = self.labels
            if labels is not None:
                labels = labels.repeat_interleave(states[0].shape[1])
            return Rows(tuple(s.flatten(0, 1) for s in states), (flat,) * len(states), labels)
        if mask is None:
            mask = torch.ones_like(states[0][..., 0], dtype=torch.bool)
        causal = self.causal or site.decoder
        if site.pool == "cls":
            blocks = [pool_states(s, mask, "cls", causal=causal) for s in states]
        else:
            blocks = [pool_states(s, mask, "mean", causal=causal) for s in states]
        if site.pool == "first-last-mean":
            blocks = [(blocks[0] + blocks[-1]) / 2]
        counts = None if self.mask is None and not site.decoder else mask.any(dim=1)
        return Rows(tuple(blocks), (counts,) * len(blocks), self.labels)

    def _states(self, site: Site) -> tuple[Sequence[Tensor], Mask]:
        """The states of the site's layers, and the mask of their tokens."""
        states = self.decoder_hidden_states if site.decoder else self.hidden_states
        if not states:
            part = "a decoder's" if site.decoder else "hidden"
            raise SettingError(
                f"got site {str(site)!r} of representations without {part} states, expected "
                "a site that they have"
            )
        only_last = self.only_last and not site.decoder
        if only_last and (site.layer != "last" or site.pool == "first-last-mean"):
            raise SettingError(
                f"got site {str(site)!r} of an output with its last states alone, expected all "
                "layers; call the model with output_hidden_states=True"
            )
        layers = (0,) if only_last else site.layers(len(states) - 1)
        return [states[i] for i in layers], self.decoder_mask if site.decoder else self.mask

    def _weight(self, site: Site) -> Tensor:
        weight = self.vocabulary if site.pool == "vocabulary" else self.head
        if weight is None:
            raise SettingError(
                f"got site {str(site)!r}, for which no weight matrix was found, expected a model "
                f"with one; pass model= to from_output, or {site.pool}= to Representations"
            )
        if _is_sharded(weight):
            raise SettingError(
                f"got site {str(site)!r} and weights that are sharded over ranks (FSDP, DeepSpeed "
                "ZeRO-3), expected a whole matrix on every rank; take a site of states, such as "
                "'cls@last', or train without sharding them"
            )
        return weight


def _is_sharded(weight: Tensor) -> bool:
    """Whether a rank holds but a part of a matrix: FSDP2's, FSDP's and ZeRO-3's marks of that."""
    return any(hasattr(weight, mark) for mark in ("placements", "_fsdp_flattened", "ds_id"))


def _entry(output: Any, name: str) -> Any:
    """An entry of a model's output or of a dict, None if it has no such."""
    return output.get(name) if isinstance(output, dict) else getattr(output, name, None)


def _as_mask(mask: Tensor | None, states: Tensor) -> Mask:
    if mask is None:
        return None
    whose = f"states with shape {tuple(states.shape)}"
    _require_shape("an attention mask", mask, states.shape[:2], whose)
    return mask.bool()


def _as_classes(labels: Tensor | None, rows: Tensor) -> Tensor | None:
    """Labels that name a class for each row; of other tasks there are no classes."""
    if labels is None:
        return None
    if not isinstance(labels, Tensor):
        raise InputError(f"got labels of {_given(labels)}, expected a tensor")
    if labels.is_floating_point() or labels.shape != rows.shape[:1]:
        return None
    return labels


def _require_shape(name: str, column: Any, shape: torch.Size, whose: str) -> None:
    """Raise an InputError unless `column` is a tensor with one entry for each row or token."""
    if not isinstance(column, Tensor):
        raise InputError(
            f"got {name} of {_given(column)}, expected a tensor with shape {tuple(shape)}"
        )
    if column.shape != shape:
        raise InputError(
            f"got {name} with shape {tuple(column.shape)} for {whose}, expected {tuple(shape)}"
        )


def _given(x: Any) -> str:
    """The dtype and the shape of a tensor, or the type of what is none."""
    if not isinstance(x, Tensor):
        return f"type {type(x).__name__}"
    return f"{str(x.dtype).removeprefix('torch.')} {tuple(x.shape)}"


def _unwrapped(model: Any) -> Any:
    """The Hugging Face model inside of what trains or adapts it."""
    while hasattr(model, "module") and not hasattr(model, "get_input_embeddings"):
        model = model.module  # of data-parallel training, or of averaged weights
    if hasattr(model, "get_base_model"):  # of adapters, as peft has them
        model = model.get_base_model()
    return model


def _vocabulary(model: Any) -> Tensor | None:
    try:
        embedding = model.get_input_embeddings()
    except (AttributeError, NotImplementedError):  # no Hugging Face model, or one of characters
        return None
    weight = getattr(embedding, "weight", None)
    return weight if isinstance(weight, Tensor) else None


def _head(model: Any) -> Tensor | None:
    """The last linear layer outside of the encoder; of a language model, its output matrix."""
    base = getattr(model, "base_model", None)
    if not (isinstance(model, nn.Module) and isinstance(base, nn.Module)):
        return None
    if base is model:  # some language models are not divided into an encoder and a head
        layers = [getattr(model, "get_output_embeddings", lambda: None)()]
    else:
        inside = set(base.modules())
        layer = getattr(model, "isotropy_layer", None)  # from `layers.attach`: not of the head
        inside.update(layer.modules() if isinstance(layer, nn.Module) else ())
        layers = [m for m in model.modules() if m not in inside]
    weights = [layer.weight for layer in layers if isinstance(layer, nn.Linear)]
    return weights[-1] if weights else None

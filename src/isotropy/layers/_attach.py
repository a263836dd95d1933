"""Puts a layer before the head of a model, and takes it out again."""

import inspect
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from isotropy.errors import InputError, SettingError
from isotropy.layers._layer import Layer
from isotropy.layers._places import place_in, place_in_classifier, size_of
from isotropy.states import evaluation

NAME = "isotropy_layer"
"""The layer's name in its model: as an attribute, in its state_dict and in its configuration."""

_TOKENS = ("input_ids", "labels", "decoder_attention_mask", "decoder_input_ids")


def attach(model: Any, layer: Layer) -> Any:
    """Put a layer before the head of a Hugging Face model.

    Of a classifier, the embedding of a text that the head reads goes through the layer first: the
    pooler's output, before the dropout, where the model has a pooler (BERT, ALBERT, DeBERTa); the
    first token's last state where it has none (RoBERTa, DistilBERT, ELECTRA, MPNet); the state of
    the last token that is no padding in decoder-only models (GPT-2, Llama and what is built alike).

    Of an encoder-decoder model that writes texts (BART, mBART, M2M100, Pegasus, Marian, T5), the
    decoder's last state of every token goes through the layer before the language model's head,
    all tokens of a batch as one n×d. T5's scaling by d**-0.5 belongs to the head. In training the
    layer does not see padding of the targets: tokens whose label is -100; without labels, those
    that `decoder_attention_mask` leaves out, or that are padding in `decoder_input_ids`.

    The layer becomes a part of the model, `model.isotropy_layer`, with its parameters and buffers
    in the model's state_dict, moves to its device and precision, and is named in its configuration:
    `save_pretrained` and the checkpoints of a Trainer hold it, and `layers.load` gives it back.

    Args:
        model: a Hugging Face model for sequence classification, or one that writes texts.
        layer: of as many features as the model's embeddings.

    Returns:
        The model itself.

    Raises:
        SettingError: the model has no known place for a layer, has one already, or one of another
            size.

    Example:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> from isotropy.layers import IsotropyLayer
        >>> sizes = dict(num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        >>> model = BertForSequenceClassification(BertConfig(hidden_size=8, **sizes))
        >>> model = attach(model, IsotropyLayer(8))
        >>> [name for name in model.state_dict() if "isotropy" in name]
        ['isotropy_layer.first.weight', 'isotropy_layer.first.bias']
    """
    if not isinstance(layer, Layer):
        raise SettingError(
            f"got a layer of type {type(layer).__name__}, expected one of isotropy.layers"
        )
    reader = place_in(model).reader(model)
    if layer_of(model) is not None:
        raise SettingError(
            f"got a model that has a layer, {type(model.isotropy_layer).__name__}, expected one "
            "without; call layers.detach(model) first"
        )
    size = size_of(model)
    if layer.d != size:
        raise SettingError(
            f"got a layer with d={layer.d} for a model whose embeddings have {size} features, "
            f"expected d={size}"
        )
    weight = next((p for p in reader.parameters() if p.is_floating_point()), None)
    weight = next(model.parameters()) if weight is None else weight
    model.add_module(NAME, layer.to(weight.device, weight.dtype))
    setattr(model.config, NAME, _recipe(layer))
    model._isotropy_hook = _Through(model)
    return model


def detach(model: Any) -> Layer:
    """Take the layer out of a model, which is then as it was before.

    Raises:
        SettingError: it has none.
    """
    layer = layer_of(model)
    if layer is None:
        raise SettingError("got a model without a layer, expected one that layers.attach gave one")
    model._isotropy_hook.remove()
    del model._isotropy_hook
    delattr(model, NAME)
    delattr(model.config, NAME)
    return layer


def layer_of(model: Any) -> Layer | None:
    """The layer that was attached to a model, None if it has none."""
    layer = getattr(model, NAME, None)
    return layer if isinstance(layer, Layer) else None


class Head(nn.Module):
    """What follows the layer in a classifier: from n×d embeddings to logits.

    Args:
        model: a Hugging Face classifier, whose own modules these are.

    Raises:
        SettingError: the model has no known place for a layer, or is no classifier.

    Example:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> sizes = dict(num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        >>> model = BertForSequenceClassification(BertConfig(hidden_size=8, **sizes))
        >>> Head(model)(torch.zeros(3, 8)).shape
        torch.Size([3, 2])
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        place, self._head = place_in_classifier(model)
        for name in place.parts:
            self.add_module(name, model.get_submodule(name))

    def forward(self, x: Tensor) -> Tensor:
        """The logits of n×d embeddings that have been through the layer, n×k."""
        return self._head(self, x)


@torch.no_grad()
def embeddings(model: Any, batches: Iterable[Mapping[str, Any]]) -> Tensor:
    """The embeddings that a classifier's head reads, before the layer, in evaluation mode.

    Args:
        model: a Hugging Face classifier, with a layer or without; it is left in the mode that it
            was in.
        batches: its inputs, as dicts of tensors; labels are not looked at.

    Returns:
        n×d, the rows of all batches, on the model's device.

    Raises:
        SettingError: the model has no known place for a layer, or is no classifier.
        InputError: there are no batches.
    """
    place, _ = place_in_classifier(model)
    device = next(model.parameters()).device
    found: list[Tensor] = []
    for batch in batches:
        inputs = {
            key: value.to(device) if isinstance(value, Tensor) else value
            for key, value in batch.items()
            if key not in ("labels", "label")
        }

        def keep(_: Any, args: tuple[Any, ...], inputs: Mapping[str, Any] = inputs) -> None:
            def seen(rows: Tensor) -> Tensor:
                found.append(rows)
                return rows

            place.mapped(args[0], seen, inputs, model)

        # Before the layer's own hook, which is the first otherwise.
        handle = place.reader(model).register_forward_pre_hook(keep, prepend=True)
        try:
            with evaluation(model):
                model(**inputs)
        finally:
            handle.remove()
    if not found:
        raise InputError("got no batches, expected at least one")
    return torch.cat(found)


class _Through:
    """The hooks of a model with a layer; copied with it, as they hold it."""

    def __init__(self, model: Any) -> None:
        self.model = model
        self.inputs: dict[str, Any] = {}
        self.around = [
            model.register_forward_pre_hook(self.remember, with_kwargs=True),
            model.register_forward_hook(self.forget, always_call=True),
        ]
        self.join()

    def join(self) -> None:
        """Stand before the module that reads the embeddings."""
        self.reader = place_in(self.model).reader(self.model)
        self.before = self.reader.register_forward_pre_hook(self.change)

    def remove(self) -> None:
        """Take the hooks away."""
        for handle in (*self.around, self.before):
            handle.remove()

    def remember(self, model: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the tokens, of which only a forward pass knows which are padding."""
        if place_in(model).reader(model) is not self.reader:  # a new vocabulary makes a new head
            self.before.remove()
            self.join()
        if args:
            names = inspect.signature(model.forward).parameters
            kwargs = {**dict(zip(names, args, strict=False)), **kwargs}
        self.inputs = {name: kwargs[name] for name in _TOKENS if name in kwargs}

    def change(self, _: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """Send the embeddings through the layer."""
        states, *others = args
        place = place_in(self.model)
        layer = layer_of(self.model)
        if layer is None:
            return args
        return (place.mapped(states, layer, self.inputs, self.model), *others)

    def forget(self, *_: Any) -> None:
        """Keep no batch alive between forward passes."""
        self.inputs = {}


def _recipe(layer: Layer) -> dict[str, Any]:
    """What makes the layer again, as a model's configuration holds it."""
    from isotropy.layers import SPECS  # here: it imports this module

    names = [name for name, spec in SPECS.items() if spec.component is type(layer)]
    return {"name": names[0] if names else type(layer).__name__, "settings": layer.settings}

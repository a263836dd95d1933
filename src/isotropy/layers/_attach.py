"""Puts a layer between the encoder and the head of a classifier, and takes it out again."""

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from isotropy.errors import InputError, SettingError
from isotropy.layers._layer import Layer
from isotropy.layers._places import place_in, size_of
from isotropy.states import evaluation

NAME = "isotropy_layer"
"""The layer's name in its model: as an attribute, in its state_dict and in its configuration."""


def attach(model: Any, layer: Layer) -> Any:
    """Put a layer between the encoder and the head of a Hugging Face classifier.

    The embedding of a text that the head reads goes through the layer first: the pooler's output,
    before the dropout, where the model has a pooler (BERT, ALBERT, DeBERTa); the first token's last
    state where it has none (RoBERTa, DistilBERT, ELECTRA, MPNet); the state of the last token that
    is no padding in decoder-only models (GPT-2, Llama and what is built alike).

    The layer becomes a part of the model, `model.isotropy_layer`, with its parameters and buffers
    in the model's state_dict, moves to its device and precision, and is named in its configuration:
    `save_pretrained` and the checkpoints of a Trainer hold it, and `layers.load` gives it back.

    Args:
        model: a Hugging Face model for sequence classification.
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
    place = place_in(model)
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
    reader = place.reader(model)
    weight = next((p for p in reader.parameters() if p.is_floating_point()), None)
    weight = next(model.parameters()) if weight is None else weight
    model.add_module(NAME, layer.to(weight.device, weight.dtype))
    setattr(model.config, NAME, _recipe(layer))
    hook = _Through(model)
    hook.handles = [
        model.register_forward_pre_hook(hook.remember, with_kwargs=True),
        reader.register_forward_pre_hook(hook.change),
        model.register_forward_hook(hook.forget, always_call=True),
    ]
    model._isotropy_hook = hook
    return model


def detach(model: Any) -> Layer:
    """Take the layer out of a model, which is then as it was before.

    Raises:
        SettingError: it has none.
    """
    layer = layer_of(model)
    if layer is None:
        raise SettingError("got a model without a layer, expected one that layers.attach gave one")
    for handle in model._isotropy_hook.handles:
        handle.remove()
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

    Example:
        >>> from transformers import BertConfig, BertForSequenceClassification
        >>> sizes = dict(num_hidden_layers=1, num_attention_heads=2, intermediate_size=8)
        >>> model = BertForSequenceClassification(BertConfig(hidden_size=8, **sizes))
        >>> Head(model)(torch.zeros(3, 8)).shape
        torch.Size([3, 2])
    """

    def __init__(self, model: Any) -> None:
        super().__init__()
        self._place = place_in(model)
        for name in self._place.parts:
            self.add_module(name, model.get_submodule(name))

    def forward(self, x: Tensor) -> Tensor:
        """The logits of n×d embeddings that have been through the layer, n×k."""
        return self._place.head(self, x)


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
        SettingError: the model has no known place for a layer.
        InputError: there are no batches.
    """
    place = place_in(model)
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

    handles: list[Any]

    def __init__(self, model: Any) -> None:
        self.model = model
        self.inputs: dict[str, Any] = {}

    def remember(self, _: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Keep the tokens, of which only a forward pass knows which are padding."""
        ids = kwargs.get("input_ids", args[0] if args else None)
        self.inputs = {"input_ids": ids}

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

"""Where a model's head reads its embeddings, by the kind of the model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from isotropy.errors import SettingError

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Place:
    """A module that reads one embedding a text, or in a model that writes texts, one a token.

    Attributes:
        module: the name of the module whose input holds the embeddings.
        tokens: which of the tokens it gets are the embeddings: `None` where it gets n×d, `"first"`
            or `"last"` where it gets all tokens, n×t×d, and `"written"` where each token that a
            decoder writes is one.
        parts: of a classifier, the names of the modules from there on.
        head: of a classifier, from what has these modules, and embeddings, to logits.
        scaled: the flag in the configuration of a model that writes which says that its head
            multiplies a decoder's states by d**-0.5 before this module gets them.
    """

    module: str
    tokens: str | None
    parts: tuple[str, ...] = ()
    head: Callable[[Any, Tensor], Tensor] | None = None
    scaled: str | None = None

    def reader(self, model: nn.Module) -> nn.Module:
        """The module of `model` that reads the embeddings."""
        return model.get_submodule(self.module)

    def mapped(self, states: Tensor, change: Map, inputs: Mapping[str, Any], model: Any) -> Tensor:
        """What the module gets, with its embeddings changed.

        Args:
            states: what it would get.
            change: from n×d embeddings to n×d others.
            inputs: those of the model, as far as they are known.
            model: whose module it is.
        """
        if self.tokens is None:
            return change(states)
        if self.tokens == "first":  # no other token is looked at
            return change(states[:, 0])[:, None]
        if self.tokens == "written":
            if self.scaled is None or not getattr(model.config, self.scaled):
                return _of_written(states, change, inputs, model)
            scale = float(size_of(model) ** -0.5)
            return _of_written(states / scale, change, inputs, model) * scale
        rows = torch.arange(len(states), device=states.device)
        last = _last_token(states, inputs.get("input_ids"), model)
        changed = change(states[rows, last])
        return states.to(changed.dtype).index_put((rows, last), changed)


def _last_token(states: Tensor, input_ids: Tensor | None, model: Any) -> Tensor:
    """The token whose logits a decoder-only classifier takes, by the rule in its own code."""
    n, length = states.shape[:2]
    padding = model.config.get_text_config().pad_token_id
    if input_ids is None or padding is None:
        return torch.full((n,), length - 1, device=states.device)
    places = torch.arange(length, device=states.device)
    last: Tensor = (places * (input_ids.to(states.device) != padding)).argmax(dim=-1)
    return last


def _of_written(states: Tensor, change: Map, inputs: Mapping[str, Any], model: Any) -> Tensor:
    """A decoder's states, changed; in training those that have no label stay as they are.

    A layer that learns from what it sees must not see padding. In evaluation it sees every token,
    so that logits do not depend on whether there are labels.
    """
    counted = _labelled(states, inputs, model) if model.training else None
    if counted is None:
        return change(states.flatten(0, 1)).reshape(states.shape)
    changed = change(states[counted])
    return states.to(changed.dtype).index_put((counted,), changed)


def _labelled(states: Tensor, inputs: Mapping[str, Any], model: Any) -> Tensor | None:
    """Which of a decoder's tokens count, b×t; None where nothing tells."""
    labels, mask = inputs.get("labels"), inputs.get("decoder_attention_mask")
    ids, padding = inputs.get("decoder_input_ids"), model.config.pad_token_id
    if labels is not None:
        counted = labels != -100
    elif mask is not None:
        counted = mask.bool()
    elif ids is not None and padding is not None:
        counted = ids != padding
        counted[:, 0] = True  # many models begin with the token that pads
    else:
        return None
    # While a text is written, a mask is of all its tokens and the states are of the new ones.
    return counted.to(states.device) if counted.shape == states.shape[:2] else None


# `.forward`, as calling these modules would go through the layer that is put before them.
def _after_pooler(head: Any, x: Tensor) -> Tensor:
    logits: Tensor = head.classifier(head.dropout.forward(x))
    return logits


def _after_first_token(head: Any, x: Tensor) -> Tensor:
    logits: Tensor = head.classifier.forward(x[:, None])
    return logits


def _after_distilbert(head: Any, x: Tensor) -> Tensor:
    hidden = torch.relu(head.pre_classifier.forward(x))
    logits: Tensor = head.classifier(head.dropout(hidden))
    return logits


def _after_last_token(head: Any, x: Tensor) -> Tensor:
    logits: Tensor = head.score.forward(x)
    return logits


_POOLED = Place("dropout", None, ("dropout", "classifier"), _after_pooler)
_DISTILBERT = Place(
    "pre_classifier", None, ("pre_classifier", "dropout", "classifier"), _after_distilbert
)
_FIRST = Place("classifier", "first", ("classifier",), _after_first_token)
_LAST = Place("score", "last", ("score",), _after_last_token)
_WRITTEN = Place("lm_head", "written")
_WRITTEN_T5 = Place("lm_head", "written", scaled="scale_decoder_outputs")

PLACES: Mapping[str, Place] = {
    "BertForSequenceClassification": _POOLED,
    "AlbertForSequenceClassification": _POOLED,
    "DebertaForSequenceClassification": _POOLED,
    "DebertaV2ForSequenceClassification": _POOLED,
    "RobertaForSequenceClassification": _FIRST,
    "XLMRobertaForSequenceClassification": _FIRST,
    "CamembertForSequenceClassification": _FIRST,
    "ElectraForSequenceClassification": _FIRST,
    "MPNetForSequenceClassification": _FIRST,
    "DistilBertForSequenceClassification": _DISTILBERT,
    "GPT2ForSequenceClassification": _LAST,
    # Llama, Mistral, Qwen, Gemma and all others that are built alike.
    "GenericForSequenceClassification": _LAST,
    "BartForConditionalGeneration": _WRITTEN,
    "MBartForConditionalGeneration": _WRITTEN,
    "M2M100ForConditionalGeneration": _WRITTEN,
    "PegasusForConditionalGeneration": _WRITTEN,
    "MarianMTModel": _WRITTEN,
    "T5ForConditionalGeneration": _WRITTEN_T5,
    "LongT5ForConditionalGeneration": _WRITTEN_T5,
    "MT5ForConditionalGeneration": _WRITTEN,  # does not scale
    "UMT5ForConditionalGeneration": Place("lm_head", "written", scaled="tie_word_embeddings"),
}
"""The place in a model, by the name of its class or of one that it is derived from."""


def place_in(model: nn.Module) -> Place:
    """The place for a layer in a model.

    Raises:
        SettingError: none is known.
    """
    for kind in type(model).__mro__:
        if kind.__name__ in PLACES:
            return PLACES[kind.__name__]
    raise SettingError(
        f"got a model of class {type(model).__name__}, which has no known place for a layer, "
        "expected a Hugging Face model for sequence classification of one of the kinds BERT, "
        "RoBERTa, DistilBERT, ALBERT, ELECTRA, MPNet, DeBERTa, GPT-2 or Llama, or one that writes "
        "texts, of the kinds BART, mBART, M2M100, Pegasus, Marian or T5; in a model of your own, "
        "call the layer in its forward method"
    )


def place_in_classifier(model: nn.Module) -> tuple[Place, Callable[[Any, Tensor], Tensor]]:
    """The place in a model whose head reads one embedding a text, and that head.

    Raises:
        SettingError: none is known, or the model's head reads every token that it writes.
    """
    place = place_in(model)
    if place.head is None:
        raise SettingError(
            f"got a model of class {type(model).__name__}, whose head reads every token that it "
            "writes, expected a classifier, whose head reads one embedding a text"
        )
    return place, place.head


def size_of(model: Any) -> int:
    """The number of features of the embeddings that the head reads."""
    config = model.config.get_text_config()
    return int(config.hidden_size)

"""Where a classifier's head reads the embedding of a text, by the kind of its model."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from isotropy.errors import SettingError

Map = Callable[[Tensor], Tensor]


@dataclass(frozen=True)
class Place:
    """A module of a classifier that reads one embedding a text.

    Attributes:
        module: the name of the module whose input holds the embeddings.
        tokens: which of the tokens it gets are the embeddings: `None` where it gets n×d, `"first"`
            or `"last"` where it gets all tokens, n×t×d.
        parts: the names of the modules from there on.
        head: from what has these modules, and embeddings, to logits.
    """

    module: str
    tokens: str | None
    parts: tuple[str, ...]
    head: Callable[[Any, Tensor], Tensor]

    def reader(self, model: nn.Module) -> nn.Module:
        """The module of `model` that reads the embeddings."""
        return model.get_submodule(self.module)

    def mapped(self, states: Tensor, change: Map, inputs: Mapping[str, Any], model: Any) -> Tensor:
        """What the module gets, with its embeddings changed."""
        if self.tokens is None:
            return change(states)
        if self.tokens == "first":  # no other token is looked at
            return change(states[:, 0])[:, None]
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
}
"""The place in a classifier, by the name of its class or of one that it is derived from."""


def place_in(model: nn.Module) -> Place:
    """The place for a layer in a classifier.

    Raises:
        SettingError: none is known.
    """
    for kind in type(model).__mro__:
        if kind.__name__ in PLACES:
            return PLACES[kind.__name__]
    raise SettingError(
        f"got a model of class {type(model).__name__}, which has no known place for a layer, "
        "expected a Hugging Face model for sequence classification of one of the kinds BERT, "
        "RoBERTa, DistilBERT, ALBERT, ELECTRA, MPNet, DeBERTa, GPT-2 or Llama; in a model of your "
        "own, call the layer in its forward method"
    )


def size_of(model: Any) -> int:
    """The number of features of the embeddings that the head reads."""
    config = model.config.get_text_config()
    return int(config.hidden_size)

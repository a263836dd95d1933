"""Whether a model's last token stands for a text, as in decoder-only models."""

import sys
from functools import cache
from typing import Any

from torch import nn

# A decoder's kind by transformers' tables, of which the encoder can be had by itself.
_WITH_A_SWITCH = ("bert-generation",)
# In no such table, and no token sees those after it; nor does its attention say so.
_DECODERS = ("clip_text_model",)


def is_causal(model: Any) -> bool:
    """Whether the last token, not the first, stands for a text, as far as can be told.

    It is asked in training, in tracking and by `isotropy embed`, so that `cls` is the same in each.
    The configuration's `is_causal` decides where it is set. Kinds of models that transformers knows
    as language models, and not as masked ones, are decoder-only, whether their attention says so or
    not; so is XLNet, whose summary is the last token. Of other kinds the attention is asked.

    Args:
        model: any module, or None.

    Example:
        >>> is_causal(nn.Linear(2, 2))
        False
    """
    if not isinstance(model, nn.Module):
        return False
    config: Any = getattr(model, "config", None)
    if getattr(config, "is_encoder_decoder", False):
        return False
    said = getattr(config, "is_causal", None)
    if isinstance(said, bool):
        return said
    kind = getattr(config, "model_type", None)
    # A Hugging Face model has loaded transformers already.
    known = _known(kind) if isinstance(kind, str) and "transformers" in sys.modules else None
    if known == "decoder":  # of some an encoder was made
        return getattr(config, "use_bidirectional_attention", False) not in (True, "all")
    if known == "either":
        return getattr(config, "is_decoder", False) is True
    return any(getattr(module, "is_causal", False) is True for module in model.modules())


@cache
def _known(kind: str) -> str | None:
    """`decoder`, or `either` for what a setting makes a decoder; None if transformers cannot tell.

    Masked language models count as the latter: those without such a setting have no `is_decoder`.
    """
    from transformers.models.auto import modeling_auto as tables

    if kind in tables.MODEL_FOR_MASKED_LM_MAPPING_NAMES or kind in _WITH_A_SWITCH:
        return "either"
    is_decoder = kind in _DECODERS or kind in tables.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
    return "decoder" if is_decoder else None

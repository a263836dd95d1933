"""Texts as a model's inputs, cut at what the model can read."""

from collections.abc import Iterator, Sequence
from typing import Any

from isotropy.errors import SettingError
from isotropy.experiments.spec import DataSettings
from isotropy.sources._pretrained import positions

# So many texts at once: the tokenizer's own records of all of MNLI would take gigabytes.
_BLOCK = 4096
# A tokenizer without a limit of its own says 1e30.
_NO_LIMIT = 1_000_000


def encoded_texts(
    texts: Sequence[str],
    pairs: Sequence[str] | None,
    tokenizer: Any,
    data: DataSettings,
) -> Iterator[dict[str, Any]]:
    """The inputs of each text, or pair of texts, without padding.

    Of a pair that is too long, the longer text is cut, token by token.
    """
    limit = tokenizer.model_max_length
    longest = data.max_length or (limit if limit < _NO_LIMIT else None)
    names = [name for name in tokenizer.model_input_names if name != "special_tokens_mask"]
    for start in range(0, len(texts), _BLOCK):
        block = slice(start, start + _BLOCK)
        found = tokenizer(
            list(texts[block]),
            None if pairs is None else list(pairs[block]),
            truncation=longest is not None,
            max_length=longest,
        )
        known = [name for name in names if name in found]
        for values in zip(*(found[name] for name in known), strict=True):
            yield dict(zip(known, values, strict=True))


def within_positions(data: DataSettings, model: Any) -> DataSettings:
    """The settings with the longest text that the model has positions for.

    Raises:
        SettingError: longer texts are asked for.
    """
    limit = positions(model)
    if limit is None:
        return data
    if data.max_length is None:
        return data.model_copy(update={"max_length": limit})
    if data.max_length > limit:
        raise SettingError(
            f"got data.max_length={data.max_length}, expected at most the {limit} tokens that the "
            "model can read; lower it or leave it out"
        )
    return data

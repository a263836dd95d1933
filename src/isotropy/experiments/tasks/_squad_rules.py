"""When an answer is right by the rules of SQuAD v1.1: exact match and F1 of words."""

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_PUNCTUATION = str.maketrans("", "", string.punctuation)


def plain(text: str) -> str:
    """A text without capitals, punctuation, articles and needless white space.

    Only ASCII punctuation goes, as in the official rules.

    Example:
        >>> plain("  The U.S.  and a half-life ")
        'us and halflife'
    """
    return " ".join(_ARTICLES.sub(" ", text.lower().translate(_PUNCTUATION)).split())


def exact_match(prediction: str, answers: Sequence[str]) -> float:
    """1 if the prediction is one of the answers, up to `plain`; else 0.

    Example:
        >>> exact_match("the Broncos", ["Denver Broncos", "Broncos"])
        1.0
    """
    return float(plain(prediction) in {plain(answer) for answer in answers})


def word_f1(prediction: str, answers: Sequence[str]) -> float:
    """The best F1 of the prediction's words against an answer's, each word as often as it occurs.

    An answer that is nothing but articles and punctuation has no words and scores 0, as in the
    official rules of v1.1.

    Example:
        >>> word_f1("Denver Broncos team", ["Broncos", "the Denver Broncos"])
        0.8
    """
    return max(_f1(plain(prediction).split(), plain(answer).split()) for answer in answers)


def _f1(found: list[str], expected: list[str]) -> float:
    same = (Counter(found) & Counter(expected)).total()
    return 2 * same / (len(found) + len(expected)) if same else 0.0

"""Windows over a long context: where an answer lies in one, and which answer a model sees in all.

A window is a question with as much of its context as fits; the next one begins `stride` tokens
before the end of the last. What a window knows of its context are `offsets`, t×2: for each of its
tokens the first character and the one after the last, and -1 for tokens that are not the context's.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from isotropy.errors import SettingError

Offsets = NDArray[np.int32]
_ROWS_AT_ONCE = 500  # a tokenizer's own record of a text is some fifty times its tokens


def windows(
    questions: Sequence[str],
    contexts: Sequence[str],
    tokenizer: Any,
    *,
    length: int,
    stride: int,
    question_length: int,
) -> Iterator[tuple[int, dict[str, Any], Offsets]]:
    """The windows: the number of the example, the model's inputs and the offsets.

    Args:
        questions: of each example; no more than their first tokens are kept.
        contexts: of each example.
        tokenizer: a fast one.
        length: the most tokens in a window, with question and special ones.
        stride: how many of its tokens two windows share.
        question_length: the most tokens of a question; fewer where the context needs the room.

    Raises:
        SettingError: a tokenizer that does not say where its tokens lie, or no room for a context.
    """
    if not getattr(tokenizer, "is_fast", False):
        raise SettingError(
            f"got a tokenizer of type {type(tokenizer).__name__}, which does not say where its "
            "tokens lie, expected a fast one; save the model with its tokenizer.json"
        )
    room = length - tokenizer.num_special_tokens_to_add(pair=True) - stride - 1
    if room < 1:
        raise SettingError(
            f"got max_length={length} and stride={stride}, expected room for a question and a "
            f"token of the context beside the stride; take max_length from {length - room + 1} up"
        )
    for first in range(0, len(questions), _ROWS_AT_ONCE):
        some = slice(first, first + _ROWS_AT_ONCE)
        batch = tokenizer(
            _cut(questions[some], tokenizer, min(question_length, room)),
            list(contexts[some]),
            truncation="only_second",
            max_length=length,
            stride=stride,
            return_overflowing_tokens=True,
            return_offsets_mapping=True,
        )
        where = batch.pop("offset_mapping")
        examples = batch.pop("overflow_to_sample_mapping")
        for index, example in enumerate(examples):
            inputs = {name: np.asarray(values[index], np.int32) for name, values in batch.items()}
            in_context = np.asarray([part == 1 for part in batch.sequence_ids(index)])
            offsets = np.where(in_context[:, None], np.asarray(where[index], np.int32), -1)
            yield first + example, inputs, offsets.astype(np.int32)


def _cut(questions: Sequence[str], tokenizer: Any, limit: int) -> list[str]:
    """The questions without white space before them, as far as their first tokens go."""
    stripped = [question.lstrip() for question in questions]
    found = tokenizer(
        stripped,
        add_special_tokens=False,
        return_offsets_mapping=True,
        truncation=True,
        max_length=limit,
    )["offset_mapping"]
    return [
        question[: offsets[-1][1]] if len(offsets) == limit else question
        for question, offsets in zip(stripped, found, strict=True)
    ]


def answer_tokens(offsets: Offsets, start: int, end: int) -> tuple[int, int] | None:
    """The first and last token of the answer that is the context's characters start to end.

    None where a part of it lies outside the window.

    Example:
        >>> words = np.array([[-1, -1], [0, 3], [4, 9], [10, 12], [-1, -1]])
        >>> answer_tokens(words, 4, 12), answer_tokens(words, 4, 13)
        ((2, 3), None)
    """
    (tokens,) = np.nonzero(offsets[:, 0] >= 0)
    if not len(tokens) or offsets[tokens[0], 0] > start or offsets[tokens[-1], 1] < end:
        return None
    first = tokens[offsets[tokens, 0] <= start][-1]
    last = tokens[offsets[tokens, 1] >= end][0]
    return (int(first), int(last)) if first <= last else None


def best_span(
    start: NDArray[Any], end: NDArray[Any], offsets: Offsets, *, n_best: int, longest: int
) -> tuple[float, int, int] | None:
    """The best answer in a window: the sum of its logits, and its first and after-last character.

    Of the `n_best` likeliest first tokens and as many last ones, the best pair that lies in the
    context, in order, and has at most `longest` tokens; None where no pair is like that. The first
    of equals wins.

    Args:
        start: logits of the first token, at least as many as there are tokens.
        end: likewise of the last.
        offsets: of the window's tokens; further logits are padding's.
        n_best: how many of each.
        longest: tokens of an answer.
    """
    length = len(offsets)
    firsts = np.argsort(-start[:length], kind="stable")[:n_best]
    lasts = np.argsort(-end[:length], kind="stable")[:n_best]
    firsts = firsts[offsets[firsts, 0] >= 0]
    lasts = lasts[offsets[lasts, 0] >= 0]
    if not (len(firsts) and len(lasts)):
        return None
    tokens = lasts[None, :] - firsts[:, None] + 1
    sums = start[firsts].astype(np.float64)[:, None] + end[lasts].astype(np.float64)[None, :]
    sums = np.where((tokens >= 1) & (tokens <= longest), sums, -np.inf)
    row, column = np.unravel_index(np.argmax(sums), sums.shape)
    if sums[row, column] == -np.inf:
        return None
    first, last = firsts[row], lasts[column]
    return float(sums[row, column]), int(offsets[first, 0]), int(offsets[last, 1])

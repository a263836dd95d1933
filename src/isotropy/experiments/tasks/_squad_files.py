"""Reads files in the layout of SQuAD v1.1."""

import json
from pathlib import Path
from typing import Any

from isotropy.errors import SourceError
from isotropy.sources._messages import one_line, reading, shown

_EXPECTED = "expected a file in the layout of SQuAD v1.1"


def squad_rows(path: Path, *, training: bool) -> list[dict[str, Any]]:
    """The questions of a file: `id`, `question`, `context`, `answers` and `starts`.

    Args:
        path: of the JSON file.
        training: whether the answers' places must be right; for scoring, their texts are enough.

    Raises:
        SourceError: the file is not there, damaged, or of another layout.
    """
    name = shown(str(path))
    with reading(name):
        content = path.read_bytes()
    try:
        found = json.loads(content.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:  # no UTF-8, or no JSON
        raise SourceError(
            f"got file {name}, which is no JSON ({one_line(error)}), {_EXPECTED}"
        ) from (None)
    try:
        rows = [
            _row(question, paragraph["context"])
            for article in found["data"]
            for paragraph in article["paragraphs"]
            for question in paragraph["qas"]
        ]
    except (KeyError, TypeError, AttributeError) as error:
        missing = f"without {error}" if isinstance(error, KeyError) else "of another layout"
        raise SourceError(
            f"got file {name} {missing}, {_EXPECTED}: data, paragraphs, context and qas "
            "with id, question and answers"
        ) from None
    if not rows:
        raise SourceError(f"got file {name} without questions, {_EXPECTED}")
    for row in rows:
        check_row(row, name, training=training)
    return rows


def check_row(row: dict[str, Any], source: str, *, training: bool) -> None:
    """See that a question has an answer, and in training that it is where it is said to be.

    Raises:
        SourceError: it has none, or it is not.
    """
    which = f"got question {row['id']!r} of {source}"
    if not row["answers"]:
        raise SourceError(
            f"{which} without an answer, expected one for every question as SQuAD v1.1 has; "
            "leave out the questions of version 2 that have none"
        )
    if training:
        answer, start = row["answers"][0], row["starts"][0]
        found = row["context"][start : start + len(answer)]
        if start < 0 or found != answer or not answer:
            raise SourceError(
                f"{which} with the answer {answer!r} at character {start}, where its context has "
                f"{found!r}, expected answer_start to count characters of the context"
            )


def _row(question: dict[str, Any], context: str) -> dict[str, Any]:
    answers = question["answers"]
    row = {
        "id": question["id"],
        "question": question["question"],
        "context": context,
        "answers": [answer["text"] for answer in answers],
        "starts": [answer["answer_start"] for answer in answers],
    }
    texts = (row["question"], context, *row["answers"])
    if not all(isinstance(text, str) for text in texts):
        raise TypeError
    if not all(isinstance(start, int) for start in row["starts"]):
        raise TypeError
    return row

"""Lines of text files, of bounded length: one without an end must not fill the memory."""

from collections.abc import Iterator
from typing import IO, AnyStr

from isotropy.errors import SourceError

LONGEST_LINE = 1 << 26
"""The most bytes or characters of a line, and of a cell over several lines."""


def lines_of(file: IO[AnyStr], name: str) -> Iterator[AnyStr]:
    """The lines of an open file with their ends.

    Raises:
        SourceError: a line is too long.
    """
    number = 0
    while line := file.readline(LONGEST_LINE):
        number += 1
        if len(line) == LONGEST_LINE:
            raise SourceError(
                f"got more than {LONGEST_LINE >> 20} MiB in line {number} of {name}, expected "
                "lines that fit in memory, one row or text each; write it again with line ends"
            )
        yield line

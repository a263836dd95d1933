"""Stored runs as tables: for the terminal and as CSV. Nothing here imports torch.

Example:
    >>> from isotropy import report
    >>> report.table("runs.db")  # doctest: +SKIP
"""

from isotropy.report._long import csv
from isotropy.report._terminal import table

__all__ = ["csv", "table"]

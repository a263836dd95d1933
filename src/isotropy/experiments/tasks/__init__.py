"""Tasks: a line each; the command line, docs and plans read `TASKS`."""

from isotropy.errors import unknown_name
from isotropy.experiments.tasks._custom import custom
from isotropy.experiments.tasks._glue import GLUE
from isotropy.experiments.tasks._minimal_pairs import minimal_pairs
from isotropy.experiments.tasks._question_answering import QUESTION_ANSWERING
from isotropy.experiments.tasks._similarity import SIMILARITY
from isotropy.experiments.tasks._summarisation import SUMMARISATION
from isotropy.experiments.tasks._task import Predictions, Row, Scores, Splits, Task, rows_hash
from isotropy.experiments.tasks._translation import TRANSLATION

__all__ = [
    "TASKS",
    "Predictions",
    "Row",
    "Scores",
    "Splits",
    "Task",
    "find_task",
    "rows_hash",
]

_ALL: tuple[Task, ...] = (
    minimal_pairs,
    *GLUE,
    *QUESTION_ANSWERING,
    *TRANSLATION,
    *SUMMARISATION,
    *SIMILARITY,
    custom,
)
TASKS: dict[str, Task] = {task.name: task for task in _ALL}
"""Every task by its name."""


def find_task(name: str) -> Task:
    """The task of a name.

    Raises:
        SettingError: there is none; it says which is nearest.

    Example:
        >>> find_task("cola").metric
        'matthews'
    """
    if name not in TASKS:
        raise unknown_name("task", name, TASKS)
    return TASKS[name]

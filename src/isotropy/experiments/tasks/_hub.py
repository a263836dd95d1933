"""Data sets of the Hugging Face hub: one of its files' splits, read row by row."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from isotropy.errors import MissingExtraError, SourceError
from isotropy.sources._messages import listing, one_line


@dataclass(frozen=True, kw_only=True)
class Hub:
    """A data set on the hub, in files that need no code of its own.

    Attributes:
        repository: its name.
        config: which of its parts.
        splits: by our name of a split, the hub's.
        columns: by field, the name of its column.
    """

    repository: str
    config: str | None = None
    splits: Mapping[str, str]
    columns: Mapping[str, str]

    def rows(self, split: str, revision: str) -> list[dict[str, Any]]:
        """The fields of each row of a split.

        Args:
            split: our name of it.
            revision: the hub's, such as a commit; empty for the newest.

        Raises:
            SourceError: it cannot be had, or has other columns.
        """
        found = load_split(self.repository, self.config, self.splits[split], revision)
        missing = [name for name in self.columns.values() if name not in found.column_names]
        if missing:
            raise SourceError(
                f"got {self.repository!r} of the hub with the columns "
                f"{listing(found.column_names)}, expected {listing(missing)} too; choose another "
                "revision of it, or local files with --data-dir"
            )
        chosen = found.select_columns(list(self.columns.values()))
        return [{field: row[column] for field, column in self.columns.items()} for row in chosen]


def load_split(repository: str, config: str | None, split: str, revision: str) -> Any:
    """A split as `datasets` has it.

    Raises:
        SourceError: it cannot be had.
    """
    try:
        from datasets import load_dataset
    except ImportError:
        raise MissingExtraError("datasets", "train") from None
    try:
        return load_dataset(repository, config, split=split, revision=revision or None)
    except Exception as error:  # which ones datasets raises without a network is undocumented
        name = f"{repository} ({config})" if config else repository
        raise SourceError(
            f"got no data set {name} from the Hugging Face hub ({one_line(error)}), expected a "
            "connection or local files; name their folder with --data-dir"
        ) from error

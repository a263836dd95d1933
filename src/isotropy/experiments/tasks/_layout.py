"""Where the splits of a task are whose files have a layout of their own."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from isotropy.errors import SettingError, SourceError
from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks._files import content_hash, existing, require_revision
from isotropy.experiments.tasks._hub import load_split

_HUB_SPLITS = {"train": "train", "dev": "validation", "test": "test"}


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Where the splits of a task are: in files that somebody names, in a folder, on the hub.

    Attributes:
        hub: the data set's name on the hub.
        config: of the data set on the hub.
        folders: names that its folder may have in a folder of data sets.
        stems: by split, names that its files may have there, without their endings.
        endings: of each file that a split needs, such as one a language; it may have several.
    """

    hub: str
    config: str | None = None
    folders: tuple[str, ...]
    stems: Mapping[str, tuple[str, ...]]
    endings: tuple[tuple[str, ...], ...] = field(default=((".json",),))

    def files(self, splits: Iterable[str], place: Place) -> dict[str, tuple[Path, ...]] | None:
        """The files of each split, one for each of `endings`; None where the hub has them.

        Raises:
            SourceError: they are not where they should be.
            SettingError: a file is named for a split that the task does not have.
        """
        for split in place.files:
            if split not in self.stems:
                known = ", ".join(self.stems)
                raise SettingError(f"got a file for split {split!r}, expected one of {known}")
        if place.data_dir is None and not place.files:
            return None
        return {split: self._find(split, place) for split in splits}

    def settled(
        self, task: str, splits: Iterable[str], data: DataSettings, place: Place
    ) -> dict[str, tuple[Path, ...]] | None:
        """The files, which are still those that the settings' revision names."""
        files = self.files(splits, place)
        if files is not None:
            require_revision(task, data, (path for some in files.values() for path in some))
        return files

    def revision(self, splits: Iterable[str], data: DataSettings, place: Place) -> str:
        """A hash of the files, or the hub's revision."""
        files = self.files(splits, place)
        if files is None:
            return data.revision
        return content_hash(path for some in files.values() for path in some)

    def from_hub(self, split: str, data: DataSettings) -> Any:
        """A split of the data set on the hub, which is read row by row.

        Raises:
            SourceError: it cannot be had.
        """
        return load_split(self.hub, self.config, _HUB_SPLITS[split], data.revision)

    def _find(self, split: str, place: Place) -> tuple[Path, ...]:
        if split in place.files:
            return self._named(split, place.files[split])
        where = "no data folder"
        if place.data_dir is not None:
            where = f"data folder {place.data_dir!r}"
            root = Path(place.data_dir).expanduser()
            for folder in (*(root / name for name in self.folders), root):
                for stem in self.stems[split]:
                    if found := self._beside(folder / stem):
                        return found
        endings = " and ".join(some[0] for some in self.endings)
        raise SourceError(
            f"got {where} without the {split} split of {self.hub}, expected "
            f"{self.stems[split][0]}{endings} in {self.folders[0]}/ there; "
            f"or name its file with --split {split}=FILE"
        )

    def _named(self, split: str, given: str) -> tuple[Path, ...]:
        path = Path(given).expanduser()
        if len(self.endings) == 1:
            return (existing(given, f"the {split} split"),)
        for ending in sorted((e for some in self.endings for e in some), key=len, reverse=True):
            if path.name.endswith(ending):
                path = path.with_name(path.name.removesuffix(ending))
                break
        found = self._beside(path)
        if not found:
            names = " and ".join(path.name + some[0] for some in self.endings)
            raise SourceError(
                f"got {split} files {given!r}, expected what the names of {names} have in common"
            )
        return found

    def _beside(self, stem: Path) -> tuple[Path, ...] | None:
        """The files with this stem, if there is one for each ending."""
        found = []
        for endings in self.endings:
            paths = [stem.with_name(stem.name + ending) for ending in endings]
            there = [path for path in paths if path.is_file()]
            if not there:
                return None
            found.append(there[0])
        return tuple(found)

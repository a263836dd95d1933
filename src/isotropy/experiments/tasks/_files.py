"""The files of a task in a folder of data sets: where they are, and what names their content."""

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from isotropy.errors import SettingError, SourceError
from isotropy.experiments.spec import DataSettings, Place
from isotropy.sources._messages import reading, shown

Layout = Mapping[str, tuple[str, ...]]
"""Files that belong together: by split, the names that its file may have."""


def locate(
    task: str, place: Place, folders: Sequence[str], layouts: Sequence[Layout]
) -> dict[str, Path] | None:
    """The file of each split, the main evaluation set's before the others'.

    Files that the user names stand in for those of the folder. One for an evaluation set stands in
    for all evaluation sets.

    Args:
        task: its name, for messages.
        place: the folder of data sets, and the files that stand in.
        folders: names that the task's own folder may have.
        layouts: what may lie in it; the first that is complete is taken.

    Returns:
        None where neither a folder nor files are given, as then the hub has the data.

    Raises:
        SourceError: a folder or a file is missing; it says which names were looked for.
        SettingError: a file for a split that the task does not have.
    """
    given = _stand_ins(task, place, layouts)
    if place.data_dir is None and not given:
        return None
    wanted = [_without(layout, given) for layout in layouts]
    if not all(wanted):  # what is given is enough
        return _in_order(given, layouts)
    if place.data_dir is None:
        missing = " and ".join(wanted[0])
        raise SourceError(
            f"got a file for {' and '.join(given)} of task {task} alone, expected one for "
            f"{missing} too; name it with --split {next(iter(wanted[0]))}=FILE, or a folder of "
            "data sets with --data-dir"
        )
    root = Path(place.data_dir).expanduser()
    with reading(shown(place.data_dir)):
        if not root.is_dir():
            raise SourceError(
                f"got data folder {shown(place.data_dir)}, expected an existing folder; "
                "check --data-dir"
            )
        there = [root / name for name in folders if (root / name).is_dir()]
        for layout in wanted:
            for folder in there:
                found = _complete(folder, layout)
                if found is not None:
                    return _in_order({**found, **given}, layouts)
    raise _missing(task, place.data_dir, folders, there, wanted)


def content_hash(paths: Iterable[Path]) -> str:
    """A hash of the files' bytes, 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for path in paths:
        with reading(shown(path.name)), path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()[:16]


def require_revision(task: str, data: DataSettings, paths: Iterable[Path]) -> None:
    """See that files are still those that a run was made for.

    Raises:
        SourceError: they are not.
    """
    if not data.revision:
        return
    found = content_hash(paths)
    if found != data.revision:
        raise SourceError(
            f"got files of task {task} whose content has the hash {found}, expected "
            f"{data.revision} as the run's data revision says; bring back the files, or make the "
            "run anew with these"
        )


def existing(path: str, what: str) -> Path:
    """A file that the user names.

    Raises:
        SourceError: it does not exist, or is a folder.
    """
    found = Path(path).expanduser()
    with reading(shown(path)):
        if found.is_file():
            return found
        kind = "a folder" if found.is_dir() else "no file"
    raise SourceError(
        f"got {shown(path)} for {what}, which is {kind}, expected an existing file; check the path"
    )


def _stand_ins(task: str, place: Place, layouts: Sequence[Layout]) -> dict[str, Path]:
    known = list(dict.fromkeys(split for layout in layouts for split in layout))
    if "dev" in known and "test" not in known:
        known.append("test")
    for split in place.files:
        if split not in known:
            raise SettingError(
                f"got a file for split {split!r} of task {task}, expected one of {', '.join(known)}"
            )
    return {
        split: existing(path, f"the {split} split of task {task}")
        for split, path in place.files.items()
    }


def _without(layout: Layout, given: Mapping[str, Path]) -> Layout:
    """What of a layout is still to be found."""
    evaluated = any(split != "train" for split in given)
    return {
        split: names
        for split, names in layout.items()
        if split not in given and not (evaluated and split != "train")
    }


def _complete(folder: Path, layout: Layout) -> dict[str, Path] | None:
    found: dict[str, Path] = {}
    for split, names in layout.items():
        there = [folder / name for name in names if (folder / name).is_file()]
        if not there:
            return None
        found[split] = there[0]
    return found


def _in_order(found: Mapping[str, Path], layouts: Sequence[Layout]) -> dict[str, Path]:
    order = list(dict.fromkeys(["train", *(s for layout in layouts for s in layout), "test"]))
    return {split: found[split] for split in sorted(found, key=order.index)}


def _missing(
    task: str,
    data_dir: str,
    folders: Sequence[str],
    there: Sequence[Path],
    wanted: Sequence[Layout],
) -> SourceError:
    sets = list(dict.fromkeys(", ".join(_names(names) for names in w.values()) for w in wanted))
    if there:
        what = f"{' and '.join(shown(str(folder)) for folder in there)} without all files of {task}"
    else:
        names = " or ".join(f"{name}/" for name in folders)
        what = f"data folder {shown(data_dir)} without {names}"
    split = next(iter(wanted[0]))
    return SourceError(
        f"got {what}, expected there: {'; or else: '.join(sets)}; "
        f"put them there, or name a file with --split {split}=FILE"
    )


def _names(names: Sequence[str]) -> str:
    first, *others = names
    return f"{first} (or {', '.join(others)})" if others else first

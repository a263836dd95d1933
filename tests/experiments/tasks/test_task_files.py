"""Files and settings that cannot be right: each has its own clear error."""

from pathlib import Path

import pytest

from isotropy.errors import IsotropyError, SettingError, SourceError
from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks import find_task

HEADER = "index\tsentence1\tsentence2\tlabel\n"
GOOD = f"{HEADER}0\ta\tb\tentailment\n"
BAD = {
    "empty": (b"", r"got .*dev.tsv, which is empty, expected a row in each line"),
    "only blank lines": (b"\n\n", r"got .*dev.tsv, which is empty"),
    "only a header": (HEADER.encode(), r"got .*dev.tsv without a row with a label"),
    "a column too few": (
        f"{HEADER}0\ta\tb\tentailment\n1\ta\tb\n".encode(),
        r"got 3 columns in line 3 of .*dev.tsv, expected 4, separated by tabs",
    ),
    "a column too many": (
        f"{HEADER}0\ta\tb\tc\tentailment\n".encode(),
        r"got 5 columns in line 2 of .*dev.tsv, expected 4",
    ),
    "commas": (
        b"index,sentence1,sentence2,label\n0,a,b,entailment\n",
        r"got .*dev.tsv with the columns 'index,sentence1,sentence2,label' in line 1",
    ),
    "an unknown label": (
        f"{HEADER}\n0\ta\tb\tneutral\n".encode(),
        r"got the label 'neutral' in line 3 of .*dev.tsv, expected 'entailment' or "
        "'not_entailment'",
    ),
    "no label": (
        f"{HEADER}0\ta\tb\t\n".encode(),
        r"got the label '' in line 2 of .*dev.tsv, expected 'entailment'",
    ),
    "a test file without labels": (
        b"index\tsentence1\tsentence2\n0\ta\tb\n",
        r"columns 'index', 'sentence1', 'sentence2' in line 1, expected a header with 'label'",
    ),
    "latin-1": (
        f"{HEADER}0\tcafé\tb\tentailment\n".encode("latin-1"),
        r"got .*dev.tsv with bytes that are not UTF-8 in line 2",
    ),
    "zero bytes": (
        f"{HEADER}0\ta\0\tb\tentailment\n".encode(),
        r"got .*dev.tsv with a zero byte in line 2",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file(tmp_path: Path, kind: str) -> None:
    content, message = BAD[kind]
    (tmp_path / "rte").mkdir()
    (tmp_path / "rte/train.tsv").write_text(GOOD)
    (tmp_path / "rte/dev.tsv").write_bytes(content)
    with pytest.raises(SourceError, match=message) as caught:
        find_task("rte").load(DataSettings(), Place(data_dir=str(tmp_path)))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("task", "line", "message"),
    [
        ("stsb", "g\tf\t2012\t1\tgood\ta\tb", r"label 'good' in line 1 .*, expected a number"),
        ("stsb", "g\tf\t2012\t1\tnan\ta\tb", r"label 'nan' in line 1 .*, expected a number"),
        ("stsb", "g\tf\t2012\t1\t\ta\tb", r"label '' in line 1 .*, expected a number"),
        ("stsb", "g\tf\t2012\t1\t3\ta", r"got 6 columns in line 1 .*, expected 7 or 8 or 9"),
        ("cola", "gj04\t2\t*\ta", r"label '2' in line 1 .*, expected '0' or '1'"),
        ("cola", "index\tsentence", r"got 2 columns in line 1 .*, expected 4"),
    ],
)
def test_a_bad_line_of_a_file_without_header(
    tmp_path: Path, task: str, line: str, message: str
) -> None:
    path = tmp_path / "x.tsv"
    path.write_text(f"{line}\n")
    with pytest.raises(SourceError, match=message):
        find_task(task).load(DataSettings(), Place(files={"train": str(path), "dev": str(path)}))


def place_of(tmp_path: Path, kind: str) -> Place:
    good = tmp_path / "good.tsv"
    good.write_text(GOOD)
    (tmp_path / "empty/rte").mkdir(parents=True)
    (tmp_path / "half/RTE").mkdir(parents=True)
    (tmp_path / "half/RTE/train.tsv").write_text(GOOD)
    return {
        "no folder": Place(data_dir=str(tmp_path / "nowhere")),
        "a file as folder": Place(data_dir=str(good)),
        "no folder of the task": Place(data_dir=str(tmp_path)),
        "an empty folder of the task": Place(data_dir=str(tmp_path / "empty")),
        "no dev": Place(data_dir=str(tmp_path / "half")),
        "only train": Place(files={"train": str(good)}),
        "only dev": Place(files={"dev": str(good)}),
        "a missing file": Place(files={"train": str(good), "dev": str(tmp_path / "x.tsv")}),
        "a folder as file": Place(files={"train": str(good), "dev": str(tmp_path)}),
        "an unknown split": Place(files={"train": str(good), "valid": str(good)}),
    }[kind]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("no folder", r"got data folder .*nowhere, expected an existing folder"),
        ("a file as folder", r"got data folder .*good.tsv, expected an existing folder"),
        (
            "no folder of the task",
            r"without rte/ or RTE/, expected there: train.tsv, dev.tsv; .* --split train=FILE",
        ),
        (
            "an empty folder of the task",
            r"got .*empty/rte without all files of rte, expected there: train.tsv, dev.tsv",
        ),
        ("no dev", r"got .*half/RTE without all files of rte"),
        ("only train", r"got a file for train of task rte alone, .* --split dev=FILE"),
        ("only dev", r"got a file for dev of task rte alone, .* --split train=FILE"),
        ("a missing file", r"got .*x.tsv for the dev split of task rte, which is no file"),
        ("a folder as file", r"for the dev split of task rte, which is a folder"),
        ("an unknown split", r"split 'valid' of task rte, expected one of train, dev, test"),
    ],
)
def test_a_bad_place(tmp_path: Path, kind: str, message: str) -> None:
    task, place = find_task("rte"), place_of(tmp_path, kind)
    with pytest.raises(IsotropyError, match=message):
        task.load(DataSettings(), place)
    with pytest.raises(IsotropyError, match=message):
        task.revision(DataSettings(), place)


def test_an_unknown_task_is_told_the_nearest() -> None:
    with pytest.raises(SettingError, match=r"got task 'mprc', .* did you mean 'mrpc'\?"):
        find_task("mprc")


def test_an_option_that_the_task_does_not_have() -> None:
    with pytest.raises(SettingError, match=r"got option 'stride' for task mrpc, which has no"):
        find_task("mrpc").load(DataSettings(options={"stride": 3}), Place())

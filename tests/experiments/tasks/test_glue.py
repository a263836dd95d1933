"""GLUE's formats: real files, and files of the same formats where there are none."""

from collections import Counter
from pathlib import Path

import pytest

from isotropy.errors import SourceError
from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks import Splits, find_task
from isotropy.experiments.tasks._glue import GLUE


def load(task: str, folder: Path, **files: str) -> Splits:
    return find_task(task).load(DataSettings(), Place(data_dir=str(folder), files=files))


def write(path: Path, *lines: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return path


def rows_in_manifest(data_dir: Path) -> dict[str, int]:
    lines = (data_dir / "MANIFEST.tsv").read_text().splitlines()[1:]
    cells = (line.split("\t") for line in lines)
    return {path: int(rows) for path, _, _, rows in cells if rows}


@pytest.mark.data
@pytest.mark.parametrize(
    ("task", "train", "evaluations"),
    [
        ("mrpc", "mrpc/train.tsv", {"dev": "mrpc/dev.tsv"}),
        ("cola", "cola/train.tsv", {"dev": "cola/dev.tsv"}),
        ("rte", "rte/train.tsv", {"dev": "rte/dev.tsv"}),
        ("wnli", "wnli/train.tsv", {"dev": "wnli/dev.tsv"}),
        ("stsb", "stsb/sts-train.csv", {"dev": "stsb/sts-dev.csv"}),
        ("sst2", "sst2/train.tsv", {"dev": "sst2/dev.tsv"}),
        ("qnli", "qnli/train_part.tsv", {"dev": "qnli/dev.tsv"}),
        ("sst5", "sst5/train.tsv", {"dev": "sst5/dev.tsv", "test": "sst5/test.tsv"}),
    ],
)
def test_real_rows_are_those_of_the_manifest(
    data_dir: Path, task: str, train: str, evaluations: dict[str, str]
) -> None:
    rows = rows_in_manifest(data_dir)
    found = load(task, data_dir)
    assert len(found.train) == rows[train]
    assert {name: len(of) for name, of in found.evaluations.items()} == {
        name: rows[path] for name, path in evaluations.items()
    }
    assert next(iter(found.evaluations)) == "dev"
    for row in [*found.train, *(row for of in found.evaluations.values() for row in of)]:
        assert row["text"].strip()
        assert not row["text"].endswith("\r")
        assert not row.get("pair", "").endswith("\r")


@pytest.mark.data
def test_real_labels_have_the_known_shares(data_dir: Path) -> None:
    # Majority classes as the benchmarks' papers give them.
    mrpc = Counter(row["label"] for row in load("mrpc", data_dir).evaluations["dev"])
    assert mrpc == {1: 279, 0: 129}
    wnli = Counter(row["label"] for row in load("wnli", data_dir).evaluations["dev"])
    assert wnli == {0: 40, 1: 31}
    cola = Counter(row["label"] for row in load("cola", data_dir).evaluations["dev"])
    assert cola == {1: 721, 0: 322}
    rte = Counter(row["label"] for row in load("rte", data_dir).evaluations["dev"])
    assert rte == {0: 146, 1: 131}
    scores = [row["label"] for row in load("stsb", data_dir).train]
    assert min(scores) == 0.0
    assert max(scores) == 5.0


@pytest.mark.data
def test_quotes_are_text_and_a_mark_of_byte_order_is_not(data_dir: Path) -> None:
    official = load("mrpc", data_dir)
    corpus = data_dir / "mrpc" / "msr_paraphrase_train.txt"
    whole = load("mrpc", data_dir, train=str(corpus))
    assert len(whole.train) == 4076
    # The corpus's train is GLUE's train and dev together.
    key = {(row["text"], row["pair"], row["label"]) for row in whole.train}
    for row in (*official.train, *official.evaluations["dev"]):
        assert (row["text"], row["pair"], row["label"]) in key
    assert any(row["text"].startswith('" ') for row in official.train)


@pytest.mark.data
def test_real_mnli_has_both_sets(data_dir: Path) -> None:
    found = load("mnli", data_dir, train=str(data_dir / "mnli" / "dev_matched.tsv"))
    assert {name: len(rows) for name, rows in found.evaluations.items()} == {
        "dev": 9815,
        "mismatched": 1000,
    }
    assert Counter(row["label"] for row in found.evaluations["dev"]) == {
        0: 3479,
        1: 3123,
        2: 3213,
    }


@pytest.mark.data
def test_a_task_without_train_says_which_names_it_looked_for(data_dir: Path) -> None:
    with pytest.raises(SourceError, match=r"mnli without all files of mnli, expected there: train"):
        load("mnli", data_dir)


CORPUS = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String"


def test_the_paraphrase_corpus_has_its_own_test(tmp_path: Path) -> None:
    write(tmp_path / "mrpc/msr_paraphrase_train.txt", f"\ufeff{CORPUS}", '1\t7\t8\t"a" b\tc')
    write(tmp_path / "mrpc/msr_paraphrase_test.txt", f"\ufeff{CORPUS}", "0\t7\t8\td\te")
    found = load("mrpc", tmp_path)
    assert found.train == [{"text": '"a" b', "pair": "c", "label": 1}]
    assert found.evaluations == {"test": [{"text": "d", "pair": "e", "label": 0}]}


def test_glues_own_split_is_taken_before_the_corpus(tmp_path: Path) -> None:
    for name in ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt", "train.tsv", "dev.tsv"):
        write(tmp_path / "mrpc" / name, CORPUS, f"1\t7\t8\t{name}\tc")
    found = load("mrpc", tmp_path)
    assert found.train[0]["text"] == "train.tsv"
    assert found.evaluations["dev"][0]["text"] == "dev.tsv"


_PARSES = "\t".join(f"sentence{i}_{kind}" for kind in ("binary_parse", "parse") for i in (1, 2))
_MNLI_TRAIN = f"index\tpromptID\tpairID\tgenre\t{_PARSES}\tsentence1\tsentence2\tlabel1\tgold_label"
_MNLI_DEV = _MNLI_TRAIN.replace("label1", "\t".join(f"label{i}" for i in range(1, 6)))
_STSB = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
OFFICIAL = {
    "cola": ("CoLA", None, "gj04\t0\t*\ta b", {"text": "a b", "label": 0}),
    "sst2": ("SST-2", "sentence\tlabel", "a b \t1", {"text": "a b ", "label": 1}),
    "mrpc": ("MRPC", f"\ufeff{CORPUS}", "1\t7\t8\ta\tb", {"text": "a", "pair": "b", "label": 1}),
    "qqp": (
        "QQP",
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        '13\t1\t2\t"a"\tb\t1',
        {"text": '"a"', "pair": "b", "label": 1},
    ),
    "stsb": (
        "STS-B",
        _STSB,
        "0\tg\tf\t2012\t3\tx\ty\ta\tb\t3.250",
        {"text": "a", "pair": "b", "label": 3.25},
    ),
    "qnli": (
        "QNLI",
        "index\tquestion\tsentence\tlabel",
        "0\ta\tb\tnot_entailment",
        {"text": "a", "pair": "b", "label": 1},
    ),
    "rte": (
        "RTE",
        "index\tsentence1\tsentence2\tlabel",
        "0\ta\tb\tentailment",
        {"text": "a", "pair": "b", "label": 0},
    ),
    "wnli": (
        "WNLI",
        "index\tsentence1\tsentence2\tlabel",
        "0\ta\tb\t1",
        {"text": "a", "pair": "b", "label": 1},
    ),
}


@pytest.mark.parametrize("task", OFFICIAL)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_the_official_layout(tmp_path: Path, task: str, ends: str) -> None:
    folder, header, line, row = OFFICIAL[task]
    for name in ("train.tsv", "dev.tsv"):
        path = tmp_path / folder / name
        path.parent.mkdir(exist_ok=True)
        text = ends.join([header, line, ""] if header else [line, ""])
        path.write_bytes(text.encode())
    assert load(task, tmp_path) == Splits([row], {"dev": [row]})


def test_mnli_in_the_official_layout(tmp_path: Path) -> None:
    start = "0\t1\t1n\tfiction\tp\tp\tp\tp\ta\tb"
    write(tmp_path / "MNLI/train.tsv", _MNLI_TRAIN, f"{start}\tneutral\tcontradiction")
    for name in ("dev_matched.tsv", "dev_mismatched.tsv"):
        labels = "\t".join(["neutral"] * 5)
        write(
            tmp_path / "MNLI" / name,
            _MNLI_DEV,
            f"{start}\t{labels}\tneutral",
            f"{start}\t{labels}\t-",  # no label on which the annotators agree
        )
    found = load("mnli", tmp_path)
    assert found.train == [{"text": "a", "pair": "b", "label": 2}]
    one = [{"text": "a", "pair": "b", "label": 1}]
    assert found.evaluations == {"dev": one, "mismatched": one}
    assert list(found.evaluations) == ["dev", "mismatched"]


def test_a_row_of_qqp_that_is_broken_over_lines_is_one_row(tmp_path: Path) -> None:
    header = "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate"
    broken = ("1\t1\t2\tIs it", "true?\tIs it?\t0", "2\t1\t2\ta\tb\t1")
    write(tmp_path / "qqp/train.tsv", header, *broken)
    write(tmp_path / "qqp/dev.tsv", header, broken[2])
    assert load("qqp", tmp_path).train == [
        {"text": "Is it true?", "pair": "Is it?", "label": 0},
        {"text": "a", "pair": "b", "label": 1},
    ]
    write(tmp_path / "qqp/dev.tsv", header, "1\t1\t2\tIs it")
    with pytest.raises(SourceError, match=r"got 4 columns in line 2 of .*dev.tsv, expected 6"):
        load("qqp", tmp_path)


def test_files_of_the_users_own_naming(tmp_path: Path) -> None:
    train = write(tmp_path / "a.txt", "sentence\tlabel", "x\t0", "y\t1")
    dev = write(tmp_path / "b.txt", "sentence\tlabel", "z\t1")
    files = {"dev": str(dev), "train": str(train)}
    found = find_task("sst2").load(DataSettings(), Place(files=files))
    assert [row["text"] for row in found.train] == ["x", "y"]
    assert found.evaluations == {"dev": [{"text": "z", "label": 1}]}


def test_a_file_stands_in_for_one_of_the_folder(tmp_path: Path) -> None:
    write(tmp_path / "SST-2/train.tsv", "sentence\tlabel", "x\t0")
    write(tmp_path / "SST-2/dev.tsv", "sentence\tlabel", "y\t0")
    mine = write(tmp_path / "mine.tsv", "sentence\tlabel", "z\t1")
    assert load("sst2", tmp_path, dev=str(mine)).evaluations["dev"][0]["text"] == "z"
    found = load("sst2", tmp_path, train=str(mine))
    assert found.train[0]["text"] == "z"
    assert found.evaluations["dev"][0]["text"] == "y"


def test_one_evaluation_file_stands_in_for_all_sets(tmp_path: Path) -> None:
    start = "0\t1\t1n\tfiction\tp\tp\tp\tp\ta\tb"
    mine = write(tmp_path / "m.tsv", _MNLI_TRAIN, f"{start}\tneutral\tneutral")
    place = Place(files={"train": str(mine), "dev": str(mine)})
    assert list(find_task("mnli").load(DataSettings(), place).evaluations) == ["dev"]
    place = Place(files={"train": str(mine), "mismatched": str(mine), "dev": str(mine)})
    assert list(find_task("mnli").load(DataSettings(), place).evaluations) == ["dev", "mismatched"]


def test_the_revision_is_of_the_content(tmp_path: Path) -> None:
    for name in ("train.tsv", "dev.tsv"):
        write(tmp_path / "one/sst2" / name, "sentence\tlabel", "x\t0")
        write(tmp_path / "two/SST-2" / name, "sentence\tlabel", "x\t0")
    task = find_task("sst2")

    def revision(folder: str) -> str:
        return task.revision(DataSettings(), Place(data_dir=str(tmp_path / folder)))

    before = revision("one")
    assert before == revision("two")
    assert len(before) == 16
    write(tmp_path / "one/sst2/dev.tsv", "sentence\tlabel", "x\t1")
    assert revision("one") != before
    place = Place(data_dir=str(tmp_path / "two"))
    assert task.load(DataSettings(revision=before), place).train
    with pytest.raises(SourceError, match=f"hash {revision('one')}, expected {before} as the run"):
        task.load(DataSettings(revision=before), Place(data_dir=str(tmp_path / "one")))


def test_every_task_of_glue_has_its_metrics() -> None:
    metrics = {task.name: task.metrics for task in GLUE}
    assert metrics == {
        "sst2": ("accuracy",),
        "mrpc": ("accuracy", "f1"),
        "cola": ("matthews", "accuracy"),
        "rte": ("accuracy",),
        "wnli": ("accuracy",),
        "stsb": ("spearman", "pearson"),
        "qnli": ("accuracy",),
        "mnli": ("accuracy",),
        "qqp": ("accuracy", "f1"),
        "sst5": ("accuracy",),
    }
    assert all(task.metric == task.metrics[0] for task in GLUE)

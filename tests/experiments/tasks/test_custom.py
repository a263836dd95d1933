"""A user's own files."""

import csv
import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from isotropy.errors import IsotropyError, SettingError, SourceError
from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks import Splits, find_task
from isotropy.experiments.tasks._classification import Classification, Regression

Record = dict[str, Any]


def write(path: Path, records: Sequence[Record]) -> str:
    if path.suffix == ".parquet":
        import pyarrow as pa
        import pyarrow.parquet as pq

        pq.write_table(pa.Table.from_pylist(list(records)), path)
    elif path.suffix == ".jsonl":
        path.write_text("".join(f"{json.dumps(record)}\n" for record in records))
    else:
        with path.open("w", newline="") as file:
            delimiter = "\t" if path.suffix == ".tsv" else ","
            writer = csv.DictWriter(file, list(records[0]), delimiter=delimiter)
            writer.writeheader()
            writer.writerows(records)
    return str(path)


def load(data: DataSettings | None = None, **files: str) -> Splits:
    return find_task("custom").load(data or DataSettings(), Place(files=files))


def some(rows: int = 40, labels: Sequence[Any] = ("no", "yes")) -> list[Record]:
    return [{"text": f'a "{i}", b\nc', "label": labels[i % len(labels)]} for i in range(rows)]


@pytest.mark.parametrize("ending", [".csv", ".tsv", ".jsonl", ".parquet"])
def test_every_format_gives_the_same_rows(tmp_path: Path, ending: str) -> None:
    train = write(tmp_path / f"t{ending}", some(4))
    dev = write(tmp_path / f"d{ending}", some(2))
    found = load(train=train, dev=dev)
    assert found.train == [
        {"text": f'a "{i}", b\nc', "label": i % 2, "class": ("no", "yes")[i % 2]} for i in range(4)
    ]
    assert found.evaluations == {"dev": found.train[:2]}


def test_columns_by_name(tmp_path: Path) -> None:
    records = [{"id": i, "q": f"q{i}", "a": f"a{i}", "y": "xy"[i % 2]} for i in range(4)]
    path = write(tmp_path / "t.csv", records)
    data = DataSettings(columns={"text": "q", "pair": "a", "label": "y"})
    found = load(data, train=path, dev=path)
    assert found.train[1] == {"text": "q1", "pair": "a1", "label": 1, "class": "y"}


def test_a_semicolon_separates_where_the_header_has_more_of_them(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("text;label\na, b, c;x\nd;y\n")
    assert load(train=str(path), dev=str(path)).train[0]["text"] == "a, b, c"


@pytest.mark.parametrize(
    ("labels", "classes"),
    [
        (["b", "a", "C"], ("C", "a", "b")),
        ([10, 9, 2], ("2", "9", "10")),
        ([1.0, 0.0], ("0", "1")),
        ([True, False], ("False", "True")),
        ([0.5, 1.5], ("0.5", "1.5")),
        (["10", "x", "9"], ("9", "10", "x")),
    ],
)
def test_the_order_of_classes_is_fixed(
    tmp_path: Path, labels: list[Any], classes: tuple[str, ...]
) -> None:
    path = write(tmp_path / "t.jsonl", some(30, labels))
    found = load(train=path)
    task = find_task("custom").settled(found)
    assert isinstance(task, Classification)
    assert task.classes == classes
    assert task.model_settings(found)["num_labels"] == len(classes)
    assert (task.metric, task.metrics) == ("accuracy", ("accuracy", "macro_f1"))


def test_numbers_of_many_values_are_scores(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", some(40, [i / 4 for i in range(20)]))
    found = load(train=path)
    task = find_task("custom").settled(found)
    assert isinstance(task, Regression)
    assert task.name == "custom"
    assert task.metrics == ("spearman", "pearson")
    assert {row["label"] for row in (*found.train, *found.evaluations["dev"])} == {
        i / 4 for i in range(20)
    }


def test_kind_says_what_numbers_are(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", some(40, [1, 2, 3]))
    found = load(DataSettings(options={"kind": "regression"}), train=path)
    assert isinstance(find_task("custom").settled(found), Regression)
    path = write(tmp_path / "t.csv", some(40, [i / 4 for i in range(20)]))
    found = load(DataSettings(options={"kind": "classification"}), train=path)
    task = find_task("custom").settled(found)
    assert isinstance(task, Classification)
    assert len(task.classes) == 20
    path = write(tmp_path / "t.csv", some(300, list(range(77))))  # whole numbers are classes
    assert find_task("custom").settled(load(train=path)).kind == "classification"


@pytest.mark.parametrize("share", [0.1, 0.2, 0.5])
def test_a_dev_set_with_the_shares_of_train(tmp_path: Path, share: float) -> None:
    records = some(200, ["a"] * 7 + ["b"] * 2 + ["c"])
    records = [{**record, "text": f"t{i}"} for i, record in enumerate(records)]
    path = write(tmp_path / "t.csv", records)
    found = load(DataSettings(options={"dev": share}), train=path)
    dev = found.evaluations["dev"]
    assert len(dev) == 200 * share
    counts = Counter(row["class"] for row in dev)
    for name, part in (("a", 0.7), ("b", 0.2), ("c", 0.1)):
        assert abs(counts[name] - 200 * share * part) <= 1
    texts = [row["text"] for row in (*found.train, *dev)]
    assert sorted(texts) == sorted(record["text"] for record in records)


def test_the_split_depends_on_its_seed_alone(tmp_path: Path) -> None:
    records = [{"text": f"t{i}", "label": "ab"[i % 2]} for i in range(50)]
    path = write(tmp_path / "t.csv", records)
    assert load(train=path) == load(DataSettings(max_length=9), train=path)
    assert load(train=path) != load(DataSettings(split_seed=1), train=path)


def test_a_class_of_one_row_is_for_training(tmp_path: Path) -> None:
    records = [*some(20), {"text": "only", "label": "rare"}]
    path = write(tmp_path / "t.csv", records)
    for seed in range(20):
        found = load(DataSettings(split_seed=seed, options={"dev": 0.5}), train=path)
        assert "rare" in {row["class"] for row in found.train}


def test_a_test_file_alone_is_reported_on(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", some(4))
    assert list(load(train=path, test=path).evaluations) == ["test"]
    assert list(load(train=path, test=path, dev=path).evaluations) == ["dev", "test"]


def test_the_revision_is_of_the_content(tmp_path: Path) -> None:
    path = write(tmp_path / "t.csv", some())
    task, place = find_task("custom"), Place(files={"train": path})
    before = task.revision(DataSettings(), place)
    assert task.load(DataSettings(revision=before), place).train
    write(tmp_path / "t.csv", some(41))
    assert task.revision(DataSettings(), place) != before
    with pytest.raises(SourceError, match=r"got files of task custom whose content has the hash"):
        task.load(DataSettings(revision=before), place)


BAD: dict[str, tuple[str, str, str]] = {
    "another column": ("t.csv", "txt,label\na,x\n", r"column 'text', .* did you mean 'txt'\?"),
    "no such column": ("t.csv", "a,b\nx,y\n", r"column 'text', .* choose from: 'a', 'b'"),
    "a field missing": ("t.jsonl", '{"text": "a"}\n', r"column 'label', .* line 1 of .*t.jsonl"),
    "no header": ("t.csv", "", r"got column 'text', .*t.csv has; there is no column to choose"),
    "no rows": ("t.csv", "text,label\n", r"got no rows in .*t.csv, expected some"),
    "one name twice": ("t.csv", "text,text,label\na,b,x\n", r"several columns of one name"),
    "a ragged row": ("t.csv", "text,label\na,b,x\n", r"got 3 columns in line 2 of .*, expected 2"),
    "an open quote": ("t.csv", 'text,label\n"a,x\n', r"no valid CSV in line 2"),
    "no JSON": ("t.jsonl", "{text}\n", r"got no valid JSON in line 1 of .*t.jsonl"),
    "a JSON list": ("t.jsonl", "[1]\n", r"got a JSON list in line 1 of .*, expected an object"),
    "no Parquet": ("t.parquet", "hello", r"which cannot be read as Parquet"),
    "another ending": ("t.xlsx", "hello", r"got data file .*t.xlsx, expected a name that ends in"),
    "one class": ("t.csv", "text,label\n" + "a,x\n" * 12, r"got only the label 'x' in .*t.csv"),
    "empty labels": (
        "t.csv",
        "text,label\na,x\nb,\nc, \n",
        r"got 2 rows without a value in column 'label' of .*, the first in line 3",
    ),
    "an empty text": (
        "t.jsonl",
        '{"text": "a", "label": 1}\n{"text": null, "label": 2}\n',
        r"got 1 row without a value in column 'text' of .*, the first in line 2",
    ),
    "numbers as texts": (
        "t.jsonl",
        '{"text": 3, "label": 1}\n',
        r"got a int in column 'text' in line 1 of .*, expected a text",
    ),
    "a list as label": (
        "t.jsonl",
        '{"text": "a", "label": [1]}\n',
        r"got a list in column 'label' in line 1 of .*, expected the name of a class",
    ),
    "too few rows": ("t.csv", "text,label\na,x\nb,y\n", r"got 2 rows in .*, expected at least 10"),
    "texts as labels": (
        "t.csv",
        "text,label\n" + "".join(f"a,text {i}\n" for i in range(30)),
        r"got 30 different labels in the 30 rows of .*, expected classes of several rows",
    ),
}


@pytest.mark.parametrize("kind", BAD)
def test_a_bad_file(tmp_path: Path, kind: str) -> None:
    name, content, message = BAD[kind]
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(SourceError, match=message) as caught:
        load(train=str(path))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (DataSettings(columns={"txt": "a"}), r"got column of custom 'txt', .* mean 'text'\?"),
        (
            DataSettings(options={"kind": "regresion"}),
            r"kind of custom 'regresion', .*'regression'",
        ),
        (
            DataSettings(options={"dev": 0.9}),
            r"got dev=0.9, expected a number above 0 and up to 0.5",
        ),
        (DataSettings(options={"folds": 3}), r"got option of custom 'folds'"),
        (DataSettings(columns={"text": "body"}), r"got column 'body', .* choose from: 'text'"),
    ],
)
def test_bad_settings(tmp_path: Path, data: DataSettings, message: str) -> None:
    path = write(tmp_path / "t.csv", some())
    with pytest.raises(IsotropyError, match=message):
        load(data, train=path)


def test_a_label_that_train_does_not_have(tmp_path: Path) -> None:
    train = write(tmp_path / "t.csv", some(4))
    dev = write(tmp_path / "d.csv", some(4, ["no", "maybe"]))
    with pytest.raises(SourceError, match=r"label 'maybe' in .*d.csv, which no .* 'no', 'yes'"):
        load(train=train, dev=dev)


def test_of_many_labels_a_few_are_named(tmp_path: Path) -> None:
    train = write(tmp_path / "t.csv", some(600, [f"class {i}" for i in range(300)]))
    dev = write(tmp_path / "d.csv", some(4, ["class 1", "maybe"]))
    with pytest.raises(SourceError, match=r"'class 104' and 292 more") as caught:
        load(train=train, dev=dev)
    assert len(str(caught.value)) < 500


def test_a_word_among_numbers(tmp_path: Path) -> None:
    train = write(tmp_path / "t.csv", some(40, [i / 4 for i in range(20)]))
    dev = write(tmp_path / "d.csv", some(4, [0.5, "high"]))
    with pytest.raises(SourceError, match=r"label 'high' in .*d.csv, expected a number"):
        load(train=train, dev=dev)
    with pytest.raises(SourceError, match=r"label 'high' in .*d.csv, .* kind=regression"):
        load(DataSettings(options={"kind": "regression"}), train=dev, dev=train)


@pytest.mark.parametrize(
    ("files", "error", "message"),
    [
        ({}, SourceError, "got no file for task custom, .* --data FILE"),
        ({"dev": "x.csv"}, SourceError, "got no file for task custom"),
        ({"train": "nowhere.csv"}, SourceError, "nowhere.csv for the train split .* is no file"),
        ({"valid": "x.csv"}, SettingError, "split 'valid' of task custom, expected one of train"),
    ],
)
def test_bad_names_of_files(
    files: dict[str, str], error: type[IsotropyError], message: str
) -> None:
    with pytest.raises(error, match=message):
        load(**files)


def test_equal_texts_stay_on_one_side(tmp_path: Path) -> None:
    repeated = [{**record, "text": f"{i // 3}"} for i, record in enumerate(some(120, "aab"))]
    path = write(tmp_path / "t.csv", [*repeated, *some(80)])
    found = load(train=path)
    dev = found.evaluations["dev"]
    assert not {row["text"] for row in dev} & {row["text"] for row in found.train}
    assert len({row["text"] for row in dev}) < len(dev)
    assert 35 <= len(dev) <= 40
    assert load(train=path) == found
    assert load(DataSettings(split_seed=1), train=path) != found


def test_too_few_different_texts_for_a_dev_set(tmp_path: Path) -> None:
    records = [{"text": "xy"[i % 2], "label": "ab"[i % 2]} for i in range(20)]
    with pytest.raises(
        SourceError, match=r"got 2 different texts in the 20 rows of .*--split dev="
    ):
        load(train=write(tmp_path / "t.csv", records))


@pytest.mark.parametrize("word", ["nan", "NaN", "-inf", "Infinity"])
def test_no_finite_number_among_numbers(tmp_path: Path, word: str) -> None:
    records = some(40, [i / 4 for i in range(20)])
    records[7]["label"] = word
    message = f"got the label '{word}' in line .* of .*t.csv, expected a finite number"
    with pytest.raises(SourceError, match=message):
        load(train=write(tmp_path / "t.csv", records))
    path = write(tmp_path / "t.csv", some(40, [word, "yes"]))  # a name among names
    assert find_task("custom").settled(load(train=path)).kind == "classification"

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.spatial.distance import cosine
from scipy.stats import pearsonr, spearmanr

from isotropy.errors import SettingError, SourceError
from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks import find_task

NAMES = ("stsb-similarity", "sts12", "sts13", "sts14", "sts15", "sts16", "sick-r")


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("stsb-similarity", {"test": 1379, "dev": 1500}),
        ("sts12", {"all": 2358, "MSRpar": 750, "OnWN": 750, "SMTeuroparl": 459, "SMTnews": 399}),
        ("sts13", {"all": 1500, "FNWN": 189, "OnWN": 561, "headlines": 750}),
        ("sick-r", {"test": 4927}),
    ],
)
def test_real_rows(data_dir: Path, name: str, sizes: dict[str, int]) -> None:
    found = find_task(name).load(DataSettings(), Place(data_dir=str(data_dir)))
    assert {set_: len(rows) for set_, rows in found.evaluations.items()} == sizes
    assert not found.train


@pytest.mark.data
@pytest.mark.parametrize(("name", "scored"), [("sts14", 3750), ("sts15", 3000), ("sts16", 1186)])
def test_real_rows_without_a_score_are_left_out(data_dir: Path, name: str, scored: int) -> None:
    # How many pairs the shared tasks of these years scored.
    found = find_task(name).load(DataSettings(), Place(data_dir=str(data_dir)))
    whole, *sets = found.evaluations.values()
    assert len(whole) == scored == sum(len(rows) for rows in sets)
    assert list(whole) == [row for rows in sets for row in rows]
    assert all(0 <= row["label"] <= 5 for row in whole)


def test_sets_of_a_folder_named_as_the_task(tmp_path: Path) -> None:
    (tmp_path / "sts16").mkdir()
    (tmp_path / "sts16/a.test.tsv").write_text('3.5\t"x\ty\n\tnot\tscored\n')
    (tmp_path / "sts16/b.test.tsv").write_text("0\tp\tq\n")
    task = find_task("sts16")
    place = Place(data_dir=str(tmp_path))
    found = task.load(DataSettings(), place)
    first = {"text": '"x', "pair": "y", "label": 3.5}
    second = {"text": "p", "pair": "q", "label": 0.0}
    assert found.evaluations == {"all": [first, second], "a": [first], "b": [second]}
    revision = task.revision(DataSettings(), place)
    assert task.load(DataSettings(revision=revision), place) == found
    named = Place(files={"b": str(tmp_path / "sts16/b.test.tsv")})
    assert task.load(DataSettings(), named).evaluations == {"all": [second], "b": [second]}


def test_no_sets(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"of sts12, expected sts12-16/2012/\*.test.tsv or sts12"):
        find_task("sts12").load(DataSettings(), Place(data_dir=str(tmp_path)))


def test_nobody_scored_anything(tmp_path: Path) -> None:
    (tmp_path / "sts15").mkdir()
    (tmp_path / "sts15/a.test.tsv").write_text("\tx\ty\n")
    with pytest.raises(SourceError, match=r"a.test.tsv without a row with a label"):
        find_task("sts15").load(DataSettings(), Place(data_dir=str(tmp_path)))


def test_scores_of_glues_dev_where_the_benchmarks_own_files_are_not(tmp_path: Path) -> None:
    (tmp_path / "STS-B").mkdir()
    (tmp_path / "STS-B/dev.tsv").write_text("index\tsentence1\tsentence2\tscore\n0\ta\tb\t2\n")
    (tmp_path / "STS-B/test.tsv").write_text("index\tsentence1\tsentence2\n0\ta\tb\n")
    found = find_task("stsb-similarity").load(DataSettings(), Place(data_dir=str(tmp_path)))
    assert found.evaluations == {"dev": [{"text": "a", "pair": "b", "label": 2.0}]}


ROWS = [{"text": f"t{i}", "pair": f"p{i}", "label": float(i % 4)} for i in range(12)]


def test_all_first_texts_are_encoded_before_the_second(
    word_tokenizer: Callable[..., Any],
) -> None:
    words = [row[side] for row in ROWS for side in ("text", "pair")]
    tokenizer = word_tokenizer(words)
    encoded = find_task("sts12").encode(ROWS, tokenizer, DataSettings(), training=False)
    said = [tokenizer.decode(one["input_ids"][1:-1]) for one in encoded]
    assert said == [row["text"] for row in ROWS] + [row["pair"] for row in ROWS]


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
def test_scores_are_correlations_of_cosines(scale: float) -> None:
    random = np.random.default_rng(0)
    first, second = random.normal(size=(2, 12, 5))
    task = find_task("sts12")
    said = task.predict(ROWS, [], (first * scale, second), None, DataSettings())
    expected = [1 - cosine(a, b) for a, b in zip(first, second, strict=True)]
    assert said.values == pytest.approx(expected, abs=1e-12)
    assert said.notes == ()
    labels = [row["label"] for row in ROWS]
    scores = task.score(said, ROWS)
    assert list(scores) == ["spearman", "pearson"]
    assert scores["spearman"] == pytest.approx(spearmanr(labels, expected).statistic)
    assert scores["pearson"] == pytest.approx(pearsonr(labels, expected).statistic)


def test_an_embedding_of_zeros_leaves_the_score_undefined() -> None:
    first, second = np.ones((2, 12, 5))
    second[3] = 0
    task = find_task("sts12")
    said = task.predict(ROWS, [], (first, second), None, DataSettings())
    assert said.notes == ("1 of 12 cosines are NaN or infinite",)
    assert task.score(said, ROWS) == {"spearman": None, "pearson": None}


def test_cosines_that_are_all_the_same_are_named() -> None:
    task = find_task("sts12")
    same = np.ones((12, 4))
    said = task.predict(ROWS, [], (same, same), None, DataSettings())
    assert said.notes == ("all 12 cosines are 1",)
    assert task.score(said, ROWS) == {"spearman": None, "pearson": None}


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_trained(name: str) -> None:
    task = find_task(name)
    assert not task.trains
    assert task.kind == "similarity"


@pytest.mark.parametrize(
    ("site", "message"),
    [
        ("tokens@last", "got option site='tokens@last', expected one vector a text"),
        ("head", "got option site='head', expected one vector a text"),
        ("mean@al", "got site 'mean@al', expected"),
    ],
)
def test_a_site_of_other_than_one_vector_a_text(site: str, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        find_task("sts12").check(DataSettings(options={"site": site}))

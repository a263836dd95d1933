import re
from collections import Counter
from collections.abc import Sequence

import pytest

from isotropy.errors import SettingError
from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks import Row, Splits, find_task
from isotropy.experiments.tasks._minimal_pairs_grammar import PHENOMENA

# Words that sentences of all splits share: whatever has no meaning of its own, and times.
FUNCTION_WORDS = """a after and any are as because before behind beside by did each ever every had
has he her herself him himself in is last many might month most much near next
no s several she so some summer than that the them themselves there these they
this those to tomorrow too us was we week were what which will winter year
yesterday"""
HASHES = {"train": "d042d62c4f5c4282", "dev": "08df4e8ed2b13989", "test": "75e43f4136354d88"}


@pytest.fixture(scope="module")
def splits() -> Splits:
    return find_task("minimal-pairs").load(DataSettings(), Place())


def all_of(splits: Splits) -> dict[str, Sequence[Row]]:
    return {"train": splits.train, **splits.evaluations}


def words(text: str) -> list[str]:
    return re.findall(r"[A-Za-z]+", text)


def test_sizes_and_balance(splits: Splits) -> None:
    assert {name: len(rows) for name, rows in all_of(splits).items()} == {
        "train": 20240,
        "dev": 2024,
        "test": 2024,
    }
    assert len(PHENOMENA) == 22
    for rows in all_of(splits).values():
        counts = Counter((row["phenomenon"], row["label"]) for row in rows)
        assert len(counts) == 2 * len(PHENOMENA)
        assert set(counts.values()) == {len(rows) // len(counts)}


def test_no_sentence_is_there_twice(splits: Splits) -> None:
    texts = [row["text"] for rows in all_of(splits).values() for row in rows]
    assert len(set(texts)) == len(texts) >= 20_000


def test_a_pair_is_one_change_in_one_sentence(splits: Splits) -> None:
    for rows in all_of(splits).values():
        for first, second in zip(rows[::2], rows[1::2], strict=True):
            assert first["pair_id"] == second["pair_id"]
            assert {first["label"], second["label"]} == {0, 1}
            one, other = words(first["text"]), words(second["text"])
            changed = sum((Counter(one) - Counter(other)).values())
            assert len(one) == len(other)
            assert changed <= 1, (first["text"], second["text"])
        assert rows[0]["label"] != rows[2 * len(PHENOMENA)]["label"]


def test_words_with_a_meaning_are_in_one_split_only(splits: Splits) -> None:
    known = {
        name: {word.lower() for row in rows for word in words(row["text"])}
        for name, rows in all_of(splits).items()
    }
    shared = set(FUNCTION_WORDS.split())
    for one, other in (("train", "dev"), ("train", "test"), ("dev", "test")):
        assert known[one] & known[other] <= shared
    assert all(shared.issubset(found) for found in known.values())


@pytest.mark.parametrize("lower", [True, False])
def test_the_words_of_a_sentence_say_nothing_about_it(splits: Splits, lower: bool) -> None:
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression

    # Full stops make a word at the end another one.
    counter = CountVectorizer(lowercase=lower, token_pattern=r"\S+")
    train, dev = splits.train, splits.evaluations["dev"]
    inputs = counter.fit_transform(row["text"] for row in train)
    model = LogisticRegression(max_iter=300).fit(inputs, [row["label"] for row in train])
    score = model.score(
        counter.transform(row["text"] for row in dev), [row["label"] for row in dev]
    )
    assert score < 0.6


def test_no_word_stands_in_bad_sentences_only(splits: Splits) -> None:
    total: Counter[str] = Counter()
    bad: Counter[str] = Counter()
    for row in splits.train:
        found = set(row["text"].split())
        total.update(found)
        if row["label"] == 0:
            bad.update(found)
    often = [word for word in total if total[word] >= 100]
    assert len(often) > 200
    for word in often:
        assert 0.35 < bad[word] / total[word] < 0.65, word


def test_sentences_are_written_as_sentences(splits: Splits) -> None:
    for rows in all_of(splits).values():
        for row in rows:
            assert re.fullmatch(r"[A-Z][A-Za-z']*( [A-Za-z']+)+[.?]", row["text"]), row["text"]
            assert not re.search(r"\ba [aeiou]", row["text"]), row["text"]


def test_the_same_sentences_everywhere(splits: Splits) -> None:
    # Other sentences would make other scores under the same name: then the grammar needs another
    # revision too.
    assert find_task("minimal-pairs").revision(DataSettings(), Place()) == "grammar-1"
    assert splits.hashes() == HASHES


def test_it_takes_no_files() -> None:
    with pytest.raises(SettingError, match="got files for task minimal-pairs, which makes its own"):
        find_task("minimal-pairs").load(DataSettings(), Place(files={"train": "x.tsv"}))
    with pytest.raises(SettingError, match=r"data.revision='old' .*, expected 'grammar-1'"):
        find_task("minimal-pairs").load(DataSettings(revision="old"), Place())


def test_some_phenomena_alone(splits: Splits) -> None:
    named = ["tense", "passive"]
    data = DataSettings(options={"phenomena": named})
    some = find_task("minimal-pairs").load(data, Place())
    for split, rows in all_of(some).items():
        wanted = [row for row in all_of(splits)[split] if row["phenomenon"] in named]
        assert list(rows) == wanted
    assert len(some.train) == 2 * 920


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("tense", "got option phenomena='tense', expected a list of names"),
        ([], "expected a list of names"),
        (["tens"], "got phenomenon 'tens', expected a known phenomenon; did you mean 'tense'"),
    ],
)
def test_phenomena_that_do_not_exist(given: object, message: str) -> None:
    with pytest.raises(SettingError, match=message):
        find_task("minimal-pairs").check(DataSettings(options={"phenomena": given}))

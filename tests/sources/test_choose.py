import pytest

from isotropy.errors import SettingError, SourceError
from isotropy.sources._choose import Entry, Kind, choose_array, choose_columns, no_key

MATRIX, VECTOR, INTEGERS = Entry((9, 4), True), Entry((9,), True), Entry((9, 4), False)


@pytest.mark.parametrize(
    ("entries", "key", "chosen"),
    [
        ({"x": MATRIX, "row": VECTOR, "tokens": INTEGERS}, None, "x"),
        ({"x": MATRIX, "embeddings": MATRIX}, None, "embeddings"),
        ({"x": MATRIX, "embedding": MATRIX}, "x", "x"),
        ({"embedding": MATRIX, "embeddings": MATRIX}, None, "embeddings"),
        # Its own error is told where these are looked at.
        ({"x": INTEGERS}, None, "x"),
        ({"row": VECTOR, "embeddings": INTEGERS}, None, "embeddings"),
        ({"logits": MATRIX, "embeddings": INTEGERS}, None, "embeddings"),
        ({"logits": MATRIX, "embeddings": Entry((9,), False)}, None, "embeddings"),
        ({"x": MATRIX, "vector": VECTOR}, None, "x"),
        ({"vectors": MATRIX, "embeddings": INTEGERS}, None, "vectors"),
        ({"logits": MATRIX, "embeddings": INTEGERS}, "logits", "logits"),
    ],
)
def test_the_array_that_is_meant(entries: dict[str, Entry], key: str | None, chosen: str) -> None:
    assert choose_array(entries, key, "file") == chosen


def test_many_names_are_not_all_listed() -> None:
    entries = {f"layer_{i}": MATRIX for i in range(100)}
    with pytest.raises(SourceError, match="'layer_7' and 92 more"):
        choose_array(entries, None, "file")


LIST: Kind = "list"
NUMBER: Kind = "number"
OTHER: Kind = "other"


@pytest.mark.parametrize(
    ("kinds", "key", "chosen"),
    [
        # A column of lists goes before numbers.
        ({"v": LIST, "x_0": NUMBER, "x_1": NUMBER}, None, ["v"]),
        ({"v": LIST, "vector": LIST}, None, ["vector"]),
        ({"v": LIST, "w": LIST}, "w", ["w"]),
        ({"v": LIST, "x_0": NUMBER, "x_1": NUMBER}, "x_", ["x_0", "x_1"]),
        # Counted columns go before others.
        ({"year": NUMBER, "x0": NUMBER, "x1": NUMBER}, None, ["x0", "x1"]),
        ({"label": NUMBER, "0": NUMBER, "1": NUMBER, "note": OTHER}, None, ["0", "1"]),
        ({"x_001": NUMBER, "x_002": NUMBER}, None, ["x_001", "x_002"]),
        # All of them, so that the reader can say which one holds no numbers.
        ({"label": NUMBER, "0": NUMBER, "1": NUMBER, "2": OTHER}, None, ["0", "1", "2"]),
        ({"x_0": OTHER, "x_1": OTHER, "x_2": NUMBER, "y": NUMBER}, None, ["x_0", "x_1", "x_2"]),
        ({"x_0": NUMBER, "x_1": NUMBER, "t1": OTHER, "t2": OTHER}, None, ["x_0", "x_1"]),
        ({"x_0": NUMBER, "x_1": NUMBER, "t1": OTHER, "t2": OTHER}, "t", ["t1", "t2"]),
        # A key is explicit: the family may have gaps.
        ({"x_0": NUMBER, "x_3": NUMBER}, "x_", ["x_0", "x_3"]),
        ({"x_0": NUMBER, "x_1": NUMBER, "embedding0": NUMBER}, None, ["x_0", "x_1"]),
        ({"a1": NUMBER, "a2": NUMBER, "b1": NUMBER, "b2": NUMBER}, "b", ["b1", "b2"]),
        # Otherwise all that are not about a row.
        ({"x": NUMBER, "y": NUMBER, "Label": NUMBER, "topic_id": NUMBER}, None, ["x", "y"]),
        ({"": NUMBER, "x": NUMBER, "y": NUMBER, "name": OTHER}, None, ["x", "y"]),
        ({"Unnamed: 0": NUMBER, "x": NUMBER, "y": NUMBER}, None, ["x", "y"]),
    ],
)
def test_the_columns_that_are_meant(
    kinds: dict[str, Kind], key: str | None, chosen: list[str]
) -> None:
    assert choose_columns(kinds, key, "file") == tuple(chosen)


@pytest.mark.parametrize("other", [{"v": LIST}, {"x_0": NUMBER, "x_1": NUMBER}, {"x": NUMBER}])
def test_a_column_named_as_embeddings_is_not_passed_over(other: dict[str, Kind]) -> None:
    kinds = {"embedding": OTHER, **other}
    with pytest.raises(SourceError, match="got column 'embedding' of file without floating-point"):
        choose_columns(kinds, None, "file")
    assert choose_columns({**kinds, "vector": LIST}, None, "file") == ("vector",)
    assert choose_columns({"embedding": OTHER, "v": LIST}, "v", "file") == ("v",)


@pytest.mark.parametrize(
    ("names", "missing"),
    [
        (["x_0", "x_1", "x_2", "x_4", "x_5"], "x_3"),
        (["x_1", "x_3"], "x_2"),
        (["x_0", "x_2"], "x_1"),
        (["x_2", "x_3"], "x_1"),
        (["x_000", "x_001", "x_003"], "x_002"),
        (["x_8", "x_9", "x_10", "x_0"], "x_1"),
        (["2019", "2020"], "1"),
        (["x_0", "x_999999999999999999"], "x_1"),
    ],
)
def test_a_family_of_columns_has_no_gap(names: list[str], missing: str) -> None:
    match = f"got file with the columns '{names[0]}', .* none called '{missing}', .* pass key='"
    with pytest.raises(SourceError, match=match):
        choose_columns(dict.fromkeys(names, NUMBER), None, "file")


def test_a_name_may_end_in_more_digits_than_an_integer_can_have() -> None:
    kinds: dict[str, Kind] = {"x": NUMBER, "1" * 5000: NUMBER}
    assert choose_columns(kinds, None, "file") == tuple(kinds)


@pytest.mark.parametrize(
    ("kinds", "key", "match"),
    [
        ({"x_0": NUMBER, "x_1": NUMBER}, None, "with the columns 'x_0', 'x_1', expected one that"),
        ({"x": LIST, "x_0": NUMBER, "x_1": NUMBER}, "x_", "got key 'x_', .* did you mean 'x'"),
        ({"x": LIST, "y": NUMBER}, "y", "got key 'y', expected a column of file that holds lists"),
    ],
)
def test_records_have_no_counted_columns(
    kinds: dict[str, Kind], key: str | None, match: str
) -> None:
    with pytest.raises(SourceError, match=match):
        choose_columns(kinds, key, "file", wide=False)


def test_one_array_takes_no_key() -> None:
    no_key(None, "file")
    with pytest.raises(SettingError, match="got key='x' for file, expected none"):
        no_key("x", "file")

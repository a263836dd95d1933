"""Tables in 80 columns, whatever the names and numbers are."""

from types import MappingProxyType

import pytest
from hypothesis import given, strategies as st

from isotropy import Measurement, tables
from isotropy.measures import SPECS
from isotropy.scoring import Score


def made(
    scores: dict[str, float | None],
    *,
    interval: tuple[float, float] | None = None,
    sampled: bool = False,
    warnings: tuple[str, ...] = (),
    source: str = "x.npy",
    by: str | None = None,
    groups: dict[str, Measurement] = MappingProxyType({}),
) -> Measurement:
    return Measurement(
        source=source,
        rows=1000,
        features=64,
        seed=5,
        level=None if interval is None else 0.95,
        options={},
        scores={
            key: Score(key, value, interval, 200 if sampled else 1000, sampled)
            for key, value in scores.items()
        },
        warnings=warnings,
        by=by,
        groups=groups,
    )


def widest(text: str) -> int:
    return max(map(len, text.splitlines()))


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "undefined"),
        (0.0, "0"),
        (-0.5, "-0.5000"),
        (0.00001234567, "1.235e-05"),
        (12.345678, "12.35"),
        (999.96, "1000."),
        (1234.5678, "1235"),
        (20000.0, "20000"),
        (3e20, "3.000e+20"),
        (7.0, "7"),
    ],
)
def test_numbers(value: float | None, text: str) -> None:
    assert tables.number(value) == text


@given(st.floats(-1e300, 1e300))
def test_a_number_is_short_and_right(value: float) -> None:
    text = tables.number(value)
    assert len(text) <= 11
    assert float(text) == pytest.approx(value, rel=6e-4)


def test_a_measurement() -> None:
    report = made({"iso_score": 0.5, "two_nn": None}, interval=(0.25, 0.75), warnings=("beware",))
    assert tables.measurement(report).splitlines() == [
        "x.npy: 1000 rows × 64 features",
        "",
        "measure        value     95% interval  rows",
        "───────────────────────────────────────────",
        "iso_score     0.5000  0.2500 … 0.7500  1000",
        "two_nn     undefined  0.2500 … 0.7500  1000",
        "",
        "warning: beware",
    ]


def test_a_sample_has_a_mark_and_a_note() -> None:
    text = tables.measurement(made({"two_nn": 3.0}, sampled=True))
    assert "200*" in text
    assert "* computed on a random sample of the rows (seed 5)" in text
    assert "*" not in tables.measurement(made({"two_nn": 3.0}))


def test_a_long_source_and_long_warnings_wrap() -> None:
    report = made({"iso_score": 0.5}, source="folder/" * 30, warnings=("word " * 60,))
    text = tables.measurement(report)
    assert widest(text) <= 80
    assert "".join(text.split()).count("folder/") == 30
    assert text.count("word") == 60


@given(names=st.lists(st.text(min_size=1, max_size=60), min_size=1, max_size=12, unique=True))
def test_groups_of_any_name_fit(names: list[str]) -> None:
    scores = {"iso_score": 0.123, "hubness_skewness": -1.5e-9}
    groups = {name: made(scores, interval=(1e-9, 123456.7)) for name in names}
    report = made(scores, interval=(0.1, 0.2), by="label", groups=groups)
    text = tables.measurement(report)
    assert widest(text) <= 80
    assert all(character.isprintable() or character == "\n" for character in text)
    assert text.count("1.000e-09 … 123457") == 2 * len(names)


def test_names_of_shards_can_be_told_apart() -> None:
    names = [f"train-shard-of-embeddings-{i:05d}-of-00002.parquet" for i in range(2)]
    groups = {name: made({"iso_score": 0.5}) for name in names}
    text = tables.measurement(made({"iso_score": 0.5}, by="shard", groups=groups))
    headers = text.splitlines()[2].split()
    assert len(set(headers)) == len(headers) == 4


def test_many_warnings_are_cut() -> None:
    groups = {str(i): made({"iso_score": 0.5}, warnings=(f"n{i}",)) for i in range(30)}
    text = tables.measurement(made({"iso_score": 0.5}, by="layer", groups=groups))
    assert text.count("warning: layer") == 10
    assert "and 20 more warnings; --json has them all" in text


def test_a_warning_of_several_groups_stands_there_once() -> None:
    groups = {str(i): made({"iso_score": 0.5}, warnings=("beware",)) for i in range(3)}
    groups["3"] = made({"iso_score": 0.5}, warnings=("mind",))
    text = tables.measurement(made({"iso_score": 0.5}, by="layer", groups=groups))
    assert "warning: layer 0, 1, 2: beware\nwarning: layer 3: mind" in text
    many = {str(i): made({"iso_score": 0.5}, warnings=("beware",)) for i in range(40)}
    text = tables.measurement(made({"iso_score": 0.5}, by="layer", groups=many))
    assert "10, 11 and 28 more: beware" in " ".join(text.split())


def test_control_characters_do_not_reach_the_terminal() -> None:
    report = made({"iso_score": 0.5}, source="a\x1b[2Jb", warnings=("c\rd\x07",))
    text = tables.measurement(report)
    assert "a�[2Jb" in text
    assert "c�d�" in text


def test_the_list_of_measures() -> None:
    text = tables.measures(SPECS.values())
    assert widest(text) <= 80
    assert set(SPECS) <= set(text.split())
    starred = {line.split()[0] for line in text.splitlines() if " * " in line}
    assert starred == {name for name, spec in SPECS.items() if not spec.default}

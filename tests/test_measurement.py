"""`measure`: its numbers, its passes over a source, its errors, and what a `Measurement` shows."""

import json
import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from hypothesis import given, settings, strategies as st

import isotropy
from isotropy import Measurement, measure
from isotropy.errors import InputError, SettingError, SourceError, UndefinedError
from isotropy.measures import SPECS, Number
from isotropy.sources import Chunk

ROWS, FEATURES = 240, 6


@pytest.fixture(scope="module")
def x() -> np.ndarray:
    rng = np.random.default_rng(0)
    return rng.normal(size=(ROWS, FEATURES)) * [1, 1, 2, 2, 3, 4] + [1, 0, 0, -1, 0, 2]


@pytest.fixture(scope="module")
def report(x: np.ndarray) -> Measurement:
    """Every default measure, some of them on a sample, with intervals."""
    return measure(x, interval=0.95, sample=120, seed=3)


class CountedSource:
    """An array with a column that counts how often, and in which pieces, it is read."""

    name = "counted"
    columns = ("layer",)

    def __init__(self, array: np.ndarray, layers: int = 3) -> None:
        self.rows = torch.from_numpy(array)
        self.labels = np.arange(len(array)) % layers
        self.n_rows, self.features = array.shape
        self.reads: list[list[int]] = []

    def chunks(self, rows: int, columns: tuple[str, ...] = ()) -> Iterator[Chunk]:
        self.reads.append([])
        for start in range(0, self.n_rows, rows):
            part = slice(start, start + rows)
            self.reads[-1].append(len(self.rows[part]))
            yield Chunk(self.rows[part], start, dict.fromkeys(columns, self.labels[part]))


def unbiased(x: np.ndarray) -> float:
    """The unbiased IsoScore as averages over different rows, from its definition."""
    n, d = x.shape
    fours = [(i, j, k, m) for i in range(n) for j in range(n) for k in range(n) for m in range(n)]
    fours = [four for four in fours if len(set(four)) == 4]
    square, trace = 0.0, 0.0
    for i, j, k, m in fours:
        a, b = x[i] - x[j], x[k] - x[m]
        square += (a @ b) ** 2 / 4
        trace += (a @ a) * (b @ b) / 4
    return (trace / square - 1) / (d - 1)


def test_values_are_those_of_the_definitions(x: np.ndarray) -> None:
    found = measure(x, ["iso_score", "mean_cosine", "mean_norm_ratio", "participation_ratio"])
    c = np.cov(x.T)
    ratio = np.trace(c) ** 2 / np.sum(c**2)
    unit = x / np.linalg.norm(x, axis=1, keepdims=True)
    cosines = (unit @ unit.T)[np.triu_indices(ROWS, 1)]
    norms = np.sum(x.mean(axis=0) ** 2) / np.mean(np.sum(x**2, axis=1))
    expected = [(ratio - 1) / (FEATURES - 1), cosines.mean(), norms, ratio]
    assert [score.value for score in found.values()] == pytest.approx(expected, rel=1e-9)


def test_the_unbiased_score_is_an_average_over_four_rows(x: np.ndarray) -> None:
    few = x[:9]
    found = measure(few, "iso_score_unbiased")["iso_score_unbiased"].value
    assert found == pytest.approx(unbiased(few), rel=1e-9)


def test_dimensions(x: np.ndarray) -> None:
    found = measure(x, ["iso_score"]).dimensions
    assert found is not None
    assert np.allclose(found.mean, x.mean(axis=0))
    assert np.allclose(found.std, x.std(axis=0, ddof=1))
    assert measure(x, ["two_nn"]).dimensions is None


# ---- Passes, chunks and samples


def test_one_pass_for_all_default_measures(x: np.ndarray) -> None:
    source = CountedSource(x)
    measure(source, interval=0.95, by="layer", chunk_rows=50)
    assert source.reads == [[50, 50, 50, 50, 40]]


def test_a_second_pass_only_for_the_measure_that_needs_it(x: np.ndarray) -> None:
    source = CountedSource(x)
    found = measure(source, ["iso_score", "partition_isotropy"], chunk_rows=100)
    assert source.reads == [[100, 100, 40]] * 2
    direct = isotropy.measures.partition_isotropy(x)
    both = [found["partition_isotropy_1"].value, found["partition_isotropy_2"].value]
    assert both == pytest.approx(list(direct), rel=1e-6)


@settings(max_examples=15)
@given(chunk_rows=st.integers(1, 70), seed=st.integers(0, 3))
def test_chunks_do_not_change_a_number(chunk_rows: int, seed: int) -> None:
    rows = np.random.default_rng(seed).normal(size=(64, 4)) + 100
    # A measure of each kind: moments with an interval, neighbours and pairs of a sample, 2 passes.
    names = ["iso_score", "anisotropy", "two_nn", "uniformity", "partition_isotropy"]
    chosen: dict[str, Any] = {"by": "layer", "interval": 0.9, "sample": 40, "seed": seed}
    whole = measure(CountedSource(rows, layers=2), names, **chosen)
    cut = measure(CountedSource(rows, layers=2), names, chunk_rows=chunk_rows, **chosen)
    for a, b in zip([whole, *whole.groups.values()], [cut, *cut.groups.values()], strict=True):
        for key in a:
            assert a[key].rows == b[key].rows
            assert a[key].value == pytest.approx(b[key].value, rel=1e-6, abs=1e-9)
            assert (a[key].interval is None) == (b[key].interval is None)
            if a[key].interval is not None:
                assert a[key].interval == pytest.approx(b[key].interval, rel=1e-4, abs=1e-7)


def test_shards_do_not_change_a_number(x: np.ndarray, tmp_path: Path) -> None:
    for i, part in enumerate(np.split(x, [30, 31, 150])):
        np.save(tmp_path / f"{i}.npy", part)
    found = measure(tmp_path, sample=100, interval=0.9)
    expected = measure(x, sample=100, interval=0.9)
    assert {**found.to_dict(), "source": ""} == {**expected.to_dict(), "source": ""}


def test_only_measures_of_neighbours_and_pairs_are_sampled(report: Measurement) -> None:
    sampled = {key for key, score in report.items() if score.sampled}
    from_moments = {
        number.key for spec in SPECS.values() if spec.from_moments for number in spec.numbers
    }
    assert {"two_nn", "mle_dimension", "uniformity"} <= sampled
    assert not sampled & from_moments
    assert {report[key].rows for key in sampled} == {120}
    assert {score.rows for score in report.values() if not score.sampled} == {ROWS}


def test_a_sample_is_that_of_its_seed(x: np.ndarray) -> None:
    def dimension(seed: int) -> float | None:
        return measure(x, "two_nn", sample=100, seed=seed)["two_nn"].value

    assert dimension(1) == dimension(1)
    assert dimension(1) != dimension(2)


def test_a_sample_that_holds_all_rows_is_none(x: np.ndarray) -> None:
    score = measure(x, "two_nn", sample=ROWS)["two_nn"]
    assert not score.sampled
    assert score.value == pytest.approx(float(isotropy.measures.two_nn(x)), rel=1e-9)


def test_the_callers_array_stays_as_it_is(x: np.ndarray) -> None:
    before = x.copy()
    x.flags.writeable = False
    measure(x, ["iso_score", "two_nn", "partition_isotropy"], interval=0.9)
    x.flags.writeable = True
    assert np.array_equal(x, before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_precisions_agree_on_the_same_values(x: np.ndarray, dtype: torch.dtype) -> None:
    rounded = torch.from_numpy(x).to(dtype)
    names = ["iso_score_unbiased", "mean_cosine", "two_nn"]
    found, expected = measure(rounded, names), measure(rounded.double(), names)
    for key in expected:
        assert found[key].value == pytest.approx(expected[key].value, rel=1e-4)


# ---- Groups


def test_groups_are_what_they_are_alone(x: np.ndarray) -> None:
    names = ["iso_score", "mean_cosine", "two_nn"]
    source = CountedSource(x)
    found = measure(source, names, by="layer")
    assert found.by == "layer"
    assert list(found.groups) == ["0", "1", "2"]
    assert found["iso_score"].value == pytest.approx(measure(x, names)["iso_score"].value)
    for label, group in found.groups.items():
        alone = measure(x[source.labels == int(label)], names)
        assert group.rows == alone.rows == ROWS / 3
        for key in alone:
            assert group[key].value == pytest.approx(alone[key].value, rel=1e-9)


def test_a_column_of_a_file(x: np.ndarray, tmp_path: Path) -> None:
    labels = ["b" if i % 4 else "a" for i in range(ROWS)]
    pq.write_table(pa.table({"v": list(x), "label": labels}), tmp_path / "x.parquet")
    found = measure(tmp_path / "x.parquet", ["iso_score"], key="v", by="label")
    assert {name: group.rows for name, group in found.groups.items()} == {"a": 60, "b": 180}
    assert list(found.to_dict()["groups"]) == ["a", "b"]


def test_a_group_without_a_score_is_a_warning(x: np.ndarray) -> None:
    source = CountedSource(x)
    source.rows = source.rows.clone()
    source.rows[source.labels == 1] = 2.0
    found = measure(source, ["iso_score"], by="layer")
    assert found["iso_score"].value is not None
    assert found.groups["1"]["iso_score"].value is None
    assert "equal rows" in found.groups["1"].warnings[0]
    assert found.groups["0"].warnings == ()


def test_an_unknown_column(x: np.ndarray) -> None:
    with pytest.raises(SourceError, match="got column 'layer', expected one that array has"):
        measure(x, by="layer")


def test_a_column_of_ids_is_refused(x: np.ndarray) -> None:
    rows = np.repeat(x, 5, axis=0)
    with pytest.raises(SettingError, match="more than 1000 different values"):
        measure(CountedSource(rows, layers=len(rows)), "iso_score", by="layer")


# ---- Warnings and scores that do not exist


def test_fewer_rows_than_features_names_the_unbiased_score(x: np.ndarray) -> None:
    wide = np.random.default_rng(1).normal(size=(20, 50))
    (warning,) = measure(wide, ["iso_score"]).warnings
    assert "20 rows with 50 features is too low" in warning
    assert "iso_score_unbiased" in warning
    assert measure(x, ["iso_score"]).warnings == ()


def test_a_score_that_was_asked_for_must_exist(x: np.ndarray) -> None:
    x = x.copy()
    x[7] = 0
    with pytest.raises(UndefinedError, match="row 7"):
        measure(x, ["mean_cosine"])
    found = measure(x)
    assert found["mean_cosine"].value is None
    assert found["mean_cosine"].interval is None
    assert any(w.startswith("mean_cosine: ") and "row 7" in w for w in found.warnings)
    assert found["iso_score"].value is not None


def test_too_few_rows_for_a_measure(x: np.ndarray) -> None:
    with pytest.raises(InputError, match="got 10 rows, expected at least 11 for hubness"):
        measure(x[:10], "hubness")
    found = measure(x[:10])
    assert found["hubness"].value is None
    assert any("expected at least 11 for hubness" in warning for warning in found.warnings)


@pytest.mark.parametrize("names", [None, ["iso_score"], ["two_nn"]])
def test_one_point_has_no_score_at_all(names: list[str] | None) -> None:
    with pytest.raises(UndefinedError, match="got a cloud with 50 equal rows"):
        measure(np.full((50, 4), 0.3), names)


def test_nan_is_named_with_its_row(x: np.ndarray) -> None:
    x = x.copy()
    x[100, 2] = math.nan
    with pytest.raises(InputError, match=r"1 NaN or infinite value.* the first in row 100"):
        measure(x, "iso_score", chunk_rows=30)


# ---- Settings


@pytest.mark.parametrize(
    ("chosen", "message"),
    [
        ({"measures": ["isoscore"]}, "got measure 'isoscore'.*did you mean 'iso_score'"),
        ({"measures": []}, "got no measures, expected at least one"),
        ({"measures": [isotropy.measures.iso_score]}, "got measure '<function iso_score"),
        ({"interval": 95}, "got interval=95, expected a level between 0 and 1 like 0.95"),
        ({"interval": "0.95"}, "got interval='0.95'"),
        ({"interval": math.nan}, "got interval=nan"),
        ({"sample": 1}, "got sample=1, expected a whole number from 2 up"),
        ({"sample": 1e4}, "got sample=10000.0, expected a whole number"),
        ({"seed": -1}, "got seed=-1, expected a whole number from 0 to 4294967295"),
        ({"seed": 2**32}, "got seed=4294967296"),
        ({"seed": True}, "got seed=True"),
        ({"chunk_rows": 0}, "got chunk_rows=0, expected a whole number from 1 up"),
        ({"device": "warp"}, "got device='warp', expected one that is here, such as 'cpu'"),
        ({"device": "meta"}, "got device='meta', expected one that is here, such as 'cpu'"),
        ({"options": {"hubnes": {"k": 3}}}, "did you mean 'hubness'"),
        ({"options": {"hubness": {"n": 3}}}, "got option of hubness 'n'"),
        ({"options": {"hubness": {"k": 3.5}}}, "got hubness.k=3.5, expected .* type int"),
        ({"options": {"hubness": 3}}, "got options 3 of hubness, expected a mapping such as"),
        ({"options": {"local_isotropy": {"seed": -1}}}, "local_isotropy: got seed=-1"),
        (
            {"measures": ["iso_score"], "options": {"hubness": {"k": 3}}},
            "got options of hubness, which is not measured; add it to the measures",
        ),
    ],
)
def test_wrong_settings(x: np.ndarray, chosen: dict[str, Any], message: str) -> None:
    source = CountedSource(x)
    with pytest.raises(SettingError, match=message) as caught:
        measure(source, **chosen)
    assert "\n" not in str(caught.value)
    assert source.reads == []


NONSENSE = [
    (spec.name, option, value)
    for spec in SPECS.values()
    for option, default in spec.options.items()
    for value in ([-1] if type(default) is int else [math.nan] if type(default) is float else ["?"])
]


@pytest.mark.parametrize(("name", "option", "value"), NONSENSE)
@pytest.mark.parametrize("named", [True, False])
def test_nonsense_is_an_error_before_anything_is_read(
    x: np.ndarray, name: str, option: str, value: object, named: bool
) -> None:
    source = CountedSource(x)
    if not named and not SPECS[name].default:
        return
    with pytest.raises(SettingError, match=name):
        measure(source, [name] if named else None, options={name: {option: value}})
    assert source.reads == []


def test_options_reach_the_measure(x: np.ndarray) -> None:
    found = measure(
        x, ["hubness", "anisotropy"], options={"hubness": {"k": 3}, "anisotropy": {"k": 1}}
    )
    skewness, robin_hood = isotropy.measures.hubness(x, k=3)
    assert found["hubness_skewness"].value == pytest.approx(float(skewness))
    assert found["hubness_robin_hood"].value == pytest.approx(float(robin_hood))
    assert [key for key in found if key.startswith("anisotropy")] == ["anisotropy_1"]
    assert found.to_dict()["options"] == {"hubness": {"k": 3}, "anisotropy": {"k": 1}}


def test_a_number_of_rows_that_does_not_suit_an_option(x: np.ndarray) -> None:
    with pytest.raises(InputError, match="got 240 rows, expected at least 401 for hubness"):
        measure(x, "hubness", options={"hubness": {"k": 400}})


def test_a_measure_of_ones_own(x: np.ndarray) -> None:
    spec = replace(
        SPECS["iso_score"],
        name="rows",
        numbers=(Number("rows"),),
        from_moments=lambda moments, *, times: [moments.n * times],
        function=lambda x, times: len(x) * times,
        options={"times": 2},
    )
    found = measure(x, ["iso_score", spec], options={"rows": {"times": 3}})
    assert list(found) == ["iso_score", "rows"]
    assert found["rows"].value == 3 * ROWS
    assert found.to_dict()["options"] == {"rows": {"times": 3}}


def test_names_with_hyphens_and_twice(x: np.ndarray) -> None:
    found = measure(x, ["iso-score", "iso_score"], options={})
    assert list(found) == ["iso_score"]
    assert found["iso-score"] is found["iso_score"]


def test_the_device_is_used(x: np.ndarray) -> None:
    assert measure(x, "iso_score", device="cpu")["iso_score"].value is not None
    assert measure(x, "iso_score", device=torch.device("cpu")).rows == ROWS


def test_progress_is_told_every_stage_to_its_end(x: np.ndarray) -> None:
    told: dict[str, list[tuple[int, int | None]]] = {}

    def progress(stage: str, done: int, total: int | None) -> None:
        told.setdefault(stage, []).append((done, total))

    names = ["iso_score", "two_nn", "partition_isotropy"]
    measure(x, names, interval=0.9, chunk_rows=100, progress=progress)
    assert told["reading"] == [(0, ROWS), (100, ROWS), (200, ROWS), (ROWS, ROWS)]
    assert set(told) >= {"reading", "reading again", "measuring", "intervals by jackknife"}
    for stage, calls in told.items():
        done = [done for done, _ in calls]
        assert done == sorted(done), stage
        assert calls[-1][0] == calls[-1][1], stage


# ---- What a Measurement shows


def test_it_is_a_mapping_of_scores(report: Measurement) -> None:
    assert isinstance(report, Mapping)
    assert len(report) == len(list(report)) == len(dict(report))
    assert "iso_score" in report
    assert "nothing" not in report
    assert report.get("nothing") is None
    assert report["anisotropy"] is report["anisotropy_1"]
    assert report["hubness"] is report["hubness_skewness"]
    assert all(report[key].key == key for key in report)
    with pytest.raises(KeyError, match=r"got score 'isoscore'.*did you mean 'iso_score'"):
        report["isoscore"]


def test_a_score_has_value_interval_and_rows(report: Measurement) -> None:
    score = report["iso_score_unbiased"]
    assert score.value is not None
    assert score.interval is not None
    low, high = score.interval
    assert low < score.value < high
    assert score.rows == ROWS
    assert report.level == 0.95
    assert measure(np.eye(5), ["iso_score"])["iso_score"].interval is None


def test_json_round_trip(report: Measurement) -> None:
    record = report.to_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    assert record["isotropy"] == isotropy.__version__
    assert (record["rows"], record["features"], record["seed"]) == (ROWS, FEATURES, 3)
    assert record["scores"]["two_nn"]["sampled"] is True
    assert record["scores"]["two_nn"]["rows"] == 120
    assert record["options"]["hubness"] == {"k": 10}
    assert record["options"]["local_isotropy"]["seed"] == 3
    assert list(record["scores"]) == list(report)


def test_json_of_groups_and_of_undefined_scores(x: np.ndarray) -> None:
    source = CountedSource(x)
    source.rows = source.rows.clone()
    source.rows[source.labels == 1] = 0
    record = measure(source, by="layer", interval=0.9).to_dict()
    assert json.loads(json.dumps(record, allow_nan=False)) == record
    nothing = record["groups"]["1"]["scores"]["mean_cosine"]
    assert nothing["value"] is None
    assert nothing["interval"] is None
    assert record["by"] == "layer"


def test_it_shows_itself_in_80_columns(report: Measurement) -> None:
    lines = repr(report).splitlines()
    assert lines[0] == f"array: {ROWS} rows × {FEATURES} features"
    assert max(map(len, lines)) <= 80
    assert {line.split()[0] for line in lines if line} >= set(report)
    assert "* computed on a random sample of the rows (seed 3)" in lines


def test_html_is_written_and_returned(report: Measurement, tmp_path: Path) -> None:
    page = report.to_html(tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text(encoding="utf-8") == page
    assert report.to_html() == page
    assert report._repr_html_() in page


def test_moments_that_do_not_fit_into_memory_are_refused() -> None:
    x = np.zeros((8, 60_000), dtype=np.float16)
    x[np.arange(8), np.arange(8)] = 1
    with pytest.raises(
        InputError, match=r"60000 features, whose d×d moments take 107 GiB, .*mixed"
    ):
        measure(x, "iso_score")
    with pytest.raises(InputError, match=r"for the 20 groups of an interval, .*leave out"):
        measure(x[:, :8000], "iso_score", interval=0.95)


def test_a_page_that_cannot_be_written(x: np.ndarray, tmp_path: Path) -> None:
    found = measure(x, "iso_score")
    with pytest.raises(SettingError, match="cannot be written"):
        found.to_html(tmp_path / "nowhere" / "r.html")
    with pytest.raises(SettingError, match="it is a folder"):
        found.to_html(tmp_path)

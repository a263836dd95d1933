"""From a stream to scores: what is computed, what it is computed from, and what is noted."""

import warnings
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from isotropy import measure, scoring
from isotropy.cloud_stream import CloudStream
from isotropy.errors import InputError, IsotropyWarning, SettingError, UndefinedError
from isotropy.intervals import GROUPS
from isotropy.measures import SPECS, MeasureSpec
from isotropy.scoring import Scorer, View


def silent(stage: str, done: int, total: int | None) -> None:
    pass


def scorer(*specs: MeasureSpec | str, level: float | None = None) -> Scorer:
    chosen = [SPECS[spec] if isinstance(spec, str) else spec for spec in specs]
    return Scorer(chosen, level, 0, silent)


def stream(x: Tensor, *, sample: int = 0, groups: int = 1) -> CloudStream:
    result = CloudStream(moments=True, groups=groups, sample=sample, seed=0)
    result.update(x, torch.arange(len(x)))
    return result


def cloud(rows: int = 80, features: int = 5, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, features, generator=generator, dtype=torch.float64) + 1


def with_numbers(function: Any) -> MeasureSpec:
    """A measure of moments whose numbers come from a function of the test."""
    return replace(SPECS["iso_score"], from_moments=function, warn=lambda rows, features: None)


@pytest.mark.parametrize(
    ("names", "level", "moments", "sample"),
    [
        (["iso_score"], None, True, False),
        (["iso_score"], 0.9, True, False),
        (["two_nn"], None, False, True),
        (["uniformity"], 0.9, False, True),
        (["partition_isotropy"], None, True, False),
        (["partition_isotropy"], 0.9, True, True),  # its interval needs rows
        (["iso_score", "two_nn"], None, True, True),
    ],
)
def test_only_what_is_needed_is_kept(
    names: list[str], level: float | None, moments: bool, sample: bool
) -> None:
    chosen = scorer(*names, level=level)
    assert chosen.needs_moments == moments
    assert chosen.needs_sample == sample
    assert chosen.groups == (1 if level is None else GROUPS)


def test_one_search_serves_all_measures_of_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    searched: list[int] = []
    plain = scoring.nearest_neighbours

    def search(rows: Tensor, k: int) -> Any:
        searched.append(k)
        return plain(rows, k)

    monkeypatch.setattr(scoring, "nearest_neighbours", search)
    x = cloud()
    specs = [SPECS[name].with_options() for name in ("two_nn", "hubness", "mle_dimension")]
    view = View(rows=x, most_neighbours=max(spec.neighbours for spec in specs))
    found = [view.scores(spec) for spec in specs]
    assert searched == [20]
    assert found == [pytest.approx(View(rows=x).scores(spec), rel=1e-12) for spec in specs]


def test_a_view_without_rows_has_no_neighbours() -> None:
    with pytest.raises(TypeError, match="neighbours need rows"):
        View().scores(SPECS["two_nn"])


def test_strict_decides_between_an_error_and_a_note() -> None:
    x = cloud()
    x[3] = 0
    with pytest.raises(UndefinedError, match="row 3"):
        scorer("mean_cosine", "iso_score").score(stream(x), {}, strict=True)
    scores, notes = scorer("mean_cosine", "iso_score").score(stream(x), {}, strict=False)
    assert scores["mean_cosine"].value is None
    assert scores["iso_score"].value is not None
    (note,) = notes
    assert note.startswith("mean_cosine: got ")


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("error", [SettingError, ZeroDivisionError])
def test_wrong_settings_and_bugs_are_never_notes(strict: bool, error: type[Exception]) -> None:
    def fail(moments: object) -> list[float]:
        raise error("no")

    with pytest.raises(error, match="no"):
        scorer(with_numbers(fail)).score(stream(cloud()), {}, strict=strict)


def test_too_few_rows() -> None:
    with pytest.raises(InputError, match="got 3 rows, expected at least 4 for iso_score_unbiased"):
        scorer("iso_score_unbiased").score(stream(cloud(3)), {}, strict=True)


def test_a_measures_own_warnings_are_notes_with_its_name_once() -> None:
    def warn(moments: object) -> list[float]:
        warnings.warn("beware", IsotropyWarning, stacklevel=1)
        warnings.warn("iso_score is odd", IsotropyWarning, stacklevel=1)
        return [0.5]

    _, notes = scorer(with_numbers(warn)).score(stream(cloud()), {}, strict=True)
    assert notes == ["iso_score: beware", "iso_score is odd"]


def test_other_warnings_pass() -> None:
    def warn(moments: object) -> list[float]:
        warnings.warn("of another library", RuntimeWarning, stacklevel=1)
        return [0.5]

    with pytest.warns(RuntimeWarning, match="of another library"):
        _, notes = scorer(with_numbers(warn)).score(stream(cloud()), {}, strict=True)
    assert notes == []


def test_intervals_stay_within_the_bounds() -> None:
    # Rows near a line: by themselves these intervals would leave [0, 1] on either side.
    x = cloud(60) * torch.tensor([1, 0.02, 0.02, 0.02, 0.02])
    names = ["anisotropy", "explained_variance", "iso_score", "hubness"]
    limits = {number.key: number for name in names for number in SPECS[name].numbers}
    ends = set()
    for score in measure(x, names, interval=0.999).values():
        if score.interval is None:  # of equal directions, which have none
            continue
        low, high = score.interval
        assert type(low) is type(high) is float
        assert limits[score.key].low <= low < high <= limits[score.key].high
        ends |= {low, high}
    assert {0.0, 1.0} <= ends


def test_the_interval_of_a_biased_value_says_so() -> None:
    x = torch.randn(50, 100, generator=torch.Generator().manual_seed(1))
    report = measure(x, ["iso_score"], interval=0.95)
    score = report["iso_score"]
    assert score.value is not None
    assert score.interval is not None
    assert score.value < score.interval[0]
    assert any(note.startswith("outside of its interval: iso_score;") for note in report.warnings)


@pytest.mark.parametrize("name", ["two_nn", "iso_score_unbiased"])
def test_no_interval_of_too_few_rows(name: str) -> None:
    # A subsample would have 7 rows; without a group only 3 rows are left.
    rows = {"two_nn": 31, "iso_score_unbiased": 4}[name]
    report = measure(cloud(rows), name, interval=0.95)
    assert report[name].value is not None
    assert report[name].interval is None
    assert report.warnings == (f"no interval for {name}: too few rows ({rows})",)


def test_an_interval_of_a_sample_is_of_the_sample() -> None:
    x = cloud(400)
    report = measure(x, "uniformity", interval=0.9, sample=100)
    alone = measure(x, "uniformity", sample=100)
    assert report["uniformity"].value == alone["uniformity"].value
    assert report["uniformity"].interval is not None
    low, high = report["uniformity"].interval
    whole = measure(x, "uniformity", interval=0.9)["uniformity"].interval
    assert whole is not None
    assert high - low > 1.3 * np.ptp(whole)  # about twice, as of a quarter of the rows


def test_counts_have_no_interval_and_no_warning_for_it() -> None:
    found = measure(cloud(300), ["outlier_dimensions", "iso_score"], interval=0.95)
    assert found["iso_score"].interval is not None
    for key in ("outlier_dimensions", "outlier_dimensions_by_mean", "outlier_variance_share"):
        assert found[key].interval is None
    assert not any("no interval" in warning for warning in found.warnings)


def test_no_interval_exceeds_the_number_of_features() -> None:
    found = measure(cloud(300), ["effective_rank", "participation_ratio"], interval=0.999)
    for score in found.values():
        assert score.interval is not None
        assert score.interval[0] <= score.interval[1] <= found.features

"""Searches on a fake engine, which scores settings by a formula, and one of real trainings."""

import math
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from isotropy.errors import SettingError, SourceError, StoreError, TrainingError
from isotropy.experiments.engines._engine import Event, Failed, Finished, Lost, Progressed
from isotropy.experiments.plan import Plan
from isotropy.experiments.spec import Place, RunResult, RunSpec
from isotropy.experiments.tuning import Tuned, tune

PLAN = """
models = ["minilm"]
tasks = ["minimal-pairs"]
methods = ["none", { name = "i-star", settings = { zeta = 0.2 } }]
seeds = [0, 1]

[tuning.i-star]
"""
GRID = PLAN + '"settings.weight" = [-5, -3, -1, 1, 3, 5]\n"train.learning_rate" = [1e-5, 3e-5]\n'
RANGE = PLAN + '"train.learning_rate" = { low = 1e-5, high = 1e-2, log = true }\n'

Outcome = float | None | str | type[Lost]


def peak(spec: RunSpec) -> float:
    """Best at a weight of 3 and the smaller rate; seeds differ."""
    weight = float(spec.method.settings.get("weight", 1))
    rate = math.log10(spec.train.learning_rate)
    return 1 - abs(weight - 3) / 10 - abs(rate + 5) / 10 + spec.seed / 1000


class FakeEngine:
    """Scores runs by a formula; a text is an error, Lost a process that died."""

    def __init__(self, score: Callable[[RunSpec], Outcome] = peak, slots: int = 1) -> None:
        self.score = score
        self.slots = slots
        self.specs: list[RunSpec] = []
        self.stopped = False
        self._going: list[RunSpec] = []

    def start(self, spec: RunSpec, place: Place) -> None:
        assert len(self._going) < self.slots
        assert spec.id not in [one.id for one in self._going]
        self.specs.append(spec)
        self._going.append(spec)

    def wait(self, seconds: float) -> list[Event]:
        spec = self._going.pop(0)
        found = self.score(spec)
        if found is Lost:
            return [Lost(spec.id, "killed")]
        if isinstance(found, str):
            return [Failed(spec.id, f"{found}\n\nTraceback")]
        assert found is None or isinstance(found, float)
        # What is reported says the contrary: whoever looks at it chooses the worst.
        result = RunResult(
            metric="accuracy",
            last={"accuracy": -1 if found is None else -found},
            tuning={"accuracy": found, "f1": None if found is None else found / 2},
        )
        return [Progressed(spec.id, "train", 1, 1), Finished(spec.id, result)]

    def stop(self) -> None:
        self.stopped = True


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "tuning.db"


def search(text: str, store: Path, engine: FakeEngine | None = None, **settings: Any) -> Tuned:
    plan = Plan.parse(text, where="mine.toml")
    return tune(plan, store=store, engine=engine or FakeEngine(), **settings)


def tried(tuned: Tuned) -> list[dict[str, Any]]:
    (found,) = tuned.found
    return [dict(trial.settings) for trial in found.trials]


# --- what is tried


def test_a_grid_is_tried_whole(store: Path) -> None:
    engine = FakeEngine()
    tuned = search(GRID, store, engine, trials=50)
    pairs = {(one["settings.weight"], one["train.learning_rate"]) for one in tried(tuned)}
    assert len(engine.specs) == len(tried(tuned)) == 12
    assert pairs == {(w, r) for w in (-5, -3, -1, 1, 3, 5) for r in (1e-5, 3e-5)}
    best = tuned.found[0].best
    assert best is not None
    assert best.settings == {"settings.weight": 3, "train.learning_rate": 1e-5}
    assert engine.stopped


def test_a_small_budget_is_kept(store: Path) -> None:
    engine = FakeEngine()
    search(GRID, store, engine, trials=5)
    assert len(engine.specs) == 5
    more = FakeEngine()
    tuned = search(GRID, store, more, trials=8)
    assert 0 < len(more.specs) <= 3  # those of before count; one chosen again is not run again
    assert len(tried(tuned)) == 5 + len(more.specs)
    idle = FakeEngine()
    assert search(GRID, store, idle, trials=8).found == tuned.found
    assert not idle.specs


def test_a_range_is_searched_towards_its_best(store: Path) -> None:
    def score(spec: RunSpec) -> float:
        return 1 - (math.log10(spec.train.learning_rate) + 3) ** 2

    tuned = search(RANGE, store, FakeEngine(score), trials=40)
    rates = [one["train.learning_rate"] for one in tried(tuned)]
    assert all(1e-5 <= rate <= 1e-2 and float(f"{rate:.4g}") == rate for rate in rates)
    early, late = rates[:10], rates[-10:]
    best = tuned.found[0].best
    assert best is not None
    assert 7e-4 < best.settings["train.learning_rate"] < 1.4e-3
    spread = [sum(abs(math.log10(rate) + 3) for rate in some) for some in (early, late)]
    assert spread[1] < spread[0]


def test_whole_numbers_stay_whole(store: Path) -> None:
    text = PLAN + '"train.batch_size" = { low = 4, high = 7 }\n'
    tuned = search(text, store, seconds=60)
    assert sorted(one["train.batch_size"] for one in tried(tuned)) == [4, 5, 6, 7]


def test_the_same_arguments_find_the_same(tmp_path: Path) -> None:
    one = search(RANGE, tmp_path / "a.db", trials=14)
    two = search(RANGE, tmp_path / "b.db", trials=14)
    other = search(RANGE, tmp_path / "c.db", trials=14, seed=1)
    assert one.found == two.found
    assert one.plan == two.plan
    assert tried(other) != tried(one)


def test_several_runs_at_a_time(store: Path) -> None:
    engine = FakeEngine(slots=4)
    tuned = search(GRID, store, engine, trials=50, seeds=2)
    assert len(engine.specs) == len({spec.id for spec in engine.specs}) == 24
    assert len(tried(tuned)) == 12


def test_trials_that_choose_the_same_at_a_time_share_a_run(store: Path) -> None:
    text = PLAN + '"settings.weight" = [1, 2, 3]\n"settings.zeta" = [0.1, 0.2]\n'
    engine = FakeEngine(slots=5)
    tuned = search(text, store, engine, trials=5)
    assert len(engine.specs) == len(tried(tuned)) <= 5


def test_time_ends_a_search(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter(range(1000))
    for module in ("tuning", "_search_work"):
        monkeypatch.setattr(f"isotropy.experiments.{module}.monotonic", lambda: next(now))
    engine = FakeEngine()
    search(RANGE, store, engine, seconds=10)
    assert len(engine.specs) == 9


def test_searches_take_turns(store: Path) -> None:
    text = RANGE.replace('["minimal-pairs"]', '["minimal-pairs", "custom"]')
    text += '[tuning.none]\n"train.batch_size" = [8, 16]\n'
    text = text.replace(', "custom"', "").replace('["minilm"]', '["minilm"]')
    engine = FakeEngine()
    tuned = search(text, store, engine, trials=4)
    assert [spec.method.name for spec in engine.specs[:4]] == ["none", "i-star"] * 2
    assert [(one.method, len(one.trials)) for one in tuned.found] == [("none", 2), ("i-star", 4)]


# --- what a trial is


def test_a_trial_sees_nothing_of_what_is_reported(store: Path) -> None:
    engine = FakeEngine()
    search(GRID, store, engine, trials=2, share=0.3)
    for spec in engine.specs:
        assert not spec.data.reported
        assert spec.data.tune == 0.3
        assert spec.seed == 2  # the plan's are 0 and 1
        assert spec.measure.final == ()
        assert spec.data.revision
        assert spec.model_revision
    own = GRID.replace("[tuning", "[data]\ntune = 0.1\n[tuning")
    search(own, store, engine, trials=1)
    assert engine.specs[-1].data.tune == 0.1


def test_a_trial_is_the_mean_of_its_seeds(store: Path) -> None:
    def score(spec: RunSpec) -> float:
        return {2: 0.5, 3: 0.9, 4: 0.1}[spec.seed]

    tuned = search(GRID, store, FakeEngine(score), trials=1, seeds=3)
    (trial,) = tuned.found[0].trials
    assert trial.scores == {2: 0.5, 3: 0.9, 4: 0.1}
    assert trial.score == pytest.approx(0.5)


def test_the_metric_is_that_of_the_report(store: Path) -> None:
    text = PLAN.replace("minimal-pairs", "mrpc").replace("[tuning", "[report]\nmetrics = %s[tuning")
    text = text % '{ mrpc = "f1" }\n' + '"settings.weight" = [1]\n'
    folder = store.parent / "mrpc"
    folder.mkdir()
    for name in ("train", "dev", "test"):
        (folder / f"{name}.tsv").write_text("x")
    tuned = search(text, store, trials=1, place=Place(data_dir=str(store.parent)))
    (trial,) = tuned.found[0].trials
    assert tuned.found[0].metric == "f1"
    assert trial.score == pytest.approx((peak(RunSpec(
        model="m", task="t", seed=2, method={"name": "i-star", "settings": {"weight": 1}}
    ))) / 2)  # fmt: skip


@pytest.mark.parametrize(
    ("bad", "reason"),
    [("got a loss of nan", "got a loss of nan"), (None, "accuracy is undefined")],
)
def test_a_trial_without_a_score_is_passed_over(store: Path, bad: Outcome, reason: str) -> None:
    def score(spec: RunSpec) -> Outcome:
        return bad if spec.method.settings["weight"] == 3 else peak(spec)

    tuned = search(GRID, store, FakeEngine(score), trials=50, seeds=2)
    (found,) = tuned.found
    without = [trial for trial in found.trials if trial.score is None]
    assert [trial.settings["settings.weight"] for trial in without] == [3, 3]
    assert {trial.reason for trial in without} == {reason}
    assert found.best is not None
    assert found.best.settings["settings.weight"] in (1, 5)


def test_a_failed_trial_s_other_seeds_are_not_run(store: Path) -> None:
    engine = FakeEngine(lambda spec: "broken" if spec.seed == 2 else 0.5)
    with pytest.raises(TrainingError, match=r"no trial with a score \(broken\)"):
        search(GRID, store, engine, trials=3, seeds=4)
    assert [spec.seed for spec in engine.specs] == [2, 2, 2]


def test_a_lost_run_is_begun_again(store: Path) -> None:
    deaths: dict[str, int] = {}

    def score(spec: RunSpec) -> Outcome:
        deaths[spec.id] = deaths.get(spec.id, 0) + 1
        return Lost if deaths[spec.id] < 3 else peak(spec)

    tuned = search(GRID, store, FakeEngine(score), trials=2)
    assert len(tried(tuned)) == 2
    assert set(deaths.values()) == {3}
    with pytest.raises(TrainingError, match="lost 3 times: killed"):
        search(RANGE, store, FakeEngine(lambda spec: Lost), trials=1)


# --- stopping and going on


@pytest.mark.parametrize("text", [GRID, RANGE], ids=["grid", "range"])
@pytest.mark.parametrize("after", [0, 3, 11])
def test_an_interrupted_search_goes_on_as_it_would_have(
    tmp_path: Path, text: str, after: int
) -> None:
    whole = search(text, tmp_path / "whole.db", trials=12)
    scored = iter(range(100))

    def stops(spec: RunSpec) -> float:
        if next(scored) == after:
            raise KeyboardInterrupt
        return peak(spec)

    engine = FakeEngine(stops)
    with pytest.raises(KeyboardInterrupt):
        search(text, tmp_path / "parts.db", engine, trials=12)
    assert engine.stopped
    rest = FakeEngine()
    assert search(text, tmp_path / "parts.db", rest, trials=12).found == whole.found
    assert len(rest.specs) == 12 - after
    assert rest.specs[0] == engine.specs[-1]  # the one that was interrupted


def test_a_killed_process_leaves_a_store_that_goes_on(tmp_path: Path) -> None:
    store, plan = tmp_path / "tuning.db", tmp_path / "mine.toml"
    plan.write_text(GRID)
    program = f"""
        import os, signal, sys
        sys.path.insert(0, {str(Path(__file__).parent)!r})
        from test_tuning import FakeEngine, peak
        from isotropy.experiments.tuning import tune

        count = 0

        def score(spec):
            global count
            count += 1
            if count == 4:
                os.kill(os.getpid(), signal.SIGKILL)
            return peak(spec)

        tune({str(plan)!r}, store={str(store)!r}, engine=FakeEngine(score), trials=12)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=False)
    assert done.returncode == -9
    rest = FakeEngine()
    tuned = search(GRID, store, rest, trials=12)
    assert len(rest.specs) == 9
    assert tuned.found == search(GRID, tmp_path / "whole.db", trials=12).found


def test_another_search_in_the_same_store_starts_anew(store: Path) -> None:
    search(GRID, store, trials=3)
    engine = FakeEngine()
    search(GRID.replace("zeta = 0.2", "zeta = 0.4"), store, engine, trials=3)
    assert len(engine.specs) == 3


# --- the result


def test_the_plan_has_the_best_settings(store: Path) -> None:
    text = "# my words\n" + GRID
    tuned = search(text, store, trials=50)
    assert tuned.plan.text.startswith(text.rstrip())
    cells = [cell.spec for cell in tuned.plan.cells if cell.method == "i-star"]
    assert [spec.method.settings for spec in cells] == [{"weight": 3, "zeta": 0.2}] * 2
    assert [spec.train.learning_rate for spec in cells] == [1e-5] * 2
    assert all(spec.data.reported and spec.data.tune == 0 for spec in cells)
    none = next(cell.spec for cell in tuned.plan.cells if cell.method == "none")
    assert none.train.learning_rate == 2e-5
    assert "[[override]]" in tuned.overrides
    assert str(tuned).startswith("minilm minimal-pairs i-star: accuracy 1.0020 with settings.weigh")


def test_found_settings_stand_above_the_plan_s_own(store: Path) -> None:
    own = '[[override]]\nwhen = { method = "i-star" }\nsettings = { weight = -5 }\n'
    tuned = search(GRID + own, store, trials=50)
    listed = 'override = [{ when = { method = "i-star" }, settings = { weight = -5 } }]\n' + GRID
    for plan in (tuned.plan, search(listed, store, trials=50).plan):
        cells = [cell.spec for cell in plan.cells if cell.method == "i-star"]
        assert [spec.method.settings["weight"] for spec in cells] == [3, 3]


def test_grids_with_the_same_runs_share_a_search(store: Path) -> None:
    text = GRID.replace("[tuning", '[[grid]]\nname = "a"\n[[grid]]\nname = "b"\n%s[tuning')
    same = search(text % 'measure = { site = "mean@last" }\n', store, trials=2)
    assert [found.grids for found in same.found] == [("a", "b")]
    other = search(text % "train = { epochs = 1 }\n", store, trials=2)
    assert [found.grids for found in other.found] == [("a",), ("b",)]
    assert len(Plan.parse(other.plan.text).file.override) == 2


def test_the_table_has_a_row_for_each_trial(store: Path) -> None:
    table = search(GRID, store, trials=50).table()
    assert len(table) == 12
    assert list(table.loc[table["best"], "settings.weight"]) == [3]
    assert table["score"].max() == table.loc[table["best"], "score"].item()


def test_progress_counts_trials(store: Path) -> None:
    told: list[tuple[str, int, int | None]] = []
    search(GRID, store, trials=3, progress=lambda *words: told.append(words))
    assert told[0] == ("trials", 0, 3)
    assert told[-1] == ("trials", 3, 3)


# --- what is refused


@pytest.mark.parametrize(
    ("searched", "message"),
    [
        ('"settings.wight" = [1]', r"did you mean 'weight'"),
        ('"settings.zeta" = [0.2, 7]', "zeta=7"),
        ('"settings.zeta" = { low = 0.2, high = 3 }', "zeta=3"),
        ('"settings.weight" = [1, 2, 1]', "choice 1 of settings.weight twice"),
        ('"settings.weight" = []', "no choices for settings.weight"),
        ('"settings.weight" = 3', "expected a list of choices or a range"),
        ('"settings.weight" = { low = 3, high = 1 }', "expected low below high"),
        ('"settings.weight" = { low = 0, high = 1, log = true }', "expected it above 0"),
        ('"settings.weight" = { low = 0, high = 1, step = 3 }', "'step'"),
        ('"train.learning_rat" = [1e-3]', "did you mean 'train.learning_rate'"),
        ('"train.learning_rate" = [-1]', "learning_rate=-1"),
        ('"train.batch_size" = { low = 0.5, high = 8 }', "batch_size=0.5"),
        ('"weight" = [1]', "expected a setting such as 'settings.weight'"),
        ('"data.tune" = [0.1, 0.2]', "'data.tune' to search, which says what data are seen"),
        ('"data.eval_rows" = [10]', "'data.eval_rows' to search"),
        ('"data.reported" = [true]', "'data.reported' to search"),
    ],
)
def test_bad_spaces(store: Path, searched: str, message: str) -> None:
    with pytest.raises(SettingError, match=message) as caught:
        search(PLAN + searched + "\n", store)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("mine.toml: tuning.i-star: ")
    assert not store.exists()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"trials": 0}, "trials=0"),
        ({"seconds": 0}, "seconds=0"),
        ({"seconds": math.nan}, "seconds=nan"),
        ({"seeds": 0}, "seeds=0"),
        ({"share": 1}, "share=1"),
        ({"seed": -1}, "seed=-1"),
        ({"space": {"i-stra": {"settings.weight": [1]}}}, "did you mean 'i-star'"),
        ({"device": "tpu"}, "device 'tpu'"),
    ],
)
def test_bad_arguments(store: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        search(GRID, store, **settings)


def test_a_space_stands_in_for_the_plan_s(store: Path) -> None:
    tuned = search(GRID, store, space={"i-star": {"settings.zeta": [0.1, 0.9]}})
    assert sorted(one["settings.zeta"] for one in tried(tuned)) == [0.1, 0.9]


def test_plans_that_cannot_be_tuned(store: Path) -> None:
    with pytest.raises(SettingError, match=r"mine.toml: got no table 'tuning'"):
        search(PLAN.replace("[tuning.i-star]", ""), store)
    text = PLAN.replace("minimal-pairs", "stsb-similarity").replace("i-star", "whitening")
    text = text.replace(", settings = { zeta = 0.2 }", "") + '"settings.k" = [2, 3]\n'
    with pytest.raises(SettingError, match=r"'stsb-similarity', which trains nothing"):
        search(text, store, place=Place(data_dir=str(similarity(store.parent))))
    with pytest.raises(SourceError, match=r"mine.toml: got no data for cola"):
        search(GRID.replace("minimal-pairs", "cola"), store, place=Place(data_dir="/nowhere"))


def similarity(folder: Path) -> Path:
    (folder / "stsb").mkdir()
    for name in ("train", "dev", "test"):
        (folder / "stsb" / f"sts-{name}.csv").write_text("a\tb\tc\t1\t2.5\tx\ty\n")
    return folder


@pytest.fixture
def held(store: Path) -> Iterator[None]:
    import fcntl

    with Path(f"{store}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@pytest.mark.usefixtures("held")
def test_two_searches_in_one_store(store: Path) -> None:
    with pytest.raises(StoreError, match="in which another process is searching"):
        search(GRID, store)


def test_files_that_are_no_store_are_left_alone(tmp_path: Path) -> None:
    runs, words = tmp_path / "runs.db", tmp_path / "words.db"
    with sqlite3.connect(runs) as database:
        database.execute("CREATE TABLE runs (id TEXT)")
    words.write_text("words")
    for path in (runs, words):
        before = path.read_bytes()
        with pytest.raises(StoreError, match="no file of searches"):
            search(GRID, path)
        assert path.read_bytes() == before
    with pytest.raises(StoreError, match="which cannot be written"):
        search(GRID, tmp_path / "nowhere" / "tuning.db")
    with pytest.raises(StoreError, match="no file of searches"):
        search(GRID, tmp_path)


def test_a_line_that_was_not_written_to_its_end_is_taken_away(store: Path) -> None:
    whole = search(GRID, store, trials=5)
    with store.open("ab") as file:
        file.write(b'{"op_code": 5, "worker')
    engine = FakeEngine()
    assert search(GRID, store, engine, trials=5).found == whole.found
    assert not engine.specs
    assert search(GRID, store, trials=50).found[0].trials[:5] == whole.found[0].trials


def test_a_disk_without_room_is_named(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: int) -> None:
        raise OSError(28, "No space left on device")

    def score(spec: RunSpec) -> float:
        monkeypatch.setattr("os.fsync", full)
        return 0.5

    engine = FakeEngine(score)
    with pytest.raises(StoreError, match=r"cannot be written \(No space left on device"):
        search(GRID, store, engine, trials=3)
    assert engine.stopped
    monkeypatch.undo()
    assert len(tried(search(GRID, store, trials=3))) == 3


class HereEngine(FakeEngine):
    """Trains, in this process."""

    def start(self, spec: RunSpec, place: Place) -> None:
        self.place = place
        super().start(spec, place)

    def wait(self, seconds: float) -> list[Event]:
        from isotropy.experiments.train import train

        spec = self._going.pop(0)
        return [Finished(spec.id, train(spec, self.place))]


def test_a_real_search(store: Path, tiny_model: Callable[[str], str], toys: dict[str, Any]) -> None:
    text = f"""
        models = ["{tiny_model("bert")}"]
        tasks = ["toy"]
        methods = ["none"]
        seeds = 2

        [train]
        max_steps = 20
        batch_size = 8

        [tuning.none]
        "train.learning_rate" = [1e-9, 1e-2]
    """
    tuned = search(textwrap.dedent(text), store, HereEngine(), seeds=2, share=0.4)
    (found,) = tuned.found
    assert found.metric == "accuracy"
    assert found.best is not None
    assert found.best.settings == {"train.learning_rate": 1e-2}
    assert set(found.best.scores) == {2, 3}
    idle = FakeEngine()
    assert search(textwrap.dedent(text), store, idle, seeds=2, share=0.4).found == tuned.found
    assert not idle.specs

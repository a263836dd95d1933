"""Data sets of the hub, as `datasets` gives them; no test reaches for the network."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from isotropy.errors import SourceError
from isotropy.experiments.spec import DataSettings, Place
from isotropy.experiments.tasks import TASKS, find_task
from isotropy.experiments.tasks._classification import Labelled
from isotropy.experiments.tasks._published import Published
from isotropy.experiments.tasks._similarity import Similarity, Yearly

Hub = Callable[..., list[tuple[Any, ...]]]


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Hub:
    """Makes `load_dataset` give some rows for each split; the calls are listed."""
    import datasets

    def serve(splits: dict[str, list[dict[str, Any]]]) -> list[tuple[Any, ...]]:
        calls: list[tuple[Any, ...]] = []

        def load(repository: str, config: str | None, *, split: str, revision: str | None) -> Any:
            calls.append((repository, config, split, revision))
            return datasets.Dataset.from_list(splits[split])

        monkeypatch.setattr(datasets, "load_dataset", load)
        return calls

    return serve


def test_rows_of_glue(hub: Hub) -> None:
    row = {"sentence1": "a", "sentence2": "b", "label": 1, "idx": 0}
    calls = hub({"train": [row, {**row, "label": 0}], "validation": [row]})
    found = find_task("mrpc").load(DataSettings(revision="abc"), Place())
    assert found.train == [
        {"text": "a", "pair": "b", "label": 1},
        {"text": "a", "pair": "b", "label": 0},
    ]
    assert found.evaluations == {"dev": [{"text": "a", "pair": "b", "label": 1}]}
    assert calls == [
        ("nyu-mll/glue", "mrpc", "train", "abc"),
        ("nyu-mll/glue", "mrpc", "validation", "abc"),
    ]
    assert find_task("mrpc").revision(DataSettings(revision="abc"), Place()) == "abc"
    assert calls[2:] == []


def test_mnli_has_both_sets(hub: Hub) -> None:
    row = {"premise": "a", "hypothesis": "b", "label": 2, "idx": 0}
    hub({"train": [row], "validation_matched": [row], "validation_mismatched": [row, row]})
    found = find_task("mnli").load(DataSettings(), Place())
    assert {name: len(rows) for name, rows in found.evaluations.items()} == {
        "dev": 1,
        "mismatched": 2,
    }


def test_scores(hub: Hub) -> None:
    row = {"sentence1": "a", "sentence2": "b", "label": 2.5, "idx": 0}
    hub({"train": [row], "validation": [row]})
    assert find_task("stsb").load(DataSettings(), Place()).train[0]["label"] == 2.5
    calls = hub({"test": [{"sentence1": "a", "sentence2": "b", "score": 4}]})
    found = find_task("sts14").load(DataSettings(), Place())
    assert found.evaluations == {"all": [{"text": "a", "pair": "b", "label": 4.0}]}
    assert calls == [("mteb/sts14-sts", None, "test", None)]


def test_a_split_without_labels(hub: Hub) -> None:
    row = {"sentence": "a", "label": 0, "idx": 0}
    hub({"train": [row], "validation": [{**row, "label": -1}]})
    with pytest.raises(SourceError, match=r"label -1 in row 0 of split 'validation' .* 0 to 1"):
        find_task("cola").load(DataSettings(), Place())


def test_a_split_without_rows_or_scores(hub: Hub) -> None:
    hub({"test": [{"sentence1": "a", "sentence2": "b", "score": None}]})
    with pytest.raises(SourceError, match=r"label None in row 0 of split 'test' .* a score"):
        find_task("sts14").load(DataSettings(), Place())


def test_other_columns(hub: Hub) -> None:
    hub({"train": [{"text": "a", "label": 0}], "validation": []})
    with pytest.raises(SourceError, match=r"with the columns 'text', 'label', expected 'sentence'"):
        find_task("sst2").load(DataSettings(), Place())


def test_without_a_network_the_error_names_the_option() -> None:
    with pytest.raises(SourceError, match=r"nyu-mll/glue \(rte\) .* with --data-dir") as caught:
        find_task("rte").load(DataSettings(), Place())
    assert "\n" not in str(caught.value)


def test_a_copy_in_the_cache_needs_no_network(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A folder with the hub's own names of files stands for the repository.
    import datasets

    row = {"text": ["a", "b"], "label": [4, 0]}
    for split in ("train", "validation", "test"):
        datasets.Dataset.from_dict(row).to_parquet(tmp_path / "in" / f"{split}.parquet")
    task = find_task("sst5")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.chdir(tmp_path)
    (tmp_path / "SetFit").mkdir()
    (tmp_path / "in").rename(tmp_path / "SetFit/sst5")
    datasets.disable_progress_bars()
    found = task.load(DataSettings(), Place())
    assert found.train == [{"text": "a", "label": 4}, {"text": "b", "label": 0}]
    assert list(found.evaluations) == ["dev", "test"]


@pytest.mark.parametrize("name", TASKS)
def test_every_published_task_is_on_the_hub(name: str) -> None:
    task = TASKS[name]
    if not isinstance(task, Labelled | Similarity):
        return
    if isinstance(task.origin, Published):
        splits = {split for layout in task.origin.layouts for split in layout}
        assert set(task.origin.hub.splits) <= splits
        assert set(task.origin.hub.columns) == set(task.origin.columns.names)
    elif isinstance(task.origin, Yearly):
        assert set(task.origin.hub.columns) == {"text", "pair", "label"}

"""Draws and splits of rows, and their order by length."""

from collections import Counter
from typing import Any

import numpy as np
import pytest

from isotropy.errors import SettingError
from isotropy.experiments._lengths import Order, padding
from isotropy.experiments._splits import rows_of
from isotropy.experiments.spec import DataSettings
from isotropy.experiments.tasks import Splits


def made(count: int, classes: int = 3) -> list[dict[str, Any]]:
    return [{"text": f"t{n}", "label": n % classes if n % 5 else 0} for n in range(count)]


@pytest.mark.parametrize("share", [0.1, 0.25, 0.5, 0.9])
def test_a_split_keeps_the_shares_of_classes(toys: dict[str, Any], share: float) -> None:
    splits = Splits(made(200), {"dev": made(10)})
    found = rows_of(toys["toy"], splits, DataSettings(tune=share))
    assert len(found.tuning) == round(share * 200)
    assert len(found.train) + len(found.tuning) == 200
    texts = {row["text"] for row in found.train} | {row["text"] for row in found.tuning}
    assert len(texts) == 200
    whole = Counter(row["label"] for row in splits.train)
    part = Counter(row["label"] for row in found.tuning)
    for label, count in whole.items():
        assert abs(part[label] - share * count) <= 1


def test_a_split_keeps_equal_texts_together(toys: dict[str, Any]) -> None:
    rows = [{"text": f"t{n // 3}", "label": n // 3 % 2} for n in range(150)]
    splits = Splits(rows, {"dev": made(10)})
    found = rows_of(toys["toy"], splits, DataSettings(tune=0.2))
    sides = [{row["text"] for row in part} for part in (found.train, found.tuning)]
    assert not sides[0] & sides[1]
    assert 24 <= len(found.tuning) <= 30
    assert rows_of(toys["toy"], splits, DataSettings(tune=0.2)) == found


def test_rows_that_are_trained_on_too_are_noted(toys: dict[str, Any]) -> None:
    splits = Splits(made(100), {"dev": made(100)[:10], "other": [{"text": "new", "label": 0}] * 9})
    assert rows_of(toys["toy"], splits, DataSettings()).repeated() == [
        "dev: 10 of 10 texts are in train too"
    ]
    pairs = [{**row, "pair": "p"} for row in made(10)]
    splits = Splits(pairs, {"dev": [{**row, "pair": "q"} for row in pairs]})
    assert rows_of(toys["toy"], splits, DataSettings()).repeated() == []


def test_a_split_of_numbers_is_a_plain_draw(toys: dict[str, Any]) -> None:
    rows = [{"text": str(n), "label": n / 100} for n in range(100)]
    found = rows_of(
        toys["toy-number"], Splits(rows, {"dev": rows}), DataSettings(tune=0.2, train_rows=50)
    )
    assert (len(found.train), len(found.tuning)) == (40, 10)


def test_the_split_seed_alone_decides(toys: dict[str, Any]) -> None:
    splits = Splits(made(200), {"dev": made(50)})
    settings = DataSettings(tune=0.2, train_rows=100, eval_rows=10)
    one, same = (rows_of(toys["toy"], splits, settings).hashes() for _ in range(2))
    other = rows_of(toys["toy"], splits, settings.model_copy(update={"split_seed": 1})).hashes()
    assert one == same
    assert all(one[name] != other[name] for name in ("train", "tuning", "dev"))


def test_rows_stay_in_their_order(toys: dict[str, Any]) -> None:
    found = rows_of(toys["toy"], Splits(made(50), {"dev": made(9)}), DataSettings(train_rows=20))
    numbers = [int(row["text"][1:]) for row in found.train]
    assert numbers == sorted(numbers)
    assert len(numbers) == 20


@pytest.mark.parametrize(
    ("train", "dev", "settings", "message"),
    [
        (10, 0, {}, "without rows to report on"),
        (0, 10, {}, "without rows to train on"),
        (1, 10, {"tune": 0.5}, "expected some rows on both sides"),
        (3, 10, {"tune": 0.01}, "got tune=0.01 of 3 training rows"),
    ],
)
def test_nothing_left(
    toys: dict[str, Any], train: int, dev: int, settings: dict[str, Any], message: str
) -> None:
    splits = Splits(made(train), {"dev": made(dev)})
    with pytest.raises(SettingError, match=message):
        rows_of(toys["toy"], splits, DataSettings(**settings))


@pytest.mark.parametrize("count", [1, 7, 64, 65, 1000, 5003])
@pytest.mark.parametrize("grouped", [True, False])
def test_an_order_has_every_row_once(count: int, grouped: bool) -> None:
    lengths = np.random.default_rng(0).integers(3, 80, count).tolist()
    order = Order(lengths, batch_size=16, grouped=grouped, seed=3)
    epochs = [list(order) for _ in range(3)]
    assert all(sorted(epoch) == list(range(count)) for epoch in epochs)
    assert len(order) == count
    again = Order(lengths, batch_size=16, grouped=grouped, seed=3)
    assert [list(again) for _ in range(3)] == epochs
    if count > 16:
        assert epochs[0] != epochs[1]


def test_grouping_saves_padding_and_shuffles() -> None:
    lengths = np.random.default_rng(0).gamma(4, 5, 6400).astype(int) + 3
    given = lengths.tolist()
    grouped, shuffled = (
        list(Order(given, batch_size=64, grouped=by_length, seed=0)) for by_length in (True, False)
    )
    assert padding(given, grouped, 64) < 1.1 < 2 < padding(given, shuffled, 64)
    # No trend from long to short: the mean lengths of batches are not ordered in time.
    means = [lengths[grouped[i : i + 64]].mean() for i in range(0, 6400, 64)]
    assert abs(np.corrcoef(means, np.arange(len(means)))[0, 1]) < 0.3
    # The same row has other neighbours in the next epoch.
    order = Order(given, batch_size=64, seed=0)
    mates = []
    for _ in range(2):
        epoch = list(order)
        at = epoch.index(0) // 64
        mates.append(set(epoch[at * 64 : at * 64 + 64]))
    assert len(mates[0] & mates[1]) < 40

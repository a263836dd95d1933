"""Persistent entropy as a penalty against scipy's spanning tree and scipy's entropy."""

import numpy as np
import pytest
import torch
from scipy import stats
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform

import isotropy.bars
from isotropy import Representations
from isotropy._prominent_tensors import count_prominent_tensors
from isotropy.bars import prominent_bars
from isotropy.errors import SettingError
from isotropy.penalties import PersistentEntropy

SIZES = (3, 9, 14, 1, 2, 20)  # of the classes


def clouds(seed=0):
    """Rows of several classes in no order: the rows, their labels, and the rows of each class."""
    random = np.random.default_rng(seed)
    names = np.repeat([7, 0, 3, 12, -4, 1], SIZES)
    random.shuffle(names)
    x = random.gamma(1.0, size=(len(names), 4)) + names[:, None]
    return x, names, [x[names == name] for name in np.unique(names)]


def scipy_bars(x):
    return np.sort(minimum_spanning_tree(squareform(pdist(x))).data)[::-1]


def chosen(x, bars="prominent"):
    lengths = scipy_bars(x)
    return prominent_bars(lengths.copy()) if bars == "prominent" else lengths


def value(x, labels=None, **settings):
    names = None if labels is None else torch.from_numpy(labels)
    shown = Representations.from_cloud(torch.from_numpy(x), names)
    return float(PersistentEntropy(**settings)(shown))


@pytest.mark.parametrize("bars", ["prominent", "all"])
def test_is_the_sum_over_classes(bars):
    x, names, classes = clouds()
    expected = -sum(stats.entropy(chosen(c, bars)) for c in classes if len(c) > 1)
    assert value(x, names, bars=bars) == pytest.approx(expected, rel=1e-9)
    assert value(x, names, bars=bars, weight=-0.5) == pytest.approx(-0.5 * expected, rel=1e-9)


@pytest.mark.parametrize("bars", ["prominent", "all"])
def test_the_whole_cloud(bars):
    x, names, _ = clouds()
    expected = -stats.entropy(chosen(x, bars))
    assert value(x, bars=bars) == pytest.approx(expected, rel=1e-9)
    assert value(x, names, bars=bars, by_class=False) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("bars", ["prominent", "all"])
def test_normalized_by_the_logarithm_of_the_number_of_bars(bars):
    x, names, classes = clouds()
    kept = [chosen(c, bars) for c in classes if len(c) > 1]
    expected = -sum(stats.entropy(k) / np.log(len(k)) for k in kept if len(k) > 1)
    assert value(x, names, bars=bars, normalize=True) == pytest.approx(expected, rel=1e-9)


def test_bars_of_equal_length_are_the_best_there_is():
    assert value(np.eye(12), bars="all", normalize=True) == pytest.approx(-1)
    assert value(np.eye(12)) == pytest.approx(-np.log(5))


@pytest.mark.parametrize(("compat", "sign"), [("none", 1), ("paper-a", -1)])
def test_the_further_term_of_lengths_within_clusters(compat, sign):
    x, names, classes = clouds()
    rest = [scipy_bars(c)[len(chosen(c)) :] for c in classes if len(c) > 1]
    further = sum(np.mean(lengths) for lengths in rest if len(lengths))
    assert further > 0.1
    expected = value(x, names) + sign * 0.3 * further
    found = value(x, names, within=0.3, compat=compat)
    assert found == pytest.approx(expected, rel=1e-9)


def test_the_further_term_pulls_clusters_together_and_in_the_released_code_apart():
    random = np.random.default_rng(0)
    start = 0.1 * random.standard_normal((40, 2)) + 10 * random.integers(0, 2, (40, 2))
    spread = {}
    for compat in ("none", "paper-a"):
        x = torch.from_numpy(start).clone().requires_grad_()
        penalty = PersistentEntropy(within=1.0, compat=compat)
        for _ in range(20):
            (gradient,) = torch.autograd.grad(penalty(Representations.from_cloud(x)), x)
            x = (x - 0.01 * gradient).detach().requires_grad_()
        spread[compat] = np.median(scipy_bars(x.detach().numpy()))
    assert spread["none"] < np.median(scipy_bars(start)) < spread["paper-a"]


def test_only_the_ends_of_prominent_bars_move():
    x = clouds(seed=3)[0]
    rows = torch.from_numpy(x).requires_grad_()
    value = PersistentEntropy()(Representations.from_cloud(rows))
    (gradient,) = torch.autograd.grad(value, rows)
    tree = minimum_spanning_tree(squareform(pdist(x))).tocoo()
    longest = tree.data.argsort()[::-1][: len(chosen(x))]
    ends = set(tree.row[longest]) | set(tree.col[longest])
    assert set(gradient.any(dim=1).nonzero()[:, 0].tolist()) == ends
    assert len(ends) < len(x)


def test_rows_of_a_class_that_do_not_count():
    x, names, _ = clouds()
    mask = np.random.default_rng(1).random(len(x)) < 0.6
    shown = Representations.from_cloud(*map(torch.from_numpy, (x, names, mask)))
    found = float(PersistentEntropy(bars="all")(shown))
    assert found == pytest.approx(value(x[mask], names[mask], bars="all"), rel=1e-12)


def test_an_accelerator_s_choice_of_bars_is_the_same(monkeypatch):
    def by_tensors(lengths, *, at_most):
        assert int((lengths > 0).sum()) <= at_most
        counts = count_prominent_tensors(lengths.detach().double(), at_most=at_most)
        return torch.arange(lengths.shape[1]) < counts[:, None]

    for seed in range(5):
        x, names, _ = clouds(seed)
        expected = value(x, names), value(x)
        with monkeypatch.context() as patched:
            patched.setattr(isotropy.bars, "prominent_mask", by_tensors)
            assert (value(x, names), value(x)) == expected


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("bars", ["prominent", "all"])
def test_rows_that_differ_by_rounding_are_equal(dtype, bars):
    """As the same text has in batches of different shapes, such as those of two ranks."""
    torch.manual_seed(0)
    rows = torch.randn(30, 64, dtype=dtype) + 3
    twice = torch.cat((rows, rows))
    noise = torch.finfo(dtype).eps * torch.randn(60, 64, dtype=dtype)
    found = []
    for x in (twice, twice * (1 + noise)):
        x.requires_grad_()
        value = PersistentEntropy(bars=bars)(Representations.from_cloud(x))
        (gradient,) = torch.autograd.grad(value, x)
        # An end of a bar may be either of two equal rows.
        found.append((value.detach(), gradient[:30] + gradient[30:]))
    close = 100 * torch.finfo(dtype).eps
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=close, atol=close)


def test_rows_too_far_apart_for_a_number():
    x = torch.tensor([[3e38, 0.0], [-3e38, 0.0], [0.0, 1.0], [0.0, 3.0], [1.0, 9.0]])
    penalty = PersistentEntropy()
    # Two bars of 3e38: their sum is more than float32 has.
    assert float(penalty(Representations.from_cloud(x))) == pytest.approx(-np.log(2))
    assert float(penalty(Representations.from_cloud(x[:2]))) == 0
    assert int(penalty.skipped) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"bars": "promi"}, "got bars='promi', expected 'prominent' or 'all'"),
        ({"compat": "paper-b"}, "got compat='paper-b', expected 'none' or 'paper-a'"),
        ({"within": -1}, "got within=-1, expected a finite number from 0 up"),
        ({"normalize": "yes"}, "got normalize='yes', expected True or False"),
    ],
)
def test_bad_settings(settings, message):
    with pytest.raises(SettingError, match=message):
        PersistentEntropy(**settings)

"""Bars: lengths and gradients against scipy's tree, classes against single clouds, errors."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from scipy import stats
from scipy.sparse.csgraph import minimum_spanning_tree
from scipy.spatial.distance import pdist, squareform

from isotropy.bars import entropy, h0_bars, h0_bars_by_class, prominent_bars, prominent_mask
from isotropy.errors import InputError, SettingError


def gaussian(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape)


def scipy_bars(x):
    return -np.sort(-minimum_spanning_tree(squareform(pdist(x.astype(np.float64)))).data)


def tensor(*shape, seed=0):
    return torch.from_numpy(gaussian(*shape, seed=seed))


# h0_bars


@pytest.mark.parametrize("shape", [(2, 2), (5, 3), (64, 768), (300, 10), (40, 200)])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lengths_are_those_of_scipys_tree(shape, dtype):
    x = gaussian(*shape).astype(dtype)
    bars = h0_bars(x)
    assert bars.dtype == dtype
    np.testing.assert_allclose(bars, scipy_bars(x), rtol=1e-5 if dtype == np.float32 else 1e-12)


@pytest.mark.parametrize("n", [64, 2100])
def test_total_length_far_from_the_origin(n):
    x = (gaussian(n, 16) + 1e3).astype(np.float32)
    assert h0_bars(x).sum(dtype=np.float64) == pytest.approx(scipy_bars(x).sum(), rel=1e-5)


def test_types():
    x = gaussian(20, 4)
    assert isinstance(h0_bars(x), np.ndarray)
    for dtype in (torch.float16, torch.bfloat16):
        rounded = torch.from_numpy(x).to(dtype)
        bars = h0_bars(rounded)
        assert bars.dtype == torch.float32
        np.testing.assert_allclose(bars, scipy_bars(rounded.double().numpy()), rtol=1e-5)


def test_one_row_has_no_bar():
    assert h0_bars(np.ones((1, 3))).shape == (0,)
    assert prominent_bars(h0_bars(np.ones((1, 3)))).shape == (0,)


def test_equal_rows_have_bars_of_zero():
    x = np.repeat(gaussian(3, 2), 4, axis=0)
    bars = h0_bars(x)
    assert (bars[2:] == 0).all()
    np.testing.assert_allclose(bars[:2], h0_bars(x[::4]))


@pytest.mark.parametrize("scale", [1e-18, 1e18])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_huge_and_tiny(scale, dtype):
    x = tensor(50, 6).to(dtype)
    scaled = (x * scale).requires_grad_()
    bars = h0_bars(scaled)
    torch.testing.assert_close(bars / scale, h0_bars(x), rtol=1e-4, atol=0)
    (gradient,) = torch.autograd.grad(bars.sum(), scaled)
    y = x.clone().requires_grad_()
    (expected,) = torch.autograd.grad(h0_bars(y).sum(), y)
    torch.testing.assert_close(gradient, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("shape", [(64, 768), (150, 7)])
def test_lengths_do_not_depend_on_whether_a_gradient_is_wanted(shape, dtype):
    x = tensor(*shape).to(dtype)
    wanted = h0_bars(x.clone().requires_grad_()).detach()
    torch.testing.assert_close(h0_bars(x), wanted)
    with torch.no_grad():
        torch.testing.assert_close(h0_bars(x.clone().requires_grad_()), wanted)


def test_gradient():
    x = tensor(12, 3).requires_grad_()
    assert torch.autograd.gradcheck(h0_bars, x)


def test_gradient_by_hand():
    """Of the longest bar, from (0, 1) to (3, 5): the unit vector along it."""
    x = torch.tensor([[0.0, 0.0], [0.0, 1.0], [3.0, 5.0]], requires_grad=True)
    h0_bars(x)[0].backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.tensor([[0, 0], [-0.6, -0.8], [0.6, 0.8]]))


def test_a_bar_of_zero_has_no_gradient():
    x = torch.tensor([[1.0, 2.0], [1.0, 2.0], [1.0, 2.0]], requires_grad=True)
    h0_bars(x).sum().backward()
    assert x.grad is not None
    assert (x.grad == 0).all()


@settings(max_examples=30)
@given(st.integers(2, 40), st.integers(2, 6), st.integers(0, 1000))
def test_what_changes_nothing(n, d, seed):
    x = gaussian(n, d, seed=seed)
    bars = h0_bars(x)
    frame, _ = np.linalg.qr(gaussian(d, d, seed=seed + 1))
    order = np.random.default_rng(seed).permutation(n)
    np.testing.assert_allclose(h0_bars(x[order]), bars, rtol=1e-9)
    np.testing.assert_allclose(h0_bars(x @ frame), bars, rtol=1e-9)
    np.testing.assert_allclose(h0_bars(x + 100), bars, rtol=1e-9)
    np.testing.assert_allclose(h0_bars(3 * x), 3 * bars, rtol=1e-9)
    assert (np.diff(bars) <= 0).all()


def test_errors_of_h0_bars():
    x = gaussian(5, 3)
    x[2, 1] = np.nan
    with pytest.raises(InputError, match="1 NaN or infinite value, the first in row 2"):
        h0_bars(x)
    with pytest.raises(InputError, match=r"an empty cloud \(0 rows\)"):
        h0_bars(np.ones((0, 3)))
    with pytest.raises(InputError, match="expected two dimensions"):
        h0_bars(np.ones(3))


# h0_bars_by_class


def test_each_class_has_the_bars_of_its_rows():
    x = tensor(60, 5)
    labels = np.random.default_rng(1).integers(0, 4, size=60)
    labels[labels == 2] = 0  # class 2 is empty
    table = h0_bars_by_class(x, labels, classes=5)
    assert table.shape == (5, 59)
    for name in range(5):
        members = x[labels == name]
        bars = h0_bars(members) if len(members) else members.new_zeros(0)
        torch.testing.assert_close(table[name, : len(bars)], bars)
        assert (table[name, len(bars) :] == 0).all()


def test_classes_of_none_to_three_rows():
    x = np.array([[0.0, 0], [1, 0], [5, 0], [0, 9], [2, 9], [7, 7]])
    table = h0_bars_by_class(x, np.array([3, 3, 3, 2, 2, 1]))
    expected = [[0, 0, 0, 0, 0], [0, 0, 0, 0, 0], [2, 0, 0, 0, 0], [4, 1, 0, 0, 0]]
    np.testing.assert_array_equal(table, expected)


def test_rows_of_unknown_labels_belong_to_no_class():
    x = tensor(30, 3)
    labels = torch.arange(30) % 5 - 1  # −1, 0, 1, 2, 3
    known = (labels >= 0) & (labels < 2)
    table = h0_bars_by_class(x, labels, classes=2)
    torch.testing.assert_close(table[:, :11], h0_bars_by_class(x[known], labels[known]))
    assert (table[:, 11:] == 0).all()


@pytest.mark.parametrize(
    ("rows", "classes", "shape"),
    [(0, None, (0, 0)), (0, 3, (3, 0)), (1, 3, (3, 0)), (4, 0, (0, 3)), (2, 2, (2, 1))],
)
def test_few_rows_and_no_classes(rows, classes, shape):
    labels = torch.zeros(rows, dtype=torch.int64)
    assert h0_bars_by_class(torch.ones(rows, 3), labels, classes).shape == shape


def test_no_label_is_known():
    assert h0_bars_by_class(tensor(4, 2), torch.full((4,), -100)).shape == (0, 3)


def test_gradient_by_class():
    x = tensor(14, 3).requires_grad_()
    labels = torch.tensor([0, 1, 2, -1, 0, 1, 7, 0, 1, 2, 2, 0, 1, 3])
    assert torch.autograd.gradcheck(lambda x: h0_bars_by_class(x, labels, classes=4), x)


@pytest.mark.parametrize(
    "labels",
    [
        np.array([0, 1, 0, 1], dtype=">i4"),
        np.array([0, 1, 0, 1], dtype=np.uint16),
        np.array([1, 0, 1, 0])[::-1],
        np.array([False, True, False, True]),
        torch.tensor([0, 1, 0, 1], dtype=torch.uint8),
    ],
    ids=["other byte order", "uint16", "negative stride", "bool", "torch uint8"],
)
def test_kinds_of_labels(labels):
    x = tensor(4, 2)
    expected = h0_bars_by_class(x, torch.tensor([0, 1, 0, 1]))
    torch.testing.assert_close(h0_bars_by_class(x, labels), expected)


def test_labels_that_cannot_be_written():
    labels = np.array([0, 1, 0, 1])
    labels.flags.writeable = False
    assert h0_bars_by_class(gaussian(4, 2), labels).shape == (2, 3)


@pytest.mark.parametrize(
    ("labels", "given"),
    [
        (np.ones(4), r"labels of float64 with shape \(4,\)"),
        (torch.ones(3, dtype=torch.int64), r"labels of int64 with shape \(3,\)"),
        (np.array(["a", "b", "a", "b"]), r"labels of <U1 with shape \(4,\)"),
        ([0, 1, 0, 1], r"labels of list with shape \(\)"),
    ],
)
def test_bad_labels(labels, given):
    with pytest.raises(InputError, match=given + ".*of 4 integers, one a row"):
        h0_bars_by_class(gaussian(4, 2), labels)


def test_a_negative_number_of_classes():
    with pytest.raises(SettingError, match="got classes=-1, expected how many"):
        h0_bars_by_class(gaussian(2, 2), np.zeros(2, dtype=int), classes=-1)


# prominent_bars and prominent_mask


def test_prominent_bars_are_the_longest_in_order():
    lengths = np.array([0, 1, 9, 1, 0.1, 8, 1, 0])
    np.testing.assert_array_equal(prominent_bars(lengths), [9, 8])
    np.testing.assert_array_equal(np.flatnonzero(prominent_mask(lengths)), [2, 5])


@pytest.mark.parametrize("m", range(8))
def test_never_nan_and_never_all_of_many(m):
    for lengths in (np.zeros(m), np.full(m, 3.0), np.r_[np.zeros(2), np.ones(m)]):
        for dtype in (np.float32, np.float64):
            bars = prominent_bars(lengths.astype(dtype))
            assert bars.dtype == dtype
            assert (bars > 0).all()
            assert len(bars) == prominent_mask(lengths.astype(dtype)).sum()
            assert len(bars) <= 5


def test_bars_between_clusters_are_prominent():
    x = gaussian(100, 3) + 30 * np.arange(5).repeat(20)[:, None]
    bars = prominent_bars(h0_bars(x))
    assert (bars[:4] > 30).all()
    assert len(bars) <= 6


def test_a_mask_of_many_sets_is_that_of_each():
    x = tensor(50, 4)
    table = h0_bars_by_class(x, torch.arange(50) % 6, classes=7)
    mask = prominent_mask(table)
    assert mask.shape == table.shape
    for row, kept in zip(table, mask, strict=True):
        assert torch.equal(row[kept].sort(descending=True).values, prominent_bars(row))
    assert not (mask & (table == 0)).any()
    assert prominent_mask(torch.zeros(3, 0)).shape == (3, 0)
    assert prominent_mask(torch.zeros(0, 4)).shape == (0, 4)


def test_of_equal_bars_the_mask_keeps_as_many_as_prominent_bars():
    assert prominent_mask(np.ones(9)).sum() == len(prominent_bars(np.ones(9))) == 5


def test_gradient_reaches_the_kept_bars_only():
    lengths = torch.tensor([1.0, 9.0, 1.0, 8.0, 1.0, 0.1], requires_grad=True)
    prominent_bars(lengths).sum().backward()
    assert lengths.grad is not None
    assert lengths.grad.tolist() == [0, 1, 0, 1, 0, 0]


@settings(max_examples=30)
@given(st.lists(st.floats(0, 1e3), max_size=30), st.integers(0, 1000))
def test_order_changes_nothing(lengths, seed):
    bars = np.array(lengths, dtype=np.float64)
    order = np.random.default_rng(seed).permutation(len(bars))
    np.testing.assert_array_equal(prominent_bars(bars[order]), prominent_bars(bars))


def test_lengths_in_any_layout():
    lengths = np.array([0.1, 1, 1, 1, 8, 9])
    for same in (lengths[::-1], lengths.astype(">f8")):
        np.testing.assert_array_equal(prominent_bars(same), [9, 8])


@pytest.mark.parametrize(
    ("lengths", "message"),
    [
        (np.array([1.0, -1.0, np.nan, np.inf]), "3 of 4 lengths that are negative, infinite or"),
        (np.arange(3), "lengths of int64, expected a tensor or an array of floating-point"),
        ([1.0, 2.0], "lengths of list, expected"),
        (np.ones((2, 2, 2)), r"shape \(2, 2, 2\), expected 1 or 2 dimension"),
    ],
)
def test_bad_lengths(lengths, message):
    with pytest.raises(InputError, match=message):
        prominent_mask(lengths)


def test_prominent_bars_of_one_set_only():
    with pytest.raises(InputError, match=r"shape \(2, 2\), expected 1 dimension"):
        prominent_bars(np.ones((2, 2)))


# entropy


def test_entropy_is_that_of_the_shares():
    lengths = np.random.default_rng(0).gamma(2.0, size=(3, 20))
    np.testing.assert_allclose(
        entropy(torch.from_numpy(lengths)), stats.entropy(lengths, axis=1), rtol=1e-12
    )


@pytest.mark.parametrize("m", [1, 2, 10])
def test_entropy_of_equal_bars(m):
    value = entropy(torch.full((m,), 0.1, dtype=torch.float64))
    assert value.item() == pytest.approx(np.log(m))
    assert not torch.signbit(value)


def test_zeros_count_for_nothing_in_entropy_and_its_gradient():
    lengths = torch.tensor([[2.0, 1.0, 0.0, 5.0], [0.0, 0.0, 0.0, 0.0]], requires_grad=True)
    plain = torch.tensor([2.0, 1.0, 5.0], requires_grad=True)
    values = entropy(lengths)
    torch.testing.assert_close(values, torch.stack((entropy(plain), torch.tensor(0.0))))
    (found,) = torch.autograd.grad(values.sum(), lengths)
    (expected,) = torch.autograd.grad(entropy(plain), plain)
    torch.testing.assert_close(found[0, [0, 1, 3]], expected)
    assert found[0, 2] == 0
    assert (found[1] == 0).all()


def test_gradient_of_entropy():
    lengths = torch.from_numpy(np.random.default_rng(0).gamma(2.0, size=(2, 6)))
    assert torch.autograd.gradcheck(entropy, lengths.requires_grad_())

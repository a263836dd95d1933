import math

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st

from isotropy.errors import InputError, UndefinedError
from isotropy.inputs import (
    as_cloud,
    as_symmetric,
    as_tensor,
    checked,
    finite_range,
    full_precision,
    like,
    require_rows,
    to_tensor,
)

X = np.random.default_rng(0).standard_normal((7, 3))

# ------------------------------------------------------------------------------- what is accepted


@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
        (torch.float32, torch.float32),
        (torch.float64, torch.float64),
    ],
)
def test_half_precision_is_upcast_and_nothing_else_changes(dtype, expected):
    x = torch.from_numpy(X).to(dtype)
    cloud = as_cloud(x)
    assert cloud.dtype == expected
    assert torch.equal(cloud.double(), x.double())


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_an_array_of_its_own_byte_order_is_not_copied(dtype):
    x = X.astype(dtype)
    assert np.shares_memory(as_cloud(x).numpy(), x)


def packed():
    """Rows in the records of a file, at no whole number of float32 from each other."""
    records = np.zeros(7, dtype=[("id", "i1"), ("vector", "f4", (3,))])
    records["vector"] = X
    return records["vector"]


def read_only():
    x = X.copy()
    x.flags.writeable = False
    return x


@pytest.mark.parametrize(
    "x",
    [
        X.astype(">f2"),
        X.astype(">f4"),
        X.astype(">f8"),
        X.astype("<f4"),
        X[::-1],
        X[:, ::-1],
        X[::2],
        X.T,
        np.asfortranarray(X),
        np.broadcast_to(X[:1], (5, 3)),
        packed(),
        read_only(),
        X.view(np.matrix),
    ],
    ids=[
        "big-endian-f2",
        "big-endian-f4",
        "big-endian-f8",
        "little-endian",
        "rows-backwards",
        "columns-backwards",
        "every-other-row",
        "transposed",
        "by-columns",
        "one-row-repeated",
        "packed-records",
        "read-only",
        "matrix",
    ],
)
def test_any_layout_in_memory_is_read_right(x):
    np.testing.assert_array_equal(
        as_tensor(x).numpy(), np.asarray(x, dtype=x.dtype.newbyteorder("="))
    )
    np.testing.assert_array_equal(to_tensor(x).numpy(), np.asarray(x))


def test_a_tensor_keeps_its_gradient():
    x = torch.from_numpy(X).float().requires_grad_()
    as_cloud(x).square().sum().backward()
    torch.testing.assert_close(x.grad, 2 * x.detach())


def test_the_bounds_are_those_of_each_column():
    cloud, (low, high) = checked(X)
    assert torch.equal(cloud, torch.from_numpy(X))
    np.testing.assert_array_equal(low.numpy(), X.min(axis=0))
    np.testing.assert_array_equal(high.numpy(), X.max(axis=0))


# -------------------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("x", "match"),
    [
        ([[1.0, 2.0]], "got x of type list, expected a torch tensor or a numpy array"),
        (None, "of type NoneType"),
        ("a.npy", "files and folders are read by isotropy.measure"),
        (np.ones((3, 2), int), r"dtype int64, expected float16, .*x\.astype\('float32'\)"),
        (np.ones((3, 2), np.longdouble), "expected float16, bfloat16, float32 or float64"),
        (np.ones((3, 2), object), "dtype object, .* Python objects are refused"),
        (np.zeros(3, [("a", "f4")]), "dtype of records"),
        (np.ma.masked_array(X), "got x with a mask, .*numpy.ma.compress_rows"),
        (torch.ones(3, 2).int(), r"dtype int32, expected float16, .*x\.float\(\)"),
        (torch.eye(3).to_sparse(), r"layout sparse_coo, expected a dense tensor.*to_dense\(\)"),
        (torch.ones(3, 2, device="meta"), "meta device, expected a tensor that holds values"),
        (np.ones(3), r"shape \(3,\), expected two dimensions \(rows, features\)"),
        (np.ones((3, 2, 2)), r"shape \(3, 2, 2\), expected two dimensions"),
        (torch.tensor(1.0), r"shape \(\), expected two dimensions"),
        (np.ones((3, 1)), r"shape \(3, 1\), expected at least 2 features"),
        (np.ones((3, 0)), r"shape \(3, 0\), expected at least 2 features"),
        (np.ones((0, 3)), r"got an empty cloud \(0 rows\), expected at least 2 rows"),
        (np.ones((1, 3)), "got x with 1 row, expected at least 2 rows"),
    ],
)
def test_what_is_no_cloud_is_refused(x, match):
    with pytest.raises(InputError, match=match) as caught:
        as_cloud(x)
    assert "\n" not in str(caught.value)


@pytest.mark.filterwarnings("ignore:.*quantized tensor creation:UserWarning")
def test_a_quantized_tensor_is_refused():
    x = torch.quantize_per_tensor(torch.eye(3), 0.1, 0, torch.quint8)
    with pytest.raises(InputError, match=r"dtype quint8, .*x\.dequantize\(\)"):
        as_cloud(x)


@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
@pytest.mark.parametrize("layout", [torch.strided, torch.jagged])
def test_a_nested_tensor_is_refused(layout):
    x = torch.nested.nested_tensor([torch.ones(3, 2), torch.ones(1, 2)], layout=layout)
    with pytest.raises(InputError, match="layout nested, expected a dense tensor"):
        as_cloud(x)


def test_the_name_and_the_rows_needed_are_the_callers():
    with pytest.raises(InputError, match="got weights with 3 rows, expected at least 4 rows"):
        as_cloud(X[:3], min_rows=4, name="weights")
    require_rows(4, 4)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_values_that_are_not_finite_are_counted(value, dtype):
    x = X.astype(dtype)
    x[5, 0] = value
    with pytest.raises(InputError, match=r"got x with 1 NaN or infinite value, the first in row 5"):
        as_cloud(x)
    x[2, 1:] = value
    with pytest.raises(
        InputError, match=r"got x with 3 NaN or infinite values, the first in row 2"
    ):
        as_cloud(x)


def test_rows_are_numbered_as_the_caller_says():
    x = torch.from_numpy(X).clone()
    x[[1, 4], 0] = math.nan
    numbers = torch.tensor([90, 70, 50, 40, 30, 20, 10])
    with pytest.raises(InputError, match=r"got f with 2 NaN .* up to row 90, the first in row 30,"):
        finite_range(x, name="f", numbers=numbers)


def test_the_largest_finite_values_are_finite():
    x = np.array([[3e38, -3e38], [-3e38, 3e38], [1, 1]], dtype=np.float32)
    assert torch.isfinite(as_cloud(x)).all()


@pytest.mark.parametrize("rows", [2, 5])
def test_equal_rows_are_one_point(rows):
    with pytest.raises(UndefinedError, match=f"got x with {rows} equal rows, .*single point"):
        as_cloud(np.tile(X[:1], (rows, 1)))


@given(st.integers(0, 6), st.integers(0, 2), st.booleans())
def test_the_smallest_difference_makes_rows_differ(row, column, up):
    x = np.ones((7, 3))
    x[row, column] = np.nextafter(1, 2 if up else 0)
    assert as_cloud(x).shape == (7, 3)


# ---------------------------------------------------------------------------- symmetric matrices


@pytest.mark.parametrize("scale", [1e-30, 1, 1e30])
def test_a_covariance_is_symmetric(scale):
    c = np.cov(X.T) * scale
    np.testing.assert_array_equal(as_symmetric(c).numpy(), c)
    half = torch.from_numpy(np.cov(X.T)).half()  # rounds both triangles alike
    assert torch.equal(as_symmetric(half), half.float())


@pytest.mark.parametrize(
    ("x", "match"),
    [
        (X, r"got s with shape \(7, 3\), expected a square matrix"),
        (np.zeros((3, 3)), "got s with zeros only"),
        (1e-30 * np.triu(np.ones((3, 3))), r"not symmetric, .* pass \(s \+ s.T\) / 2"),
        (np.full((3, 3), np.nan), "got s with 9 NaN"),
        (np.ones((3, 3), int), "got s with dtype int64"),
    ],
)
def test_what_is_no_covariance_is_refused(x, match):
    with pytest.raises(InputError, match=match):
        as_symmetric(x, name="s")


# ----------------------------------------------------------------------- results and precision


def test_a_result_comes_in_the_callers_terms():
    value = torch.tensor([1.0, 2.0]).requires_grad_()
    assert like(torch.ones(1), value) is value
    assert isinstance(like(X, value), np.ndarray)
    assert type(like(X, value.sum())) is float


def test_full_precision_holds_under_autocast_and_ends_with_it():
    x = torch.rand(4, 4)
    with torch.autocast("cpu", torch.bfloat16):
        with full_precision(x):
            assert (x @ x).dtype == torch.float32
        assert (x @ x).dtype == torch.bfloat16

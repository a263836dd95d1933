"""The checks of a transform: containers, chunks, weights, hostile clouds, files, errors."""

import math
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from torch import Tensor

from isotropy import measures
from isotropy.errors import InputError, IsotropyError, UndefinedError
from isotropy.method import MethodSpec
from isotropy.testing._method import require_spec
from isotropy.testing._tools import hostile_clouds, naming, plain_cloud, require
from isotropy.transforms import Invertible, Transform

ROWS = 60

Make = Callable[[], Transform]


def check_transform(spec: MethodSpec, **settings: Any) -> None:
    """Check a transform: that of its spec, with these settings where others take too long.

    Args:
        spec: the transform, which need not be one of `isotropy.transforms.SPECS`.
        settings: its settings.

    Raises:
        AssertionError: something does not hold.

    Example:
        >>> from isotropy.transforms import SPECS
        >>> check_transform(SPECS["standardize"])
    """

    def make() -> Transform:
        made: Transform = spec.make(**settings)
        return made

    with naming(spec.name, _check_spec):
        _check_spec(spec)
    for check in (
        _check_estimator,
        _check_containers,
        _check_chunks,
        _check_weights,
        _check_hostile_clouds,
        _check_file,
        _check_inverse,
        _check_errors,
    ):
        with naming(spec.name, check):
            check(make)
    with naming(spec.name, _check_direction):
        _check_direction(spec, make)


def _check_spec(spec: MethodSpec) -> None:
    require_spec(spec, "transform")
    require(issubclass(spec.component, Transform), "must be a Transform")


def _check_estimator(make: Make) -> None:
    x = plain_cloud(ROWS, 6, seed=1)
    transform = make()
    before = transform.get_params()
    copy = clone(transform)
    require(copy.get_params() == before, "its clone has other settings")
    try:
        transform.transform(x)
    except NotFittedError:
        pass
    else:
        require(False, "maps rows before it is fitted")
    require(transform.fit(x) is transform, "fit must return the transform itself")
    require(transform.get_params() == before, "fit changes its settings")
    require(transform.n_features_in_ == 6, "does not know how many features it was fitted on")
    expected = transform.transform(x)
    require(torch.equal(transform.transform(x), expected), "differs from one call to the next")
    require(torch.equal(copy.fit(x).transform(x), expected), "differs from one fit to the next")
    require(torch.equal(clone(transform).fit_transform(x), expected), "fit_transform differs")
    names = transform.get_feature_names_out()
    require(len(names) == expected.shape[1], "gives names for another number of features")
    _same(transform.transform(x[:1]), expected[:1], 1e-9, "a row alone is mapped elsewhere")


def _check_containers(make: Make) -> None:
    x = plain_cloud(ROWS, 6, seed=2)
    transform = make().fit(x)
    expected = transform.transform(x)
    array = transform.transform(x.numpy())
    require(isinstance(array, np.ndarray), "must give an array for an array")
    require(np.array_equal(array, expected.numpy()), "differs between a tensor and an array")
    _same(make().fit(x.numpy()).transform(x), expected, 1e-9, "differs when fitted on an array")
    require(transform.transform(x.tolist()).dtype == np.float64, "must give float64 for a list")
    for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.float64):
        rounded = x.to(dtype)
        found = make().fit(rounded).transform(rounded)
        require(found.dtype == dtype, f"gives {found.dtype} for {dtype}")
        exact = make().fit(rounded.double()).transform(rounded.double())
        digits = max(1e-5, 4 * torch.finfo(dtype).eps)
        _same(found.double(), exact, digits, f"differs between {dtype} and float64")
    for kind in (np.float16, np.float32):
        require(transform.transform(x.numpy().astype(kind)).dtype == kind, f"loses {kind}")
    y = x.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(transform.transform(y).square().sum(), y)
    require(bool(torch.isfinite(gradient).all()), "its gradient is not finite")


def _check_chunks(make: Make) -> None:
    for rows, features in ((ROWS, 5), (24, 30)):  # the second: fewer rows than features
        x = plain_cloud(rows, features, seed=3)
        expected = make().fit(x).transform(x)
        for chunk_rows in (1, 7):
            found = make().fit(x, chunk_rows=chunk_rows).transform(x)
            _same(found, expected, 1e-6, f"differs when fitted in chunks of {chunk_rows} rows")


def _check_weights(make: Make) -> None:
    x = plain_cloud(ROWS, 5, seed=4)
    ones = torch.ones(ROWS)
    expected = make().fit(x).transform(x)
    _same(make().fit(x, weights=ones).transform(x), expected, 1e-6, "differs for weights of 1")
    weights = torch.rand(ROWS, generator=torch.Generator().manual_seed(5))
    weighted = make().fit(x, weights=weights)
    moved = weighted.transform(x)
    require(not torch.allclose(moved, expected, rtol=1e-3), "takes no notice of the weights")
    scaled = make().fit(x, weights=(1e6 * weights).numpy(), chunk_rows=7)
    _same(scaled.transform(x), moved, 1e-5, "depends on more than the weights' ratios")
    ones[::3] = 0
    dropped = make().fit(x[ones > 0]).transform(x)
    _same(make().fit(x, weights=ones).transform(x), dropped, 1e-6, "counts rows of weight 0")


def _check_hostile_clouds(make: Make) -> None:
    for rows in (12, ROWS):
        for name, cloud in hostile_clouds(rows).items():
            others = cloud.mean(dim=0) + cloud.std() * plain_cloud(9, cloud.shape[1], seed=6)
            for dtype in (torch.float64, torch.float32):
                where = f"{name}, {rows} rows, {dtype}"
                transform = make().fit(cloud.to(dtype))
                for x in (cloud, others):
                    y = transform.transform(x.to(dtype))
                    require(bool(torch.isfinite(y).all()), f"gives NaN or infinity: {where}")
                if isinstance(transform, Invertible):
                    back = transform.inverse_transform(y)
                    require(bool(torch.isfinite(back).all()), f"its inverse is not finite: {where}")
                for array in transform.arrays:
                    values = getattr(transform, array)
                    require(bool(np.isfinite(values).all()), f"{array} is not finite: {where}")


def _check_file(make: Make) -> None:
    x = plain_cloud(ROWS, 6, seed=7)
    transform = make().fit(x)
    with TemporaryDirectory() as folder:
        path = Path(folder) / "transform.safetensors"
        transform.save(path)
        require([file.name for file in Path(folder).iterdir()] == [path.name], "leaves other files")
        loaded = type(transform).load(path)
    require(loaded.get_params() == transform.get_params(), "its settings are lost in a file")
    for array in transform.arrays:
        a, b = getattr(loaded, array), getattr(transform, array)
        require(a.dtype == b.dtype and np.array_equal(a, b), f"{array} differs after a file")
    require(torch.equal(loaded.transform(x), transform.transform(x)), "maps elsewhere after a file")


def _check_inverse(make: Make) -> None:
    x = plain_cloud(ROWS, 6, seed=8)
    transform = make().fit(x)
    affine = transform.as_affine()
    if affine is not None:
        matrix, mean = affine
        _same((x - mean) @ matrix, transform.transform(x), 1e-9, "is not the affine map it says")
    if isinstance(transform, Invertible) and transform.transform(x).shape == x.shape:
        y = transform.transform(x)
        _same(transform.inverse_transform(y), x, 1e-4, "its inverse does not lead back")
        back = transform.inverse_transform(y.numpy())
        require(isinstance(back, np.ndarray), "its inverse must give an array for an array")


def _check_errors(make: Make) -> None:
    x = plain_cloud(ROWS, 5, seed=9)
    broken = x.clone()
    broken[3, 1] = math.nan
    broken[8, 2] = math.inf
    negative = -torch.ones(ROWS)
    transform = make().fit(x)
    bad: dict[str, tuple[type[IsotropyError], Callable[[], Any]]] = {
        "one row": (InputError, lambda: make().fit(x[:1])),
        "no rows": (InputError, lambda: make().fit(x[:0])),
        "one feature": (InputError, lambda: make().fit(x[:, :1])),
        "NaN and infinity": (InputError, lambda: make().fit(broken)),
        "one dimension": (InputError, lambda: make().fit(x[:, 0])),
        "integers": (InputError, lambda: make().fit(x.long())),
        "equal rows": (UndefinedError, lambda: make().fit(x[:1].expand(ROWS, -1))),
        "too few weights": (InputError, lambda: make().fit(x, weights=torch.ones(3))),
        "too many weights": (InputError, lambda: make().fit(x, weights=torch.ones(ROWS + 1))),
        "negative weights": (InputError, lambda: make().fit(x, weights=negative)),
        "weights of 0": (InputError, lambda: make().fit(x, weights=0 * negative)),
        "NaN to map": (InputError, lambda: transform.transform(broken)),
        "an array with NaN to map": (InputError, lambda: transform.transform(broken.numpy())),
        "features missing": (InputError, lambda: transform.transform(x[:, :4])),
        "features missing in an array": (InputError, lambda: transform.transform(x[:, :4].numpy())),
        "no rows to map": (InputError, lambda: transform.transform(x[:0])),
        "a file to map": (InputError, lambda: transform.transform("embeddings.npy")),
    }
    for name, (expected, call) in bad.items():
        try:
            call()
        except expected as error:
            require("\n" not in str(error), f"{name}: the message has several lines")
        else:
            require(False, f"{name}: expected {expected.__name__}")
    still = transform.transform(x)
    require(torch.equal(make().fit(x).transform(x), still), "an error has changed it")


def _check_direction(spec: MethodSpec, make: Make) -> None:
    """It moves the number that its spec names, on a stretched cloud far from the origin."""
    if spec.measure is None:
        return
    x = plain_cloud(400, 8, seed=10) * torch.linspace(1, 6, 8, dtype=torch.float64) ** 2 + 30
    function = measures.SPECS[spec.measure].function
    before, after = float(function(x)), float(function(make().fit(x).transform(x)))
    said = f"moves {spec.measure} from {before} to {after}"
    require((after > before) == (spec.moves == "up") and after != before, said)


def _same(found: Tensor, expected: Tensor, tolerance: float, what: str) -> None:
    """Equal within a share of the largest expected value."""
    require(found.shape == expected.shape, f"{what}: shape {found.shape}, not {expected.shape}")
    off = float((found - expected).abs().max() / expected.abs().max())
    require(off <= tolerance, f"{what}, by {off:.1e} of the largest value")

"""What the checks share: clouds that are hard on code, and how a failure is told."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

Clouds = dict[str, Tensor]


def hostile_clouds(rows: int, features: int = 6, seed: int = 0) -> Clouds:
    """Clouds on which a careless measure fails: float64, `rows` ≥ 2 rows."""
    x = plain_cloud(rows, features, seed)
    repeated = x[torch.arange(rows) // 2 * 2 if rows > 2 else torch.arange(rows)]
    line = torch.linspace(-1, 1, rows, dtype=x.dtype)[:, None] * x[0]
    constant = x.clone()
    constant[:, 0] = 7.0
    return {
        "plain": x,
        "rows that repeat": repeated,
        "rows on a line": line,
        "two features": x[:, :2].clone(),
        "a constant feature": constant,
        "far from the origin": x + 1e4,
        "huge": x * 1e18,
        "tiny": x * 1e-18,
        "one row far away": torch.cat((x[:-1], 1e6 * x[-1:])),
        "simplex": torch.eye(rows, max(rows, 2), dtype=x.dtype),
    }


def plain_cloud(rows: int, features: int, seed: int) -> Tensor:
    """A cloud without any special direction, in float64."""
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(rows, features, generator=generator, dtype=torch.float64)
    mix = torch.randn(features, features, generator=generator, dtype=torch.float64)
    return x @ mix + torch.randn(features, generator=generator, dtype=torch.float64)


@contextmanager
def naming(name: str, check: Callable[..., Any]) -> Iterator[None]:
    """Say which component and which check an error comes from."""
    try:
        yield
    except AssertionError as error:
        raise AssertionError(f"{name}: {error}") from error
    except Exception as error:
        error.add_note(f"in {check.__name__} of {name}")
        raise


def close(found: list[float], expected: list[float], tolerance: float, what: str) -> None:
    """Raise an AssertionError unless the numbers are equal within a relative tolerance."""
    for a, b in zip(found, expected, strict=False):
        near = math.isclose(a, b, rel_tol=tolerance, abs_tol=tolerance / 100)
        require(near, f"{what}: {found} instead of {expected}")


def require(holds: bool, otherwise: str) -> None:
    """Raise an AssertionError with these words unless it holds."""
    if not holds:
        raise AssertionError(otherwise)

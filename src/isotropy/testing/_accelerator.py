"""What must not happen on an accelerator during a training step: that the host waits for it."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import patch

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from isotropy import inputs

DEVICE = "meta"
"""Stands for an accelerator: its tensors have shapes and no values, so that nobody can look."""

# Shapes of results that depend on values; the device is asked for them.
_BY_VALUE = {
    "nonzero",
    "argwhere",
    "masked_select",
    "unique",
    "unique_consecutive",
    "bincount",
    "is_nonzero",
    "equal",
    "allclose",
}


@contextmanager
def no_host_copies() -> Iterator[None]:
    """Within it, tensors on the device `DEVICE` are worked on as on an accelerator.

    Raises:
        AssertionError: a value is looked at, or a tensor is copied between host and device. Numbers
            of Python and 0-d tensors that are arguments of an operation are no copies.

    Example:
        >>> with no_host_copies():
        ...     total = torch.ones(3, device=DEVICE).sum()
        >>> with no_host_copies():
        ...     float(total)
        Traceback (most recent call last):
        ...
        AssertionError: `__float__` waits for the device
    """

    def off(*_: Any, **__: Any) -> Any:
        return nullcontext()

    with (
        # As a cloud a tensor without values is refused, and for this device there is no autocast.
        patch.object(inputs, "check_tensor", lambda tensor, _: tensor.dtype),
        patch.object(torch, "autocast", off),
        _Watch(),
        _WatchDerivatives(),  # type: ignore[no-untyped-call] # likewise
    ):
        yield


class _Watch(TorchFunctionMode):
    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        name = getattr(function, "__name__", str(function))
        given = [x for x in tree_leaves((args, kwargs)) if isinstance(x, Tensor)]
        if name in _BY_VALUE and any(x.is_meta for x in given):
            raise AssertionError(f"`{name}` waits for the device")
        if name == "__getitem__" and any(_is_mask(x) for x in given[1:]):
            raise AssertionError("indexing by booleans waits for the device")
        made = name in ("new_tensor", "tensor", "as_tensor")
        try:
            result = function(*args, **(kwargs or {}))
        except (RuntimeError, TypeError) as error:
            if "meta" not in str(error):
                raise
            # PyTorch's own words for a look at a value that there is not.
            raise AssertionError(f"`{name}` waits for the device") from error
        for x in tree_leaves(result):
            if isinstance(x, Tensor) and given and x.is_meta != given[0].is_meta:
                raise AssertionError(f"`{name}` copies between host and device")
            if isinstance(x, Tensor) and made and x.is_meta:
                raise AssertionError(f"`{name}` copies numbers to the device")
        return result


class _WatchDerivatives(TorchDispatchMode):  # type: ignore[no-untyped-call] # torch has no types
    """Derivatives call operations by themselves; that of `trace` looks at a value."""

    def __torch_dispatch__(
        self,
        function: Any,
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        if "index_fill" in str(function) and isinstance(args[-1], Tensor) and args[0].is_meta:
            raise AssertionError(f"`{function}` waits for the device")
        return function(*args, **(kwargs or {}))


def _is_mask(x: Tensor) -> bool:
    return x.is_meta and x.dtype == torch.bool

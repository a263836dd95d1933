"""The settings that all integrations share, checked in one place."""

from typing import Any

from isotropy.errors import SettingError
from isotropy.penalties import Penalty


def as_penalty(penalty: Any) -> Penalty:
    """A penalty that may be added to a loss.

    Raises:
        SettingError: it is something else.
    """
    if isinstance(penalty, Penalty):
        return penalty
    if isinstance(penalty, type) and issubclass(penalty, Penalty):
        name = penalty.__name__
        raise SettingError(f"got the class {name} as the penalty, expected {name}(...)")
    raise SettingError(
        f"got a penalty of type {type(penalty).__name__}, expected one of isotropy.penalties, "
        "such as isotropy.penalties.PersistentEntropy()"
    )


def as_steps(name: str, steps: int | None) -> int | None:
    """A number of steps, at least 1, or None.

    Raises:
        SettingError: it is something else.

    Example:
        >>> as_steps("track_steps", 10)
        10
    """
    is_number = isinstance(steps, int) and not isinstance(steps, bool)
    if steps is None or (is_number and steps >= 1):
        return steps
    raise SettingError(f"got {name}={steps!r}, expected a whole number from 1 up, or None")


def require_one_device(devices: int) -> None:
    """A batch's penalty needs all of its rows in one process of its own.

    Raises:
        SettingError: one process has several devices, among which `torch.nn.DataParallel` divides
            each batch.
    """
    if devices > 1:
        raise SettingError(
            f"got {devices} GPUs in one process (torch.nn.DataParallel), expected one process a "
            f"GPU; start it with torchrun --nproc-per-node {devices}, or give it one GPU with "
            "CUDA_VISIBLE_DEVICES=0"
        )


def needs_refresh(penalty: Penalty | None) -> bool:
    """Whether the penalty does anything at an epoch's start."""
    return penalty is not None and type(penalty).refresh is not Penalty.refresh

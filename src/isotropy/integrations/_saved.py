"""What a penalty knows in the middle of a training, beside its settings."""

from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from isotropy.errors import SourceError
from isotropy.penalties import Penalty
from isotropy.penalties._sampled import TokenSample

FILE = "penalty.safetensors"
_DRAWS = "draws"


def penalty_state(penalty: Penalty) -> dict[str, Tensor]:
    """Its buffers, such as a shrinkage matrix and the count of skipped batches, and its draws.

    Example:
        >>> from isotropy import penalties
        >>> penalty_state(penalties.IsoScoreUnbiased(tokens=64))
        {'skipped': tensor(0), 'draws': tensor(0)}
    """
    state = {name: buffer.detach().clone() for name, buffer in penalty.named_buffers()}
    sample = getattr(penalty, "sample", None)
    if isinstance(sample, TokenSample):
        state[_DRAWS] = torch.tensor(sample.step)
    return state


def set_penalty_state(penalty: Penalty, state: dict[str, Tensor]) -> None:
    """Put a penalty where another one was when its state was taken.

    Raises:
        SourceError: the state is that of another kind of penalty.
    """
    state = dict(state)
    sample = getattr(penalty, "sample", None)
    if isinstance(sample, TokenSample) and _DRAWS in state:
        sample.step = int(state.pop(_DRAWS))
    unknown = sorted(set(state) - set(penalty._buffers))
    if unknown:
        raise SourceError(
            f"got the state of a penalty with {', '.join(unknown)}, which "
            f"{type(penalty).__name__} has not, expected that of the same penalty; resume with "
            "the penalty that the training began with"
        )
    for name, tensor in state.items():
        setattr(penalty, name, tensor.to(penalty.skipped.device))


def save_penalty(penalty: Penalty, folder: Path) -> None:
    """Write its state beside a checkpoint's other files."""
    state = {name: tensor.contiguous().cpu() for name, tensor in penalty_state(penalty).items()}
    save_file(state, folder / FILE, metadata={"penalty": type(penalty).__name__})


def load_penalty(penalty: Penalty, folder: Path) -> bool:
    """Read its state from a checkpoint; whether there was one.

    Raises:
        SourceError: it is the state of another penalty.
    """
    path = folder / FILE
    if not path.exists():
        return False
    with safe_open(path, framework="pt") as file:
        kind = (file.metadata() or {}).get("penalty")
        state = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    if kind != type(penalty).__name__:
        raise SourceError(
            f"got a checkpoint with the state of {kind}, expected that of "
            f"{type(penalty).__name__}; resume with the penalty that the training began with"
        )
    set_penalty_state(penalty, state)
    return True

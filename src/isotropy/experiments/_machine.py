"""What a run needs of its process, what it costs, and on what it ran."""

import os
import platform
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from threadpoolctl import threadpool_limits
from torch.nn.attention import SDPBackend, sdpa_kernel

from isotropy.errors import SettingError
from isotropy.experiments.spec import RunSpec
from isotropy.integrations._cached import same_randomness

_PACKAGES = (
    "isotropy", "torch", "transformers", "tokenizers", "accelerate", "datasets", "numpy",
)  # fmt: skip
_MODULE: Any = torch.utils.deterministic  # its attributes have no types
_CLEAR, _STATUS = Path("/proc/self/clear_refs"), Path("/proc/self/status")


@contextmanager
def prepared(spec: RunSpec) -> Iterator[torch.device]:
    """The process as a run wants it: threads, algorithms that repeat; afterwards as it was.

    Raises:
        SettingError: there is no such device.
    """
    if spec.device == "cuda":
        if not torch.cuda.is_available():
            raise SettingError("got device='cuda', expected 'cpu', as this machine has no CUDA GPU")
        # Without it cuBLAS may add up in another order each time; it is read when CUDA starts.
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    threads = torch.get_num_threads()
    torch.set_num_threads(spec.threads)
    try:
        with same_randomness(), threadpool_limits(spec.threads), _repeatable(spec.device):
            yield torch.device(spec.device)
    finally:
        torch.set_num_threads(threads)


@contextmanager
def _repeatable(device: str) -> Iterator[None]:
    """Algorithms that give the same bits every time, where torch has them.

    On a GPU a few operations have none, such as running sums of long rows; and of attention only
    the plain one repeats its gradients.
    """
    strict = torch.are_deterministic_algorithms_enabled()
    only_warns = torch.is_deterministic_algorithms_warn_only_enabled()
    fills = _MODULE.fill_uninitialized_memory
    cudnn = torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark
    torch.use_deterministic_algorithms(True, warn_only=device == "cuda")
    # Filling memory finds errors of a program, and would only cost time here.
    _MODULE.fill_uninitialized_memory = False
    torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = True, False
    plain = sdpa_kernel(SDPBackend.MATH) if device == "cuda" else nullcontext()
    try:
        with warnings.catch_warnings(), plain:
            warnings.filterwarnings("ignore", message=".*deterministic", category=UserWarning)
            yield
    finally:
        torch.use_deterministic_algorithms(strict, warn_only=only_warns)
        _MODULE.fill_uninitialized_memory = fills
        torch.backends.cudnn.deterministic, torch.backends.cudnn.benchmark = cudnn


class PeakMemory:
    """The most memory since it was made, in bytes: of the GPU, or of this process on a CPU.

    Where the system cannot forget an earlier peak, it is that of the process since its start.

    Example:
        >>> PeakMemory("cpu").bytes() > 1_000_000
        True
    """

    def __init__(self, device: str) -> None:
        self.device = device
        if device == "cuda":
            torch.cuda.reset_peak_memory_stats()
            return
        try:
            _CLEAR.write_text("5")
        except OSError:  # not Linux, or not allowed in this container
            return

    def bytes(self) -> int:
        """The peak so far."""
        if self.device == "cuda":
            return int(torch.cuda.max_memory_allocated())
        try:
            lines = _STATUS.read_text().splitlines()
        except OSError:
            lines = []
        for line in lines:
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
        try:
            import resource
        except ImportError:  # Windows
            return 0
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return int(peak if platform.system() == "Darwin" else peak * 1024)


def versions(*others: str) -> dict[str, str]:
    """Versions of the packages that matter.

    Example:
        >>> sorted(versions())[:2]
        ['accelerate', 'datasets']
    """
    found = {"python": platform.python_version()}
    for package in (*_PACKAGES, *others):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    return found


def machine(spec: RunSpec) -> dict[str, str]:
    """What a run runs on.

    Example:
        >>> machine(RunSpec(model="minilm", task="minimal-pairs"))["threads"]
        '1'
    """
    found = {
        "system": f"{platform.system()} {platform.machine()}",
        "processor": _processor(),
        "cores": str(os.cpu_count() or 1),
        "threads": str(spec.threads),
        "device": spec.device,
    }
    if spec.device == "cuda":
        found["gpu"] = torch.cuda.get_device_name()
    return found


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or "unknown"
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or "unknown")

"""On a CUDA device: the same numbers as on the CPU, and penalties that never wait for it."""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import torch

from isotropy import bars, measure
from isotropy.measures import SPECS as MEASURES
from isotropy.penalties import SPECS as PENALTIES
from isotropy.representations import Representations
from isotropy.sites import Site

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


def cloud(n: int = 96, d: int = 24, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, d, generator=generator) * torch.linspace(3, 0.3, d)
    return x + torch.randn(d, generator=generator)


@contextmanager
def waiting_forbidden() -> Iterator[None]:
    """Any operation in which the host waits for the device is an error."""
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.parametrize("name", MEASURES)
def test_measures_are_the_same(name: str) -> None:
    x = cloud(400)
    here, there = measure(x.double(), name), measure(x, name, device="cuda")
    for key, score in here.items():
        assert there[key].value == pytest.approx(score.value, rel=1e-3, abs=1e-5), key


@pytest.mark.parametrize("name", [name for name, spec in MEASURES.items() if spec.differentiable])
def test_gradients_are_the_same(name: str) -> None:
    spec, gradients = MEASURES[name], []
    for device in ("cpu", "cuda"):
        x = cloud().to(device).requires_grad_()
        value = spec.function(x, **spec.options)
        parts = value if isinstance(value, tuple) else (value,)
        sum(part.sum() for part in parts).backward()
        gradients.append(x.grad.cpu())
    torch.testing.assert_close(*gradients, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("name", PENALTIES)
def test_penalties_are_the_same_and_never_wait(name: str) -> None:
    spec, found = PENALTIES[name], []
    labels = torch.arange(96) % 5
    mask = torch.arange(96) % 7 > 0
    for device in ("cpu", "cuda"):
        penalty = spec.make().to(device)
        x = cloud().to(device).requires_grad_()
        rows = Representations.from_cloud(x, labels.to(device), mask.to(device))
        penalty(rows).backward()  # once before, as libraries set themselves up
        x.grad = None
        torch.cuda.synchronize()
        # torch's eigenvalue solver always waits, to see whether it has converged.
        if device == "cuda" and not name.startswith("spectrum"):
            with waiting_forbidden():
                value = penalty(rows)
                value.backward()
        else:
            value = penalty(rows)
            value.backward()
        found.append((value.detach().cpu(), x.grad.cpu()))
    for here, there in zip(*found, strict=True):
        torch.testing.assert_close(here, there, rtol=2e-3, atol=1e-5)


def test_half_precision_penalties() -> None:
    for spec in PENALTIES.values():
        for dtype in (torch.float16, torch.bfloat16):
            x = cloud().to("cuda", dtype).requires_grad_()
            with torch.autocast("cuda", dtype=dtype):
                value = spec.make().cuda()(Representations.from_cloud(x))
            value.backward()
            assert value.dtype in (torch.float32, torch.float64)
            assert x.grad.isfinite().all(), spec.name


def test_bars_are_the_same() -> None:
    x = cloud(700, 24)
    labels = torch.arange(700) % 9
    torch.testing.assert_close(bars.h0_bars(x.cuda()).cpu(), bars.h0_bars(x), rtol=1e-5, atol=1e-6)
    here = bars.h0_bars_by_class(x, labels, 9)
    there = bars.h0_bars_by_class(x.cuda(), labels.cuda(), 9)
    torch.testing.assert_close(there.cpu(), here, rtol=1e-5, atol=1e-6)
    assert torch.equal(bars.prominent_mask(here.cuda()).cpu(), bars.prominent_mask(here))


def test_sites_of_states_stay_on_the_device() -> None:
    states = tuple(torch.randn(4, 6, 8, device="cuda") for _ in range(3))
    mask = torch.ones(4, 6, device="cuda", dtype=torch.bool)
    mask[:, 4:] = False
    shown = Representations(hidden_states=states, mask=mask)
    with waiting_forbidden():
        for site in ("cls@last", "mean@last", "tokens@all", "first-last-mean"):
            rows = shown.rows(Site.parse(site))
            assert all(block.is_cuda for block in rows.blocks)

"""Penalties on a real accelerator: no step waits for the host, and the numbers are the CPU's.

That no value is looked at is also tested without one, in `test_contracts.py`.
"""

from contextlib import contextmanager

import numpy as np
import pytest
import torch

from isotropy import Representations
from isotropy._prominent import count_prominent
from isotropy._prominent_tensors import count_prominent_tensors
from isotropy.penalties import SPECS

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

CASES = [
    *((name, {}) for name in SPECS),
    ("i-star", {"shrinkage": "identity"}),
    ("i-star", {"shrinkage": torch.eye(16)}),
    ("persistent-entropy", {"normalize": True, "within": 0.5}),
    ("persistent-entropy", {"by_class": False}),
]


@contextmanager
def no_waiting(name=""):
    """Within it, whatever waits for the device is an error.

    PyTorch's eigenvalue solver always does, and there is no spectrum without it.
    """
    torch.cuda.set_sync_debug_mode("default" if name.startswith("spectrum") else "error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


def batch(device, dtype=torch.float64):
    """Three layers of 12 texts of up to 9 tokens, their mask and labels."""
    generator = torch.Generator().manual_seed(0)
    layers = [torch.randn(12, 9, 16, generator=generator, dtype=torch.float64) for _ in range(3)]
    layers = [(x + 0.5).to(device, dtype).requires_grad_() for x in layers]
    lengths = torch.randint(1, 10, (12, 1), generator=generator)
    mask = (torch.arange(9) < lengths).long().to(device)
    labels = torch.randint(0, 3, (12,), generator=generator).to(device)
    return layers, mask, labels


def step(penalty, layers, mask, labels):
    shown = Representations.from_output({"hidden_states": tuple(layers)}, mask, labels)
    value = penalty(shown)
    return value, torch.autograd.grad(value, layers, allow_unused=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("name", "settings"), CASES)
def test_a_step_waits_for_nothing(name, settings, dtype):
    site = "tokens@all" if name in ("cosine", "i-star", "iso-score-unbiased") else "cls@last"
    settings = {**settings, "site": site}
    expected, slopes = step(SPECS[name].make(**settings), *batch("cpu", dtype))
    penalty, given = SPECS[name].make(**settings).cuda(), batch("cuda", dtype)
    step(penalty, *given)  # the first time libraries are loaded
    penalty = SPECS[name].make(**settings).cuda()
    with no_waiting(name):
        value, gradients = step(penalty, *given)
    assert value.is_cuda
    tolerance = {"rtol": 1e-3, "atol": 1e-5} if dtype != torch.float64 else {}
    torch.testing.assert_close(value.cpu(), expected, **tolerance)
    for found, slope in zip(gradients, slopes, strict=True):
        assert (found is None) == (slope is None)
        if found is not None:
            close = {"rtol": 1e-2, "atol": 1e-3} if dtype != torch.float64 else {}
            torch.testing.assert_close(found.cpu(), slope, **close)


@pytest.mark.parametrize("name", ["i-star", "iso-score-unbiased"])
def test_a_sample_of_tokens_waits_for_nothing(name):
    penalty, given = SPECS[name].make(tokens=20).cuda(), batch("cuda")
    step(penalty, *given)
    with no_waiting():
        value, _ = step(penalty, *given)
    assert bool(value.isfinite())


@pytest.mark.parametrize("name", ["cosine", "spectrum-pol", "spectrum-exp", "laplacian"])
def test_a_vocabulary_waits_for_nothing(name):
    weight = torch.randn(20_000, 64, device="cuda", requires_grad=True)
    penalty = SPECS[name].make(site="vocabulary").cuda()
    penalty(Representations(vocabulary=weight)).backward()  # finds the graph, once an epoch
    with no_waiting(name):
        value = penalty(Representations(vocabulary=weight))
        value.backward()
    assert bool(value.isfinite())
    assert bool(weight.grad.isfinite().all())


def test_prominent_bars_are_those_of_the_loop():
    random = np.random.default_rng(0)
    draws = (
        lambda m: random.gamma(2.0, size=m),
        lambda m: 1 + 0.01 * random.standard_normal(m),
        lambda m: np.full(m, random.random()),
        lambda m: random.integers(0, 4, size=m).astype(float),
        lambda m: 10 ** random.uniform(-300, 300, size=m),
    )
    for draw in draws:
        rows = np.zeros((400, 63))
        for row in rows:
            m = int(random.integers(0, 64))
            row[:m] = np.sort(draw(m))[::-1]
        table = torch.from_numpy(rows).cuda()
        count_prominent_tensors(table)
        with no_waiting():
            found = count_prominent_tensors(table)
        assert found.tolist() == [count_prominent(row[row > 0]) for row in rows]

"""Penalties on the ranks of a group of GPUs beside one process; as a script, this is one rank.

There is a rank for each visible GPU. One is enough: it then goes through all collectives as if
there were others.
"""

import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel

from isotropy import Representations, ranks

pytestmark = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")

LAYOUTS = ("halves", "a class on one rank only", "padding on one rank", "accumulation")
LAYOUTS += ("nothing but padding", "a row that is not finite")
TOLERANCE = {torch.float32: 1e-4, torch.float64: 1e-9}


class Several(int):
    """A number of ranks that passes for more than one."""

    def __eq__(self, other):
        return False

    def __gt__(self, other):
        return True

    __hash__ = int.__hash__


def of_rank(given, rank, size):
    """A rank's rows, or its texts, of those of all."""
    return {name: table.tensor_split(size)[rank] for name, table in given.items()}


def on(device, tables, dtype=None):
    return {
        name: table.to(device, dtype if table.is_floating_point() else None)
        for name, table in tables.items()
    }


def clouds_on(cases, rank, size, device):
    """For every penalty, layout and dtype: what a rank finds, and what it would find alone."""

    def steps_of(penalty, parts, dtype):
        found = []
        for part in parts:
            given = on(device, part, dtype)
            x = given["x"].requires_grad_()
            value = penalty(Representations.from_cloud(x, given["labels"], given["mask"]))
            (grad,) = torch.autograd.grad(value, x)
            found.append((value.detach().cpu(), grad.cpu()))
        return found

    found = {}
    for name in cases.PENALTIES:
        for layout in LAYOUTS:
            parts = cases.together(layout)
            for dtype in TOLERANCE:
                here = [of_rank(part, rank, size) for part in parts]
                found[name, layout, dtype] = {
                    "here": steps_of(cases.make(name).to(device), here, dtype),
                    "alone": steps_of(cases.make(name, group=ranks.ALONE).to(device), parts, dtype),
                }
    return found


def models_on(cases, rank, size, device):
    """For every penalty and site: the gradients in data-parallel training, and those alone."""
    batches = [cases.as_one([cases.batch_of(r, step) for r in range(2)]) for step in range(2)]
    whole = [on(device, batch) for batch in batches]
    here = [of_rank(batch, rank, size) for batch in whole]
    found = {}
    for name in cases.PENALTIES:
        for site in cases.SITES:
            model, other = (cases.Tiny().double().to(device) for _ in range(2))
            wrapped = DistributedDataParallel(model, device_ids=[device])
            ours = cases.trained(cases.make(name, site=site).to(device), here, model, wrapped)
            single = cases.make(name, site=site, group=ranks.ALONE).to(device)
            alone = cases.trained(single, whole, other)
            found[name, site] = [
                torch.cat([grad.flatten() for grad in grads.values()]).cpu()
                for grads in (ours, alone)
            ]
    return found


def refreshed(cases, rank, size, device):
    """I-STAR's matrix from the ranks' batches, and from all of them on the CPU."""
    batches = [cases.batch_of(r, step) for r in range(2) for step in range(2)]
    penalty = cases.make("i-star", site="tokens@all").to(device)
    penalty.refresh(cases.Tiny().to(device), batches[rank::size])
    alone = cases.make("i-star", site="tokens@all", group=ranks.ALONE)
    alone.refresh(cases.Tiny(), batches)
    return penalty.shrinkage.cpu(), alone.shrinkage


@pytest.fixture(scope="module")
def found(in_ranks):
    return in_ranks(__file__, torch.cuda.device_count(), None, seconds=300)


def test_a_cloud_on_all_gpus_is_that_of_one_process(found):
    for key, first in found[0]["clouds"].items():
        tolerance = TOLERANCE[key[-1]]
        for step, (value, grad) in enumerate(first["alone"]):
            parts = [answer["clouds"][key]["here"][step] for answer in found]
            for other, _ in parts:
                torch.testing.assert_close(other, value, rtol=tolerance, atol=1e-5, msg=str(key))
            # Data-parallel training divides by the ranks.
            mean = torch.cat([part for _, part in parts]) / len(found)
            assert mean.isfinite().all(), key
            size = float(grad.norm())
            assert float((mean - grad).norm()) <= tolerance * size + 1e-7, key


def test_a_model_on_all_gpus_gets_the_gradients_of_one_process(found):
    for answer in found:
        for key, (ours, alone) in answer["models"].items():
            assert float(alone.norm()) > 0, key
            assert float((ours - alone).norm()) <= 1e-9 * float(alone.norm()), key


def test_a_refresh_on_all_gpus_is_that_of_one_process(found):
    for answer in found:
        ours, alone = answer["refreshed"]
        assert torch.equal(ours, found[0]["refreshed"][0])
        torch.testing.assert_close(ours, alone, rtol=1e-4, atol=1e-6)


def test_all_collectives_ran_under_nccl(found):
    for answer in found:
        assert answer["backend"] == "nccl"
        assert answer["calls"] == {"all_reduce", "all_gather"}


def main(folder, rank, size):
    import test_data_parallel as cases  # beside this script

    device = torch.device("cuda", rank)
    torch.cuda.set_device(device)
    distributed.init_process_group(
        "nccl",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=120),
        device_id=device,
    )
    calls = set()
    for name in ("all_reduce", "all_gather"):
        inner = getattr(distributed, name)

        def counted(*arguments, inner=inner, name=name, **named):
            calls.add(name)
            return inner(*arguments, **named)

        setattr(distributed, name, counted)
    if size == 1:
        ranks.world_size = lambda group=None: 1 if group is ranks.ALONE else Several(1)
    found = {
        "clouds": clouds_on(cases, rank, size, device),
        "models": models_on(cases, rank, size, device),
        "refreshed": refreshed(cases, rank, size, device),
        "backend": distributed.get_backend(),
        "calls": calls,
    }
    torch.save(found, folder / f"rank-{rank}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

"""Layers on several ranks beside one process with all rows; as a script, this is one rank."""

import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed

from isotropy.layers import BalancedLoss, Flow, IsoBatchNorm

D = 8
# The rows of each rank, batch by batch.
LAYOUTS = {
    "halves": [(16, 16), (16, 16), (16, 16)],
    "different": [(5, 20), (1, 9), (30, 2)],
    "none on one": [(0, 12), (12, 0), (7, 7)],
    "one row each": [(1, 1), (1, 1), (20, 4)],
    "one row in all": [(1, 0), (0, 1), (20, 4)],
    "no rows": [(0, 0), (3, 9), (0, 0)],
}
RANKS = 2


def batch(number, size):
    generator = torch.Generator().manual_seed(number)
    x = torch.randn(size, D, generator=generator, dtype=torch.float64)
    return x * torch.linspace(0.2, 3, D) + 4


def part(number, sizes, rank):
    first = sum(sizes[:rank])
    return batch(number, sum(sizes))[first : first + sizes[rank]]


def states(parts_of):
    """The state of every layer after some batches, of which this process has `parts_of`."""
    found = {}
    for layout, sizes in LAYOUTS.items():
        for compat in (None, "released"):
            layer = IsoBatchNorm(D, compat=compat).double()
            for number, rows in enumerate(sizes):
                layer(parts_of(number, rows))
            found[f"iso-batch-norm {compat}, {layout}"] = dict(layer.state_dict())
        torch.manual_seed(0)
        flow = Flow(D).double()
        for number, rows in enumerate(sizes):
            flow(parts_of(number, rows))
        found[f"flow, {layout}"] = dict(flow.state_dict())
    return found


@pytest.fixture(scope="module")
def found(in_ranks):
    return in_ranks(__file__, RANKS, None)


@pytest.fixture(scope="module")
def expected():
    return states(lambda number, sizes: batch(number, sum(sizes)))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["iso-batch-norm None", "iso-batch-norm released", "flow"])
def test_every_rank_has_the_state_of_the_global_batch(found, expected, name, layout):
    wanted = expected[f"{name}, {layout}"]
    for answer in found:
        state = answer["states"][f"{name}, {layout}"]
        assert set(state) == set(wanted)
        for key, value in wanted.items():
            torch.testing.assert_close(state[key], value, rtol=1e-10, atol=1e-10)


def test_losses_are_balanced_by_their_means_over_the_ranks(found):
    alone = BalancedLoss()
    for task, isotropy in (((1.0 + 3.0) / 2, (2.0 + 6.0) / 2), ((2.0 + 4.0) / 2, (1.0 + 3.0) / 2)):
        alone(torch.tensor(task), torch.tensor(isotropy))
    for answer in found:
        torch.testing.assert_close(answer["averages"], alone.averages)


def main(folder, rank, size):
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    answer = {"states": states(lambda number, sizes: part(number, sizes, rank))}
    balanced = BalancedLoss()
    for task, isotropy in (((1.0, 3.0), (2.0, 6.0)), ((2.0, 4.0), (1.0, 3.0))):
        balanced(torch.tensor(task[rank]), torch.tensor(isotropy[rank]))
    answer["averages"] = balanced.averages
    torch.save(answer, folder / f"rank-{rank}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

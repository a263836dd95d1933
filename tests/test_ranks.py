"""Sums and rows over ranks, in real processes; run as a script, this file is one of them."""

import sys
from datetime import timedelta
from pathlib import Path

import pytest
import torch
from torch import distributed

from isotropy import ranks

RANKS = 3
# Rows that each rank has.
SIZES = {"equal": (2, 2, 2), "different": (3, 1, 2), "none on one": (2, 0, 1)}
# Ranks 0 and 2 share batches, and rank 1 is alone.
GROUPS = ((0, 2), (1,))


def rows_of(layout, rank, dtype=torch.float64):
    generator = torch.Generator().manual_seed(rank)
    return torch.randn(SIZES[layout][rank], 2, generator=generator, dtype=dtype)


def weights(like):
    """Some gradient that comes from above, different for every entry and the same on all ranks."""
    return torch.arange(1.0, like.numel() + 1, dtype=like.dtype).reshape(like.shape)


def with_gradient(function, x, group=None):
    x = x.requires_grad_()
    result = function(x, group)
    (grad,) = torch.autograd.grad((weights(result) * result).sum(), x)
    return {"result": result.detach(), "grad": grad}


def answers(rank, group=None):
    found = {"world_size": ranks.world_size(group)}
    for layout in SIZES:
        found[f"gathered {layout}"] = with_gradient(ranks.gathered, rows_of(layout, rank), group)
    x = rows_of("equal", rank)
    found["total"] = with_gradient(ranks.total, x.clone(), group)
    found["total of a view"] = with_gradient(ranks.total, x.clone().T, group)
    found["largest"] = ranks.largest(x.clone().requires_grad_(), group)
    found["input"] = x
    for dtype in (torch.bool, torch.int64, torch.float32, torch.bfloat16):
        found[str(dtype)] = ranks.gathered(rows_of("different", rank).to(dtype), group)
    found["three dimensions"] = ranks.gathered(torch.full((rank + 1, 2, 3), float(rank)), group)
    return found


@pytest.fixture(scope="module")
def found(in_ranks):
    return in_ranks(__file__, RANKS, None)


@pytest.mark.parametrize("rank", range(RANKS))
def test_a_total_is_the_sum_and_its_gradient_comes_times_the_ranks(found, rank):
    x = torch.stack([rows_of("equal", other) for other in range(RANKS)]).requires_grad_()
    expected = x.sum(dim=0)
    for name, wanted in (("total", expected), ("total of a view", expected.T)):
        (grad,) = torch.autograd.grad((weights(wanted) * wanted).sum(), x, retain_graph=True)
        mine = grad[rank] if name == "total" else grad[rank].T
        torch.testing.assert_close(found[rank][name]["result"], wanted.detach())
        torch.testing.assert_close(found[rank][name]["grad"], RANKS * mine)


@pytest.mark.parametrize("rank", range(RANKS))
@pytest.mark.parametrize("layout", SIZES)
def test_gathered_rows_are_in_the_order_of_ranks(found, rank, layout):
    parts = [rows_of(layout, other).requires_grad_() for other in range(RANKS)]
    expected = torch.cat(parts)
    (grad,) = torch.autograd.grad((weights(expected) * expected).sum(), parts[rank])
    answer = found[rank][f"gathered {layout}"]
    assert torch.equal(answer["result"], expected.detach())
    torch.testing.assert_close(answer["grad"], RANKS * grad)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int64, torch.float32, torch.bfloat16], ids=str)
def test_rows_of_any_kind_can_be_gathered(found, dtype):
    expected = torch.cat([rows_of("different", rank) for rank in range(RANKS)]).to(dtype)
    assert all(torch.equal(answer[str(dtype)], expected) for answer in found)
    assert all(answer[str(dtype)].dtype == dtype for answer in found)


def test_rows_of_any_shape_can_be_gathered(found):
    expected = torch.tensor([0.0, 1, 1, 2, 2, 2])[:, None, None].expand(6, 2, 3)
    assert all(torch.equal(answer["three dimensions"], expected) for answer in found)


def test_the_largest_is_the_same_everywhere_without_gradient_and_leaves_its_input(found):
    parts = [rows_of("equal", rank) for rank in range(RANKS)]
    expected = torch.stack(parts).amax(dim=0)
    for part, answer in zip(parts, found, strict=True):
        assert torch.equal(answer["largest"], expected)
        assert not answer["largest"].requires_grad
        assert torch.equal(answer["input"], part)


@pytest.mark.parametrize("members", GROUPS)
def test_a_group_of_ranks_is_a_world_of_its_own(found, members):
    for rank in members:
        answer = found[rank]["in its group"]
        assert answer["world_size"] == len(members)
        parts = [rows_of("different", other) for other in members]
        torch.testing.assert_close(
            answer["gathered different"]["result"], torch.cat(parts), rtol=0, atol=0
        )
        equal = torch.stack([rows_of("equal", other) for other in members])
        torch.testing.assert_close(answer["total"]["result"], equal.sum(dim=0))
        torch.testing.assert_close(
            answer["total"]["grad"], len(members) * weights(equal[0]), rtol=0, atol=0
        )
        assert torch.equal(answer["largest"], equal.amax(dim=0))


def test_one_process_alone_has_the_identity():
    assert ranks.world_size() == 1
    x = rows_of("equal", 0).requires_grad_()
    assert ranks.total(x) is x
    assert ranks.gathered(x) is x
    assert torch.equal(ranks.largest(x), x)
    assert not ranks.largest(x).requires_grad


def test_all_ranks_know_how_many_they_are(found):
    assert [answer["world_size"] for answer in found] == [RANKS] * RANKS


def test_a_rank_that_waits_for_ever_is_a_failure(in_ranks, tmp_path):
    script = tmp_path / "waits.py"
    script.write_text("import sys, time\nif sys.argv[2] == '1': time.sleep(60)\n")
    with pytest.raises(pytest.fail.Exception, match="still waiting"):
        in_ranks(str(script), 2, None, seconds=1)


def test_a_rank_that_fails_ends_the_others(in_ranks, tmp_path):
    script = tmp_path / "fails.py"
    script.write_text(
        "import sys, time\nif sys.argv[2] == '1': raise SystemExit('no')\ntime.sleep(60)\n"
    )
    with pytest.raises(pytest.fail.Exception, match="no"):
        in_ranks(str(script), 2, None, seconds=30)


def main(folder, rank, size):
    distributed.init_process_group(
        "gloo",
        init_method=f"file://{folder}/meeting",
        rank=rank,
        world_size=size,
        timeout=timedelta(seconds=60),
    )
    found = answers(rank)
    groups = [distributed.new_group(list(members)) for members in GROUPS]
    own = next(group for group, members in zip(groups, GROUPS, strict=True) if rank in members)
    found["in its group"] = answers(rank, own)
    torch.save(found, folder / f"rank-{rank}.pt")
    distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))

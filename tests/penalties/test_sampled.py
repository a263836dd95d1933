"""Random tokens: as many as asked for, all with the same chance, none that does not count."""

import pytest
import torch

from isotropy import Representations
from isotropy.errors import SettingError
from isotropy.penalties import IStar
from isotropy.penalties._sampled import TokenSample
from isotropy.representations import Rows

SIZES = (5, 8, 7)
TOTAL = sum(SIZES)


def numbered(masked=()):
    """Rows that are their own numbers, in three blocks, of which one has no mask."""
    x = torch.arange(float(TOTAL))[:, None].expand(-1, 3).contiguous()
    counts = torch.ones(TOTAL, dtype=torch.bool)
    counts[list(masked)] = False
    first, second, third = counts.split(SIZES)
    masks = (first, None if bool(second.all()) else second, third)
    return Rows(x.split(SIZES), masks)


def drawn(rows):
    (block,), (mask,) = rows.blocks, rows.masks
    assert torch.equal(block, block[:, :1].expand_as(block))
    return block[:, 0][mask].long().tolist()


def test_every_row_has_the_same_chance():
    sample = TokenSample(6, seed=3)
    draws = 3000
    seen = torch.zeros(TOTAL)
    for _ in range(draws):
        numbers = drawn(sample(numbered(masked=(0, 3, 19))))
        assert len(set(numbers)) == 6
        seen[numbers] += 1
    assert not seen[[0, 3, 19]].any()
    expected = draws * 6 / 17
    spread = (draws * 6 / 17 * (1 - 6 / 17)) ** 0.5
    counted = seen[seen > 0]
    assert len(counted) == 17
    assert float((counted - expected).abs().max()) < 4 * spread


def test_the_same_seed_draws_the_same_rows_and_every_step_others():
    first, again, other = TokenSample(6, 0), TokenSample(6, 0), TokenSample(6, 1)
    draws = [[drawn(s(numbered())) for _ in range(5)] for s in (first, again, other)]
    assert draws[0] == draws[1]
    assert draws[0] != draws[2]
    assert len({tuple(numbers) for numbers in draws[0]}) == 5
    state = torch.get_rng_state()
    first(numbered())
    assert torch.equal(torch.get_rng_state(), state)  # the training's own draws stay as they are


def test_no_more_than_there_are():
    rows = numbered()
    assert TokenSample(TOTAL)(rows) is rows
    found = TokenSample(6)(numbered(masked=range(3, TOTAL)))
    assert sorted(drawn(found)) == [0, 1, 2]
    assert found.blocks[0].shape == (6, 3)  # shapes depend on shapes alone


def test_a_gradient_reaches_the_drawn_rows():
    rows = numbered(masked=(2, 7))
    blocks = tuple(block.clone().requires_grad_() for block in rows.blocks)
    found = TokenSample(6, seed=5)(rows._replace(blocks=blocks))
    factors = torch.arange(1.0, 7)[:, None].expand(6, 3)
    gradients = torch.autograd.grad((found.blocks[0] * factors).sum(), blocks)
    expected = torch.zeros(TOTAL, 3)
    for factor, number in zip(factors, found.blocks[0][:, 0].long(), strict=True):
        expected[number] = factor
    assert torch.equal(torch.cat(gradients), expected)


def test_a_penalty_of_a_sample_is_that_of_the_drawn_rows():
    layers = tuple(
        torch.randn(3, 5, 4, generator=torch.Generator().manual_seed(k)) for k in range(4)
    )
    mask = torch.tensor([[1, 1, 1, 1, 0], [1, 1, 0, 0, 0], [1, 1, 1, 1, 1]])
    shown = Representations.from_output({"hidden_states": layers}, mask)
    settings = {"shrinkage": "identity", "weight": 1.0}
    found = IStar(tokens=10, seed=7, **settings)(shown)
    flat = Rows(tuple(layer.flatten(0, 1) for layer in layers[1:]), (mask.bool().flatten(),) * 3)
    (block,) = TokenSample(10, seed=7)(flat).blocks
    expected = IStar(**settings)(Representations.from_cloud(block))
    torch.testing.assert_close(found, expected)
    everything = IStar(**settings)(shown)
    assert not torch.isclose(found, everything)
    torch.testing.assert_close(IStar(tokens=45, **settings)(shown), everything)


@pytest.mark.parametrize(("size", "seed"), [(1, 0), (2.5, 0), (True, 0)])
def test_bad_settings(size, seed):
    with pytest.raises(
        SettingError, match=rf"got tokens={size}, expected a whole number from 2 up"
    ):
        TokenSample(size, seed)

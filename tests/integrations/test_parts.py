"""The parts that the trainers share, on their own."""

import random
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import default_collate

from isotropy import penalties
from isotropy.errors import SettingError, SourceError
from isotropy.integrations._cached import CachedPenalty, same_randomness
from isotropy.integrations._samples import this_ranks_batches
from isotropy.integrations._saved import load_penalty, save_penalty
from isotropy.integrations._terms import Terms
from isotropy.integrations._tracking import Tracker, numbers
from isotropy.representations import Representations, Rows


def cloud(n: int, seed: int = 0) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator, dtype=torch.float64)


def test_surrogates_have_the_gradients_of_the_union() -> None:
    # Two layers, masks on some parts only, and labels.
    layers = [cloud(10, seed).requires_grad_() for seed in (1, 2)]
    mask = torch.tensor([True] * 3 + [False] + [True] * 6)
    labels = torch.arange(10) % 2
    penalty = penalties.PersistentEntropy(bars="all")
    whole = penalty.of(Rows(tuple(layers), (mask, mask), labels.repeat(1)))
    expected = torch.autograd.grad(whole, layers)

    def part(span: slice, known: bool) -> Rows:
        keep = mask[span] if known else None
        return Rows(tuple(x[span] for x in layers), (keep, keep), labels[span])

    spans = [(slice(0, 4), True), (slice(4, 7), False), (slice(7, 10), True)]
    parts = [part(*span) for span in spans]
    cached = CachedPenalty(penalty, parts)
    assert float(cached.value) == pytest.approx(float(whole.detach()), rel=1e-12)
    found = [torch.zeros_like(x) for x in layers]
    for one in parts:
        surrogate = cached.surrogate(one)
        assert float(surrogate.detach()) == 0
        for total, grad in zip(found, torch.autograd.grad(surrogate, layers), strict=True):
            total += grad
    for total, grad in zip(found, expected, strict=True):
        torch.testing.assert_close(total, grad)


def test_small_gradients_survive_half_precision() -> None:
    x = cloud(6).half().requires_grad_()
    penalty = penalties.ZeroMean(weight=1e-9)  # whose gradient is below float16's least number
    rows = Rows((x,), (None,))
    surrogate = CachedPenalty(penalty, [rows]).surrogate(rows)
    (grad,) = torch.autograd.grad(1e9 * surrogate, x)  # a scaler's factor
    # Of ‖μ‖²/m with the mean square m: 2μ/(nm) − 2‖μ‖²x/(nm²).
    rows_of, n = x.detach().float(), len(x)
    mean, square = rows_of.mean(dim=0), rows_of.square().sum() / n
    expected = 2 * mean / (n * square) - 2 * mean.square().sum() * rows_of / (n * square**2)
    torch.testing.assert_close(grad.float(), expected, rtol=2e-3, atol=1e-6)


def test_generators_are_left_as_they_were() -> None:
    def draws() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    with same_randomness():
        first = draws()
    assert draws() == first


@pytest.mark.parametrize(
    "penalty",
    [penalties.IStar(tokens=4), penalties.SpectrumExp(site="cls@last"), penalties.Vicreg()],
    ids=lambda penalty: type(penalty).__name__,
)
def test_a_penalty_is_where_its_file_says(tmp_path, penalty: penalties.Penalty) -> None:  # type: ignore[no-untyped-def]
    if isinstance(penalty, penalties.IStar):
        penalty.shrinkage = torch.eye(4)
    for seed in range(3):
        penalty(Representations.from_cloud(cloud(8, seed)))
    penalty(Representations.from_cloud(torch.full((1, 4), torch.nan)))
    save_penalty(penalty, tmp_path)
    settings = {"tokens": 4} if isinstance(penalty, penalties.IStar) else {}
    other = type(penalty)(**settings)
    assert load_penalty(other, tmp_path)
    assert int(other.skipped) == int(penalty.skipped) == 1
    after = Representations.from_cloud(cloud(8, 9))
    if isinstance(penalty, penalties.SpectrumExp):
        other.site = penalty.site
    assert torch.equal(penalty(after), other(after))


def test_the_file_of_another_penalty_is_refused(tmp_path) -> None:  # type: ignore[no-untyped-def]
    assert not load_penalty(penalties.Cosine(), tmp_path)
    save_penalty(penalties.Cosine(), tmp_path)
    with pytest.raises(SourceError, match="the state of Cosine, expected that of Vicreg"):
        load_penalty(penalties.Vicreg(), tmp_path)


def test_terms_are_means_until_they_are_logged() -> None:
    terms = Terms(penalties.Cosine())
    for value in (1.0, 2.0, 6.0):
        terms.keep(task_loss=torch.tensor(value))
    terms.keep(penalty=torch.tensor(4.0))
    assert terms.logs() == {"task_loss": 3.0, "penalty": 4.0}
    assert terms.logs() == {}


@pytest.mark.parametrize("frozen", ["task", "penalty"])
def test_a_term_without_a_gradient_has_no_ratio(frozen: str) -> None:
    layer = nn.Linear(2, 1)
    terms = Terms(penalties.Cosine())
    with_gradient, without = layer(torch.ones(2)).sum(), torch.tensor(1.0)
    pair = (without, with_gradient) if frozen == "task" else (with_gradient, without)
    terms.compare(*pair, layer.parameters())
    assert terms.logs() == {}


ROWS = 72


@pytest.mark.parametrize("world", [1, 2, 3])
def test_a_refresh_gets_the_training_data_in_random_order(
    monkeypatch: pytest.MonkeyPatch, world: int
) -> None:
    """Then the first batches are a sample of all, which the ranks divide among them."""
    monkeypatch.setattr("isotropy.ranks.world_size", lambda: world)

    def dealt(rank: int, seed: int) -> list[int]:
        trainer = SimpleNamespace(
            train_dataset=[{"x": torch.tensor(i)} for i in range(ROWS)],
            args=SimpleNamespace(train_batch_size=4, process_index=rank),
            data_collator=default_collate,
            _get_collator_with_removed_columns=lambda collator: collator,
            model=None,
        )
        batches = list(this_ranks_batches(trainer, seed))
        assert {len(batch["x"]) for batch in batches} == {4}
        return [int(i) for batch in batches for i in batch["x"]]

    orders = []
    for seed in (0, 1):
        parts = [dealt(rank, seed) for rank in range(world)]
        assert parts == [dealt(rank, seed) for rank in range(world)]
        orders.append([i for together in zip(*parts, strict=True) for i in together])
        assert sorted(orders[-1]) == list(range(ROWS))
        # Of every eight rows of the data some are in the first half of the order.
        counts = np.bincount(np.array(orders[-1][: ROWS // 2]) // 8, minlength=ROWS // 8)
        assert counts.min() >= 1
    assert orders[0] != orders[1] != list(range(ROWS))


def test_undefined_numbers_are_left_out() -> None:
    x = torch.cat((cloud(8), torch.zeros(1, 4, dtype=torch.float64)))
    assert set(numbers(x, ["iso_score", "mean_cosine"])) == {"iso_score"}


def test_a_tracker_needs_batches() -> None:
    with pytest.raises(SettingError, match="got no batches to track measures on"):
        Tracker("iso_score", [])

"""`IStar.refresh`: the covariance of a model's states, gathered by hand."""

import numpy as np
import pytest
import torch
import transformers
from torch import nn

from isotropy.errors import SettingError
from isotropy.penalties import IStar

DEPTH = 2


@pytest.fixture
def model():
    config = transformers.BertConfig(
        vocab_size=30,
        hidden_size=8,
        num_hidden_layers=DEPTH,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=12,
        initializer_range=0.5,
        hidden_dropout_prob=0.5,
    )
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(config).train()


def batches(count=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    for _ in range(count):
        ids = torch.randint(1, 30, (4, 6), generator=generator)
        lengths = torch.randint(1, 7, (4, 1), generator=generator)
        mask = (torch.arange(6) < lengths).long()
        labels = torch.zeros(4, dtype=torch.int64)
        yield {"input_ids": ids * mask, "attention_mask": mask, "labels": labels}


@torch.no_grad()
def tokens_by_hand(model, layers=(1, 2), count=3, padding=False):
    """Every token's state in evaluation mode, batch by batch and layer by layer."""
    model.eval()
    rows = []
    for batch in batches(count):
        states = model(**batch, output_hidden_states=True).hidden_states
        for layer in layers:
            for text, flags in zip(states[layer], batch["attention_mask"], strict=True):
                rows += [
                    t.double().numpy() for t, f in zip(text, flags, strict=True) if f or padding
                ]
    model.train()
    return np.array(rows)


def refreshed(model, given=None, points=250_000, **settings):
    penalty = IStar(**settings)
    penalty.refresh(model, batches() if given is None else given, points=points)
    assert penalty.shrinkage is not None
    return penalty.shrinkage


@pytest.mark.parametrize(
    ("settings", "by_hand"),
    [
        ({}, {}),
        ({"site": "tokens@1"}, {"layers": (1,)}),
        ({"include_padding": True}, {"padding": True}),
    ],
)
def test_is_the_covariance_of_all_states(model, settings, by_hand):
    found = refreshed(model, **settings)
    expected = np.cov(tokens_by_hand(model, **by_hand).T)
    assert found.dtype == torch.float32
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5, atol=1e-6)


LAYERS, TEXTS, TOKENS = 3, 4, 6


class OneHot(nn.Module):
    """Every token has a direction of its own at every layer, so that a covariance names its rows.

    The covariance of n such rows, all different, is (diag(c) − ccᵀ/n)/(n − 1), where c is 1 for the
    directions that are among them.
    """

    def __init__(self, words):
        super().__init__()
        self.words = nn.Parameter(torch.eye(words))

    def forward(self, input_ids, attention_mask, **_):
        state = self.words[input_ids]
        parts = [torch.zeros_like(state)] * LAYERS
        states = [torch.cat([*parts[:i], state, *parts[i + 1 :]], dim=2) for i in range(LAYERS)]
        return {"hidden_states": (states[0], *states)}


def numbered(count, lengths=(6, 6, 2, 5)):
    """Batches in which every token has a number of its own."""
    ids = torch.arange(count * TEXTS * TOKENS).reshape(count, TEXTS, TOKENS)
    mask = (torch.arange(TOKENS) < torch.tensor(lengths)[:, None]).long()
    return [{"input_ids": table, "attention_mask": mask} for table in ids]


def taken(points, count=2, **settings):
    """The numbers of the tokens of which the matrix is the covariance, the same at each layer."""
    given = numbered(count)
    words = count * TEXTS * TOKENS
    found = refreshed(OneHot(words), given, points=points, **settings)
    chosen = (found.diagonal() > 0).double()
    n = chosen.sum()
    expected = (torch.diag(chosen) - torch.outer(chosen, chosen) / n) / (n - 1)
    torch.testing.assert_close(found.double(), expected, rtol=1e-5, atol=1e-7)
    first, *others = chosen.reshape(LAYERS, words).bool()
    assert all(torch.equal(first, other) for other in others)
    counting = [b["input_ids"][b["attention_mask"].bool()] for b in given]
    assert set(first.nonzero()[:, 0].tolist()) <= set(torch.cat(counting).tolist())
    return first.nonzero()[:, 0].tolist()


PER_BATCH = 19


@pytest.mark.parametrize("points", [3, 4, 8, 20, 56, 57, 58, 60, 90, 113, 114, 115, 250_000])
def test_all_layers_give_the_same_tokens(points):
    found = taken(points)
    assert len(found) == min(points // LAYERS, 2 * PER_BATCH)
    in_first = sum(number < TEXTS * TOKENS for number in found)
    assert in_first == min(len(found), PER_BATCH)


def test_each_layer_gives_a_row_at_least():
    assert len(taken(2)) == 1


def test_tokens_are_drawn_from_all_of_a_batch():
    draws = [taken(18, count=1, seed=seed) for seed in range(60)]
    assert draws == [taken(18, count=1, seed=seed) for seed in range(60)]
    counts = torch.bincount(torch.tensor(draws).flatten(), minlength=TEXTS * TOKENS)
    counts = counts[numbered(1)[0]["attention_mask"].flatten().bool()]
    assert counts.sum() == 60 * 6
    # A token is drawn 60 · 6/19 times, give or take 3.6: five of these are more than chance gives.
    assert (counts - 60 * 6 / PER_BATCH).abs().max() < 5 * 3.6


def texts_taken(size, *, texts=64, points=LAYERS * 40):
    """Of how many texts a refresh takes tokens, given them in batches of some size."""
    ids = torch.arange(texts * TOKENS).reshape(texts, TOKENS)
    given = [
        {"input_ids": part, "attention_mask": torch.ones_like(part)} for part in ids.split(size)
    ]
    found = refreshed(OneHot(texts * TOKENS), given, points=points)
    chosen = found.diagonal().reshape(LAYERS, texts, TOKENS)[0] > 0
    assert int(chosen.sum()) == 40
    return int(chosen.any(dim=1).sum())


def test_one_large_batch_is_a_sample_of_more_texts_than_small_ones():
    assert texts_taken(1) == 7  # all tokens of the first six texts, and four of the seventh
    assert texts_taken(4) == 8
    assert texts_taken(16) == 16
    assert texts_taken(64) > 24


def test_batches_are_read_no_further_than_needed(model):
    def endless():
        while True:
            yield from batches(1)

    rows = tokens_by_hand(model, count=1)
    found = refreshed(model, endless(), points=len(rows))
    np.testing.assert_allclose(found.numpy(), np.cov(rows.T), rtol=1e-4, atol=1e-5)


def test_the_model_is_left_as_it_was(model):
    model.bert.embeddings.eval()  # such as a frozen part
    modes = [module.training for module in model.modules()]
    weights = {name: weight.clone() for name, weight in model.named_parameters()}
    refreshed(model)
    assert [module.training for module in model.modules()] == modes
    assert sum(modes) < len(modes)
    assert all(torch.equal(weights[name], weight) for name, weight in model.named_parameters())
    assert all(weight.grad is None for weight in model.parameters())


def test_the_mode_is_restored_after_an_error(model):
    with pytest.raises(ValueError, match="You must specify"):  # transformers' own
        refreshed(model, [{"nonsense": torch.ones(1)}])
    assert model.training


def test_every_refresh_takes_the_model_as_it_is(model):
    penalty = IStar()
    penalty.refresh(model, batches())
    first = penalty.shrinkage.clone()
    with torch.no_grad():
        model.bert.embeddings.word_embeddings.weight.mul_(3)
    penalty.refresh(model, batches())
    assert not torch.allclose(penalty.shrinkage, first)
    np.testing.assert_allclose(
        penalty.shrinkage.numpy(), np.cov(tokens_by_hand(model).T), rtol=1e-5, atol=1e-6
    )


@pytest.mark.parametrize("shrinkage", ["identity", torch.eye(8)])
def test_a_matrix_that_was_given_stays(model, shrinkage):
    penalty = IStar(shrinkage=shrinkage)
    before = penalty.shrinkage
    penalty.refresh(model, batches())
    assert penalty.shrinkage is before


def test_too_little_to_take_a_covariance_of(model):
    with pytest.raises(SettingError, match="got points=1, expected"):
        refreshed(model, points=1)
    message = (
        "got 0 rows for the shrinkage matrix, expected at least 2; give `refresh` batches with"
    )
    with pytest.raises(SettingError, match=message):
        refreshed(model, [])
    empty = {"input_ids": torch.ones(2, 3, dtype=torch.int64), "attention_mask": torch.zeros(2, 3)}
    with pytest.raises(SettingError, match=message):
        refreshed(model, [empty])


def test_other_penalties_have_nothing_to_refresh():
    from isotropy.penalties import Cosine

    Cosine().refresh(nn.Identity(), iter(()))

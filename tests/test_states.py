"""A model's states on a batch, as they are outside of training."""

import pytest
import torch
import transformers

from isotropy.sites import Site
from isotropy.states import evaluation, states

COMMON = {
    "vocab_size": 30,
    "d_model": 8,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "decoder_start_token_id": 1,
}


@pytest.fixture(scope="module")
def bert():
    config = transformers.BertConfig(
        vocab_size=30,
        hidden_size=8,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=12,
        hidden_dropout_prob=0.9,
    )
    torch.manual_seed(0)
    return transformers.BertForSequenceClassification(config).train()


@pytest.fixture(scope="module")
def bart():
    config = transformers.BartConfig(
        **COMMON,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=16,
        decoder_ffn_dim=16,
        max_position_embeddings=12,
    )
    torch.manual_seed(0)
    return transformers.BartForConditionalGeneration(config).train()


def batch():
    ids = torch.tensor([[5, 6, 7, 2], [8, 2, 0, 0]])
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def test_blocks_are_the_layers_rows_that_count_in_evaluation_mode(bert):
    found = list(
        states(bert, {**batch(), "labels": torch.zeros(2).long()}, Site.parse("tokens@all"))
    )
    assert bert.training
    bert.eval()
    with torch.no_grad():
        expected = bert(**batch(), output_hidden_states=True).hidden_states[1:]
    bert.train()
    counts = batch()["attention_mask"].bool()
    assert len(found) == 2
    for block, layer in zip(found, expected, strict=True):
        assert torch.equal(block, layer[counts])
        assert not block.requires_grad
    padded = list(states(bert, batch(), Site.parse("tokens@1"), include_padding=True))
    assert torch.equal(padded[0], expected[0].flatten(0, 1))


def test_labels_are_not_looked_at(bert):
    """Nor may they be: these would fail in the loss."""
    wrong = {**batch(), "labels": torch.tensor([77, 99])}
    (block,) = states(bert, wrong, Site.parse("cls@last"))
    assert block.shape == (2, 8)


def test_a_decoder_s_labels_are_its_input(bart):
    labels = torch.tensor([[9, 10, 2], [11, 2, -100]])
    (block,) = states(bart, {**batch(), "labels": labels}, Site.parse("decoder-tokens@last"))
    bart.eval()
    with torch.no_grad():
        expected = bart(**batch(), labels=labels, output_hidden_states=True)
    bart.train()
    assert torch.equal(block, expected.decoder_hidden_states[-1].flatten(0, 1))
    (block,) = states(bart, {**batch(), "labels": labels}, Site.parse("tokens@2"))
    counts = batch()["attention_mask"].bool()
    assert torch.equal(block, expected.encoder_hidden_states[2][counts])


def test_every_part_is_left_in_its_mode(bert):
    bert.bert.encoder.layer[0].eval()
    with evaluation(bert):
        assert not any(module.training for module in bert.modules())
    assert bert.training
    assert not bert.bert.encoder.layer[0].training
    with pytest.raises(RuntimeError, match="stop"), evaluation(bert):
        raise RuntimeError("stop")
    assert bert.training
    assert not bert.bert.encoder.layer[0].training
    bert.train()

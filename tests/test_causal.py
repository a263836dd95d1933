"""Which models are decoder-only, told by what their first token's state depends on."""

import pytest
import torch
import transformers
from torch import nn

from isotropy import Representations
from isotropy._causal import is_causal
from isotropy.sites import Site

WIDE = {"vocab_size": 30, "initializer_range": 0.5}
BERT = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 20,
    **WIDE,
}
GPT = {"n_embd": 16, "n_layer": 2, "n_head": 4, "n_positions": 20, **WIDE}
GEMMA = {**BERT, "head_dim": 8, "num_key_value_heads": 1}
KINDS = {
    "BertModel": BERT,
    "BertForSequenceClassification": BERT,
    "BertForMaskedLM": BERT,
    "BertLMHeadModel": {**BERT, "is_decoder": True},
    "RobertaModel": {**BERT, "is_decoder": True},
    "RobertaForSequenceClassification": BERT,
    "RemBertModel": {**BERT, "input_embedding_size": 8},
    "RemBertForCausalLM": {**BERT, "input_embedding_size": 8, "is_decoder": True},
    "BertGenerationEncoder": BERT,
    "BertGenerationDecoder": {**BERT, "is_decoder": True},
    "DistilBertModel": {"dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 32, **WIDE},
    "GPT2Model": GPT,
    "OpenAIGPTModel": GPT,
    "CodeGenModel": {**GPT, "rotary_dim": 4},
    "BloomForSequenceClassification": {"hidden_size": 16, "n_layer": 2, "n_head": 2, **WIDE},
    "MptModel": {"d_model": 16, "n_layers": 2, "n_heads": 2, **WIDE},
    "CLIPTextModel": {**BERT, "vocab_size": 40},
    "MambaModel": {"hidden_size": 16, "num_hidden_layers": 2, "state_size": 4, **WIDE},
    "Gemma3TextModel": GEMMA,
    "T5EncoderModel": {"d_model": 16, "d_kv": 8, "d_ff": 32, "num_layers": 2, "num_heads": 2},
}


def made(name, settings):
    torch.manual_seed(0)
    kind = getattr(transformers, name)
    special = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
    return kind(kind.config_class(**special, **settings)).eval()


@torch.no_grad()
def first_token_sees_the_last(model):
    texts = torch.tensor([[3, 4, 5, 6], [3, 4, 5, 7]])
    states = model(texts, output_hidden_states=True).hidden_states[-1]
    return not torch.allclose(states[0, 0], states[1, 0], rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", KINDS)
def test_a_model_is_causal_if_its_first_token_sees_nothing(name):
    model = made(name, KINDS[name])
    assert is_causal(model) is not first_token_sees_the_last(model)


def test_a_decoder_that_was_made_to_see_all_is_an_encoder():
    model = made("Gemma3TextModel", {**GEMMA, "use_bidirectional_attention": True})
    assert first_token_sees_the_last(model)
    assert not is_causal(model)


@pytest.mark.parametrize("name", ["T5Model", "BartModel"])
def test_an_encoder_and_a_decoder_are_not_a_decoder(name):
    sizes = {"encoder_layers": 1, "decoder_layers": 1, "decoder_attention_heads": 2}
    sizes |= {"encoder_attention_heads": 2} if name == "BartModel" else {}
    settings = KINDS["T5EncoderModel"] if name == "T5Model" else {"d_model": 16, **sizes}
    assert not is_causal(made(name, {"vocab_size": 30, **settings}))


@torch.no_grad()
def test_xlnet_s_summary_is_of_its_last_token():
    settings = {"d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 32, **WIDE}
    model = made("XLNetForSequenceClassification", settings)
    ids = torch.tensor([[3, 4, 5, 6], [0, 0, 5, 7]])  # its tokenizer pads on the left
    inputs = {"input_ids": ids, "attention_mask": (ids > 0).long()}
    output = model(**inputs, output_hidden_states=True)
    shown = Representations.from_output(output, inputs["attention_mask"], model=model)
    (rows,) = shown.rows(Site.parse("cls@last")).blocks
    logits = model.logits_proj(torch.tanh(model.sequence_summary.summary(rows)))
    torch.testing.assert_close(logits, output.logits)


class Own(nn.Module):
    """A model of nobody's, which may say that its attention is causal."""

    def __init__(self, says, **config):
        super().__init__()
        self.attention = nn.Identity()
        self.attention.is_causal = says
        self.config = transformers.PreTrainedConfig(**config)


def test_what_transformers_does_not_know_is_told_by_its_attention():
    assert is_causal(Own(True))
    assert not is_causal(Own(False))
    assert not is_causal(nn.Linear(2, 2))
    assert not is_causal(None)


def test_what_cannot_be_told_can_be_said():
    assert is_causal(Own(False, is_causal=True))
    assert not is_causal(Own(True, is_causal=False))
    model = made("GPT2Model", GPT)
    model.config.is_causal = False  # then transformers lets every token see all
    assert first_token_sees_the_last(model)
    assert not is_causal(model)

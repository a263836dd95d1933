"""A model and a text as a source of embeddings, and the same written to a file."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TypeAlias

import torch

from isotropy._version import __version__
from isotropy.errors import IsotropyWarning, SettingError, SourceError
from isotropy.sources._embedding_writer import EmbeddingWriter
from isotropy.sources._pretrained import Pretrained
from isotropy.sources._sites import Site
from isotropy.sources._source import Chunk
from isotropy.sources._table import Table
from isotropy.sources._text_encoder import STORED_DTYPES, Counts, TextEncoder, check_settings
from isotropy.sources._texts import Texts, TextSource

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Called with the stage's name, what is done of it, and how much there is where that is known."""


class ModelText(Table):
    """The embeddings that a model gives for a text, computed each time they are read.

    Rows stand in the order of the texts, then of the layers, then of the tokens. Column `row` is
    the number of the text's line or record, counted from 0; sites with several layers have a
    column `layer`, sites with several tokens a column `token`.

    The states are those of the transformer: layers on top of it, such as the normalisation of
    sentence encoders, are not applied. Padding never counts. Texts longer than the model takes are
    cut, blank ones are left out.

    Args:
        model: `"minilm"` (the real MiniLM encoder of the demo extra), a model folder or a hub name.
        text: a file (`.txt` with a text a line, `.jsonl`, `.csv`, `.tsv`, `.parquet`) or the texts.
        site: `cls`, `mean` or `tokens` at `last`, `all` (layers 1 to the last) or a layer's number;
            0 is the lookup layer.
        column: the column with the texts, where there are columns.
        batch_size: how many texts the model sees at once.
        max_length: tokens at which a text is cut; by default the model's own limit.
        device: where the model runs; by default an accelerator if there is one.
        dtype: of the embeddings, `float32` or `float16`.
        model_dtype: in what the model runs: `float32`, `bfloat16`, `float16`, or `auto` for the
            dtype of its weights.

    Raises:
        SourceError: the model or the text cannot be read.
        SettingError: a setting that does not exist or makes no sense.
        MissingExtraError: transformers or the weights of `minilm` are not installed.

    Example:
        >>> source = ModelText("minilm", ["a text", "another"], site="mean@all")  # doctest: +SKIP
        >>> isotropy.measure(source, ["mean_cosine"], by="layer")  # doctest: +SKIP
    """

    def __init__(
        self,
        model: str | os.PathLike[str],
        text: TextSource,
        *,
        site: str = "mean@last",
        column: str = "text",
        batch_size: int = 64,
        max_length: int | None = None,
        device: str | torch.device | None = None,
        dtype: str = "float32",
        model_dtype: str = "float32",
    ) -> None:
        where = Site.parse(site)
        check_settings(batch_size=batch_size, max_length=max_length, dtype=dtype)
        self._texts = Texts(text, column)
        if not self._texts.repeatable:
            raise SettingError(
                "got standard input as the text of a source, expected a text that can be read "
                "more than once; embed it to a file first, and measure that"
            )
        loaded = Pretrained.load(model, device=device, model_dtype=model_dtype)
        self._encoder = TextEncoder(
            loaded, site=where, batch_size=batch_size, max_length=max_length, dtype=dtype
        )
        self.name = f"{loaded.name} on {self._texts.name}, {where}"
        self.n_rows = None
        self.features = loaded.features
        self.dtype = STORED_DTYPES[dtype]
        self.columns = ("row", *where.columns)

    def _chunks(self, rows: int, columns: tuple[str, ...]) -> Iterator[Chunk]:
        counts = Counts()
        for block in self._encoder.blocks(self._texts, counts):
            start = counts.rows - len(block.rows)
            for first in range(0, len(block.rows), rows):
                part = slice(first, first + rows)
                chosen = {name: block.columns[name][part] for name in columns}
                yield Chunk(block.rows[part], start + first, chosen)
        _require_texts(self._texts, counts)
        if counts.truncated:
            warnings.warn(
                f"{counts.truncated} of {counts.texts} texts were cut at "
                f"{self._encoder.max_length} tokens",
                IsotropyWarning,
                stacklevel=2,
            )


@dataclass(frozen=True)
class EmbedSummary:
    """What `embed` did.

    Attributes:
        out: the file written.
        model: the model's name.
        site: what was taken of its states.
        device: where it ran.
        texts: texts embedded.
        rows: embeddings written: texts × layers × tokens.
        features: number of features of an embedding.
        layers: the numbers of the layers.
        tokens: tokens that the model has seen, padding not counted.
        skipped: texts left out as they are blank.
        truncated: texts cut at `max_length` tokens.
        max_length: the longest text in tokens, or None without a limit.
        seconds: time it took after the model was loaded.
    """

    out: Path
    model: str
    site: str
    device: str
    texts: int
    rows: int
    features: int
    layers: tuple[int, ...]
    tokens: int
    skipped: int
    truncated: int
    max_length: int | None
    seconds: float

    def __str__(self) -> str:
        lines = [
            f"{self.out}: {self.rows} rows × {self.features} features from {self.texts} texts, "
            f"{self.site} of {self.model}",
            f"{self.tokens} tokens in {self.seconds:.1f} s on {self.device}",
        ]
        if self.truncated:
            lines.append(f"{self.truncated} texts were cut at {self.max_length} tokens")
        if self.skipped:
            lines.append(f"{self.skipped} blank texts were left out")
        return "\n".join(lines)


def embed(
    model: str | os.PathLike[str],
    text: TextSource,
    out: str | os.PathLike[str],
    *,
    site: str = "mean@last",
    column: str = "text",
    batch_size: int = 64,
    max_length: int | None = None,
    device: str | torch.device | None = None,
    dtype: str = "float32",
    model_dtype: str = "float32",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> EmbedSummary:
    """Write the embeddings of a text, one pass for all layers, in bounded memory.

    The arguments are those of `ModelText`, whose rows and columns the file gets. Text may also
    come from standard input, `"-"`, one text a line. An interrupted run leaves no file.

    Args:
        model: `"minilm"`, a model folder or a hub name.
        text: a text file or the texts.
        out: the file to write: `.safetensors` (tensors `embeddings`, `row`, `layer`, `token`) or
            `.parquet` (`embedding` and the same columns).
        site: what to take of the model's states.
        column: the column with the texts, where there are columns.
        batch_size: how many texts the model sees at once.
        max_length: tokens at which a text is cut.
        device: where the model runs.
        dtype: in what to store, `float32` or `float16`.
        model_dtype: in what the model runs.
        overwrite: whether to replace an existing file.
        progress: called with `("loading model", 0, None)`, then with `"embedding"` and the number
            of texts done and of all texts, where that is known.

    Raises:
        SourceError: the model or the text cannot be read, or the file not be written.
        SettingError: a setting that does not exist or makes no sense, or the file exists.
        MissingExtraError: transformers or the weights of `minilm` are not installed.

    Example:
        >>> print(embed("minilm", "sentences.txt", "embeddings.safetensors"))  # doctest: +SKIP
        embeddings.safetensors: 3000 rows × 384 features from 3000 texts, mean@last of minilm
        52882 tokens in 7.3 s on cpu
    """
    report = progress or (lambda stage, done, total: None)
    where = Site.parse(site)
    check_settings(batch_size=batch_size, max_length=max_length, dtype=dtype)
    texts = Texts(text, column)
    if texts.path is not None and Path(out).exists() and texts.path.samefile(out):
        raise SettingError(f"got {texts.name} as the text and as the output, expected two files")
    columns = ("row", *where.columns)
    with EmbeddingWriter(
        out, dtype=STORED_DTYPES[dtype], columns=columns, overwrite=overwrite
    ) as writer:
        report("loading model", 0, None)
        loaded = Pretrained.load(model, device=device, model_dtype=model_dtype)
        encoder = TextEncoder(
            loaded, site=where, batch_size=batch_size, max_length=max_length, dtype=dtype
        )
        total = texts.count()
        counts = Counts()
        started = perf_counter()
        advance = partial(_advance, report, counts, total)
        advance()
        for block in encoder.blocks(texts, counts, advance):
            writer.write(block.rows, block.columns)
        advance()
        _require_texts(texts, counts)
        summary = EmbedSummary(
            out=writer.out,
            model=loaded.name,
            site=str(where),
            device=str(loaded.device),
            texts=counts.texts,
            rows=counts.rows,
            features=loaded.features,
            layers=encoder.layers,
            tokens=counts.tokens,
            skipped=counts.skipped,
            truncated=counts.truncated,
            max_length=encoder.max_length,
            seconds=perf_counter() - started,
        )
        writer.finish(_metadata(summary, texts, model_dtype))
    return summary


def _advance(report: Progress, counts: Counts, total: int | None) -> None:
    report("embedding", counts.texts + counts.skipped, total)


def _require_texts(texts: Texts, counts: Counts) -> None:
    if not counts.texts:
        blank = f" ({counts.skipped} blank ones)" if counts.skipped else ""
        raise SourceError(f"got {texts.name} with no texts{blank}, expected at least one text")


def _metadata(summary: EmbedSummary, texts: Texts, model_dtype: str) -> Mapping[str, str]:
    """What a reader of the file should know of where it comes from."""
    import transformers

    return {
        "model": summary.model,
        "site": summary.site,
        "layers": ",".join(str(layer) for layer in summary.layers),
        "text": texts.name,
        "texts": str(summary.texts),
        "truncated": str(summary.truncated),
        "max_length": str(summary.max_length),
        "model_dtype": model_dtype,
        "isotropy": __version__,
        "transformers": transformers.__version__,
        "torch": torch.__version__,
    }

"""Readers of embeddings: arrays, files, folders of shards, standard input, model and text."""

from isotropy.sources._model_text import (
    EmbedSummary as EmbedSummary,
    ModelText as ModelText,
    embed as embed,
)
from isotropy.sources._open import FORMATS as FORMATS, open_source as open_source
from isotropy.sources._source import Chunk as Chunk, Source as Source

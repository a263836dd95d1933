"""Translation, scored by sacrebleu."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from isotropy.errors import MissingExtraError, SettingError, SourceError
from isotropy.experiments.spec import DataSettings
from isotropy.experiments.tasks._layout import Layout
from isotropy.experiments.tasks._task import Predictions, Row, Scores
from isotropy.experiments.tasks._text_to_text import OPTIONS, HubPairs, TextToText
from isotropy.sources._messages import reading, shown
from isotropy.sources._texts import text_lines

# What a language is called in T5's prefix, and its code in mBART's, NLLB's and M2M100's tokenizers.
_LANGUAGES = {
    "de": ("German", ("de_DE", "deu_Latn", "de")),
    "en": ("English", ("en_XX", "eng_Latn", "en")),
    "ro": ("Romanian", ("ro_RO", "ron_Latn", "ro")),
}


@dataclass(frozen=True, kw_only=True)
class Translation(TextToText):
    """Translate from one language to another.

    Options beside those of `TextToText`: `source_code` and `target_code`, what a tokenizer of many
    languages calls the two (None: they are found, for mBART, NLLB, M2M100 and their kin).

    BLEU and chrF are those of sacrebleu with its own settings, from 0 to 100.
    """

    kind: ClassVar[str] = "translation"

    source: str
    target: str

    def check(self, data: DataSettings) -> None:
        """Look at the settings alone."""
        super().check(data)
        for name in ("source_code", "target_code"):
            code = self.options(data)[name]
            if not isinstance(code, str | None):
                raise SettingError(f"got {name}={code!r}, expected a language's code as text")

    def file_rows(self, paths: Sequence[Path]) -> list[Row]:
        """The pairs of two files with a sentence a line."""
        sources, targets = (_lines(path) for path in paths)
        if len(sources) != len(targets):
            raise SourceError(
                f"got {len(sources)} lines in {str(paths[0])!r} and {len(targets)} in "
                f"{str(paths[1])!r}, expected a line in one for each in the other"
            )
        return [
            {"source": source, "target": target}
            for source, target in zip(sources, targets, strict=True)
        ]

    def hub_rows(self, dataset: Any) -> Sequence[Row]:
        """The pairs of a split on the hub."""

        def pair(row: Mapping[str, Any]) -> Row:
            texts = row["translation"]
            return {"source": texts[self.source], "target": texts[self.target]}

        return HubPairs(dataset, pair)

    def t5_prefix(self) -> str:
        """What a T5 was trained to see."""
        return f"translate {_LANGUAGES[self.source][0]} to {_LANGUAGES[self.target][0]}: "

    def encode(
        self, rows: Sequence[Row], tokenizer: Any, data: DataSettings, *, training: bool
    ) -> list[dict[str, Any]]:
        """Tokens of source and target, with their languages where the tokenizer has many."""
        self.check(data)
        self._speak(tokenizer, data)
        return super().encode(rows, tokenizer, data, training=training)

    def generation(self, tokenizer: Any, data: DataSettings) -> dict[str, Any]:
        """Keyword arguments of `generate`, with the language to write where there are many."""
        found = super().generation(tokenizer, data)
        if not self._speak(tokenizer, data):
            return found
        # The tokenizer shows where its models look for the language: mBART's begin to decode with
        # it, those of mBART-50, M2M100 and NLLB write it first.
        tokens = tokenizer(text_target="")["input_ids"]
        (language,) = (token for token in tokens if token != tokenizer.eos_token_id)
        place = "forced_bos_token_id" if tokens[0] == language else "decoder_start_token_id"
        return {place: language, **found}

    def score(self, predictions: Predictions, rows: Sequence[Row]) -> Scores:
        """BLEU and chrF of all sentences together."""
        try:
            import sacrebleu
        except ImportError:
            raise MissingExtraError("sacrebleu", "train") from None
        texts = list(predictions.values)
        targets = [[row["target"] for row in rows]]
        return {
            # `force` silences a word about tokenised texts; it changes no number.
            "bleu": float(sacrebleu.corpus_bleu(texts, targets, force=True).score),
            "chrf": float(sacrebleu.corpus_chrf(texts, targets).score),
        }

    def _speak(self, tokenizer: Any, data: DataSettings) -> bool:
        """Tell a tokenizer of many languages which two it reads; whether it is one."""
        if not hasattr(tokenizer, "src_lang"):
            return False
        options = self.options(data)
        known = {*tokenizer.get_vocab(), *getattr(tokenizer, "lang_code_to_id", ())}
        tokenizer.src_lang = _code("source_code", self.source, options["source_code"], known)
        tokenizer.tgt_lang = _code("target_code", self.target, options["target_code"], known)
        return True


def _code(option: str, language: str, given: str | None, known: set[str]) -> str:
    """What a tokenizer calls a language."""
    name, codes = _LANGUAGES[language]
    for code in codes if given is None else (given,):
        if code in known:
            return code
    tried = " or ".join(repr(code) for code in codes) if given is None else repr(given)
    raise SettingError(
        f"got a tokenizer that does not know {tried} for {name}, expected one of its own language "
        f"codes; say it with the option {option}"
    )


def _lines(path: Path) -> list[str]:
    name = shown(str(path))
    with reading(name), path.open("rb") as file:
        found = [text for _, text in text_lines(file, name)]
    if not found:
        raise SourceError(f"got file {name} without lines, expected a sentence a line")
    return found


def _wmt16(source: str, target: str, *, config: str, dev: tuple[str, ...]) -> Translation:
    return Translation(
        name=f"wmt16-{source}-{target}",
        summary=f"news from {_LANGUAGES[source][0]} to {_LANGUAGES[target][0]} (WMT16)",
        reference="Bojar et al. 2016, doi:10.18653/v1/W16-2301",
        metric="bleu",
        metrics=("bleu", "chrf"),
        defaults={**OPTIONS, "source_code": None, "target_code": None},
        source=source,
        target=target,
        layout=Layout(
            hub="wmt/wmt16",
            config=config,
            folders=(f"wmt16/{config}", config),
            stems={
                "train": ("train", "train10k"),
                "dev": (*dev, "dev"),
                "test": ("newstest2016", "test"),
            },
            endings=tuple((f".{code}", f".tok.{code}") for code in (source, target)),
        ),
    )


TRANSLATION = (
    _wmt16("en", "ro", config="ro-en", dev=("newsdev2016",)),
    _wmt16("de", "en", config="de-en", dev=("newstest2015", "newstest2013")),
)

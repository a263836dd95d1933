"""The nine tasks of GLUE (Wang et al., 2019), and SST-5."""

from collections.abc import Mapping
from typing import Any

from isotropy.experiments.tasks._classification import Classification, Regression
from isotropy.experiments.tasks._files import Layout
from isotropy.experiments.tasks._hub import Hub
from isotropy.experiments.tasks._published import Published
from isotropy.experiments.tasks._tsv import Columns

_GLUE = "https://arxiv.org/abs/1804.07461"
_SPLITS = {"train": "train", "dev": "validation"}
_FILES: Layout = {"train": ("train.tsv",), "dev": ("dev.tsv",)}
_ENTAILMENT = ("entailment", "not_entailment")


def _pairs(text: str, pair: str, label: str = "label", *, broken: bool = False) -> Columns:
    names = {"text": (text, "text"), "pair": (pair, "pair"), "label": (label, "label")}
    return Columns(names=names, broken=broken)


def _glue(config: str, columns: Mapping[str, str], **splits: str) -> Hub:
    return Hub(
        repository="nyu-mll/glue",
        config=config,
        splits=splits or _SPLITS,
        columns={**columns, "label": "label"},
    )


_SENTENCE = {"text": "sentence"}
_SENTENCES = {"text": "sentence1", "pair": "sentence2"}


def _task(
    name: str,
    summary: str,
    *,
    folder: str,
    columns: Columns,
    hub: Hub,
    classes: tuple[str, ...] = ("0", "1"),
    names: tuple[str, ...] | None = None,
    layouts: tuple[Layout, ...] = (_FILES,),
    unlabelled: frozenset[str] = frozenset(),
    metrics: tuple[str, ...] = ("accuracy",),
    reference: str = _GLUE,
) -> Classification:
    """A task of GLUE; its first metric is the main one, `names` are its classes for readers."""
    return Classification(
        name=name,
        summary=summary,
        reference=reference,
        metric=metrics[0],
        metrics=metrics,
        classes=names or classes,
        origin=Published(
            folders=(name, folder),
            layouts=layouts,
            columns=columns,
            hub=hub,
            classes=classes,
            unlabelled=unlabelled,
        ),
    )


cola = _task(
    "cola",
    "Is the sentence acceptable English? (Matthews' correlation)",
    folder="CoLA",
    columns=Columns(
        names={"text": ("sentence", "text"), "label": ("label",)},
        places={"label": 1, "text": 3},  # source, label, original mark, sentence
        widths=(4,),
    ),
    hub=_glue("cola", _SENTENCE),
    names=("unacceptable", "acceptable"),
    metrics=("matthews", "accuracy"),
)

sst2 = _task(
    "sst2",
    "Is a phrase of a film review positive?",
    folder="SST-2",
    columns=Columns(names={"text": ("sentence", "text"), "label": ("label",)}),
    hub=_glue("sst2", _SENTENCE),
    names=("negative", "positive"),
)

mrpc = _task(
    "mrpc",
    "Do two sentences of the news say the same?",
    folder="MRPC",
    columns=_pairs("#1 String", "#2 String", "Quality"),
    hub=_glue("mrpc", _SENTENCES),
    # The corpus's own train file holds GLUE's dev too, so that only its test may stand beside it.
    layouts=(
        _FILES,
        {"train": ("msr_paraphrase_train.txt",), "test": ("msr_paraphrase_test.txt",)},
    ),
    names=("not_equivalent", "equivalent"),
    metrics=("accuracy", "f1"),
)

qqp = _task(
    "qqp",
    "Do two questions ask the same?",
    folder="QQP",
    columns=_pairs("question1", "question2", "is_duplicate", broken=True),
    hub=_glue("qqp", {"text": "question1", "pair": "question2"}),
    names=("not_duplicate", "duplicate"),
    metrics=("accuracy", "f1"),
)

qnli = _task(
    "qnli",
    "Does the sentence hold the answer to the question?",
    folder="QNLI",
    columns=_pairs("question", "sentence"),
    hub=_glue("qnli", {"text": "question", "pair": "sentence"}),
    layouts=({"train": ("train.tsv", "train_part.tsv"), "dev": ("dev.tsv",)},),
    classes=_ENTAILMENT,
)

rte = _task(
    "rte",
    "Does the first text entail the second?",
    folder="RTE",
    columns=_pairs("sentence1", "sentence2"),
    hub=_glue("rte", _SENTENCES),
    classes=_ENTAILMENT,
)

wnli = _task(
    "wnli",
    "Does the sentence entail the one with its pronoun resolved?",
    folder="WNLI",
    columns=_pairs("sentence1", "sentence2"),
    hub=_glue("wnli", _SENTENCES),
    names=("not_entailment", "entailment"),
)

mnli = _task(
    "mnli",
    "Does the premise entail, contradict or leave open the hypothesis? (matched and mismatched)",
    folder="MNLI",
    columns=_pairs("sentence1", "sentence2", "gold_label"),
    hub=_glue(
        "mnli",
        {"text": "premise", "pair": "hypothesis"},
        train="train",
        dev="validation_matched",
        mismatched="validation_mismatched",
    ),
    layouts=(
        {
            "train": ("train.tsv",),
            "dev": ("dev_matched.tsv", "dev.tsv"),
            "mismatched": (
                "dev_mismatched.tsv",
                "mismatched.tsv",
                "dev_mismatched_1000_tok.tsv",
            ),
        },
    ),
    classes=("entailment", "neutral", "contradiction"),
    unlabelled=frozenset({"-"}),  # on which the annotators did not agree
)

sst5 = _task(
    "sst5",
    "How positive is a sentence of a film review, in five steps?",
    reference="https://aclanthology.org/D13-1170",
    folder="SST-5",
    columns=Columns(names={"text": ("sentence", "text"), "label": ("label",)}),
    hub=Hub(
        repository="SetFit/sst5",
        splits={**_SPLITS, "test": "test"},
        columns={"text": "text", "label": "label"},
    ),
    layouts=({**_FILES, "test": ("test.tsv",)}, _FILES),  # its test has labels
    classes=("0", "1", "2", "3", "4"),
    names=("very negative", "negative", "neutral", "positive", "very positive"),
)

stsb_columns = Columns(
    names={
        "text": ("sentence1", "text"),
        "pair": ("sentence2", "pair"),
        "label": ("score", "label"),
    },
    # genre, file, year, number, score, two sentences, and in some rows licences
    places={"label": 4, "text": 5, "pair": 6},
    widths=(7, 8, 9),
)

stsb = Regression(
    name="stsb",
    summary="How alike in meaning are two sentences, from 0 to 5? (Pearson and Spearman)",
    reference=_GLUE,
    metric="spearman",
    metrics=("spearman", "pearson"),
    origin=Published(
        folders=("stsb", "STS-B"),
        layouts=({"train": ("train.tsv", "sts-train.csv"), "dev": ("dev.tsv", "sts-dev.csv")},),
        columns=stsb_columns,
        hub=_glue("stsb", _SENTENCES),
        classes=None,
    ),
)

GLUE: tuple[Any, ...] = (sst2, mrpc, cola, rte, wnli, stsb, qnli, mnli, qqp, sst5)

"""Whitening on the real MiniLM encoder with real text."""

import sys
import sysconfig
from hashlib import sha256
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path

import numpy as np
import pytest

from isotropy import transforms
from isotropy.measures import iso_score, iso_score_unbiased, mean_cosine
from isotropy.sources import embed, open_source

pytestmark = pytest.mark.weights

TEXTS, FITTED = 600, 450


def docstrings() -> list[str]:
    """Different sentences of the standard library's docstrings, in no order."""
    path = Path(__file__).parents[2] / "examples" / "docstrings.py"
    spec = spec_from_file_location("docstrings", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules["docstrings"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    files = module.source_files(Path(sysconfig.get_path("stdlib")))[::8]
    found = {
        sentence
        for file in files
        for docstring in module.docstrings(file)
        for sentence in module.sentences(docstring)
    }
    return sorted(found, key=lambda text: sha256(text.encode()).digest())[:TEXTS]


@pytest.fixture(scope="module")
def cloud(minilm: Path, tmp_path_factory: pytest.TempPathFactory) -> np.ndarray:
    out = tmp_path_factory.mktemp("minilm") / "x.safetensors"
    texts = docstrings()
    assert len(texts) == TEXTS
    embed(minilm, texts, out, site="mean@last", max_length=32)
    (chunk,) = open_source(out).chunks(TEXTS)
    rows: np.ndarray = chunk.rows.numpy()
    return rows


def test_whitening_makes_sentences_isotropic(cloud: np.ndarray) -> None:
    """On sentences that it has not seen; the fewer directions, the better 450 tell their sizes."""
    new = cloud[FITTED:]
    whitening = transforms.Whitening(k=32).fit(cloud[:FITTED])
    white = whitening.transform(new)
    assert iso_score_unbiased(new) < 0.3
    assert iso_score_unbiased(white) == pytest.approx(1, abs=0.15)
    assert mean_cosine(new) > 0.05
    assert abs(mean_cosine(white)) < 0.01

    # Not because of the fewer directions: the same ones without the scale are not isotropic.
    values, vectors = np.linalg.eigh(np.cov(cloud[:FITTED].T.astype(np.float64)))
    assert iso_score_unbiased(new @ vectors[:, np.argsort(values)[-32:]]) < 0.8


def test_on_the_sentences_that_it_was_fitted_on_every_direction_is_one(cloud: np.ndarray) -> None:
    white = transforms.Whitening(k=256).fit_transform(cloud)
    assert iso_score(cloud) < 0.3
    assert iso_score(white) == pytest.approx(1, abs=1e-3)
    assert abs(mean_cosine(white)) < 0.01 < 0.05 < mean_cosine(cloud)

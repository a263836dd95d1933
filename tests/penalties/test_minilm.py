"""Each penalty moves its own measure on the real MiniLM encoder with real text."""

import sys
import sysconfig
from importlib.util import module_from_spec, spec_from_file_location
from itertools import islice
from pathlib import Path

import pytest
import torch

from isotropy import Representations
from isotropy.measurement import measure
from isotropy.measures import SPECS as MEASURES
from isotropy.penalties import SPECS
from isotropy.sites import Site

pytestmark = [pytest.mark.weights, pytest.mark.long]

TEXTS, TOKENS, STEPS = 32, 16, 12


def docstrings():
    """Sentences of the standard library's docstrings, in their order."""
    path = Path(__file__).parents[2] / "examples" / "docstrings.py"
    spec = spec_from_file_location("docstrings", path)
    module = sys.modules["docstrings"] = module_from_spec(spec)
    spec.loader.exec_module(module)
    files = module.source_files(Path(sysconfig.get_path("stdlib")))
    found = (text for file in files for text in module.docstrings(file))
    return list(islice((text for text in found if len(text.split()) > 5), TEXTS))


@pytest.fixture(scope="module")
def batch(minilm):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(minilm)
    return tokenizer(
        docstrings(), padding=True, truncation=True, max_length=TOKENS, return_tensors="pt"
    )


@pytest.fixture
def encoder(minilm):
    from transformers import AutoModel

    return AutoModel.from_pretrained(minilm).eval()  # without dropout the steps show it sooner


def shown(encoder, batch):
    output = encoder(**batch, output_hidden_states=True)
    return Representations.from_output(output, batch["attention_mask"], model=encoder)


# The graph of 30 000 words takes minutes: the texts do as well.
SITES = {"laplacian": ["mean@last"]} | {
    name: [None, "mean@last"] for name in ("spectrum-pol", "spectrum-exp")
}
CASES = [(name, site) for name in SPECS for site in SITES.get(name, [None])]


@pytest.mark.parametrize(("name", "site"), CASES)
def test_its_measure_moves_as_its_spec_says(name, site, encoder, batch):
    spec = SPECS[name]
    penalty = spec.make(**({} if site is None else {"site": site}))
    key = next(m.name for m in MEASURES.values() if spec.measure in [n.key for n in m.numbers])

    @torch.no_grad()
    def score():
        rows = shown(encoder, batch).rows(Site.parse(str(penalty.site)))
        x, mask, _ = rows.joined()
        return measure(x if mask is None else x[mask], key)[spec.measure].value

    penalty.refresh(encoder, [batch])
    optimizer = torch.optim.AdamW(encoder.parameters(), lr=2e-4)
    before = score()
    for _ in range(STEPS):
        optimizer.zero_grad()
        penalty(shown(encoder, batch)).backward()
        optimizer.step()
    after = score()
    assert int(penalty.skipped) == 0
    assert (after > before) if spec.moves == "up" else (after < before), (before, after)
    # The entropy of three prominent bars starts at 99.8 % of the greatest there is, log 3.
    least = 0.001 if name == "persistent-entropy" else 0.01
    assert abs(after - before) > least * abs(before)

"""The HTML of a measurement, read back with a parser."""

from collections.abc import Iterator
from html.parser import HTMLParser
from xml.etree import ElementTree

import numpy as np
import pytest
import torch

from isotropy import Measurement, markup, measure
from isotropy.sources import Chunk

EVIL = "<script>alert(1)</script>\"'&"


class Source:
    """A source whose name, column and labels are not to be trusted."""

    name = EVIL
    columns = (EVIL,)
    n_rows, features = 60, 4

    def chunks(self, rows: int, columns: tuple[str, ...] = ()) -> Iterator[Chunk]:
        x = torch.from_numpy(np.random.default_rng(0).normal(size=(60, 4)))
        x[:30] = 0.0  # the first group has no scores, and so warnings
        labels = np.repeat([EVIL, "<b>plain</b>"], 30)
        yield Chunk(x, 0, dict.fromkeys(columns, labels))


class Parsed(HTMLParser):
    """The tags of a page, and the text between them."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.text.append(data)


@pytest.fixture(scope="module")
def report() -> Measurement:
    return measure(Source(), by=EVIL, interval=0.9, sample=50, seed=8)


def test_names_from_data_are_text(report: Measurement) -> None:
    page = report.to_html()
    parsed = Parsed(page)
    assert "script" not in parsed.tags
    assert "b" not in parsed.tags
    assert EVIL in parsed.text  # the title, the column and the label, as they are
    assert "<b>plain</b>" in parsed.text
    assert any(EVIL in text and "equal rows" in text for text in parsed.text)
    assert "<script" not in page


def test_a_page_loads_nothing(report: Measurement) -> None:
    page = report.to_html()
    assert "http" not in page
    assert "src=" not in page
    assert page.count("<!doctype html>") == 1
    assert '<html lang="en">' in page
    assert "color-scheme:light dark" in page


def test_tables_are_well_formed_and_full(report: Measurement) -> None:
    fragment = markup.fragment(report)
    assert fragment == report._repr_html_()
    root = ElementTree.fromstring(fragment.replace("<wbr>", ""))
    scores, groups = root.iter("table")
    head = [cell.text for cell in scores.findall("thead/tr/th")]
    assert head == ["measure", "value", "90% interval", "rows"]
    cells = {row[0].text: [cell.text or "" for cell in row[1:]] for row in scores.find("tbody")}
    assert list(cells) == list(report)
    assert float(cells["iso_score"][0]) == pytest.approx(report["iso_score"].value, rel=1e-3)
    low, high = (float(part) for part in cells["iso_score"][1].split("…"))
    assert (low, high) == pytest.approx(report["iso_score"].interval, rel=1e-3)
    assert cells["iso_score"][2] == "60"
    assert cells["two_nn"][2] == "50*"
    rows = {row[0].text: [cell.text for cell in row[1:]] for row in groups.find("tbody")}
    assert rows["rows"] == ["30", "30"]
    assert rows["iso_score"].count("undefined") == 1


def test_the_seed_of_a_sample_is_shown(report: Measurement) -> None:
    note = "* computed on a random sample of the rows (seed 8)"
    assert note in markup.fragment(report)
    exact = measure(np.random.default_rng(0).normal(size=(60, 4)), ["two_nn"])
    assert "*" not in markup.fragment(exact)


def test_every_warning_is_shown(report: Measurement) -> None:
    text = "\n".join(Parsed(markup.fragment(report)).text)
    warnings = [warning for group in report.groups.values() for warning in group.warnings]
    assert warnings
    for warning in [*report.warnings, *warnings]:
        assert warning in text

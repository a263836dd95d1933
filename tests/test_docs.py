"""The committed pages are those that the code makes, and no link or path in them is broken."""

import re
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

from isotropy import layers, penalties, transforms
from isotropy.measures import SPECS

ROOT = Path(__file__).parents[1]
METHODS = [
    (module.__name__.rpartition(".")[2], name)
    for module in (layers, penalties, transforms)
    for name in module.SPECS
]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])


@pytest.fixture(scope="module")
def generate() -> ModuleType:
    spec = spec_from_file_location("docs_generate", ROOT / "docs" / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_pages_are_up_to_date(generate: ModuleType) -> None:
    made = generate.pages()
    there = {page for name in generate.FOLDERS for page in (ROOT / "docs" / name).glob("*.md")}
    assert set(made) == there, "run `make docs`"
    for path, text in made.items():
        assert path.read_text(encoding="utf-8") == text, f"{path.name}: run `make docs`"


@pytest.mark.parametrize("name", SPECS)
def test_a_page_says_what_a_reader_needs(generate: ModuleType, name: str) -> None:
    text = generate.page(SPECS[name])
    parts = text.split("\n## ")
    titles = [part.splitlines()[0] for part in parts[1:]]
    assert titles == ["Its numbers", "Properties", "When to trust it", "Example", "Reference"]
    assert all(len(part.splitlines()) > 2 for part in parts)
    assert ">>> " in text, "the docstring has an example"


@pytest.mark.parametrize(("package", "name"), METHODS)
def test_a_method_s_page_says_what_a_reader_needs(
    generate: ModuleType, package: str, name: str
) -> None:
    text = generate.method_page(package, generate.methods()[package][name])
    titles = [part.splitlines()[0] for part in text.split("\n## ")[1:]]
    assert titles[-3:] == [
        "Where the paper and its code differ, and what is done here",
        "Example",
        "Reference",
    ]
    assert "$$" in text, "the docstring has a formula"
    assert ">>> " in text, "the docstring has an example"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", page.read_text(encoding="utf-8"))
    for link in links:
        if not link.startswith("http"):
            assert (page.parent / link).exists(), link


DOCS = [page for page in PAGES if page.name != "CONTRIBUTING.md"]  # which names files to be


@pytest.mark.parametrize("page", DOCS, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for path in re.findall(r"`((?:tests|src|examples|benchmarks)/[^`\s:]*)", text):
        assert (ROOT / path).exists(), path

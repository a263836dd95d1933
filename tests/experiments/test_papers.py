import pytest

from isotropy.experiments import papers
from isotropy.experiments.plan import Plan, built_in

FOLLOWING = [name for name in built_in() if name not in ("demo", "does-it-pay")]


def test_every_plan_that_follows_a_paper_is_listed() -> None:
    text = papers.listing()
    heads = [line.split(":")[0] for line in text.splitlines() if line.endswith(" runs")]
    assert heads == FOLLOWING
    assert max(map(len, text.splitlines())) <= 80


@pytest.mark.parametrize("name", FOLLOWING)
def test_tables_marks_and_what_cannot_be_are_said(name: str) -> None:
    plan = Plan.load(name)
    said = " ".join(papers.describe(plan).split())
    for table in plan.tables:
        assert table.where in said
    for part in ("from_code", "inferred", "ours"):
        for setting in getattr(plan.file, part):
            assert setting in said
    assert ("cannot why" in said.replace("─", "")) == any(table.cannot for table in plan.tables)


def test_a_plan_without_tables_is_described_too() -> None:
    assert papers.describe(Plan.load("demo")).startswith("demo: 12 runs\n")

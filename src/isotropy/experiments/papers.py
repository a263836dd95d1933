"""What each built-in plan reproduces of its paper, table by table: what `isotropy papers` says."""

from isotropy import tables
from isotropy.experiments.plan import Plan, built_in

_MARKS = {
    "from_code": "From the released code, as the text is silent",
    "inferred": "Inferred from what is printed",
    "ours": "Ours, as the paper says nothing",
}


def listing() -> str:
    """Every built-in plan that follows a paper: what it shows, what it cannot, what is ours."""
    plans = [Plan.load(name) for name in built_in()]
    return "\n\n\n".join(describe(plan) for plan in plans if plan.tables)


def describe(plan: Plan) -> str:
    """What one plan reproduces, as text in 80 columns.

    Example:
        >>> print(describe(Plan.load("shrink-the-longest")).splitlines()[0])
        shrink-the-longest: 60 runs
    """
    specs = {cell.spec.id for cell in plan.cells}
    head = [f"{plan.name}: {len(specs)} runs", plan.summary, plan.reference]
    parts = ["\n".join(tables.wrapped(line) for line in head if line)]
    shown = [[table.where, table.what] for table in plan.tables if table.cannot is None]
    if shown:
        parts.append(tables.table(["reproduces", "what"], shown, numbers=False))
    cannot = [
        [table.where, f"{table.what}: {table.cannot}"]
        for table in plan.tables
        if table.cannot is not None
    ]
    if cannot:
        parts.append(tables.table(["cannot", "why"], cannot, numbers=False))
    for part, title in _MARKS.items():
        marked = [[name, why] for name, why in getattr(plan.file, part).items()]
        if marked:
            drawn = tables.table(["setting", "why"], marked, numbers=False)
            parts.append(f"{title}:\n\n{drawn}")
    return "\n\n".join(parts)

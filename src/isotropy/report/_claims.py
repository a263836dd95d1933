"""The verdicts on a paper's claims, below the table of its plan."""

from isotropy import tables
from isotropy.experiments._claims import claims
from isotropy.experiments._gathered import Gathered
from isotropy.experiments.verdicts import judge


def claims_of(found: Gathered) -> list[str]:
    """A paragraph for each claim of the plan's paper that its runs are about."""
    paper = found.plan.removesuffix("-small")
    wanted = [claim for claim in claims() if claim.paper == paper]
    lines = [
        tables.wrapped(f"{verdict.id} {verdict.status}: {verdict.sentence}")
        for verdict in judge(found, wanted)
        if verdict.status != "untested"
    ]
    return ["\n".join(lines)] if lines else []

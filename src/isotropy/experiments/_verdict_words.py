"""A verdict in plain English."""

import math
from typing import TYPE_CHECKING

from isotropy.experiments._claims import EARLY_LAYERS, SAME_SIGN, TRAINING, Claim
from isotropy.experiments._numbers import between, counted, plain, point, probability, times
from isotropy.experiments._reading import SCORE, SECONDS

if TYPE_CHECKING:
    from isotropy.experiments.verdicts import Finding, Verdict

_LEADS = {
    "supported": "These runs support the claim that {}.",
    "contradicted": "These runs contradict the claim that {}.",
    "mixed": "These runs support the claim that {} for some methods and contradict it for others.",
    "undecided": "These runs do not decide whether {}.",
    "untested": "No run here is about the claim that {}.",
}


def sentence(verdict: "Verdict") -> str:
    """What the runs say of the claim, then the numbers of each method."""
    lead = _LEADS[verdict.status].format(verdict.claim.claim)
    if verdict.claim.direction == "no effect" or verdict.claim.direction.startswith("not "):
        lead += f" Less than {counted_points(verdict.margin)} counts as none."
    return " ".join([lead, *(_finding(verdict, finding) for finding in verdict.findings)])


def counted_points(margin: float) -> str:
    """A margin in words."""
    return "1 point" if margin == 1 else f"{margin:g} points"


def _finding(verdict: "Verdict", finding: "Finding") -> str:
    one = finding.evidence
    if finding.estimate is None:
        return f"{one.method}: no difference can be had{_noted(one.notes)}."
    said = f"{_difference(verdict.claim, finding)} ({_sureness(finding)})"
    if finding.status == "undecided" and finding.detectable is not None:
        said += (
            "; the smallest difference that these runs could have shown is "
            f"{_amount(one.quantity, finding.detectable)}"
        )
    return f"{said}{_noted(one.notes)}."


def _difference(claim: Claim, finding: "Finding") -> str:
    one, estimate = finding.evidence, finding.estimate or 0.0
    quantity = "the score" if one.quantity == SCORE else one.quantity
    size = _amount(one.quantity, abs(estimate))
    way = "higher" if estimate > 0 else "lower"
    cells = f" on average over {counted(one.cells, 'cell')}" if one.cells > 1 else ""
    if claim.compared_with == TRAINING:
        return f"{one.method}: {quantity} is {size} {way} at the end than at the start{cells}"
    if claim.direction == EARLY_LAYERS:
        more = "more" if estimate > 0 else "less"
        return f"{one.method}: {quantity} changes by {size} {more} in early layers{cells}"
    if claim.direction.startswith(SAME_SIGN):
        how = "the same way as" if estimate > 0 else "against"
        return f"{one.method}: {quantity} moves by {size} {how} isotropy{cells}"
    other = "no method" if claim.compared_with == "none" else claim.compared_with
    if one.quantity == SECONDS:
        return f"{one.method}: an epoch takes {times(math.exp(estimate))} times the seconds{cells}"
    return f"{one.method}: {quantity} is {size} {way} than with {_short(other)}{cells}"


def _sureness(finding: "Finding") -> str:
    one, parts = finding.evidence, []
    if finding.interval is not None:
        form = {SCORE: point, SECONDS: _factor}.get(one.quantity, plain)
        parts.append(f"95 % interval {between(finding.interval, form)}")
    p = finding.p_against if finding.status == "contradicted" else finding.p_for
    parts.append("no test: too few runs, or no scatter" if p is None else _corrected(p))
    if one.cells > 1:
        parts.append(f"positive in {one.above} of {one.cells}")
    parts.append(counted(one.runs, "run"))
    return "; ".join(parts)


def _corrected(p: float) -> str:
    return f"corrected {probability(p)}"


def _amount(quantity: str, value: float) -> str:
    if quantity == SECONDS:
        return f"{_factor(value)} times"
    return f"{point(value)} points" if quantity == SCORE else plain(value)


def _factor(value: float) -> str:
    return times(math.exp(value))


def _short(other: str) -> str:
    """A selector without its conditions on where a method looks."""
    return " ".join(part for part in other.split() if not part.startswith("site="))


def _noted(notes: tuple[str, ...]) -> str:
    return f"; {'; '.join(notes)}" if notes else ""

r"""Verdicts on the papers' claims: supported, contradicted, or undecided by these runs.

A claim says in which region the difference between a method and what it is compared with lies:
above 0, below 0, not below −margin, not above +margin, or within ±margin for a claim of no effect.
It is **supported** where the corrected p of "the difference is outside of the region" is below .05,
**contradicted** where that of "it is inside" is, so that the interval excludes the claim, and
otherwise **undecided**, with the smallest difference that the runs could have shown. A claim of no
effect is supported by two one-sided tests. Both kinds of p are corrected by Holm over all
differences that are judged together.

The difference is the average over models and tasks of the claim, each weighing the same. Where a
claim names several methods each has its own, and the claim is supported only if it is for all.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from isotropy.errors import SettingError
from isotropy.experiments._claims import Claim, claims, find_claim
from isotropy.experiments._evidence import Evidence, evidence
from isotropy.experiments._gathered import Gathered, gathered
from isotropy.experiments._reading import SCORE
from isotropy.experiments._verdict_words import sentence
from isotropy.experiments.statistics import ALPHA, Contrast, Interval, holm

if TYPE_CHECKING:
    from isotropy.experiments.execution import Runs
    from isotropy.experiments.store import StoredRun

Status = Literal["supported", "contradicted", "mixed", "undecided", "untested"]
POINTS = 1.0
"""The margin: points of a score; a hundredth of it where a measure is a fraction of 1."""


@dataclass(frozen=True)
class Finding:
    """What the runs say of one method of a claim.

    Attributes:
        evidence: the difference.
        status: of the claim for this method.
        p_for: corrected p that is small where the claim holds.
        p_against: corrected p that is small where it does not.
        detectable: the smallest difference that these runs could have shown.
    """

    evidence: Evidence
    status: Status
    p_for: float | None
    p_against: float | None
    detectable: float | None

    @property
    def estimate(self) -> float | None:
        """The difference; of scores in points, of seconds as a logarithm."""
        return None if self.evidence.difference is None else self.evidence.difference.estimate

    @property
    def interval(self) -> Interval | None:
        """Its 95 % interval, without correction."""
        return None if self.evidence.difference is None else self.evidence.difference.interval()


@dataclass(frozen=True)
class Verdict:
    """What the runs say of a claim.

    Attributes:
        claim: what is claimed.
        status: `mixed` where methods of the claim differ; `untested` without runs that it is about.
        findings: one for each method.
        margin: in points.
        runs: how many were looked at.
    """

    claim: Claim
    status: Status
    findings: tuple[Finding, ...]
    margin: float
    runs: int

    @property
    def id(self) -> str:
        """The claim's id."""
        return self.claim.id

    @property
    def sentence(self) -> str:
        """The verdict in plain English, with its numbers."""
        return sentence(self)


def verdicts(
    runs: "Runs | Sequence[StoredRun] | str | Path",
    *,
    plan: str | None = None,
    only: Sequence[str] | None = None,
    margin: float = POINTS,
    everywhere: bool = False,
    simulate: bool = False,
) -> list[Verdict]:
    """What runs say of the papers' claims.

    Args:
        runs: what `run` returned, records of a store with their series, or a store's file.
        plan: which plan of the store; needed where it has several.
        only: ids of claims; all by default. They are corrected for each other.
        margin: the largest difference that counts as none, in points.
        everywhere: judge on all tasks that there are, not only on those that a claim is about.
        simulate: also make the simulation that claim D8 needs, which takes some seconds.

    Raises:
        SettingError: no runs, an unknown claim, or a margin that is not above 0.
    """
    if not margin > 0:
        raise SettingError(f"got margin={margin!r}, expected points above 0")
    wanted = claims() if only is None else [find_claim(name) for name in only]
    table = gathered(runs, plan)
    return judge(table, wanted, margin=margin, everywhere=everywhere, simulate=simulate)


def judge(
    table: Gathered,
    wanted: Sequence[Claim],
    *,
    margin: float = POINTS,
    everywhere: bool = False,
    simulate: bool = False,
) -> list[Verdict]:
    """The verdicts on some claims by the runs of one table; see `verdicts`."""
    found = [(claim, _evidence(claim, table, everywhere, simulate)) for claim in wanted]
    return _judged(found, margin)


def _evidence(claim: Claim, table: Gathered, everywhere: bool, simulate: bool) -> list[Evidence]:
    if claim.tasks:
        return evidence(claim, table.cells, table.report, everywhere=everywhere)
    if not simulate:
        return []
    from isotropy.experiments._sample_size import of_small_samples

    return [of_small_samples()]


def _judged(found: Sequence[tuple[Claim, Sequence[Evidence]]], margin: float) -> list[Verdict]:
    each = [(claim, one) for claim, several in found for one in several]
    ps = [_ps(one.difference, _region(claim), _margin(one, margin)) for claim, one in each]
    fors, againsts = holm([p for p, _ in ps]), holm([p for _, p in ps])
    tests = max(1, sum(p is not None for p in fors))
    findings = [
        Finding(
            one,
            _status(p_for, p_against),
            p_for,
            p_against,
            one.difference.detectable(ALPHA / tests) if one.difference else None,
        )
        for (_, one), p_for, p_against in zip(each, fors, againsts, strict=True)
    ]
    verdicts, start = [], 0
    for claim, several in found:
        own = tuple(findings[start : start + len(several)])
        start += len(several)
        runs = sum(one.runs for one in several)
        verdicts.append(Verdict(claim, _together(own), own, margin, runs))
    return verdicts


def _region(claim: Claim) -> str:
    """The region of the difference; of a claim about layers or signs it is above 0."""
    named = ("higher", "lower", "not higher", "not lower", "no effect")
    return claim.direction if claim.direction in named else "higher"


def _margin(one: Evidence, points: float) -> float:
    return points if one.quantity == SCORE else points / 100


def _ps(
    difference: Contrast | None, region: str, margin: float
) -> tuple[float | None, float | None]:
    """The p of the difference being outside of the region, and of it being inside."""
    if difference is None or difference.error is None:
        return None, None
    if region == "no effect":
        outside = min(_two(difference.p_above(margin)), _two(difference.p_below(-margin)))
        return difference.p_within(margin), outside
    upward = region in ("higher", "not lower")
    bound = {"higher": 0.0, "lower": 0.0, "not lower": -margin, "not higher": margin}[region]
    above, below = _two(difference.p_above(bound)), _two(difference.p_below(bound))
    return (above, below) if upward else (below, above)


def _two(p: float | None) -> float:
    """The two-sided p of a difference on this side; 1 if it is on the other one."""
    return 1.0 if p is None else min(1.0, 2 * p)


def _status(p_for: float | None, p_against: float | None) -> Status:
    if p_for is not None and p_for < ALPHA:
        return "supported"
    if p_against is not None and p_against < ALPHA:
        return "contradicted"
    return "undecided"


def _together(findings: Sequence[Finding]) -> Status:
    """The status of a claim about all of its methods."""
    there = {finding.status for finding in findings}
    if not there:
        return "untested"
    if len(there) == 1:
        return there.pop()
    if there == {"supported", "undecided"}:
        return "undecided"
    # One method that contradicts a claim about all of them is enough; some may still support it.
    return "mixed" if "supported" in there else "contradicted"

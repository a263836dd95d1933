"""What runs say of a claim: one number for each method, averaged over models and tasks.

Each model, task and protocol weighs the same, and within it each setting of the method. All of it
is one contrast, so that a baseline that several cells share counts once.
"""

import math
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from isotropy.experiments import statistics
from isotropy.experiments._cells import Cell, is_baseline
from isotropy.experiments._claims import EARLY_LAYERS, SAME_SIGN, TRAINING, Claim, Selector
from isotropy.experiments._plan_file import Report
from isotropy.experiments._reading import (
    SCORE,
    SECONDS,
    late_points,
    metric_of,
    of_a_point,
    points,
    values,
)
from isotropy.experiments.statistics import ALPHA, Contrast, Value

if TYPE_CHECKING:
    from isotropy.experiments.store import StoredRun

# What tasks note of such predictions, on whichever split.
_ONE_PREDICTION = re.compile(r"\ball (\d+ predictions are the class|generated texts are the same)")
_FEWEST = 2  # runs of a cell: one says nothing of the scatter


@dataclass(frozen=True)
class Evidence:
    """The difference that a method makes to one quantity.

    Attributes:
        method: with the settings that the claim leaves open.
        quantity: `score`, a measure's key or `seconds_per_epoch`.
        difference: the average; of scores in points, of seconds as a logarithm. None without runs.
        cells: how many differences the average is of.
        above: how many of them are above 0.
        runs: how many runs were looked at.
        notes: what a reader should know.
    """

    method: str
    quantity: str
    difference: Contrast | None
    cells: int
    above: int
    runs: int
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Term:
    """A cell's own difference: its values, those of its peers, and which way it counts."""

    stratum: str
    mine: Sequence[Value]
    peers: tuple[Sequence[Value], ...]
    cell: Cell
    others: tuple[Cell, ...]
    sign: float = 1.0

    def groups(self, weight: float) -> Iterable[tuple[int, float, Sequence[Value]]]:
        yield id(self.cell), self.sign * weight, self.mine
        for cell, peer in zip(self.others, self.peers, strict=True):
            yield id(cell), -self.sign * weight / len(self.peers), peer

    @property
    def estimate(self) -> float | None:
        found = contrast_of([self])
        return None if found is None else found.estimate

    @property
    def fewest(self) -> int:
        return min(len(statistics.defined(each)) for each in (self.mine, *self.peers))

    def is_fixed(self, quantity: str) -> bool:
        """Whether its scatter says nothing: there is none, or a model that predicts one thing.

        A few runs of one value are no exact knowledge, which a pooled error would take them for.
        """
        sides = [(self.cell, self.mine), *zip(self.others, self.peers, strict=True)]
        still = [(cell, found) for cell, found in sides if statistics.summary(found).constant]
        if len(still) == len(sides):
            return True
        return quantity == SCORE and any(_predicts_one(cell) for cell, _ in still)


def evidence(
    claim: Claim, whole: Sequence[Cell], report: Report, *, everywhere: bool = False
) -> list[Evidence]:
    """What the runs say of each method that a claim names; nothing of those that were not run.

    Args:
        claim: a claim about runs.
        whole: all cells, of runs with their series where the claim is about training.
        report: which score is meant.
        everywhere: on all tasks, not only on those of the claim.
    """
    cells = [cell for cell in whole if cell.results and (everywhere or cell.task in claim.tasks)]
    if SECONDS in claim.measures:
        cells = [part for cell in cells for part in _by_machine(cell)]
    found = []
    for selector in claim.methods:
        variants: dict[str, list[Cell]] = {}
        for cell in cells:
            if selector.matches(cell.method):
                variants.setdefault(selector.variant(cell.method), []).append(cell)
        for variant, members in variants.items():
            one = _of_variant(claim, selector, variant, members, cells, report)
            if one is not None:
                found.append(one)
    return found


def _of_variant(
    claim: Claim,
    selector: Selector,
    variant: str,
    members: Sequence[Cell],
    cells: Sequence[Cell],
    report: Report,
) -> Evidence | None:
    for quantity in claim.measures:
        number = _reader(claim, quantity, report)
        terms: dict[tuple[str, str], _Term] = {}
        notes: dict[str, None] = {}
        for cell in members:
            mine = number(cell)
            others = _peers(claim, selector, cell, cells, quantity, report)
            peers = [(other, found) for other in others if (found := number(other))]
            if not mine or not (peers or claim.compared_with == TRAINING):
                continue
            if any(other.protocol != cell.protocol for other, _ in peers):
                notes["each under its own training settings"] = None
            term = _Term(
                f"{cell.protocol} {_machine(cell) if quantity == SECONDS else ''}",
                mine,
                tuple(found for _, found in peers),
                cell,
                tuple(other for other, _ in peers),
            )
            key = (term.stratum, cell.method.label)  # the same run may be measured in two ways
            if key not in terms or len(mine) > len(terms[key].mine):
                terms[key] = term
        if terms:
            return _pooled(claim, variant, quantity, list(terms.values()), report, notes)
    return None


def _pooled(
    claim: Claim,
    variant: str,
    quantity: str,
    terms: list[_Term],
    report: Report,
    notes: dict[str, None],
) -> Evidence:
    cells = {id(cell): cell for term in terms for cell in (term.cell, *term.others)}
    runs = sum(len(cell.results) for cell in cells.values())
    everything = {
        id(cell): each
        for term in terms
        for cell, each in zip((term.cell, *term.others), (term.mine, *term.peers), strict=True)
    }
    undefined = sum(value is None for each in everything.values() for value in each)
    if undefined:
        notes[f"undefined in {undefined} of {runs} runs, which are left out"] = None
    if claim.direction == EARLY_LAYERS or claim.direction.startswith(SAME_SIGN):
        whole = len(terms)
        terms = _oriented(claim, terms, report)
        notes[
            f"isotropy moved in {len(terms)} of {whole} cells, which alone count: they were chosen "
            f"by a test each at {ALPHA:g}, without correction"
        ] = None
    enough = [term for term in terms if term.fewest >= _FEWEST]
    if enough and len(enough) < len(terms):
        left = len(terms) - len(enough)
        are = (
            "cell with fewer than two scores is"
            if left == 1
            else "cells with fewer than two scores are"
        )
        notes[f"{left} {are} left out"] = None
    able = enough or [term for term in terms if term.fewest]
    used = [term for term in able if not term.is_fixed(quantity)]
    if enough and len(used) < len(able):
        notes[_left_out(len(able) - len(used), len(used))] = None
    difference = contrast_of(used or able)
    if difference is not None and not used:
        difference = replace(difference, error=None, freedom=None)
    used = used or able
    estimates = [term.estimate for term in used]
    return Evidence(
        method=variant,
        quantity=quantity,
        difference=difference,
        cells=len(used),
        above=sum(estimate is not None and estimate > 0 for estimate in estimates),
        runs=runs,
        notes=tuple(notes),
    )


def _left_out(fixed: int, used: int) -> str:
    cells = f"{fixed} {'cell' if fixed == 1 else 'cells'} whose runs do not scatter or predict one"
    if not used:
        return f"{cells} thing alone, which decides nothing"
    return f"{cells} thing alone {'is' if fixed == 1 else 'are'} left out"


def contrast_of(terms: Sequence[_Term]) -> Contrast | None:
    """The average of the terms: over strata, and in each over its cells."""
    strata: dict[str, list[_Term]] = {}
    for term in terms:
        strata.setdefault(term.stratum, []).append(term)
    weights: dict[int, float] = {}
    groups: dict[int, Sequence[Value]] = {}
    for members in strata.values():
        for term in members:
            for key, weight, found in term.groups(1 / len(strata) / len(members)):
                weights[key] = weights.get(key, 0.0) + weight
                groups[key] = found
    return statistics.contrast([(weights[key], groups[key]) for key in groups])


def _peers(
    claim: Claim,
    selector: Selector,
    cell: Cell,
    cells: Sequence[Cell],
    quantity: str,
    report: Report,
) -> list[Cell]:
    """What a cell is compared with."""
    if claim.compared_with == TRAINING:
        return []
    if claim.compared_with == "none":
        found = [other for other in cells if is_baseline(other, report.baseline)]
    else:
        wanted = Selector.parse(claim.compared_with)
        found = [other for other in cells if wanted.matches(other.method)]
        if wanted.name == selector.name:  # the same method: only what is named may differ
            variant = selector.variant(cell.method)
            found = [other for other in found if wanted.variant(other.method) == variant]
    found = [other for other in found if other is not cell]
    if quantity not in (SCORE, SECONDS):  # a measure is of rows: those must be the same
        found = [other for other in found if other.spec.measure == cell.spec.measure]
    if quantity == SECONDS:
        found = [other for other in found if _machine(other) == _machine(cell)]
    same = [other for other in found if other.protocol == cell.protocol]
    if not same and claim.compared_with != "none":
        place = (cell.model, cell.task)
        same = [other for other in found if (other.model, other.task) == place]
    once: dict[str, Cell] = {}
    for other in same:
        known = once.setdefault(other.method.label, other)
        if len(other.results) > len(known.results):
            once[other.method.label] = other
    return list(once.values())


Reader = Callable[[Cell], list[Value]]


def _reader(claim: Claim, quantity: str, report: Report) -> Reader:
    """What reads the claim's quantity off each run of a cell."""
    if claim.compared_with == TRAINING:
        return lambda cell: _rises(cell, quantity)
    if claim.direction == EARLY_LAYERS:
        return lambda cell: _early_beyond_late(cell, quantity)
    return lambda cell: _numbers(cell, quantity, report)


def _numbers(cell: Cell, quantity: str, report: Report) -> list[Value]:
    if quantity == SCORE:
        unit = of_a_point(metric_of(cell, report.metrics))
        found = values(cell, SCORE, report.score, report.metrics).values()
        return [None if value is None else value / unit for value in found]
    if quantity == SECONDS:
        seconds = values(cell, SECONDS).values()
        return [math.log(value) if value else None for value in seconds]
    whole = list(values(cell, quantity, report.score).values())
    layers = _layers(cell, quantity)
    # Measured at each layer alone: the last one stands for the model.
    return whole or list(values(cell, f"{quantity}@{max(layers)}").values() if layers else [])


def _layers(cell: Cell, quantity: str) -> list[int]:
    """The layers at which a measure was taken, without the embeddings below the first one."""
    keys = (key for result in cell.results.values() for key in result.measures)
    parts = (key.partition("@") for key in keys)
    numbers = {int(layer) for name, _, layer in parts if name == quantity and layer.isdigit()}
    return sorted(numbers - {0})


def _early_beyond_late(cell: Cell, quantity: str) -> list[Value]:
    """By how much the mean over the first half of the layers is above that over the others."""
    layers = _layers(cell, quantity)
    half = len(layers) // 2
    if not half:
        return []
    return [
        _mean(result.measures, quantity, layers[:half])
        - _mean(result.measures, quantity, layers[half:])
        for result in cell.results.values()
        if all(f"{quantity}@{layer}" in result.measures for layer in layers)
    ]


def _mean(measures: dict[str, float], quantity: str, layers: Sequence[int]) -> float:
    return fmean(measures[f"{quantity}@{layer}"] for layer in layers)


def _rises(cell: Cell, quantity: str) -> list[Value]:
    """From the first number along training to the mean over its last 30 %."""
    found: list[Value] = []
    for result in cell.results.values():
        track, late = points(result, quantity), late_points(result, quantity)
        if late and track[0][0] < track[-1][0]:
            found.append(fmean(late) - track[0][1])
    return found


def _oriented(claim: Claim, terms: Sequence[_Term], report: Report) -> list[_Term]:
    """The terms whose isotropy surely moved, each counted the way in which it moved."""
    found = []
    for term in terms:
        moved = next(filter(None, (_moved(claim, name, term, report) for name in _axes(claim))), 0)
        if moved:
            found.append(
                _Term(
                    term.stratum,
                    term.mine,
                    term.peers,
                    term.cell,
                    term.others,
                    math.copysign(1, moved),
                )
            )
    return found


def _axes(claim: Claim) -> tuple[str, ...]:
    """The measures of isotropy by which cells are oriented."""
    if claim.direction == EARLY_LAYERS:
        return claim.measures
    return tuple(part.strip() for part in claim.direction.removeprefix(SAME_SIGN).split("|"))


def _moved(claim: Claim, quantity: str, term: _Term, report: Report) -> float | None:
    """The change of a measure, if it is sure; that of all layers for a claim about layers."""

    def read(cell: Cell) -> list[Value]:
        if claim.direction != EARLY_LAYERS:
            return _numbers(cell, quantity, report)
        layers = _layers(cell, quantity)
        return [
            _mean(result.measures, quantity, layers)
            for result in cell.results.values()
            if layers and all(f"{quantity}@{layer}" in result.measures for layer in layers)
        ]

    found = statistics.welch(read(term.cell), [x for other in term.others for x in read(other)])
    p = found.p() if found else None
    return found.estimate if found and p is not None and p < ALPHA else None


def _predicts_one(cell: Cell) -> bool:
    """Whether a note of each run says that all predictions are the same."""
    return all(
        any(_ONE_PREDICTION.search(note) for note in result.notes)
        for result in cell.results.values()
    )


def _machine(cell: Cell) -> str:
    return str(sorted(next(iter(cell.results.values())).machine.items()))


def _by_machine(cell: Cell) -> list[Cell]:
    """A cell's runs, apart for each kind of machine: seconds are compared on one."""
    found: dict[str, list[StoredRun]] = {}
    for run in cell.runs:
        if run.status == "done" and run.result is not None:
            found.setdefault(str(sorted(run.result.machine.items())), []).append(run)
    return [Cell(tuple(runs), cell.setting) for runs in found.values()]

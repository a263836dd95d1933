"""What the store of runs has, read from its tables."""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import time
from typing import Any, Literal, NamedTuple, TypeVar

from isotropy.errors import StoreError, unknown_name
from isotropy.experiments._owner import Owner
from isotropy.experiments.spec import Place, Record, RunResult, RunSpec

Status = Literal["pending", "running", "done", "failed"]


@dataclass(frozen=True, kw_only=True)
class StoredRun:
    """A run as the store has it.

    Attributes:
        id: the spec's.
        spec: what it is.
        status: `failed` is one that raised an error; a killed one is `pending` again.
        result: of a run that is done.
        error: of a failed run: a line, then the traceback and the end of what it printed.
        plans: names of the plans that it belongs to.
        attempts: how often it was begun.
    """

    id: str
    spec: RunSpec
    status: Status
    result: RunResult | None = None
    error: str | None = None
    plans: tuple[str, ...] = ()
    attempts: int = 0


@dataclass(frozen=True, kw_only=True)
class StoredPlan:
    """A plan as it was when its runs were last added.

    Attributes:
        name: of the plan.
        text: its TOML.
        report: its settings for the report.
        place: where its data were.
        ids: its runs, in order.
    """

    name: str
    text: str
    report: Mapping[str, Any] = field(default_factory=dict)
    place: Place = field(default_factory=Place)
    ids: tuple[str, ...] = ()


class SeriesPoint(NamedTuple):
    """A number at a step of a run."""

    run: str
    name: str
    step: int
    value: float


def read_runs(
    connection: sqlite3.Connection, numbers: Sequence[int], *, series: bool
) -> list[StoredRun]:
    """Runs by their row numbers, in that order."""
    dead = dead_owners(connection)
    wanted = json.dumps(numbers)
    plans: dict[int, dict[str, None]] = {}
    for number, name in connection.execute("SELECT run, plan FROM members ORDER BY run, plan"):
        plans.setdefault(number, {})[name] = None
    rows = connection.execute(
        """SELECT number, id, spec, status, owner, result, error, attempts FROM runs
        WHERE number IN (SELECT value FROM json_each(?))""",
        [wanted],
    )
    found = {}
    for number, run, spec, status, owner, result, error, attempts in rows:
        read = None
        if result is not None:
            given = json.loads(result)
            if series:
                points = _points(connection, number, None)
                given["series"] = [dict(zip(_POINT, point, strict=True)) for point in points]
            read = _record(RunResult, given, run)
        found[number] = StoredRun(
            id=run,
            spec=read_spec(spec, run),
            status=_status(status, owner, dead),
            result=read,
            error=error,
            plans=tuple(plans.get(number, ())),
            attempts=attempts,
        )
    return [found[number] for number in numbers]


def read_series(
    connection: sqlite3.Connection, numbers: Sequence[int], name: str | None
) -> list[SeriesPoint]:
    """Points of runs by their row numbers, in the order in which they came."""
    found = []
    for number in numbers:
        (run,) = connection.execute("SELECT id FROM runs WHERE number = ?", [number]).fetchone()
        found += [SeriesPoint(run, *point) for point in _points(connection, number, name)]
    return found


def _points(
    connection: sqlite3.Connection, number: int, name: str | None
) -> list[tuple[str, int, float]]:
    # Run by run: the index has them in order, so that nothing is sorted.
    return connection.execute(
        """SELECT name, step, value FROM series
        WHERE run = ? AND (? IS NULL OR name = ?) ORDER BY rowid""",
        [number, name, name],
    ).fetchall()


def read_plans(connection: sqlite3.Connection) -> list[StoredPlan]:
    """The plans, in the order in which they were added."""
    members: dict[str, list[str]] = {}
    for plan, run in connection.execute(
        "SELECT plan, id FROM members JOIN runs ON number = run ORDER BY plan, position"
    ):
        members.setdefault(plan, []).append(run)
    return [
        StoredPlan(
            name=name,
            text=text,
            report=json.loads(report),
            place=Place(**json.loads(place)),
            ids=tuple(members.get(name, ())),
        )
        for name, text, report, place in connection.execute(
            "SELECT name, text, report, place FROM plans ORDER BY added, name"
        )
    ]


def read_status(connection: sqlite3.Connection, ids: Iterable[str]) -> dict[str, Status]:
    """How runs stand."""
    dead = dead_owners(connection)
    rows = connection.execute(
        "SELECT id, status, owner FROM runs WHERE id IN (SELECT value FROM json_each(?))",
        [json.dumps(list(ids))],
    )
    return {run: _status(status, owner, dead) for run, status, owner in rows}


def row_numbers(
    connection: sqlite3.Connection, plan: str | None, ids: Sequence[str] | None
) -> list[int]:
    """Which rows are a plan's, or all, or those with some ids among them."""
    if plan is None:
        rows = connection.execute("SELECT id, number FROM runs ORDER BY number")
    else:
        names = [name for (name,) in connection.execute("SELECT name FROM plans")]
        if plan not in names:
            raise unknown_name("plan", plan, names)
        rows = connection.execute(
            """SELECT id, number FROM members JOIN runs ON number = run WHERE plan = ?
            ORDER BY position""",
            [plan],
        )
    found = dict(rows.fetchall())
    return list(found.values()) if ids is None else [found[run] for run in ids if run in found]


def dead_owners(connection: sqlite3.Connection) -> set[str]:
    """Owners of runs that do not live any more."""
    rows = connection.execute(
        """SELECT id, host, pid, started, heartbeat FROM owners
        WHERE id IN (SELECT owner FROM runs WHERE owner IS NOT NULL)"""
    )
    now = time()
    return {row[0] for row in rows if not Owner(*row[:4]).lives(now - row[4])}


def read_spec(text: str, run: str) -> RunSpec:
    """A spec as the store has it."""
    return _record(RunSpec, text, run)


_POINT = ("name", "step", "value")

_R = TypeVar("_R", bound=Record)


def _record(kind: type[_R], given: Any, run: str) -> _R:
    try:
        return kind.read(given, where=f"run {run}")
    except ValueError as error:  # a setting that this version does not have
        raise StoreError(f"{error}; another version of isotropy wrote this run") from None


def _status(status: Status, owner: str | None, dead: set[str]) -> Status:
    return "pending" if owner in dead else status

"""The store of runs: one SQLite file that several processes share.

A run is in it once, whatever plans it belongs to; what it is called is the hash of its spec.
"""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from time import time
from types import TracebackType
from typing import Any, Protocol, Self

from isotropy.errors import StoreError
from isotropy.experiments._owner import Owner
from isotropy.experiments._rescue import rescued
from isotropy.experiments._schema import (
    clear_errors,
    open_for_reading,
    open_for_writing,
    transaction,
)
from isotropy.experiments._store_export import write_csv, write_parquet
from isotropy.experiments._stored import (
    SeriesPoint,
    Status,
    StoredPlan,
    StoredRun,
    dead_owners,
    read_plans,
    read_runs,
    read_series,
    read_spec,
    read_status,
    row_numbers,
)
from isotropy.experiments.spec import Place, RunResult, RunSpec

__all__ = ["SeriesPoint", "Status", "Store", "StoredPlan", "StoredRun", "export"]


class _Plan(Protocol):
    """What of a plan is stored."""

    @property
    def name(self) -> str: ...
    @property
    def text(self) -> str: ...
    @property
    def report(self) -> Any: ...


class Store:
    """The file of runs.

    Any number of processes of a machine may have it open. What one of them has begun is its own
    until it is finished or the process is dead. As a context manager it closes the file.

    Args:
        path: the file; made if there is none, unless it is only read.
        read_only: whether it is only read.

    Raises:
        StoreError: it cannot be opened, is no store, is a newer one, or lies on a network disk,
            whose locks cannot be trusted.

    Example:
        >>> import tempfile
        >>> from isotropy.experiments._owner import at_work
        >>> folder = tempfile.TemporaryDirectory()
        >>> spec = RunSpec(model="minilm", task="minimal-pairs")
        >>> with Store(f"{folder.name}/runs.db") as store, at_work() as owner:
        ...     store.add([spec])
        ...     claimed = store.claim(owner, [spec.id])
        ...     _ = store.finish(owner, spec.id, RunResult(metric="accuracy", last={"accuracy": 1}))
        ...     [run] = store.runs()
        >>> claimed == spec, run.status, run.result.last
        (True, 'done', {'accuracy': 1.0})
        >>> folder.cleanup()
    """

    def __init__(self, path: str | Path, *, read_only: bool = False) -> None:
        self.path = Path(path)
        self._connection = (open_for_reading if read_only else open_for_writing)(self.path)

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    # What is to be done.

    def add(
        self, specs: Iterable[RunSpec], plan: _Plan | None = None, place: Place | None = None
    ) -> None:
        """Add runs; those that are there already stay as they are.

        Args:
            specs: the runs, in the plan's order.
            plan: what they belong to. They become its runs in place of those it had before, which
                stay in the store.
            place: where the plan's data are.
        """
        specs, now = list(specs), time()
        with transaction(self._connection, self.path):
            self._connection.executemany(
                "INSERT OR IGNORE INTO runs (id, spec, status, added) VALUES (?, ?, 'pending', ?)",
                [(spec.id, spec.model_dump_json(), now) for spec in specs],
            )
            if plan is None:
                return
            place = place or Place()
            where = asdict(replace(place, files=dict(place.files)))
            report = plan.report
            if hasattr(report, "model_dump"):
                report = report.model_dump(mode="json")
            self._connection.execute(
                """INSERT INTO plans (name, text, report, place, added) VALUES (?, ?, ?, ?, ?)
                ON CONFLICT (name) DO UPDATE SET
                    text = excluded.text, report = excluded.report, place = excluded.place""",
                [plan.name, plan.text, json.dumps(report), json.dumps(where), now],
            )
            self._connection.execute("DELETE FROM members WHERE plan = ?", [plan.name])
            self._connection.executemany(
                "INSERT INTO members SELECT ?, ?, number FROM runs WHERE id = ?",
                [(plan.name, position, spec.id) for position, spec in enumerate(specs)],
            )

    def retry(self, ids: Sequence[str]) -> int:
        """Make failed runs pending again, and say how many there were."""
        with transaction(self._connection, self.path):
            return self._connection.execute(
                """UPDATE runs SET status = 'pending', error = NULL
                WHERE status = 'failed' AND id IN (SELECT value FROM json_each(?))""",
                [json.dumps(list(ids))],
            ).rowcount

    # Doing it.

    def claim(self, owner: Owner, ids: Sequence[str]) -> RunSpec | None:
        """Begin the first pending run among some; nobody else begins it then.

        Runs of dead owners are pending again. All in one transaction.

        Returns:
            The run, or None if none of them is pending.
        """
        with transaction(self._connection, self.path):
            self._beat(owner)
            self._free_dead()
            found = self._connection.execute(
                """SELECT number, runs.id, spec FROM json_each(?) AS wanted
                JOIN runs ON runs.id = wanted.value
                WHERE status = 'pending' ORDER BY wanted.key LIMIT 1""",
                [json.dumps(list(ids))],
            ).fetchone()
            if found is None:
                return None
            number, run, spec = found
            self._connection.execute(
                """UPDATE runs SET status = 'running', owner = ?, attempts = attempts + 1,
                    started = ? WHERE number = ?""",
                [owner.id, time(), number],
            )
            return read_spec(spec, run)

    def heartbeat(self, owner: Owner) -> None:
        """Say that an owner lives: to other hosts, which cannot look at its process."""
        with transaction(self._connection, self.path):
            self._beat(owner)

    def finish(self, owner: Owner, run: str, result: RunResult) -> bool:
        """Write a result, its series and that the run is done: all of it or nothing.

        Returns:
            False if the run is not the owner's any more: then nothing is written.
        """
        with transaction(self._connection, self.path):
            return self._finish(run, result, "owner = ?", [owner.id])

    def fail(self, owner: Owner, run: str, error: str) -> bool:
        """Write that a run failed; the answer is that of `finish`."""
        # A file's name in it may be no text.
        error = error.encode(errors="backslashreplace").decode()
        with transaction(self._connection, self.path):
            changed = self._connection.execute(
                """UPDATE runs SET status = 'failed', owner = NULL, error = ?, finished = ?
                WHERE id = ? AND owner = ?""",
                [error, time(), run, owner.id],
            )
            return changed.rowcount == 1

    def release(self, owner: Owner, run: str | None = None) -> int:
        """Give a run back as pending, or all that an owner has; how many there were."""
        with transaction(self._connection, self.path):
            return self._connection.execute(
                """UPDATE runs SET status = 'pending', owner = NULL
                WHERE owner = ? AND (? IS NULL OR id = ?)""",
                [owner.id, run, run],
            ).rowcount

    def adopt(self) -> int:
        """Take in results that could not be written when they came; how many there were."""
        adopted = 0
        for file, run, result in rescued(self.path):
            with transaction(self._connection, self.path):
                adopted += self._finish(run, result, "status != 'done'", [])
            with suppress(OSError):  # what is done already is left alone at the next start
                file.unlink()
        return adopted

    # What is there.

    def status(self, ids: Iterable[str]) -> dict[str, Status]:
        """How runs stand, by id; what a dead process left is pending."""
        with clear_errors(self.path):
            return read_status(self._connection, ids)

    def runs(
        self, plan: str | None = None, *, ids: Sequence[str] | None = None, series: bool = True
    ) -> list[StoredRun]:
        """The runs of a plan in its order, or all in the order in which they were added.

        Args:
            plan: its name.
            ids: only these, in their order.
            series: whether results have their series; much faster without.

        Raises:
            SettingError: there is no such plan.
        """
        with self._snapshot():
            numbers = row_numbers(self._connection, plan, ids)
            return read_runs(self._connection, numbers, series=series)

    def series(
        self, plan: str | None = None, *, ids: Sequence[str] | None = None, name: str | None = None
    ) -> list[SeriesPoint]:
        """The numbers along training, of each run in the order in which they came.

        Args:
            plan: only runs of this plan.
            ids: only these runs.
            name: only one series, such as `loss`.
        """
        with self._snapshot():
            numbers = row_numbers(self._connection, plan, ids)
            return read_series(self._connection, numbers, name)

    def plans(self) -> list[StoredPlan]:
        """The plans, in the order in which they were added."""
        with self._snapshot():
            return read_plans(self._connection)

    def export_csv(
        self, path: str | Path, plan: str | None = None, *, overwrite: bool = False
    ) -> list[Path]:
        """Write runs as CSV: one row a run, with its spec, scores, measures and costs.

        Args:
            path: a `.csv` file, beside which that of the series is written, or a folder, which
                gets `runs.csv` and `series.csv`.
            plan: only runs of this plan.
            overwrite: whether existing files may be replaced.

        Returns:
            The files: of the runs, of the series.
        """
        runs = self.runs(plan, series=False)
        return write_csv(Path(path), runs, self.series(plan), overwrite=overwrite)

    def export_parquet(
        self, path: str | Path, plan: str | None = None, *, overwrite: bool = False
    ) -> list[Path]:
        """Write runs as Parquet, into a file or a folder as `export_csv` does."""
        runs = self.runs(plan, series=False)
        return write_parquet(Path(path), runs, self.series(plan), overwrite=overwrite)

    @contextmanager
    def _snapshot(self) -> Iterator[None]:
        """Within it, all that is read is of one moment."""
        with clear_errors(self.path):
            self._connection.execute("BEGIN")
            try:
                yield
            finally:
                self._connection.execute("ROLLBACK")

    # All below is within a transaction of the caller.

    def _beat(self, owner: Owner) -> None:
        self._connection.execute(
            """INSERT INTO owners (id, host, pid, started, heartbeat) VALUES (?, ?, ?, ?, ?)
            ON CONFLICT (id) DO UPDATE SET heartbeat = excluded.heartbeat""",
            [owner.id, owner.host, owner.pid, owner.started, time()],
        )

    def _free_dead(self) -> None:
        for owner in dead_owners(self._connection):
            self._connection.execute(
                "UPDATE runs SET status = 'pending', owner = NULL WHERE owner = ?", [owner]
            )
            self._connection.execute("DELETE FROM owners WHERE id = ?", [owner])

    def _finish(self, run: str, result: RunResult, condition: str, given: list[Any]) -> bool:
        changed = self._connection.execute(
            f"""UPDATE runs SET status = 'done', owner = NULL, error = NULL, result = ?,
                seconds = ?, finished = ? WHERE id = ? AND {condition}""",
            [result.model_dump_json(exclude={"series"}), result.seconds, time(), run, *given],
        )
        if not changed.rowcount:
            return False
        self._connection.executemany(
            "INSERT INTO series SELECT number, ?, ?, ? FROM runs WHERE id = ?",
            [(point.name, point.step, point.value, run) for point in result.series],
        )
        return True


def export(
    store: str | Path, out: str | Path, plan: str | None = None, *, overwrite: bool = False
) -> list[Path]:
    """Write the runs of a store to a `.csv` or `.parquet` file, and their series beside it.

    Raises:
        StoreError: the store cannot be read, or the files cannot be written.
    """
    ending = Path(out).suffix.lower()
    if ending not in (".csv", ".parquet"):
        raise StoreError(f"got export file {str(out)!r}, expected the ending .csv or .parquet")
    with Store(store, read_only=True) as opened:
        write = opened.export_csv if ending == ".csv" else opened.export_parquet
        return write(out, plan, overwrite=overwrite)

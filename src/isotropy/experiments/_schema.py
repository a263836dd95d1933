"""The database of runs as a file: its tables, how it is opened, and what can be wrong with it."""

import errno
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import monotonic, sleep

from isotropy.errors import StoreError
from isotropy.experiments._disk import network_kind

APPLICATION = 0x49534F52  # "ISOR": says that a database is ours
PATIENCE = 60.0
"""Seconds to wait for another process's transaction."""

# One entry a version: the statements that lead to it from the one before.
VERSIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
        # host, pid, started: of the process; heartbeat: seconds since 1970, as all times here.
        """CREATE TABLE owners (
            id TEXT PRIMARY KEY, host TEXT NOT NULL, pid INTEGER NOT NULL, started TEXT NOT NULL,
            heartbeat REAL NOT NULL)""",
        """CREATE TABLE runs (
            number INTEGER PRIMARY KEY,
            id TEXT NOT NULL UNIQUE,
            spec TEXT NOT NULL,
            status TEXT NOT NULL CHECK (status IN ('pending', 'running', 'done', 'failed')),
            owner TEXT,
            attempts INTEGER NOT NULL DEFAULT 0,
            error TEXT,
            result TEXT,
            seconds REAL,
            added REAL NOT NULL,
            started REAL,
            finished REAL,
            CHECK ((status = 'running') = (owner IS NOT NULL)),
            CHECK ((status = 'done') = (result IS NOT NULL)),
            CHECK ((status = 'failed') = (error IS NOT NULL)))""",
        "CREATE INDEX runs_by_owner ON runs (owner) WHERE owner IS NOT NULL",
        """CREATE TABLE plans (
            name TEXT PRIMARY KEY, text TEXT NOT NULL, report TEXT NOT NULL, place TEXT NOT NULL,
            added REAL NOT NULL)""",
        """CREATE TABLE members (
            plan TEXT NOT NULL REFERENCES plans (name),
            position INTEGER NOT NULL,
            run INTEGER NOT NULL REFERENCES runs (number),
            PRIMARY KEY (plan, position)) WITHOUT ROWID""",
        "CREATE INDEX members_by_run ON members (run)",
        # One row a point, in the order in which the run gave them.
        """CREATE TABLE series (
            run INTEGER NOT NULL REFERENCES runs (number),
            name TEXT NOT NULL, step INTEGER NOT NULL, value REAL NOT NULL)""",
        "CREATE INDEX series_by_run ON series (run)",
    ),
)


def open_for_writing(path: Path) -> sqlite3.Connection:
    """The database, made if there is none, brought to the present version.

    Raises:
        StoreError: it cannot be opened or written, is no store, or is a newer one.
    """
    _check_place(path)
    with clear_errors(path):
        connection = _connect(path, "mode=rwc")
        try:
            if _application(connection, path) == 0 or _version(connection, path) < len(VERSIONS):
                _use_log(connection)
                _migrate(connection, path)
            # A commit is on the disk when it returns, even if the power fails then: results took
            # hours, and commits are few.
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute("PRAGMA foreign_keys = ON")
            # Told now and not at the first result: the file may be read-only.
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("UPDATE meta SET value = value")
            connection.execute("ROLLBACK")
        except BaseException:
            connection.close()
            raise
        return connection


def open_for_reading(path: Path) -> sqlite3.Connection:
    """The database as it is; a file that is not there is not made.

    Raises:
        StoreError: it cannot be opened, is no store, or is a newer one.
    """
    _check_place(path)
    if not path.exists():
        raise StoreError(
            f"got store {str(path)!r}, which does not exist, expected a file that `isotropy run` "
            "wrote"
        )
    with clear_errors(path):
        connection = _reader(path)
        try:
            if _application(connection, path) == 0:
                raise _no_store(path)
            if _version(connection, path) < len(VERSIONS):
                _migrate(connection, path)
            connection.execute("PRAGMA query_only = ON")
        except BaseException:
            connection.close()
            raise
        return connection


@contextmanager
def transaction(connection: sqlite3.Connection, path: Path) -> Iterator[None]:
    """All of the block or nothing; other processes that write wait until its end."""
    with clear_errors(path):
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            connection.execute("COMMIT")
        except BaseException:
            with suppress(sqlite3.Error):  # some errors have rolled back by themselves
                connection.execute("ROLLBACK")
            raise


@contextmanager
def clear_errors(path: Path) -> Iterator[None]:
    """Turns what a disk or another program does to the file into a `StoreError`."""
    try:
        yield
    except sqlite3.DatabaseError as error:
        name = getattr(error, "sqlite_errorname", None) or ""
        given = f"got store {str(path)!r}"
        if name == "SQLITE_FULL" or (name.startswith("SQLITE_IOERR") and _is_full(path)):
            raise StoreError(
                f"{given}, whose disk is full, expected room to write; free some and give the "
                "same command again: what is in the store is intact"
            ) from None
        if name.startswith("SQLITE_READONLY"):
            raise StoreError(
                f"{given}, which is read-only, expected a file and a folder that can be written; "
                "change their permissions or choose another --store"
            ) from None
        if name.startswith(("SQLITE_CANTOPEN", "SQLITE_PERM", "SQLITE_AUTH")):
            raise StoreError(
                f"{given}, which cannot be opened ({_reason(path)}), expected a file and a folder "
                "that can be read and written"
            ) from None
        if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
            raise StoreError(
                f"{given}, which another program has locked for {PATIENCE:g} seconds, expected "
                "short transactions; end that program and give the same command again"
            ) from None
        if name == "SQLITE_NOTADB":
            raise _no_store(path) from None
        if name.startswith(("SQLITE_CORRUPT", "SQLITE_IOERR")):
            raise StoreError(
                f"{given}, which is damaged or on a failing disk ({error}), expected an intact "
                "file; take a copy from a backup, or start another store"
            ) from None
        raise


def _connect(path: Path, options: str) -> sqlite3.Connection:
    # isolation_level None: transactions begin and end where the code says so.
    uri = f"{path.absolute().as_uri()}?{options}"
    return sqlite3.connect(uri, uri=True, timeout=PATIENCE, isolation_level=None)


def _reader(path: Path) -> sqlite3.Connection:
    """A connection to an existing file, also where nothing can be written beside it."""
    connection = _connect(path, "mode=rw")  # rw: the last to close then tidies the log up
    try:
        connection.execute("SELECT 1 FROM sqlite_master").fetchone()
    except sqlite3.DatabaseError as error:
        connection.close()
        log = path.with_name(f"{path.name}-wal")
        closed = not log.exists() or not log.stat().st_size
        if not (isinstance(error, sqlite3.OperationalError) and closed):
            raise
        # Its folder is read-only and nobody has it open: then it can be read without a lock.
        return _connect(path, "mode=ro&immutable=1")
    return connection


def _use_log(connection: sqlite3.Connection) -> None:
    """The write-ahead log, by which readers and a writer do not hinder each other."""
    end = monotonic() + PATIENCE
    while True:
        try:  # where another process does the same, there is no waiting by itself
            connection.execute("PRAGMA journal_mode = WAL")
        except sqlite3.OperationalError as error:
            if error.sqlite_errorname != "SQLITE_BUSY" or monotonic() > end:
                raise
            sleep(0.02)
        else:
            return


def _migrate(connection: sqlite3.Connection, path: Path) -> None:
    with transaction(connection, path):
        # Asked again: another process may have done it meanwhile.
        there = _version(connection, path) if _application(connection, path) else 0
        for statement in (line for version in VERSIONS[there:] for line in version):
            connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION}")
        connection.execute(
            "INSERT OR REPLACE INTO meta VALUES ('schema_version', ?)", [str(len(VERSIONS))]
        )


def _application(connection: sqlite3.Connection, path: Path) -> int:
    """Ours, or 0 for an empty file."""
    (found,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if found == APPLICATION or (found == 0 and tables == 0):
        return int(found)
    raise _no_store(path)


def _version(connection: sqlite3.Connection, path: Path) -> int:
    asked = "SELECT value FROM meta WHERE key = 'schema_version'"
    found = connection.execute(asked).fetchone()
    if found is None or not str(found[0]).isdecimal():
        raise _no_store(path)
    version = int(found[0])
    if version > len(VERSIONS):
        raise StoreError(
            f"got store {str(path)!r} of schema version {version}, expected at most "
            f"{len(VERSIONS)}; a newer isotropy wrote it: install that one"
        )
    return version


def _check_place(path: Path) -> None:
    given = f"got store {str(path)!r}"
    if path.is_dir():
        raise StoreError(f"{given}, which is a folder, expected a file such as runs.db in it")
    if not path.parent.is_dir():
        raise StoreError(
            f"{given}, whose folder does not exist, expected an existing one; make it first"
        )
    if kind := network_kind(path):
        raise StoreError(
            f"{given} on a network disk ({kind}), expected a disk of this machine: locks over a "
            "network cannot be trusted, and runs could be done twice or lost; choose another "
            "--store, and for several machines --engine ray"
        )


def _no_store(path: Path) -> StoreError:
    return StoreError(
        f"got store {str(path)!r}, which is another kind of file, expected one that "
        "`isotropy run` wrote"
    )


def _is_full(path: Path) -> bool:
    """Whether an error of the disk may come from there being no room on it."""
    try:
        disk = os.statvfs(path.parent)
    except OSError:
        return False
    return disk.f_bavail * disk.f_frsize < 1 << 20 or (disk.f_files > 0 and disk.f_favail == 0)


def _reason(path: Path) -> str:
    """Why a file cannot be opened, in the system's words."""
    try:
        with path.open("r+b"):
            pass
        # The file itself can: then it is the log beside it that cannot be made.
        if not os.access(path.parent, os.W_OK):
            return os.strerror(errno.EACCES)
    except FileNotFoundError:
        return "its folder cannot be written"
    except OSError as error:
        return error.strerror or str(error)
    return "its folder cannot be written"

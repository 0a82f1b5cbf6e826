"""A database file: how it is opened, and how its errors are told.

Python's `sqlite3` and the ADBC driver each bring their own copy of SQLite, and when either closes a file, POSIX drops
the locks that the other holds on it. So a connection is opened, used and closed within one call, and a file that
several threads of this process use is read with `sqlite3` alone: the shared memory of one copy would be cut off under
the other, which ends the process, or worse, two would write at once.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import quote

import pyarrow as pa

from tailrace.adaptor.values import Value, read_text
from tailrace.errors import TailraceError

_BATCH_ROWS: Final = "adbc.sqlite.query.batch_rows"
_shared: Final[set[str]] = set()
"""The files that several threads use. Locks belong to the process, and so does this."""


@dataclass(frozen=True, slots=True)
class Database:
    """One file, as a source or as a destination."""

    path: str
    busy_s: float
    unreachable: str = "source.unreachable"
    """The code of the error when it cannot be used."""

    def uri(self, mode: str) -> str:
        """The file as SQLite's URI; the name is escaped, so it can say nothing else."""
        return f"file:{quote(self.path)}?mode={mode}"

    @contextmanager
    def reading(self, *, exact: bool = False) -> Iterator[sqlite3.Connection]:
        """A connection that cannot write, and one view of the data; `exact` lets text through that is not UTF-8."""
        with self.errors(), closing(self.connect("ro")) as connection:
            if exact:
                connection.text_factory = read_text
            connection.execute("BEGIN")
            yield connection

    @contextmanager
    def writing(self, busy_s: float | None = None) -> Iterator[sqlite3.Connection]:
        """One transaction that writes: all of it is there afterwards, or after an exception nothing."""
        with self.errors(), closing(self.connect("rw", busy_s)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            yield connection
            connection.execute("COMMIT")

    def share(self) -> None:
        """From now on other threads of this process use the file, too."""
        _shared.add(os.path.realpath(self.path))

    @property
    def is_shared(self) -> bool:
        return os.path.realpath(self.path) in _shared

    def arrow(self, query: str, parameters: Sequence[Value], rows_max: int) -> pa.Table:
        """The answer to a query as Arrow. Raises whatever the driver raises; types are those of the first rows.

        Not for a file that is shared.
        """
        from adbc_driver_sqlite import dbapi

        with dbapi.connect(self.uri("ro"), autocommit=True) as connection, connection.cursor() as cursor:
            cursor.execute(f"PRAGMA busy_timeout = {int(self.busy_s * 1000)}")
            cursor.adbc_statement.set_options(**{_BATCH_ROWS: str(rows_max)})
            cursor.execute(query, tuple(parameters))
            table: pa.Table = cursor.fetch_arrow_table()
            return table

    def copy_into(self, path: str) -> None:
        """Copy the whole database as it is at one moment into a new file. Others can write meanwhile."""
        with self.errors(), closing(self.connect("ro")) as connection:
            connection.execute("VACUUM INTO ?", (path,))

    def make(self) -> None:
        """An empty database, if there is none."""
        path = Path(self.path)
        if path.exists():
            return
        if not path.parent.is_dir():
            what = f"there is no directory {path.parent} for database {path.name}"
            raise TailraceError(self.unreachable, what, hint=f"mkdir -p {path.parent}, or correct `path`")
        with self.errors(), closing(self.connect("rwc")) as connection:
            connection.execute("PRAGMA journal_mode = WAL")

    def exists(self) -> bool:
        return Path(self.path).is_file()

    @contextmanager
    def errors(self) -> Iterator[None]:
        """SQLite's errors as ours."""
        try:
            yield
        except sqlite3.Error as error:
            raise self.error(error) from error

    def error(self, error: sqlite3.Error) -> TailraceError:
        """What an error of SQLite means, and what to do."""
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            return self._failed(f"is locked by another program for {self.busy_s:g} s", "end it, or raise `busy`")
        if code == sqlite3.SQLITE_CANTOPEN:
            hint = "correct `path`" if not self.exists() else "allow reading the file and writing in its directory"
            return self._failed("cannot be opened" if self.exists() else "does not exist", hint)
        if code in (sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT):
            return self._failed(f"is no sound SQLite database: {error}", 'run `sqlite3 FILE "PRAGMA integrity_check"`')
        if code == sqlite3.SQLITE_READONLY:
            return self._failed(f"cannot be written: {error}", "allow writing the file and in its directory")
        if "no such collation sequence" in str(error):
            what = f"a key of database {self.path} is sorted as only its own program can: {error}"
            return TailraceError("source.unsupported", what, hint="leave the table out with `namespace`")
        return self._failed(f"failed: {error}", "tailrace doctor")

    def _failed(self, how: str, hint: str) -> TailraceError:
        return TailraceError(self.unreachable, f"database {self.path} {how}", hint=hint)

    def connect(self, mode: str, busy_s: float | None = None) -> sqlite3.Connection:
        """A connection without a transaction, which the caller closes."""
        timeout = self.busy_s if busy_s is None else busy_s
        return sqlite3.connect(self.uri(mode), timeout=timeout, isolation_level=None, uri=True, check_same_thread=False)

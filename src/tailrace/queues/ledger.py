"""The ledger: how far an application has come, in a table of its own database, in its own transactions.

`LRQ_Received` has one row for each source. It is changed in the transaction in which the application applies a message,
so both happen or neither: exactly once. Databases are SQLite and PostgreSQL, connections those of sqlite3, of psycopg
or of SQLAlchemy.
"""

from __future__ import annotations

import contextlib
import re
import sqlite3
from collections.abc import Iterator, Mapping
from typing import Any, Final, Protocol

from tailrace.errors import TailraceError
from tailrace.queues.desk import Place
from tailrace.queues.entries import Kind
from tailrace.queues.incoming import Incoming

_LOCK: Final = "SELECT pg_advisory_xact_lock(20187)"
"""PostgreSQL does not like two that make the same table at the same time."""
_SCHEMA: Final = """
CREATE TABLE IF NOT EXISTS LRQ_Received (
    log VARCHAR(64) NOT NULL,
    client VARCHAR(64) NOT NULL,
    listener VARCHAR(64) NOT NULL,
    source VARCHAR(64) NOT NULL,
    replay VARCHAR(64) NOT NULL,
    place BIGINT NOT NULL,
    snapshot VARCHAR(255) NOT NULL,
    PRIMARY KEY (log, client, listener, source, replay)
)
"""
_PLACES: Final = """
SELECT source, place, snapshot FROM LRQ_Received
WHERE log = :log AND client = :client AND listener = :listener AND replay = ''
"""
_ENTER: Final = """
INSERT INTO LRQ_Received (log, client, listener, source, replay, place, snapshot)
VALUES (:log, :client, :listener, :source, :replay, :place, :snapshot)
ON CONFLICT (log, client, listener, source, replay)
DO UPDATE SET place = excluded.place, snapshot = excluded.snapshot WHERE LRQ_Received.place < excluded.place
"""


class Statements(Protocol):
    """A connection of some library. What was begun before a transaction, while connecting say, is committed first: ours
    must not be a part of it, for nobody would commit that."""

    is_postgres: bool

    def transaction(self) -> contextlib.AbstractContextManager[object]:
        """Everything done within it is committed, or after an exception nothing."""
        ...

    def execute(self, statement: str, values: Mapping[str, object]) -> Any:
        """Values are named `:name`. Gives the library's cursor."""
        ...


class Ledger:
    """The rows of one listener."""

    def __init__(self, connection: object, log: str, client: str, listener: str) -> None:
        self._statements = statements_of(connection)
        self._key: dict[str, object] = {"log": log, "client": client, "listener": listener}
        with self._statements.transaction():
            if self._statements.is_postgres:
                self._statements.execute(_LOCK, {})
            self._statements.execute(_SCHEMA, {})

    def places(self) -> dict[str, Place]:
        """How far the application is with each source."""
        with self._statements.transaction():
            rows = self._statements.execute(_PLACES, self._key).fetchall()
        return {source: Place(place, snapshot) for source, place, snapshot in rows}

    def transaction(self) -> contextlib.AbstractContextManager[object]:
        return self._statements.transaction()

    def enter(self, message: Incoming) -> bool:
        """Within a transaction: the message is applied in it. False when it was applied before."""
        in_snapshot = message.kind is Kind.SNAPSHOT
        values = {
            **self._key,
            "source": message.source,
            "replay": message.replay,
            "place": message.offset,
            "snapshot": message.request if in_snapshot else "",
        }
        return bool(self._statements.execute(_ENTER, values).rowcount)


def statements_of(connection: object) -> Statements:
    """How statements are run with a connection; refuses libraries that nobody has tried."""
    library = type(connection).__module__.partition(".")[0]
    if isinstance(connection, sqlite3.Connection):
        return _Sqlite(connection)
    if library == "psycopg":
        return _Psycopg(connection)
    if library == "sqlalchemy" and getattr(connection, "exec_driver_sql", None) is not None:
        return _SqlAlchemy(connection)
    what = f"a {type(connection).__module__}.{type(connection).__qualname__} is no connection that can be used"
    raise TailraceError("input.invalid", what, hint="connect with sqlite3, psycopg or SQLAlchemy")


class _Sqlite:
    is_postgres = False

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        """In words, since commit() means nothing in some of the modes of a connection."""
        if self._connection.in_transaction:
            self._connection.execute("COMMIT")
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
            if not self._connection.in_transaction:
                raise _ended_itself()
            self._connection.execute("COMMIT")
        finally:
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def execute(self, statement: str, values: Mapping[str, object]) -> Any:
        return self._connection.execute(statement, values)


class _Psycopg:
    is_postgres = True

    def __init__(self, connection: Any) -> None:
        self._connection = connection

    def transaction(self) -> contextlib.AbstractContextManager[object]:
        self._connection.commit()
        found: contextlib.AbstractContextManager[object] = self._connection.transaction()
        return found

    def execute(self, statement: str, values: Mapping[str, object]) -> Any:
        return self._connection.execute(re.sub(r":(\w+)", r"%(\1)s", statement), values)


class _SqlAlchemy:
    def __init__(self, connection: Any) -> None:
        self._connection = connection
        name = connection.dialect.name
        if name not in ("sqlite", "postgresql"):
            what = f"SQLAlchemy is connected to {name}, which cannot be used"
            raise TailraceError("input.invalid", what, hint="connect to SQLite or PostgreSQL")
        self.is_postgres = name == "postgresql"

    @contextlib.contextmanager
    def transaction(self) -> Iterator[None]:
        self._connection.commit()
        begun = self._connection.begin()
        with begun:
            yield
            if not begun.is_active:
                raise _ended_itself()

    def execute(self, statement: str, values: Mapping[str, object]) -> Any:
        from sqlalchemy import text

        return self._connection.execute(text(statement), dict(values))


def _ended_itself() -> TailraceError:
    what = "a handler ended the transaction that it was given, so nobody knows what was applied"
    return TailraceError("input.invalid", what, hint="leave commit and rollback to the receiver")

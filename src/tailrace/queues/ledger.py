"""The ledger: how far an application has come, in a table of its own database, in its own transactions.

`LRQ_Received` has one row for each source. It is changed in the transaction in which the application applies a message,
so both happen or neither: exactly once. Databases are SQLite and PostgreSQL, connections those of sqlite3, of psycopg
or of SQLAlchemy.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Iterator
from typing import Any, Final

from tailrace.errors import TailraceError
from tailrace.queues.application import Application, PsycopgApplication, application_of
from tailrace.queues.desk import Place
from tailrace.queues.entries import Kind
from tailrace.queues.incoming import Incoming

_LOCK: Final = "SELECT pg_advisory_xact_lock(20187)"
"""PostgreSQL does not like two that make the same table at the same time."""
_IS_MISSING: Final = "SELECT to_regclass('LRQ_Received') IS NULL"
"""Who may not make tables may use one that is there."""
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
WHERE log = ? AND client = ? AND listener = ? AND replay = ''
"""
_ENTER: Final = """
INSERT INTO LRQ_Received (log, client, listener, source, replay, place, snapshot) VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (log, client, listener, source, replay)
DO UPDATE SET place = excluded.place, snapshot = excluded.snapshot WHERE LRQ_Received.place < excluded.place
"""


class Ledger:
    """The rows of one listener."""

    def __init__(self, connection: Any, log: str, client: str, listener: str) -> None:
        self._connection = connection
        self._application = application_of(connection)
        self._key = (log, client, listener)
        with self.transaction():
            if self._application.is_sqlite:
                self._application.run(_SCHEMA)
            elif self._application.run(_IS_MISSING).fetchone()[0]:
                self._application.run(_LOCK)
                self._application.run(_SCHEMA)

    def places(self) -> dict[str, Place]:
        """How far the application is with each source."""
        with self.transaction():
            rows = self._application.run(_PLACES, self._key).fetchall()
        return {source: Place(place, snapshot) for source, place, snapshot in rows}

    def transaction(self) -> contextlib.AbstractContextManager[object]:
        """Everything done within it is committed, or after an exception nothing."""
        return own_transaction(self._connection, self._application)

    def enter(self, message: Incoming) -> bool:
        """Within a transaction: the message is applied in it. False when it was applied before."""
        snapshot = message.request if message.kind is Kind.SNAPSHOT else ""
        values = (*self._key, message.source, message.replay, message.offset, snapshot)
        return bool(self._application.run(_ENTER, values).rowcount)


def own_transaction(connection: Any, application: Application) -> contextlib.AbstractContextManager[object]:
    """A transaction that is no part of another one: what was begun before, while connecting say, is committed first,
    for nobody would commit that."""
    if isinstance(connection, sqlite3.Connection):
        return _through_sqlite(connection)
    connection.commit()
    if isinstance(application, PsycopgApplication):
        through_psycopg: contextlib.AbstractContextManager[object] = connection.transaction()
        return through_psycopg
    return _through_sqlalchemy(connection)


@contextlib.contextmanager
def _through_sqlite(connection: sqlite3.Connection) -> Iterator[None]:
    """In words, since commit() means nothing in some of the modes of a connection."""
    if connection.in_transaction:
        connection.execute("COMMIT")
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        if not connection.in_transaction:
            raise _ended_itself()
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


@contextlib.contextmanager
def _through_sqlalchemy(connection: Any) -> Iterator[None]:
    with connection.begin() as begun:
        yield
        if not begun.is_active:
            raise _ended_itself()


def _ended_itself() -> TailraceError:
    what = "a handler ended the transaction that it was given, so nobody knows what was applied"
    return TailraceError("input.invalid", what, hint="leave commit and rollback to the receiver")

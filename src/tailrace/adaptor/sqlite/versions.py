"""The versions of the rows of a node's store in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from tailrace.adaptor.versions import Mark, VersionRow, Versions

_TABLE: Final = """CREATE TABLE IF NOT EXISTS tailrace_version(
    namespace TEXT NOT NULL, key TEXT NOT NULL, at INTEGER NOT NULL, origin TEXT NOT NULL, lsn INTEGER NOT NULL,
    PRIMARY KEY(namespace, key)) WITHOUT ROWID"""
_FIND: Final = "SELECT at, origin, lsn FROM tailrace_version WHERE namespace = ? AND key = ?"
_NOTE_ALWAYS: Final = """INSERT INTO tailrace_version VALUES (?, ?, ?, ?, ?) ON CONFLICT(namespace, key)
    DO UPDATE SET at = excluded.at, origin = excluded.origin, lsn = excluded.lsn"""
_NOTE: Final = f"""{_NOTE_ALWAYS}
    WHERE (excluded.at, excluded.origin, excluded.lsn) > (at, origin, lsn)"""
_ALL: Final = "SELECT namespace, key, at, origin, lsn FROM tailrace_version ORDER BY namespace, key"
_ANY: Final = "SELECT 1 FROM tailrace_version WHERE namespace = ? LIMIT 1"
_BATCH_ROWS: Final = 10_000


class SqliteVersions(Versions):
    """The versions in one database, inside the transaction of whoever uses it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute(_TABLE)

    def put(self, rows: Iterable[VersionRow]) -> None:
        """What a source knows of rows that the node has got from there."""
        self._connection.executemany(_NOTE, rows)

    def write(self, rows: Sequence[VersionRow], *, always: bool) -> None:
        self._connection.executemany(_NOTE_ALWAYS if always else _NOTE, rows)

    def has_any(self, namespace: str) -> bool:
        """Whether anything is known of a table."""
        return self._connection.execute(_ANY, (namespace,)).fetchone() is not None

    def find(self, namespace: str, keys: Collection[str]) -> dict[str, Mark]:
        asked = ((key, self._connection.execute(_FIND, (namespace, key)).fetchone()) for key in keys)
        return {key: mark for key, mark in asked if mark is not None}


def all_versions(connection: sqlite3.Connection) -> Iterator[list[VersionRow]]:
    """All there are, many at a time."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tailrace_version'").fetchone() is None:
        return
    cursor = connection.execute(_ALL)
    while rows := cursor.fetchmany(_BATCH_ROWS):
        yield rows

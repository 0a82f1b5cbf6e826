"""The versions of the rows of a node's store in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from tailrace.adaptor.versions import Judgement, Known, VersionRow, judge, newest
from tailrace.deliver.messages import Messages

_TABLE: Final = """CREATE TABLE IF NOT EXISTS tailrace_version(
    namespace TEXT NOT NULL, key TEXT NOT NULL, at INTEGER NOT NULL, origin TEXT NOT NULL, lsn INTEGER NOT NULL,
    is_put INTEGER NOT NULL, PRIMARY KEY(namespace, key)) WITHOUT ROWID"""
_FIND: Final = "SELECT at, origin, lsn, is_put FROM tailrace_version WHERE namespace = ? AND key = ?"
_NOTE: Final = """INSERT INTO tailrace_version VALUES (?, ?, ?, ?, ?, 0) ON CONFLICT(namespace, key)
    DO UPDATE SET at = excluded.at, origin = excluded.origin, lsn = excluded.lsn
    WHERE (excluded.at, excluded.origin, excluded.lsn) > (at, origin, lsn)"""
_MARK_PUT: Final = "UPDATE tailrace_version SET is_put = 1 WHERE namespace = ? AND key = ?"
_ALL: Final = "SELECT namespace, key, at, origin, lsn FROM tailrace_version ORDER BY namespace, key"
_BATCH_ROWS: Final = 10_000


class Versions:
    """The versions in one database, inside the transaction of whoever uses it."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        connection.execute(_TABLE)

    def judge(self, messages: Messages, key: Sequence[str]) -> Judgement:
        """What each message is against the rows that are there."""
        return judge(messages, key, lambda keys: self._find(messages.namespace, keys))

    def note(self, messages: Messages, key: Sequence[str], is_put: Sequence[bool]) -> None:
        """These messages were written, or lost against newer ones. `is_put` says which the node itself wrote."""
        found = newest(messages, key, is_put)
        self._connection.executemany(_NOTE, [(messages.namespace, each, *new.mark) for each, new in found.items()])
        written = [(messages.namespace, each) for each, new in found.items() if new.is_put]
        self._connection.executemany(_MARK_PUT, written)

    def put(self, rows: Iterable[VersionRow]) -> None:
        """What a source knows of rows that the node has got from there."""
        told = list(rows)
        self._connection.executemany(_NOTE, told)
        self._connection.executemany(_MARK_PUT, [(namespace, key) for namespace, key, *_ in told])

    def _find(self, namespace: str, keys: Collection[str]) -> dict[str, Known]:
        found: dict[str, Known] = {}
        for key in keys:
            row = self._connection.execute(_FIND, (namespace, key)).fetchone()
            if row is not None:
                found[key] = Known(row[:3], bool(row[3]))
        return found


def all_versions(connection: sqlite3.Connection) -> Iterator[list[VersionRow]]:
    """All there are, many at a time."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tailrace_version'").fetchone() is None:
        return
    cursor = connection.execute(_ALL)
    while rows := cursor.fetchmany(_BATCH_ROWS):
        yield rows

"""Conflicts in a node's store: found, kept beside the tables that they are about, and resolved."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from tailrace.adaptor import resolving
from tailrace.adaptor.clashes import Row, clashes, row_of
from tailrace.adaptor.rivals import rivals
from tailrace.adaptor.sqlite import sql
from tailrace.adaptor.sqlite.catalog import find_table
from tailrace.adaptor.sqlite.triggers import uniques_of
from tailrace.adaptor.sqlite.versions import SqliteVersions
from tailrace.adaptor.values import read_text
from tailrace.adaptor.versions import Judgement
from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.node.conflict import Clash, Conflict, Keep, Policy

SETTLED_MAX: Final = 10_000
"""So many of the conflicts that are settled are kept."""
_TABLE: Final = """CREATE TABLE IF NOT EXISTS tailrace_conflict(
    id INTEGER PRIMARY KEY AUTOINCREMENT, namespace TEXT NOT NULL, key TEXT NOT NULL, left_key TEXT,
    origin TEXT NOT NULL, lsn INTEGER NOT NULL, at INTEGER NOT NULL, policy TEXT NOT NULL,
    ours TEXT, theirs TEXT, keep TEXT, rival TEXT NOT NULL, UNIQUE(origin, lsn, rival))"""
_NOTE: Final = """INSERT INTO tailrace_conflict VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT(origin, lsn, rival) DO NOTHING"""
_FORGET: Final = """DELETE FROM tailrace_conflict
    WHERE keep IS NOT NULL AND id <= (SELECT max(id) FROM tailrace_conflict) - ?"""
_KEPT: Final = "SELECT keep FROM tailrace_conflict WHERE origin = ? AND lsn = ? AND rival = ?"
_ALL: Final = "SELECT * FROM tailrace_conflict ORDER BY id"
_ONE: Final = "SELECT * FROM tailrace_conflict WHERE id = ?"
_SETTLE: Final = "UPDATE tailrace_conflict SET keep = ? WHERE id = ?"


def find_clashes(
    connection: sqlite3.Connection, table: str, key: Sequence[str], messages: Messages, judged: Judgement
) -> Iterator[Clash]:
    """The messages that are in conflict with what a table has, as of now."""
    if any(judged.is_foreign) and find_table(connection, table) is not None:
        yield from clashes(messages, judged, key, lambda _: lambda row: _found(connection, table, key, row))


def find_rivals(connection: sqlite3.Connection, table: str, key: Sequence[str], messages: Messages) -> Iterator[Clash]:
    """The messages that cannot be written beside what a table has, as of now."""
    info = find_table(connection, table)
    found = [] if info is None else uniques_of(connection, info, with_partial=False)
    uniques = [tuple(name for name, _ in unique) for unique in found]
    if uniques:
        versions = SqliteVersions(connection)
        yield from rivals(
            messages,
            key,
            [columns for columns in uniques if set(columns) != set(key)],
            lambda columns: lambda _: lambda row: _found(connection, table, columns, row),
            lambda keys: versions.find(messages.namespace, keys),
        )


def drop_rival(connection: sqlite3.Connection, table: str, conflict: Conflict) -> int:
    """Delete the row that a message found; says how many that are."""
    rival = row_of(conflict.rival)
    return _Table(connection, table, list(rival)).delete(rival)


def note(connection: sqlite3.Connection, conflicts: Iterable[Conflict]) -> None:
    """Keep conflicts; one that is known stays as it is."""
    connection.execute(_TABLE)
    rows = [
        (c.namespace, c.key, c.left_key, c.origin, c.lsn, c.at_us, c.policy, c.ours, c.theirs, c.keep, c.rival)
        for c in conflicts
    ]
    connection.executemany(_NOTE, rows)
    connection.execute(_FORGET, (SETTLED_MAX,))


def decision(connection: sqlite3.Connection, conflict: Conflict) -> Keep | None:
    """What somebody has decided about a message."""
    connection.execute(_TABLE)
    found = connection.execute(_KEPT, (conflict.origin, conflict.lsn, conflict.rival)).fetchone()
    return None if found is None or found[0] is None else Keep(found[0])


def all_conflicts(connection: sqlite3.Connection) -> list[Conflict]:
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tailrace_conflict'").fetchone() is None:
        return []
    return [_conflict(found) for found in connection.execute(_ALL)]


def resolve(connection: sqlite3.Connection, number: int, keep: Keep, table: str) -> None:
    """Decide."""
    connection.text_factory = read_text
    conflict = _conflict(connection.execute(_ONE, (number,)).fetchone())
    connection.execute(_SETTLE, (keep, number))
    resolving.resolve(conflict, keep, _Table(connection, table, list(row_of(conflict.key))))


@dataclass(frozen=True, slots=True)
class _Table:
    """A table as its users write it."""

    connection: sqlite3.Connection
    table: str
    key: Sequence[str]

    def found(self, key: Row) -> Row | None:
        return _found(self.connection, self.table, self.key, key)

    def put(self, row: Row) -> None:
        places = [sql.placeholder(value) for value in row.values()]
        self.connection.execute(sql.upsert(self.table, list(row), places, self.key), list(row.values()))

    def delete(self, key: Row) -> int:
        return self.connection.execute(sql.delete(self.table, self.key), [key[name] for name in self.key]).rowcount


def _found(connection: sqlite3.Connection, table: str, key: Sequence[str], row: Row) -> Row | None:
    """The row that has the key of another one."""
    cursor = connection.execute(sql.row_of(table, key), [row[name] for name in key])
    found = cursor.fetchone()
    return None if found is None else dict(zip([column[0] for column in cursor.description], found, strict=True))


def _conflict(found: tuple[Any, ...] | None) -> Conflict:
    if found is None:
        raise TailraceError("input.invalid", "there is no conflict with this number", hint="tailrace conflict list")
    number, namespace, key, left_key, origin, lsn, at_us, policy, ours, theirs, keep, rival = found
    kept = None if keep is None else Keep(keep)
    return Conflict(namespace, key, left_key, origin, lsn, at_us, Policy(policy), ours, theirs, kept, rival, number)

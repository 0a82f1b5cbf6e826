"""Conflicts in a node's store: found, kept beside the tables that they are about, and resolved."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from tailrace.adaptor.clashes import Row, clashes, row_of
from tailrace.adaptor.sqlite import sql
from tailrace.adaptor.sqlite.catalog import find_table
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
    ours TEXT, theirs TEXT, keep TEXT, UNIQUE(origin, lsn))"""
_NOTE: Final = """INSERT INTO tailrace_conflict VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)
    ON CONFLICT(origin, lsn) DO NOTHING"""
_FORGET: Final = """DELETE FROM tailrace_conflict
    WHERE keep IS NOT NULL AND id <= (SELECT max(id) FROM tailrace_conflict) - ?"""
_KEPT: Final = "SELECT keep FROM tailrace_conflict WHERE origin = ? AND lsn = ?"
_ALL: Final = "SELECT * FROM tailrace_conflict ORDER BY id"
_ONE: Final = "SELECT * FROM tailrace_conflict WHERE id = ?"
_SETTLE: Final = "UPDATE tailrace_conflict SET keep = ? WHERE id = ?"


def find_clashes(
    connection: sqlite3.Connection, table: str, key: Sequence[str], messages: Messages, judged: Judgement
) -> Iterator[Clash]:
    """The messages that are in conflict with what a table has, as of now."""
    if any(judged.is_foreign) and find_table(connection, table) is not None:
        yield from clashes(messages, judged, key, lambda _: lambda row: _found(connection, table, key, row))


def note(connection: sqlite3.Connection, conflicts: Iterable[Conflict]) -> None:
    """Keep conflicts; one that is known stays as it is."""
    connection.execute(_TABLE)
    rows = [
        (c.namespace, c.key, c.left_key, c.origin, c.lsn, c.at_us, c.policy, c.ours, c.theirs, c.keep)
        for c in conflicts
    ]
    connection.executemany(_NOTE, rows)
    connection.execute(_FORGET, (SETTLED_MAX,))


def decision(connection: sqlite3.Connection, origin: str, lsn: int) -> Keep | None:
    """What somebody has decided about a message."""
    connection.execute(_TABLE)
    found = connection.execute(_KEPT, (origin, lsn)).fetchone()
    return None if found is None or found[0] is None else Keep(found[0])


def all_conflicts(connection: sqlite3.Connection) -> list[Conflict]:
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tailrace_conflict'").fetchone() is None:
        return []
    return [_conflict(found) for found in connection.execute(_ALL)]


def resolve(connection: sqlite3.Connection, number: int, keep: Keep, table: str) -> None:
    """Decide. One of the rows becomes the newest there is: it is written once more, as a change of this database's own,
    except where the message waits to be written itself."""
    connection.text_factory = read_text
    conflict = _conflict(connection.execute(_ONE, (number,)).fetchone())
    connection.execute(_SETTLE, (keep, number))
    if conflict.policy is Policy.STOP and conflict.keep is None and keep is Keep.THEIRS:
        return
    key, theirs = row_of(conflict.key), None if conflict.theirs is None else row_of(conflict.theirs)
    there = _found(connection, table, list(key), key)
    wanted = there if keep is Keep.OURS else theirs
    if wanted is not None:
        _put(connection, table, list(key), wanted)
    else:
        if there is None and theirs is not None:
            _put(connection, table, list(key), theirs)  # only what is there can be deleted
        connection.execute(sql.delete(table, list(key)), list(key.values()))
    if keep is Keep.THEIRS and conflict.left_key is not None:
        connection.execute(sql.delete(table, list(key)), list(row_of(conflict.left_key).values()))


def _put(connection: sqlite3.Connection, table: str, key: Sequence[str], row: Row) -> None:
    places = [sql.placeholder(value) for value in row.values()]
    connection.execute(sql.upsert(table, list(row), places, key), list(row.values()))


def _found(connection: sqlite3.Connection, table: str, key: Sequence[str], row: Row) -> Row | None:
    """The row that has the key of another one."""
    cursor = connection.execute(sql.row_of(table, key), [row[name] for name in key])
    found = cursor.fetchone()
    return None if found is None else dict(zip([column[0] for column in cursor.description], found, strict=True))


def _conflict(found: tuple[Any, ...] | None) -> Conflict:
    if found is None:
        raise TailraceError("input.invalid", "there is no conflict with this number", hint="tailrace conflict list")
    number, namespace, key, left_key, origin, lsn, at_us, policy, ours, theirs, keep = found
    kept = None if keep is None else Keep(keep)
    return Conflict(namespace, key, left_key, origin, lsn, at_us, Policy(policy), ours, theirs, kept, number)

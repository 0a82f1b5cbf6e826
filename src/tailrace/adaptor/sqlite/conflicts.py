"""Conflicts in a node's store: found, kept beside the tables that they are about, and resolved."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

import pyarrow as pa

from tailrace.adaptor.sqlite import sql
from tailrace.adaptor.sqlite.binding import bindable
from tailrace.adaptor.sqlite.catalog import find_table
from tailrace.adaptor.sqlite.values import from_plain, read_text, to_plain
from tailrace.adaptor.sqlite.versions import Judgement
from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.message import Op
from tailrace.node.conflict import Clash, Conflict, Keep, Policy

Row = Mapping[str, Any]
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


def clashes(
    connection: sqlite3.Connection, table: str, key: Sequence[str], messages: Messages, judged: Judgement
) -> Iterator[Clash]:
    """The messages that are in conflict with what a table has, as of now."""
    places = [at for at, is_foreign in enumerate(judged.is_foreign) if is_foreign]
    if not places or find_table(connection, table) is None:
        return
    suspects = messages.take(pa.array(places, pa.int64()))
    theirs = _rows(suspects.data)
    before = _rows(suspects.before) if suspects.before is not None else [None] * len(places)
    ops: list[Any] = suspects.ops().to_pylist()
    for at, op, coming, saw in zip(places, ops, theirs, before, strict=True):
        if coming is None:
            continue
        wanted = None if op == Op.DELETE else coming
        there = _found(connection, table, key, coming)
        is_move = judged.is_move[at] and saw is not None
        left = _found(connection, table, key, saw) if is_move and saw is not None else None
        if _is_same(wanted, there) and left is None:
            continue
        if is_move:
            was_seen = judged.may_move[at] and there is None and left is not None and _is_same(saw, left)
        elif op == Op.INSERT:
            was_seen = there is None
        else:
            was_seen = saw is None or _is_same(saw, there)
        if judged.is_newer[at] and was_seen:
            continue
        yield Clash(
            at=at,
            key=_key(coming, key),
            left_key=_key(saw, key) if is_move and saw is not None else None,
            ours=_text(there if there is not None else left),
            theirs=_text(wanted),
        )


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
    key, theirs = _values(conflict.key), None if conflict.theirs is None else _values(conflict.theirs)
    there = _found(connection, table, list(key), key)
    wanted = there if keep is Keep.OURS else theirs
    if wanted is not None:
        _put(connection, table, list(key), wanted)
    else:
        if there is None and theirs is not None:
            _put(connection, table, list(key), theirs)  # only what is there can be deleted
        connection.execute(sql.delete(table, list(key)), list(key.values()))
    if keep is Keep.THEIRS and conflict.left_key is not None:
        connection.execute(sql.delete(table, list(key)), list(_values(conflict.left_key).values()))


def _put(connection: sqlite3.Connection, table: str, key: Sequence[str], row: Row) -> None:
    places = [sql.placeholder(value) for value in row.values()]
    connection.execute(sql.upsert(table, list(row), places, key), list(row.values()))


def _found(connection: sqlite3.Connection, table: str, key: Sequence[str], row: Row) -> Row | None:
    """The row that has the key of another one."""
    cursor = connection.execute(sql.row_of(table, key), [row[name] for name in key])
    found = cursor.fetchone()
    return None if found is None else dict(zip([column[0] for column in cursor.description], found, strict=True))


def _rows(rows: pa.StructArray) -> list[dict[str, Any] | None]:
    """Rows as SQLite would have them."""
    columns = [bindable(rows.field(field.name), field) for field in rows.type]
    names = [field.name for field in rows.type]
    there: list[Any] = rows.is_valid().to_pylist()
    return [
        dict(zip(names, row, strict=True)) if is_there else None
        for is_there, row in zip(there, zip(*columns, strict=True), strict=True)
    ]


def _is_same(told: Row | None, there: Row | None) -> bool:
    """Whether a row is what somebody says, as far as it was said."""
    if told is None or there is None:
        return told is there
    present = {name.lower(): value for name, value in there.items()}
    return all(present.get(name.lower()) == value for name, value in told.items())


def _key(row: Row, key: Sequence[str]) -> str:
    return _text({name: row[name] for name in key}) or ""


def _text(row: Row | None) -> str | None:
    if row is None:
        return None
    return json.dumps({name: to_plain(value) for name, value in row.items()}, ensure_ascii=False)


def _values(text: str) -> dict[str, Any]:
    return {name: from_plain(value) for name, value in json.loads(text).items()}


def _conflict(found: tuple[Any, ...] | None) -> Conflict:
    if found is None:
        raise TailraceError("input.invalid", "there is no conflict with this number", hint="tailrace conflict list")
    number, namespace, key, left_key, origin, lsn, at_us, policy, ours, theirs, keep = found
    kept = None if keep is None else Keep(keep)
    return Conflict(namespace, key, left_key, origin, lsn, at_us, Policy(policy), ours, theirs, kept, number)

"""Triggers: how a table notes what happens to its rows.

`INSERT OR REPLACE` removes every row that has a unique value of the new one, and SQLite fires no delete trigger for
them unless the program asked for it (`recursive_triggers`). So before a row comes, those that share a unique value with
it are set aside, and after it has come, those of them that are gone are noted as deleted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.adaptor.sqlite import sql
from tailrace.adaptor.sqlite.catalog import OURS, SCHEMA, TableInfo
from tailrace.message import Op

Unique = tuple[tuple[str, str], ...]
"""The columns of a unique index, each with its collation."""


@dataclass(frozen=True, slots=True)
class Trigger:
    """One trigger of a table."""

    name: str
    event: str
    statements: tuple[str, ...]

    def create(self, table: str) -> str:
        return sql.trigger(self.name, self.event, table, self.statements)


def uniques_of(connection: sqlite3.Connection, table: TableInfo, *, with_partial: bool = True) -> list[Unique]:
    """The unique indexes by which a new row can replace one with another key; not those on expressions."""
    query = 'SELECT name FROM pragma_index_list(?, ?) WHERE "unique" AND partial <= ? ORDER BY name'
    found: list[Unique] = []
    for (index,) in connection.execute(query, (table.name, SCHEMA, with_partial)).fetchall():
        parts = "SELECT name, coll FROM pragma_index_xinfo(?, ?) WHERE key ORDER BY seqno"
        columns: Unique = tuple(connection.execute(parts, (index, SCHEMA)).fetchall())
        names = {name for name, _ in columns}
        if None not in names and names != set(table.key):
            found.append(columns)
    return found


def triggers(tbl: int, table: TableInfo, uniques: Sequence[Unique]) -> list[Trigger]:
    """All triggers of a table."""
    columns = table.exposed
    prefix = f"{OURS}{tbl}_"
    inserted = sql.record(tbl, Op.INSERT, columns, new="NEW")
    updated = sql.record(tbl, Op.UPDATE, columns, new="NEW", old="OLD")
    deleted = sql.record(tbl, Op.DELETE, columns, new="OLD", old="OLD")
    replaced = sql.record_replaced(tbl, columns, table.name, table.key) if uniques else []
    made = [
        Trigger(f"{prefix}insert", "AFTER INSERT", (*replaced, inserted)),
        Trigger(f"{prefix}update", "AFTER UPDATE", (*replaced, updated)),
        Trigger(f"{prefix}delete", "AFTER DELETE", (deleted,)),
    ]
    if not uniques:
        return made
    involved = sql.names(sorted({name for unique in uniques for name, _ in unique}))
    return [
        *made,
        Trigger(f"{prefix}before_insert", "BEFORE INSERT", _staging(tbl, table, uniques, but=())),
        Trigger(f"{prefix}before_update", f"BEFORE UPDATE OF {involved}", _staging(tbl, table, uniques, table.key)),
    ]


def _staging(tbl: int, table: TableInfo, uniques: Sequence[Unique], but: Sequence[str]) -> tuple[str, ...]:
    return tuple(sql.stage_replaced(tbl, table.exposed, table.name, uniques, but))

"""A table that is written: made, widened and checked."""

from __future__ import annotations

import re
import sqlite3
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from tailrace.adaptor.keys import no_unique_key
from tailrace.adaptor.sqlite import sql
from tailrace.adaptor.sqlite.binding import declared_type
from tailrace.adaptor.sqlite.catalog import SCHEMA, TableInfo, find_table
from tailrace.errors import TailraceError

RECEIVE_VIEW: Final = "_ReceiveView"
_DELETES: Final = re.compile(r"\bINSTEAD\s+OF\s+DELETE\b", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where the rows of a namespace go."""

    table: str
    into: str
    """The table, or its receive view."""
    delete_from: str
    key: tuple[str, ...]
    generated: frozenset[str]
    """Columns that SQLite computes itself, in lower case."""
    written: frozenset[str] = frozenset()
    """All other columns, in lower case."""

    @property
    def is_view(self) -> bool:
        return self.into != self.table


def find(connection: sqlite3.Connection, table: str, key: tuple[str, ...]) -> Destination | None:
    """The table as it is, None when there is none."""
    info = find_table(connection, table)
    view = _view(connection, table)
    if info is None and view is None:
        return None
    columns = info.columns if info else ()
    deletes_through_view = view is not None and (info is None or _deletes(connection, view))
    return Destination(
        table=info.name if info else table,
        into=view or (info.name if info else table),
        delete_from=view if view and deletes_through_view else table,
        key=key,
        generated=frozenset(column.name.lower() for column in columns if column.generated),
        written=frozenset(column.name.lower() for column in columns if not column.generated),
    )


def create(connection: sqlite3.Connection, table: str, schema: pa.Schema, key: tuple[str, ...]) -> None:
    """A table for these fields."""
    columns = [(field.name, declared_type(field)) for field in schema]
    connection.execute(sql.create_table(table, columns, key))


def extend(connection: sqlite3.Connection, table: str, schema: pa.Schema, key: tuple[str, ...]) -> None:
    """Add the columns that are missing, and widen those whose type would change values."""
    info = find_table(connection, table)
    if info is None:
        return
    present = {column.name.lower(): column for column in info.columns}
    for field in schema:
        column = present.get(field.name.lower())
        if column is None:
            connection.execute(sql.add_column(info.name, field.name, declared_type(field)))
        elif not column.generated and not _keeps(column.declared, declared_type(field)):
            _widen(connection, info, column.name, field, key)


def check_key(connection: sqlite3.Connection, destination: Destination, namespace: str) -> None:
    """Refuse a table in which the key identifies nothing."""
    if destination.is_view or not destination.key or _has_unique(connection, destination.table, destination.key):
        return
    cure = sql.create_unique(destination.table, destination.key)
    raise no_unique_key(repr(destination.table), destination.key, namespace, cure)


def _widen(
    connection: sqlite3.Connection, info: TableInfo, column: str, field: pa.Field[Any], key: tuple[str, ...]
) -> None:
    """SQLite cannot change a column's type, so a column without one, which keeps everything, takes its place."""
    if column in info.primary_key or column in key:
        if not declared_type(field):
            return  # values of any class come; a key of the same declared type treats them as its source did
        what = f"key column {column!r} of table {info.name!r} cannot hold {field.type} without changing values"
        raise TailraceError("destination.refused", what, hint="write to a new table, or convert the column yourself")
    for statement in sql.untype_column(info.name, column, beside=f"{column} (any type)"):
        connection.execute(statement)


def _keeps(declared: str, wanted: str) -> bool:
    """Whether a column leaves values of another type as they are; SQLite converts by the declared type."""
    present, coming = _affinity(declared), _affinity(wanted)
    if present in ("BLOB", coming):
        return True
    if coming == "BLOB":
        return bool(wanted)  # blobs stay what they are everywhere, values of any class do not
    if present == "TEXT":
        return True  # numbers become their text, as they do wherever text is the wider type
    return coming != "TEXT" and not (present == "REAL" and coming == "INTEGER")


def _affinity(declared: str) -> str:
    name = declared.upper()
    if "INT" in name:
        return "INTEGER"
    if any(part in name for part in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if not name or "BLOB" in name or name == "ANY":
        return "BLOB"
    return "REAL" if any(part in name for part in ("REAL", "FLOA", "DOUB")) else "NUMERIC"


def _has_unique(connection: sqlite3.Connection, table: str, key: tuple[str, ...]) -> bool:
    wanted = {name.lower() for name in key}
    info = find_table(connection, table)
    if info is not None and {name.lower() for name in info.primary_key} == wanted:
        return True
    query = 'SELECT name FROM pragma_index_list(?, ?) WHERE "unique" AND NOT partial'
    for (index,) in connection.execute(query, (table, SCHEMA)).fetchall():
        parts = connection.execute("SELECT name FROM pragma_index_info(?, ?)", (index, SCHEMA)).fetchall()
        if {(name or "").lower() for (name,) in parts} == wanted:
            return True
    return False


def _view(connection: sqlite3.Connection, table: str) -> str | None:
    query = "SELECT name FROM sqlite_master WHERE type = 'view' AND name = ? COLLATE NOCASE"
    found = connection.execute(query, (table + RECEIVE_VIEW,)).fetchone()
    return found[0] if found else None


def _deletes(connection: sqlite3.Connection, view: str) -> bool:
    query = "SELECT sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ?"
    return any(_DELETES.search(text) for (text,) in connection.execute(query, (view,)))

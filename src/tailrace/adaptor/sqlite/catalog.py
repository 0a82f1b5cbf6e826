"""The tables of a database: their columns, kinds and keys."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

import pyarrow as pa

from tailrace.adaptor.sqlite import sql
from tailrace.adaptor.sqlite.kinds import Kind, declared_kind, field_of, found_kind
from tailrace.errors import TailraceError
from tailrace.namespace import check_name
from tailrace.sync import names

SCHEMA: Final = "main"
OURS: Final = "tailrace_"
"""Tables and triggers of this name are ours."""
_ROWID_NAMES: Final = ("rowid", "_rowid_", "oid")
_SAMPLE_ROWS: Final = 1000
_GENERATED: Final = (2, 3)


@dataclass(frozen=True, slots=True)
class Column:
    """One column; a generated one can be read but not written."""

    name: str
    declared: str
    generated: bool = False


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table as SQLite describes it."""

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    rowid: str | None
    """The name by which the rowid can be asked for, None when there is none."""
    nullable_key: tuple[str, ...] = ()
    """The columns of the primary key in which there may be NULL, so that it would not identify a row."""
    has_null_keys: bool = False
    """Whether that is so, and rows are known by their rowid; found out by `identified`."""

    @property
    def namespace(self) -> str:
        return f"{SCHEMA}.{self.name}"

    @property
    def key(self) -> tuple[str, ...]:
        """What identifies a row: the primary key, else the rowid."""
        if self.primary_key and not self.has_null_keys:
            return self.primary_key
        return (self.rowid,) if self.rowid else ()

    @property
    def order(self) -> tuple[str, ...]:
        """The columns by which the table lies on disk."""
        return (self.rowid,) if self.rowid else self.primary_key

    @property
    def exposed(self) -> tuple[str, ...]:
        """The columns that are read: the rowid too where it is the key."""
        own = tuple(column.name for column in self.columns)
        return (*own, *(name for name in self.key if name not in own))


def all_tables(connection: sqlite3.Connection) -> list[TableInfo]:
    """The ordinary tables, by name, as their rows are identified. Those that sync keeps for itself are left out."""
    found = connection.execute("SELECT name, wr FROM pragma_table_list WHERE schema = ? AND type = 'table'", (SCHEMA,))
    others = [(name, bool(bare)) for name, bare in found if not name.lower().startswith(("sqlite_", OURS))]
    of_sync = _of_sync(connection, {name for name, _ in others})
    wanted = [each for each in others if each[0].lower() not in of_sync]
    tables = [_describe(connection, name, without_rowid) for name, without_rowid in sorted(wanted)]
    return [identified(connection, table) for table in tables]


def _of_sync(connection: sqlite3.Connection, present: set[str]) -> set[str]:
    """What belongs to sync and not to users, in small letters; nothing where sync is not installed."""
    if not present.issuperset((names.ENTITIES, names.SELF)):
        return set()
    try:
        found = connection.execute(f"SELECT tracker, stamp FROM {names.ENTITIES}").fetchall()  # noqa: S608  our own
    except sqlite3.OperationalError:  # a table of that name that is somebody else's
        return set()
    return {name.lower() for name in (*names.OWN_TABLES, *(each for pair in found for each in pair))}


def find_source(connection: sqlite3.Connection, name: str) -> TableInfo | None:
    """One table as its rows are identified, None when there is none of this name."""
    table = find_table(connection, name)
    return None if table is None else identified(connection, table)


def identified(connection: sqlite3.Connection, table: TableInfo) -> TableInfo:
    """The table, known by its rowid where NULLs let several rows have the same primary key.

    It stays as it was noted when capture was installed: destinations know the rows by that key.
    """
    if not table.nullable_key:
        return table
    _, noted = _noted(connection, table.name)
    if tuple(noted) == table.primary_key:
        return table
    has_nulls = tuple(noted) == (table.rowid,)
    if not has_nulls:
        has_nulls = connection.execute(sql.null_in(table.nullable_key, table.name)).fetchone() is not None
    return replace(table, has_null_keys=has_nulls)


def find_table(connection: sqlite3.Connection, name: str) -> TableInfo | None:
    """One table, None when there is none of this name."""
    query = "SELECT name, wr FROM pragma_table_list WHERE schema = ? AND type = 'table' AND name = ? COLLATE NOCASE"
    found = connection.execute(query, (SCHEMA, name)).fetchone()
    return _describe(connection, found[0], bool(found[1])) if found else None


def why_unusable(table: TableInfo) -> str:
    """Why a table cannot be read, empty when it can."""
    try:
        check_name(table.namespace, "namespace")
    except TailraceError as error:
        return error.what
    if table.key:
        return ""
    why = "NULL in its key" if table.has_null_keys else "no key"
    return f"table {table.name!r} has {why} and hides its rowid behind columns of that name"


def kinds_of(connection: sqlite3.Connection, table: TableInfo) -> dict[str, Kind]:
    """The kind of every exposed column. Once changes are captured the kinds stay as they were noted then."""
    noted = noted_kinds(connection, table.name)
    kinds: dict[str, Kind] = {}
    unclear: list[Column] = []
    for column in table.columns:
        kind = declared_kind(column.declared) or noted.get(column.name)
        if kind is None:
            unclear.append(column)
        else:
            kinds[column.name] = kind
    kinds.update(_sampled(connection, table, unclear))
    return {name: kinds.get(name, Kind.INTEGER) for name in table.exposed}


def noted_kinds(connection: sqlite3.Connection, table: str) -> dict[str, Kind]:
    """The kinds that were noted when capture was installed."""
    columns, _ = _noted(connection, table)
    return {name: Kind(kind) for name, kind in columns}


def schema_of(kinds: Mapping[str, Kind]) -> pa.Schema:
    """Columns as an Arrow schema."""
    return pa.schema([field_of(name, kind) for name, kind in kinds.items()])


def _noted(connection: sqlite3.Connection, table: str) -> tuple[list[tuple[str, str]], list[str]]:
    """The columns with their kinds, and the key, as they were when capture was installed; none when it was not."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'tailrace_tables'").fetchone() is None:
        return [], []
    query = "SELECT columns, key FROM tailrace_tables WHERE name = ? ORDER BY tbl DESC LIMIT 1"
    found = connection.execute(query, (table,)).fetchone()
    return (json.loads(found[0]), json.loads(found[1])) if found else ([], [])


def _sampled(connection: sqlite3.Connection, table: TableInfo, columns: list[Column]) -> dict[str, Kind]:
    if not columns:
        return {}
    query = sql.classes([column.name for column in columns], table.name, _SAMPLE_ROWS)
    found = list(zip(*connection.execute(query).fetchall(), strict=True)) or [()] * len(columns)
    return {column.name: found_kind(column.declared, seen) for column, seen in zip(columns, found, strict=True)}


def _describe(connection: sqlite3.Connection, name: str, without_rowid: bool) -> TableInfo:
    query = 'SELECT name, type, pk, hidden, "notnull" FROM pragma_table_xinfo(?, ?) WHERE hidden <> 1 ORDER BY cid'
    found = connection.execute(query, (name, SCHEMA)).fetchall()
    columns = tuple(Column(column, declared or "", hidden in _GENERATED) for column, declared, _, hidden, _ in found)
    primary_key = tuple(column for _, column in sorted((pk, column) for column, _, pk, _, _ in found if pk))
    if without_rowid:
        return TableInfo(name, columns, primary_key, rowid=None)
    query = "SELECT 1 FROM pragma_index_list(?, ?) WHERE origin = 'pk'"
    if primary_key and connection.execute(query, (name, SCHEMA)).fetchone() is None:  # it is the rowid itself
        return TableInfo(name, columns, primary_key, _rowid_name(columns) or primary_key[0])
    nullable = tuple(column for column, _, pk, _, is_filled in found if pk and not is_filled)
    return TableInfo(name, columns, primary_key, _rowid_name(columns), nullable)


def _rowid_name(columns: tuple[Column, ...]) -> str | None:
    taken = {column.name.lower() for column in columns}
    return next((alias for alias in _ROWID_NAMES if alias not in taken), None)

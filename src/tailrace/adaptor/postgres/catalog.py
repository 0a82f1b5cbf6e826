"""The tables of a database: their columns, kinds and keys."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any, Final

import psycopg
import pyarrow as pa
from psycopg.sql import Composable

from tailrace.adaptor.postgres import sql
from tailrace.adaptor.postgres.types import Choices, Kind, Kinds, TypeInfo
from tailrace.errors import TailraceError
from tailrace.namespace import check_name
from tailrace.sync import names

_PUBLISHES_GENERATED: Final = 180_000
"""From this version on the stream tells generated columns that are stored."""


@dataclass(frozen=True, slots=True)
class Column:
    """One column that is read."""

    name: str
    kind: Kind
    type_name: str
    dimensions: int
    has_default: bool


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table as PostgreSQL describes it; a partitioned one with all its parts."""

    oid: int
    schema: str
    name: str
    kind: str
    """`r` table, `p` partitioned, `f` foreign, `m` materialized view."""
    identity: str
    """What identifies a row in the stream: `d` the primary key, `i` an index, `f` the whole row, `n` nothing."""
    is_logged: bool
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    rows: int
    bytes: int

    @property
    def namespace(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def place(self) -> Composable:
        """Where its rows are, in SQL."""
        return sql.rows_of(self.schema, self.name, has_parts=self.kind == "p")

    @property
    def schema_arrow(self) -> pa.Schema:
        return pa.schema([column.kind.field(column.name) for column in self.columns])

    @property
    def tells_all(self) -> bool:
        """Whether updates and deletes can be followed. Publishing them otherwise would make them fail at the source."""
        return self.identity == "f" or (self.identity in "di" and bool(self.key))

    def kind_of(self, column: str) -> Kind | None:
        return next((each.kind for each in self.columns if each.name == column), None)


def load_kinds(connection: psycopg.Connection[Any], choices: Choices) -> Kinds:
    """Every type of the database."""
    return Kinds({row[0]: TypeInfo(*row) for row in connection.execute(sql.TYPES)}, choices)


def all_tables(connection: psycopg.Connection[Any], kinds: Kinds) -> list[TableInfo]:
    """What there is to be read, and what only looks so (`why_unusable`). What sync keeps for itself is left out."""
    found = connection.execute(sql.TABLES).fetchall()
    of_sync = _of_sync(connection, {(row[1], row[2]) for row in found})
    return _described(connection, kinds, [row for row in found if not row[5] and row[1:3] not in of_sync])


def _of_sync(connection: psycopg.Connection[Any], present: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Schema and name of what belongs to sync and not to users; nothing where sync is not installed."""
    own = [name.lower() for name in names.OWN_TABLES]
    found: set[tuple[str, str]] = set()
    for schema in {schema for schema, _ in present}:
        if present.issuperset(((schema, names.ENTITIES.lower()), (schema, names.SELF.lower()))):
            entities = sql.name(schema, names.ENTITIES.lower())
            ((is_synced, is_readable),) = connection.execute(sql.IS_SYNCED, (entities.as_string(connection),))
            pairs = connection.execute(sql.kept_by_sync(entities)).fetchall() if is_synced and is_readable else []
            if is_synced:
                found |= {(schema, name) for name in (*own, *(each for pair in pairs for each in pair))}
    return found


def find_table(connection: psycopg.Connection[Any], kinds: Kinds, schema: str, name: str) -> TableInfo | None:
    """One table, None when there is none of this name."""
    found = connection.execute(sql.TABLES).fetchall()
    return next(iter(_described(connection, kinds, [row for row in found if row[1:3] == (schema, name)])), None)


def shared_names(tables: Iterable[TableInfo]) -> set[str]:
    """Namespaces that several tables have, because there is a dot in the name of a schema or a table."""
    return {name for name, count in Counter(table.namespace for table in tables).items() if count > 1}


def why_unusable(table: TableInfo, shared: Collection[str] = ()) -> str:
    """Why a table cannot be followed, empty when it can; `shared` are names that several tables have."""
    if table.namespace in shared:
        return "two tables have this name when schema and table are joined by a dot"
    try:
        check_name(table.namespace, "namespace")
    except TailraceError as error:
        return error.what
    if table.kind == "f":
        return "it is a foreign table, whose changes this server does not see"
    if table.kind == "m":
        return "it is a materialized view; follow the tables it is made of"
    if not table.is_logged:
        return "it is unlogged, so its changes are told nowhere"
    return "" if table.columns else "it has no columns"


def sequences(connection: psycopg.Connection[Any]) -> list[str]:
    """The sequences, whose values are not replicated."""
    return [name for (name,) in connection.execute(sql.SEQUENCES)]


def _described(connection: psycopg.Connection[Any], kinds: Kinds, found: Iterable[tuple[Any, ...]]) -> list[TableInfo]:
    rows = list(found)
    oids = [row[0] for row in rows]
    columns = _columns(connection, kinds, oids)
    keys = _keys(connection, oids, {row[0] for row in rows if row[4] == "i"})
    sizes = {oid: (count, size) for oid, count, size in connection.execute(sql.SIZES, (oids,))}
    return [
        TableInfo(
            oid=oid,
            schema=schema,
            name=name,
            kind=kind,
            identity=identity,
            is_logged=persistence == "p",
            columns=tuple(columns.get(oid, ())),
            key=tuple(keys.get(oid, ())),
            rows=sizes[oid][0],
            bytes=sizes[oid][1],
        )
        for oid, schema, name, kind, identity, _, persistence in rows
    ]


def _columns(connection: psycopg.Connection[Any], kinds: Kinds, oids: list[int]) -> dict[int, list[Column]]:
    told = ("", "s") if connection.info.server_version >= _PUBLISHES_GENERATED else ("",)
    found: dict[int, list[Column]] = {}
    for oid, name, type_oid, typmod, dimensions, generated, has_default in connection.execute(sql.COLUMNS, (oids,)):
        if generated not in told:
            continue
        info = kinds.types.get(type_oid)
        kind = kinds.of(type_oid, typmod, max(dimensions, 1))
        type_name = info.name if info else "text"
        found.setdefault(oid, []).append(Column(name, kind, type_name, max(dimensions, 1), has_default))
    return found


def _keys(connection: psycopg.Connection[Any], oids: list[int], by_index: Collection[int]) -> dict[int, list[str]]:
    found: dict[int, list[str]] = {}
    for oid, column in connection.execute(sql.KEYS, (oids,)):
        if oid not in by_index:
            found.setdefault(oid, []).append(column)
    if by_index:
        for oid, column in connection.execute(sql.IDENTITY_KEYS, (list(by_index),)):
            found.setdefault(oid, []).append(column)
    return found

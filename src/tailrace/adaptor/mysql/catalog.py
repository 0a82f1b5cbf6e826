"""The tables of a server: their columns, types and keys."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
import pymysql

from tailrace.adaptor.mysql import sql
from tailrace.adaptor.mysql.columntype import ColumnType, from_catalog
from tailrace.adaptor.mysql.server import execute, is_mariadb, rows, version
from tailrace.adaptor.mysql.types import Kind, ZeroDates, kind_of
from tailrace.errors import TailraceError
from tailrace.namespace import check_name

_CACHES_SIZES: Final = (8, 0)
"""From this version on MySQL tells sizes as they were up to a day ago, unless asked not to."""
_UNFOLLOWED: Final = ("FEDERATED", "CONNECT", "SPIDER", "BLACKHOLE", "PERFORMANCE_SCHEMA", "SEQUENCE")


@dataclass(frozen=True, slots=True)
class Column:
    """One column."""

    name: str
    type: ColumnType
    whole: str
    """Its type as SQL writes it."""
    is_nullable: bool
    has_default: bool
    is_generated: bool
    is_virtual: bool
    """Whether it is computed when it is read."""
    collation: str

    def kind(self, zero_dates: ZeroDates) -> Kind | None:
        return kind_of(self.type, zero_dates)


@dataclass(frozen=True, slots=True)
class TableInfo:
    """A table as the server describes it."""

    schema: str
    name: str
    is_versioned: bool
    engine: str
    columns: tuple[Column, ...]
    key: tuple[str, ...]
    uniques: tuple[tuple[str, ...], ...]
    """The columns of every unique index."""
    rows: int
    bytes: int

    @property
    def namespace(self) -> str:
        return f"{self.schema}.{self.name}"

    @property
    def read_columns(self) -> list[Column]:
        """Those that are read: what is computed need not travel."""
        return [column for column in self.columns if not column.is_virtual]

    def fields(self, zero_dates: ZeroDates) -> pa.Schema:
        """The columns that are read, as they travel."""
        kinds = [(column.name, column.kind(zero_dates)) for column in self.read_columns]
        return pa.schema([kind.field(name) for name, kind in kinds if kind is not None])

    def column(self, name: str) -> Column | None:
        return next((column for column in self.columns if column.name == name), None)


def all_tables(connection: pymysql.Connection[Any], database: str, name: str = "") -> list[TableInfo]:
    """What there is to be read, and what only looks like it (`why_unusable`); all tables, or those of one name."""
    if not is_mariadb(connection) and version(connection) >= _CACHES_SIZES:
        execute(connection, sql.FRESH_SIZES)
    columns = _columns(connection, database, name)
    uniques = _uniques(connection, database, name)
    return [
        _table(schema, table, kind, engine, count, size, columns, uniques)
        for schema, table, kind, engine, count, size in rows(connection, sql.tables(database, name))
    ]


def find_table(connection: pymysql.Connection[Any], schema: str, name: str) -> TableInfo | None:
    """One table, None when there is none of this name."""
    return next(iter(all_tables(connection, schema, name)), None)


def charsets(connection: pymysql.Connection[Any]) -> dict[int, str]:
    """The character set of each collation, by number."""
    return {int(number): charset for number, charset in rows(connection, sql.COLLATIONS)}


def why_unusable(table: TableInfo) -> str:
    """Why a table cannot be followed, empty when it can."""
    try:
        check_name(table.namespace, "namespace")
    except TailraceError as error:
        return error.what
    if table.is_versioned:
        return "it is system-versioned, so its history would come as rows"
    if table.engine in _UNFOLLOWED:
        return f"its engine {table.engine} does not write its rows to the binary log"
    strange = [column for column in table.read_columns if column.kind(ZeroDates.ERROR) is None or _is_packed(column)]
    if strange:
        return f"its column {strange[0].name} is a {strange[0].whole}, which cannot be read"
    return "" if table.read_columns else "it has no columns"


def _is_packed(column: Column) -> bool:
    return "COMPRESSED" in column.whole


def _table(
    schema: str,
    name: str,
    kind: str,
    engine: str | None,
    count: str | None,
    size: str | None,
    columns: Mapping[tuple[str, str], list[Column]],
    uniques: Mapping[tuple[str, str], dict[str, list[tuple[str | None, bool, bool]]]],
) -> TableInfo:
    indexes = uniques.get((schema, name), {})
    whole = {
        index: tuple(column for column, _, _ in parts if column is not None)
        for index, parts in indexes.items()
        if all(column is not None for column, _, _ in parts)
    }
    return TableInfo(
        schema=schema,
        name=name,
        is_versioned=kind == "SYSTEM VERSIONED",
        engine=(engine or "").upper(),
        columns=tuple(columns.get((schema, name), ())),
        key=next(
            (whole[index] for index, parts in indexes.items() if index in whole and _identifies(index, parts)), ()
        ),
        uniques=tuple(whole.values()),
        rows=int(count or 0),
        bytes=int(size or 0),
    )


def _identifies(index: str, parts: list[tuple[str | None, bool, bool]]) -> bool:
    """The primary key does; so does another unique index if none of its columns can be null or is only partly in it."""
    return index == "PRIMARY" or not any(is_nullable or is_partial for _, is_partial, is_nullable in parts)


def _columns(connection: pymysql.Connection[Any], database: str, table: str) -> dict[tuple[str, str], list[Column]]:
    checked: set[tuple[Any, ...]] = set()
    if is_mariadb(connection) and rows(connection, sql.HAS_CHECKS):
        checked = set(rows(connection, sql.json_checks(database, table)))
    found: dict[tuple[str, str], list[Column]] = {}
    with connection.cursor() as cursor:
        cursor.execute(sql.columns(database, table))
        names = [column[0] for column in cursor.description]
        for values in cursor.fetchall():
            row = dict(zip(names, values, strict=True))
            place = (row["TABLE_SCHEMA"], row["TABLE_NAME"])
            is_json = (*place, row["COLUMN_NAME"]) in checked and row["DATA_TYPE"] == "longtext"
            found.setdefault(place, []).append(_column(row, is_json))
    return found


def _column(row: Mapping[str, Any], is_json: bool) -> Column:
    extra = row["EXTRA"] or ""
    return Column(
        name=row["COLUMN_NAME"],
        type=from_catalog(row, is_json=is_json),
        whole=row["COLUMN_TYPE"],
        is_nullable=row["IS_NULLABLE"] == "YES",
        has_default=row["COLUMN_DEFAULT"] not in (None, "NULL"),
        is_generated="GENERATED" in extra.replace("DEFAULT_GENERATED", ""),
        is_virtual="VIRTUAL GENERATED" in extra,
        collation=row["COLLATION_NAME"] or "",
    )


def _uniques(
    connection: pymysql.Connection[Any], database: str, name: str
) -> dict[tuple[str, str], dict[str, list[tuple[str | None, bool, bool]]]]:
    found: dict[tuple[str, str], dict[str, list[tuple[str | None, bool, bool]]]] = {}
    for schema, table, index, column, part, nullable in rows(connection, sql.uniques(database, name)):
        indexes = found.setdefault((schema, table), {})
        indexes.setdefault(index, []).append((column, part is not None, nullable == "YES"))
    return found

"""The copy of a table: its rows in pieces by key, read as columns."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from itertools import pairwise
from math import ceil
from typing import Any, Final

import pyarrow as pa
import pymysql
from pymysql.cursors import SSCursor

from tailrace.adaptor.converting import converted
from tailrace.adaptor.mysql import sql
from tailrace.adaptor.mysql.catalog import TableInfo, find_table
from tailrace.adaptor.mysql.columntype import INTEGERS, ColumnType
from tailrace.adaptor.mysql.server import Server, rows
from tailrace.adaptor.mysql.types import Kind, ZeroDates
from tailrace.log.batch import Batch
from tailrace.source.contract import Piece
from tailrace.source.rows import inserted

Look = Callable[["pymysql.Connection[Any]", TableInfo], None]
HINT: Final = "say `zero_dates: null` or `zero_dates: text`, or leave the table out with `namespace`"
_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 32 << 20
_PIECE_BYTES: Final = 256 << 20
_ORDERED: Final = (
    *(*INTEGERS, "decimal", "char", "varchar", "binary", "varbinary", "date", "datetime", "timestamp", "uuid"),
)
"""Types whose literals compare as their columns sort."""


def plan(connection: pymysql.Connection[Any], table: TableInfo, piece_rows: int) -> list[Piece]:
    """Pieces of about `piece_rows` rows. The first is open below and the last above, so new rows have a place."""
    count = max(1, ceil(table.rows / piece_rows), ceil(table.bytes / _PIECE_BYTES))
    edges = [None, *(_borders(connection, table, count) if count > 1 else []), None]
    head = {"schema": table.schema, "table": table.name}
    return [{**head, "after": after, "upto": upto} for after, upto in pairwise(edges)]


def read(server: Server, zero_dates: ZeroDates, piece: Piece, look: Look | None = None) -> Iterator[Batch]:
    """The rows of a piece as they are now, or as `look` makes the connection see them."""
    with server.errors(), closing(server.connect()) as connection:
        table = find_table(connection, piece["schema"], piece["table"])
        if table is None:
            return
        if look is not None:
            look(connection, table)
        kinds = {column.name: column.kind(zero_dates) for column in table.read_columns}
        known = {name: kind for name, kind in kinds.items() if kind is not None}
        asked = {name: kind.ask for name, kind in known.items()}
        query = sql.select_rows(table.schema, table.name, asked, key_forms(table), piece)
        for part in _parts(connection, query):
            yield inserted(table.namespace, _struct(table.namespace, known, part), table.key)


def key_forms(table: TableInfo) -> dict[str, sql.Form]:
    """The key's columns, and how their values are written."""
    return {name: _form(column.type) for name in table.key if (column := table.column(name))}


def _form(type_: ColumnType) -> sql.Form:
    if type_.is_binary:
        return sql.Form.BINARY
    return sql.Form.NUMBER if type_.base in INTEGERS or type_.base == "decimal" else sql.Form.TEXT


def _parts(connection: pymysql.Connection[Any], query: str) -> Iterator[list[tuple[Any, ...]]]:
    """Rows as they come, so many at a time that they have room; they are not all fetched first."""
    cursor = SSCursor(connection)
    cursor.execute(query)
    count = 1
    while part := list(cursor.fetchmany(count)):
        yield part
        size = sum(len(value) for value in part[-1] if value is not None) + 1
        count = max(1, min(_BATCH_ROWS, _BATCH_BYTES // size, count * 8))


def _struct(namespace: str, kinds: dict[str, Kind], part: list[tuple[Any, ...]]) -> pa.StructArray:
    columns = [
        converted(namespace, name, partial(_column, kind), values, hint=HINT)
        for (name, kind), values in zip(kinds.items(), zip(*part, strict=True), strict=True)
    ]
    return pa.StructArray.from_arrays(columns, fields=[kind.field(name) for name, kind in kinds.items()])


def _column(kind: Kind, values: tuple[Any, ...]) -> pa.Array[Any]:
    raw: pa.Array[Any] = pa.array(values, pa.binary() if kind.is_binary else pa.string())
    return kind.convert(raw)


def _borders(connection: pymysql.Connection[Any], table: TableInfo, count: int) -> list[list[str]]:
    """Keys that part the table into about so many pieces."""
    types = [column.type for name in table.key if (column := table.column(name))]
    if not types or any(type_.base not in _ORDERED for type_ in types):
        return []
    if len(types) == 1 and types[0].base in INTEGERS:
        return _even_borders(connection, table, count)
    return _walked_borders(connection, table, max(1, ceil(table.rows / count)))


def _even_borders(connection: pymysql.Connection[Any], table: TableInfo, count: int) -> list[list[str]]:
    """Numbers are taken as spread evenly: looking for better borders would read the whole table."""
    ((low, high),) = rows(connection, sql.extremes(table.schema, table.name, table.key[0]))
    if low is None:
        return []
    first, last = int(low), int(high)
    return [[str(border)] for border in sorted({first + (last - first) * n // count for n in range(1, count)})]


def _walked_borders(connection: pymysql.Connection[Any], table: TableInfo, step: int) -> list[list[str]]:
    found: list[list[str]] = []
    key = key_forms(table)
    while True:
        last = found[-1] if found else None
        answer = rows(connection, sql.key_after(table.schema, table.name, key, last, step))
        if not answer:
            return found
        found.append([str(part) for part in answer[0]])

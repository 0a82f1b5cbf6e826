"""The copy of a table: its rows in pieces by key, or by page where it has no key, read as Arrow columns."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import pairwise
from math import ceil
from typing import Any, Final

import psycopg
import pyarrow as pa
from adbc_driver_manager import dbapi

from tailrace.adaptor.postgres import sql
from tailrace.adaptor.postgres.catalog import TableInfo, find_table, load_kinds
from tailrace.adaptor.postgres.converting import converted
from tailrace.adaptor.postgres.server import Server
from tailrace.adaptor.postgres.types import Choices
from tailrace.errors import TailraceError
from tailrace.log.batch import Batch
from tailrace.source.contract import Piece
from tailrace.source.rows import inserted

PAGE_BYTES: Final = 8192
_PIECE_BYTES: Final = 256 << 20
_SAMPLED_PAGES: Final = 20
"""So many pages per piece tell where its borders are."""
_NO_SNAPSHOT: Final = ("22023", "42704")
"""What a server says of a snapshot that is gone."""


def plan(
    connection: psycopg.Connection[Any], table: TableInfo, piece_rows: int, snapshot: str | None = None
) -> list[Piece]:
    """Pieces of about `piece_rows` rows. The first is open below and the last above, so new rows have a place."""
    count = max(1, ceil(table.rows / piece_rows), ceil(table.bytes / _PIECE_BYTES))
    head = {"schema": table.schema, "table": table.name, "snapshot": snapshot}
    if not table.key:
        pages = ceil(table.bytes / PAGE_BYTES)
        firsts = [pages * number // count for number in range(count)]
        return [{**head, "pages": [first, end]} for first, end in pairwise([*firsts, None])]
    edges: list[list[str] | None] = [None, *_borders(connection, table, count), None]
    return [{**head, "after": after, "upto": upto} for after, upto in pairwise(edges)]


def read(server: Server, choices: Choices, piece: Piece, *, is_view: bool = False) -> Iterator[Batch]:
    """The rows of a piece: as they were in the snapshot while that lasts, else as they are now; of a view, not at
    all."""
    with server.session() as connection:
        table = find_table(connection, load_kinds(connection, choices), piece["schema"], piece["table"])
    if table is None:
        return
    asked = {column.name: column.kind.asked for column in table.columns}
    query = sql.select_rows(table.place, asked, table.key, piece).as_string()
    fields = list(table.schema_arrow)
    with server.errors(), closing(server.arrow()) as arrow, arrow.cursor() as cursor:
        _look_through(cursor, piece["snapshot"], is_view=is_view)
        cursor.execute(query)
        for batch in cursor.fetch_record_batch():
            columns = [
                converted(table.namespace, column.name, column.kind.arrow, column.kind.from_copy, values)
                for column, values in zip(table.columns, batch.columns, strict=True)
            ]
            data = pa.StructArray.from_arrays(columns, fields=fields)
            yield inserted(table.namespace, data, table.key)


def _borders(connection: psycopg.Connection[Any], table: TableInfo, count: int) -> list[list[str]]:
    """Keys that part the table into so many pieces, as far as some of its pages tell."""
    if count == 1:
        return []
    pages = max(1, table.bytes // PAGE_BYTES)
    percent = min(100.0, 100.0 * _SAMPLED_PAGES * count / pages)
    found = connection.execute(sql.sample_keys(table.place, table.key, percent)).fetchall()
    places = sorted({len(found) * number // count for number in range(1, count)} - {0})
    borders = [list(found[place]) for place in places if place < len(found)]
    return [border for border, before in zip(borders, [None, *borders], strict=False) if border != before]


def _look_through(cursor: dbapi.Cursor, snapshot: str | None, *, is_view: bool) -> None:
    """Take the snapshot's view; when it is gone (the server or the pipeline was restarted) that of this moment."""
    begin = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY"
    cursor.execute(begin)
    if snapshot is None:
        return
    try:
        cursor.execute(sql.set_snapshot(snapshot).as_string())
    except dbapi.Error as error:
        if not is_gone(error):
            raise
        if is_view:
            raise view_lost() from error
        cursor.execute("ROLLBACK")
        cursor.execute(begin)


def is_gone(error: Exception) -> bool:
    """Whether an error says that there is no such snapshot any more."""
    return getattr(error, "sqlstate", None) in _NO_SNAPSHOT


def view_lost() -> TailraceError:
    """A newcomer asks for more of a view that is gone."""
    what = "the view of the database is gone; was the server restarted?"
    return TailraceError("relay.join_lost", what, hint="begin again; it does so by itself")

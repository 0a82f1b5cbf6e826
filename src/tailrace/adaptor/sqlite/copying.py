"""The copy of a table: its rows in pieces by key, and each piece in batches that fit the memory."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Final

import pyarrow as pa

from tailrace.adaptor.sqlite import sql
from tailrace.adaptor.sqlite.catalog import TableInfo, find_table, kinds_of
from tailrace.adaptor.sqlite.database import Database
from tailrace.adaptor.sqlite.kinds import Kind, field_of
from tailrace.adaptor.sqlite.scan import Answer, Query, scan
from tailrace.adaptor.values import Value, from_json, from_plain, to_plain
from tailrace.log.batch import Batch
from tailrace.source.contract import Piece
from tailrace.source.rows import inserted

_FIRST_ROWS: Final = 512
"""Read first, to learn how long the rows are."""
_BATCH_ROWS_MAX: Final = 32_768
_BATCH_BYTES: Final = 16 << 20
_PROBES: Final = 8
_PROBE_ROWS: Final = 100
_PIECES_MAX: Final = 100_000
_DENSE: Final = 0.5
"""Rowids of which at least this part is in use are split evenly; counting would read the whole table."""


def plan(connection: sqlite3.Connection, table: TableInfo, kinds: Mapping[str, Kind], piece_rows: int) -> list[Piece]:
    """Pieces of about `piece_rows` rows. The first is open below and the last above, so new rows have a place."""
    borders = _borders(connection, table, piece_rows)
    edges: list[list[Any] | None] = [None, *([to_plain(value) for value in border] for border in borders), None]
    noted = [[name, kind.value] for name, kind in kinds.items()]
    about = {"table": table.name, "kinds": noted, "null_keys": table.has_null_keys}
    return [{**about, "after": after, "upto": upto} for after, upto in pairwise(edges)]


def estimated_rows(connection: sqlite3.Connection, table: TableInfo) -> int | None:
    """About how many rows a table has, from a few looks; None when only counting would tell."""
    if not table.rowid:
        return None
    low, high = connection.execute(sql.extremes(table.rowid, table.name)).fetchone()
    return 0 if low is None else max(1, int((high - low + 1) * _density(connection, table, low, high)[0]))


def read(database: Database, piece: Piece) -> Iterator[Batch]:
    """The rows of a piece, with the columns that the table has now."""
    with database.reading() as connection:
        table = find_table(connection, piece["table"])
        if table is None:
            return
        table = replace(table, has_null_keys=piece.get("null_keys", False))
        planned = {name: Kind(kind) for name, kind in piece["kinds"]}
        kinds = {name: planned.get(name, kind) for name, kind in kinds_of(connection, table).items()}
    after = _values(piece["after"])
    upto = _values(piece["upto"])
    rows_max = _FIRST_ROWS
    while True:
        answer = scan(database, _query(table, kinds, after, upto), rows_max)
        if not len(answer):
            return
        yield _batch(table, kinds, answer)
        if len(answer) < rows_max:
            return
        after = _last(table, answer)
        rows_max = max(1, min(_BATCH_ROWS_MAX, _BATCH_BYTES * len(answer) // max(1, answer.nbytes)))


def _borders(connection: sqlite3.Connection, table: TableInfo, piece_rows: int) -> list[tuple[Value, ...]]:
    if table.rowid:
        low, high = connection.execute(sql.extremes(table.rowid, table.name)).fetchone()
        if low is None:
            return []
        mean, least = _density(connection, table, low, high)
        width = max(1, int(piece_rows / mean))
        if least >= _DENSE and (high - low) // width < _PIECES_MAX:
            return [(border,) for border in range(low + width - 1, high, width)]
    borders: list[tuple[Value, ...]] = []
    after: tuple[Value, ...] | None = None
    while True:
        query = sql.step(table.order, table.name, after)
        after = connection.execute(query, (*(after or ()), piece_rows - 1)).fetchone()
        if after is None:
            return borders
        borders.append(after)


def _density(connection: sqlite3.Connection, table: TableInfo, low: int, high: int) -> tuple[float, float]:
    """Which part of the rowids is in use: on average and where it is least, as far as a few looks tell."""
    found: list[float] = []
    for probe in range(_PROBES):
        start = low + (high - low) * probe // _PROBES
        count, end = connection.execute(sql.probe(table.order[0], table.name), (start, _PROBE_ROWS)).fetchone()
        found.append(count / ((end if count == _PROBE_ROWS else high) - start + 1))
    return sum(found) / len(found), min(found)


def _query(table: TableInfo, kinds: Mapping[str, Kind], after: list[Value] | None, upto: list[Value] | None) -> Query:
    where: list[str] = []
    parameters: list[Value] = []
    for sign, border in ((">", after), ("<=", upto)):
        if border is not None:
            where.append(sql.bound(table.order, sign, border))
            parameters += border
    columns = {**kinds, **{name: kinds.get(name, Kind.INTEGER) for name in table.order}}
    return Query(
        expressions=tuple(map(sql.column, columns)),
        kinds=tuple(columns.values()),
        source=table.name,
        where=tuple(where),
        parameters=tuple(parameters),
        order=table.order,
        rowid_at=list(columns).index(table.rowid) if table.rowid else None,
    )


def _last(table: TableInfo, answer: Answer) -> list[Value]:
    """The place of the last row that was read."""
    names = list(dict.fromkeys([*table.exposed, *table.order]))
    return [_value(answer, names.index(name)) for name in table.order]


def _value(answer: Answer, at: int) -> Any:
    value: Any = answer.columns[at][-1].as_py()
    return from_json(value) if answer.kinds[at] is Kind.JSON else value


def _values(border: Sequence[Any] | None) -> list[Value] | None:
    return None if border is None else [from_plain(value) for value in border]


def _batch(table: TableInfo, kinds: Mapping[str, Kind], answer: Answer) -> Batch:
    fields = [field_of(name, kind) for name, kind in zip(kinds, answer.kinds, strict=False)]
    data = pa.StructArray.from_arrays(answer.columns[: len(kinds)], fields=fields)
    return inserted(table.namespace, data, table.key)

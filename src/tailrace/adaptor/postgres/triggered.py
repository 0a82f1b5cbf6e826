"""Changes noted by triggers, for servers without logical decoding.

Numbers of a sequence do not come in the order of commits. So a position is a snapshot: what it sees was read, and the
next changes are those that a later snapshot sees and this one does not. A change that another transaction has waited
for is in the same snapshot or an earlier one, and has a smaller number.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from typing import Any, Final

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptor.postgres import catalog, triggersql
from tailrace.adaptor.postgres.catalog import TableInfo
from tailrace.adaptor.postgres.converting import converted
from tailrace.adaptor.postgres.server import Server
from tailrace.adaptor.postgres.types import Choices
from tailrace.errors import TailraceError
from tailrace.log.batch import TIMESTAMP, Batch, with_key
from tailrace.message import Micros, Mode, Op
from tailrace.source.contract import Piece, Position
from tailrace.source.owner import refuse_other
from tailrace.source.rows import emptied

PIECE_ROWS: Final = 50_000
_HEAD: Final = 4
_OPS: Final = {"INSERT": Op.INSERT, "UPDATE": Op.UPDATE, "DELETE": Op.DELETE}


class TriggerFeed:
    """The changelog of one database."""

    def __init__(self, server: Server, pipeline: str, choices: Choices) -> None:
        self._server = server
        self._pipeline = pipeline
        self._choices = choices
        self._added: set[str] = set()

    @property
    def snapshot(self) -> None:
        """Tables are read as they are: every piece after the position of its turn."""

    def copied(self) -> None:
        """No view was kept."""

    def reached(self) -> None:
        """Pieces are read to their end."""

    def close(self) -> None:
        """Nothing is open."""

    def check(self, connection: psycopg.Connection[Any], position: Position) -> None:
        if position.get("id") != self._id(connection):
            raise self._lost("its changelog is not the one that was read before")

    def install(self, connection: psycopg.Connection[Any], tables: Sequence[TableInfo]) -> None:
        with connection.transaction():
            for statement in triggersql.INSTALL:
                connection.execute(statement)
            found = connection.execute(triggersql.SOURCE).fetchone()
            if found is None:
                connection.execute(triggersql.NEW_SOURCE, (uuid.uuid4().hex, self._pipeline))
            else:
                refuse_other(self._server.place, found[1], self._pipeline)
            noted = {oid for (oid,) in connection.execute(triggersql.NOTED)}
            self._added = {table.namespace for table in tables if noted and table.oid not in noted}
            for table in tables:
                for trigger in triggersql.note(table.schema, table.name, table.oid) if table.oid not in noted else ():
                    connection.execute(trigger)

    def made_anew(self) -> Collection[str]:
        return self._added

    def uninstall(self, connection: psycopg.Connection[Any]) -> None:
        with connection.transaction():
            if connection.execute(triggersql.IS_INSTALLED).fetchone() == (True,):
                found = connection.execute(triggersql.SOURCE).fetchone()
                refuse_other(self._server.place, found[1] if found else None, self._pipeline)
            for statement in triggersql.UNINSTALL:
                connection.execute(statement)
            connection.execute(triggersql.DROP_EMPTY_SCHEMA)

    def position(self, connection: psycopg.Connection[Any]) -> Position:
        (snapshot,) = connection.execute(triggersql.NOW).fetchone() or ("",)
        return {"snapshot": snapshot, "id": self._id(connection)}

    def plan(self, connection: psycopg.Connection[Any], start: Position, end: Position) -> list[Piece]:
        self.check(connection, start)
        if start["snapshot"] == end["snapshot"]:
            return []
        common = {"id": start["id"], "begin": start["snapshot"], "end": end["snapshot"]}
        found: Any = connection.execute(triggersql.SPAN, common).fetchone()
        first, last = found
        if first is None:
            return []
        numbers = range(first - 1, last, PIECE_ROWS)
        return [{**common, "after": after, "upto": min(after + PIECE_ROWS, last)} for after in numbers]

    def read(self, piece: Piece) -> Iterator[Batch]:
        with self._server.session() as connection:
            if self._id(connection) != piece["id"]:
                raise self._lost("its changelog is not the one that was read before")
            kinds = catalog.load_kinds(connection, self._choices)
            tables = {table.oid: table for table in catalog.all_tables(connection, kinds)}
            changed = [oid for (oid,) in connection.execute(triggersql.relations(piece)) if oid in tables]
        for oid in changed:
            yield from self._read_table(tables[oid], piece)

    def held_bytes(self, connection: psycopg.Connection[Any]) -> int | None:
        (held,) = connection.execute(triggersql.HELD).fetchone() or (None,)
        return held

    def forget(self, connection: psycopg.Connection[Any], upto: Position) -> None:
        connection.execute(triggersql.FORGET, (upto["snapshot"],))

    def _id(self, connection: psycopg.Connection[Any]) -> str:
        if connection.execute(triggersql.IS_INSTALLED).fetchone() != (True,):
            raise self._lost("it has no changelog")
        found = connection.execute(triggersql.SOURCE).fetchone()
        return str(found[0]) if found else ""

    def _read_table(self, table: TableInfo, piece: Piece) -> Iterator[Batch]:
        asked = {column.name: column.kind.asked for column in table.columns}
        query = triggersql.changes(table.oid, table.schema, table.name, asked, piece).as_string()
        with self._server.errors(), closing(self._server.arrow()) as arrow, arrow.cursor() as cursor:
            cursor.execute(query)
            for batch in cursor.fetch_record_batch():
                yield from _batches(table, batch)

    def _lost(self, why: str) -> TailraceError:
        what = f"changes of {self._server.place} cannot be read on from where they were: {why}"
        return TailraceError("source.position_lost", what, hint="copy the source again, into a new log")


def _batches(table: TableInfo, found: pa.RecordBatch) -> Iterator[Batch]:
    """Rows, and between them what emptied the table."""
    ops: Any = found.column(1)
    places = np.flatnonzero(pc.equal(ops, pa.scalar("TRUNCATE")).to_numpy(zero_copy_only=False)).tolist()
    begin = 0
    for place in [*places, len(found)]:
        if place > begin:
            yield _rows(table, found.slice(begin, place - begin))
        if place < len(found):
            yield from emptied(table.namespace, Micros(found.column(2)[place].cast(pa.int64()).as_py()))
        begin = place + 1


def _rows(table: TableInfo, found: pa.RecordBatch) -> Batch:
    width = len(table.columns)
    words: list[Any] = found.column(1).to_pylist()
    ops = pa.array([int(_OPS[word]) for word in words], pa.int8())
    columns: dict[str, pa.Array[Any]] = {
        "op": ops,
        "timestamp": found.column(2).cast(TIMESTAMP),
        "lsn": found.column(0),
        "tx": found.column(3),
        "data": _struct(table, found.columns[_HEAD : _HEAD + width], None),
    }
    has_before: Any = pc.not_equal(ops, pa.scalar(int(Op.INSERT), pa.int8()))
    if pc.any(has_before).as_py():
        columns["before"] = _struct(table, found.columns[_HEAD + width :], pc.invert(has_before))
    rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return Batch(table.namespace, with_key(rows, table.key), Mode.SYNC)


def _struct(table: TableInfo, values: Sequence[pa.Array[Any]], mask: Any) -> pa.StructArray:
    columns = [
        converted(table.namespace, column.name, column.kind.arrow, column.kind.from_copy, column_values)
        for column, column_values in zip(table.columns, values, strict=True)
    ]
    return pa.StructArray.from_arrays(columns, fields=list(table.schema_arrow), mask=mask)

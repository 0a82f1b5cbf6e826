"""Changes: what the binary log tells, as batches, in the order of commits."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa

from tailrace.adaptor.converting import converted
from tailrace.adaptor.mysql import binlog, catalog, sql, tablemap
from tailrace.adaptor.mysql.binlog import Event
from tailrace.adaptor.mysql.catalog import TableInfo
from tailrace.adaptor.mysql.columntype import from_shape
from tailrace.adaptor.mysql.copying import HINT
from tailrace.adaptor.mysql.gtid import Gtids
from tailrace.adaptor.mysql.place import order
from tailrace.adaptor.mysql.rowimage import Cell, cell, rows
from tailrace.adaptor.mysql.server import Server, is_mariadb
from tailrace.adaptor.mysql.statements import Statement, statement
from tailrace.adaptor.mysql.tablemap import Shape, TableMap, UnknownStorage
from tailrace.adaptor.mysql.types import ZeroDates, kind_of
from tailrace.deliver.clearing import COMMAND
from tailrace.errors import TailraceError
from tailrace.log.batch import TIMESTAMP, Batch, batches_of, with_key
from tailrace.message import Lsn, Message, Micros, Mode, Op
from tailrace.source.contract import Piece, Position

CHANGES_MAX: Final = 200_000
"""A piece ends with the transaction in which it comes to so many changes."""
_BATCH_ROWS: Final = 10_000
_BATCH_BYTES: Final = 16 << 20
"""So much of the log is read before its rows are given on, be it in the middle of a transaction."""
_LOOK_BYTES: Final = 1 << 20
_SECOND_US: Final = 1_000_000
_OPS: Final = {
    **dict.fromkeys(binlog.WRITES, Op.INSERT),
    **dict.fromkeys(binlog.UPDATES, Op.UPDATE),
    **dict.fromkeys(binlog.DELETES, Op.DELETE),
}


@dataclass(slots=True)
class _Rows:
    """Changes of one table that wait to be given on, one description of it long."""

    layout: _Layout
    op: list[int] = field(default_factory=list)
    time_us: list[int] = field(default_factory=list)
    lsn: list[int] = field(default_factory=list)
    tx: list[str] = field(default_factory=list)
    data: list[Sequence[Any]] = field(default_factory=list)
    before: list[Sequence[Any] | None] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Layout:
    """How the rows of a table are read as long as it does not change."""

    namespace: str
    key: tuple[str, ...]
    cells: tuple[Cell, ...]


class ChangeReader:
    """The changes of one piece. Afterwards `reached` says where it ended."""

    def __init__(self, server: Server, server_id: int, zero_dates: ZeroDates) -> None:
        self.reached: Position | None = None
        self._server = server
        self._server_id = server_id
        self._zero_dates = zero_dates
        self._is_mariadb = False
        self._charsets: Mapping[int, str] = {}
        self._tables: dict[tuple[str, str], TableInfo] = {}
        self._wanted: Collection[str] | None = None
        self._views: Mapping[str, tuple[int, int]] = {}
        """By table: the place as of which it was copied."""
        self._maps: dict[int, bytes] = {}
        self._layouts: dict[bytes, _Layout | None] = {}
        self._waiting: dict[str, _Rows] = {}
        self._waiting_bytes = 0
        self._lsn = 0
        self._tx = ""
        self._has_rows = False

    def read(self, piece: Piece) -> Iterator[Batch]:
        """Whole transactions, each given on as it is read."""
        self._open(piece)
        first, end = self._lsn, order(piece["upto"])
        gtids = Gtids(piece["gtids"])
        at = seen = order(piece)
        reached = {"file": piece["file"], "pos": piece["pos"]}
        with self._server.errors():
            for event in self.events(piece):
                is_end = self._is_end(event, gtids)
                yield from self._batches(event)
                seen = order({"file": event.file, "pos": event.end})
                if is_end:
                    at, reached = seen, {"file": event.file, "pos": event.end}
                    self._has_rows = False
                if (seen >= end and not gtids.is_open) or (is_end and self._lsn - first >= piece["changes_max"]):
                    break
            yield from self._flush()
        is_cut = self._lsn - first >= piece["changes_max"]
        if seen < end and not is_cut:
            raise lost(self._server, f"the binary log ends before {piece['upto']['file']}:{piece['upto']['pos']}")
        if at < end and not is_cut:  # what is left are events that belong to no transaction
            reached = dict(piece["upto"])
        self.reached = {**reached, "seq": self._lsn, "gtids": gtids.told()}

    def _open(self, piece: Piece) -> None:
        with self._server.session() as connection:
            self._is_mariadb = is_mariadb(connection)
            self._charsets = catalog.charsets(connection)
            found = catalog.all_tables(connection, self._server.database)
        self._tables = {(table.schema, table.name): table for table in found}
        self.want(piece["tables"])
        self._views = {namespace: order(view) for namespace, view in piece["views"].items()}
        self._lsn = piece["seq"]

    def want(self, tables: Collection[str] | None) -> None:
        """Only changes of these tables matter, None for all."""
        self._wanted = None if tables is None else frozenset(tables)

    def concerns(self, event: Event) -> bool:
        """Whether an event may be about a table that is wanted; all but those that surely are not."""
        if event.kind == binlog.TABLE_MAP:
            schema, table = tablemap.table_name(event.body)
            return self._is_wanted(schema, f"{schema}.{table}")
        if event.kind == binlog.QUERY:
            found = statement(event.body)
            return bool(found.truncated[1]) or found.changes_rows
        return event.kind in binlog.COMPRESSED or event.kind in (binlog.EXECUTE_LOAD, binlog.BEGIN_LOAD)

    def events(self, piece: Piece) -> Iterator[Event]:
        try:
            yield from binlog.events(self._server, self._server_id, piece["file"], piece["pos"])
        except binlog.PlaceGone as error:
            raise lost(self._server, str(error)) from error

    def _is_end(self, event: Event, gtids: Gtids) -> bool:
        """Whether a transaction ends with this event. Notes which transaction it is."""
        if event.kind in (binlog.GTID, binlog.MARIADB_GTID, binlog.ANONYMOUS_GTID):
            self._tx = gtids.begin(event)
            return False
        if event.kind == binlog.XID:
            gtids.end()
            return True
        if event.kind != binlog.QUERY:
            return False
        found = statement(event.body)
        if found.is_begin or found.is_inside:
            return False
        if found.is_rollback and self._has_rows:
            what = f"the transaction that ends at {event.file}:{event.end} has rows and was rolled back all the same"
            raise TailraceError("source.unsupported", what, hint="use tables of InnoDB, whose rows are not told then")
        gtids.end()
        return True

    def _batches(self, event: Event) -> Iterator[Batch]:
        if event.kind == binlog.TABLE_MAP:
            self._maps[tablemap.table_id(event.body)] = event.body
        elif event.kind in _OPS:
            yield from self._rows(event)
        elif event.kind == binlog.QUERY:
            yield from self._query(event, statement(event.body))
        elif event.kind == binlog.XA_PREPARE and event.body[:1] != b"\x01":
            raise _unsupported(event, "prepares a transaction for XA", "use ordinary transactions in the source")
        elif event.kind in (binlog.BEGIN_LOAD, binlog.EXECUTE_LOAD):
            raise _unsupported(event, "is a statement and not rows", "set binlog_format = ROW")
        elif event.kind == binlog.PARTIAL_JSON:
            raise _unsupported(event, "has only parts of JSON", "set binlog_row_value_options = ''")
        elif event.kind in binlog.COMPRESSED:
            raise _unsupported(event, "is compressed", f"set {binlog.COMPRESSED[event.kind]} = OFF")
        elif event.kind not in binlog.IGNORED and event.kind not in (
            *(binlog.XID, binlog.GTID, binlog.MARIADB_GTID, binlog.ANONYMOUS_GTID, binlog.XA_PREPARE),
        ):
            raise _unsupported(event, f"is of the kind {event.kind}", "use a newer release of tailrace for this server")

    def _query(self, event: Event, found: Statement) -> Iterator[Batch]:
        schema, table = found.truncated
        namespace = f"{schema}.{table}"
        if table and self._is_wanted(schema, namespace):
            if self._is_copied(namespace, event):
                return
            yield from self._flush(namespace)
            self._lsn += 1
            at = Micros(event.time_s * _SECOND_US)
            command = Message(Op.COMMAND, at, namespace, dict(COMMAND), lsn=Lsn(self._lsn), tx=self._tx)
            yield from batches_of([command], Mode.SYNC)
        elif found.changes_rows and self._is_ours(found.schema):
            raise _unsupported(event, f"is a statement and not rows ({found.head})", "set binlog_format = ROW")

    def _rows(self, event: Event) -> Iterator[Batch]:
        layout = self._layout(self._maps[tablemap.table_id(event.body)])
        if layout is None or self._is_copied(layout.namespace, event):
            return
        if self._waiting.get(layout.namespace, _Rows(layout)).layout is not layout:
            yield from self._flush(layout.namespace)
        images, at = self._images(event, layout)
        waiting = self._waiting.setdefault(layout.namespace, _Rows(layout))
        op, time_us = _OPS[event.kind], event.time_s * _SECOND_US
        for row in rows(event.body, at, images):
            self._lsn += 1
            waiting.op.append(op)
            waiting.time_us.append(time_us)
            waiting.lsn.append(self._lsn)
            waiting.tx.append(self._tx)
            waiting.data.append(row[-1])
            waiting.before.append(row[0] if op is Op.UPDATE else None)
        self._has_rows = True
        self._waiting_bytes += len(event.body)
        if self._waiting_bytes >= _BATCH_BYTES or len(waiting.op) >= _BATCH_ROWS:
            yield from self._flush()

    def _images(self, event: Event, layout: _Layout) -> tuple[list[Sequence[Cell]], int]:
        """What an event's rows consist of, and where they begin."""
        head = tablemap.Bytes(event.body, 8)
        if event.kind in binlog.WITH_EXTRA:
            head.take(head.number(2) - 2)
        count = head.length()
        for _ in range(2 if event.kind in binlog.UPDATES else 1):
            if not all(tablemap.present(head.take((count + 7) // 8), count)):
                raise _unsupported(event, "has rows without all of their columns", "set binlog_row_image = FULL")
        images: list[Sequence[Cell]] = [layout.cells] * (2 if event.kind in binlog.UPDATES else 1)
        return images, head.at

    def _layout(self, described: bytes) -> _Layout | None:
        """How to read the rows that come after a description; None when nobody wants them."""
        if described not in self._layouts:
            self._layouts[described] = self._make_layout(described)
        return self._layouts[described]

    def _make_layout(self, described: bytes) -> _Layout | None:
        schema, table = tablemap.table_name(described)
        namespace = f"{schema}.{table}"
        if not self._is_wanted(schema, namespace):
            return None
        known = self._tables.get((schema, table))
        if known is None or catalog.why_unusable(known):
            return None  # it is gone, or was never read
        try:
            found = tablemap.read_table_map(described, is_mariadb=self._is_mariadb)
        except UnknownStorage as error:
            raise TailraceError("source.unsupported", f"{namespace}: {error}", hint="leave the table out") from error
        cells = self._cells(found, known)
        names = [each.name for each in cells if each.is_wanted]
        return _Layout(namespace, known.key if set(known.key) <= set(names) else (), cells)

    def _cells(self, found: TableMap, known: TableInfo) -> tuple[Cell, ...]:
        has_names = all(shape.name is not None for shape in found.shapes)
        if not has_names and len(found.shapes) != len(known.columns):
            raise _untold(known.namespace, f"they have {len(found.shapes)} columns, the table has {len(known.columns)}")
        return tuple(self._cell(at, shape, known) for at, shape in enumerate(found.shapes))

    def _cell(self, at: int, shape: Shape, known: TableInfo) -> Cell:
        column = known.columns[at] if shape.name is None else known.column(shape.name)
        name = shape.name or (column.name if column else "")
        type_ = column.type if column is not None and column.type.fits(shape, self._charsets) else None
        if type_ is None and shape.name is not None:
            type_ = from_shape(shape, self._charsets)
        kind = None if type_ is None else kind_of(type_, self._zero_dates)
        if type_ is None or kind is None:
            raise _untold(known.namespace, f"column {name} had another type than it has now")
        return cell(name, type_, kind, shape, is_wanted=column is None or not column.is_virtual)

    def _is_wanted(self, schema: str, namespace: str) -> bool:
        return self._is_ours(schema) and (self._wanted is None or namespace in self._wanted)

    def _is_copied(self, namespace: str, event: Event) -> bool:
        """Whether the copy of a table has what an event tells."""
        view = self._views.get(namespace)
        return view is not None and order({"file": event.file, "pos": event.end}) <= view

    def _is_ours(self, schema: str) -> bool:
        return schema == self._server.database if self._server.database else schema not in sql.SYSTEM

    def _flush(self, namespace: str | None = None) -> Iterator[Batch]:
        """What waits, of one namespace or of all."""
        for name in [namespace] if namespace is not None else list(self._waiting):
            waiting = self._waiting.pop(name, None)
            if waiting is not None and waiting.op:
                yield _batch(waiting)
        if namespace is None:
            self._waiting_bytes = 0


def may_have_changes(server: Server, server_id: int, piece: Piece) -> bool:
    """Whether a piece has changes of the tables that are wanted. A long one is not looked through."""
    end, looked_at = order(piece["upto"]), 0
    reading = ChangeReader(server, server_id, ZeroDates.NULL)
    reading.want(piece["tables"])
    with server.errors():
        for event in reading.events(piece):
            looked_at += len(event.body)
            if looked_at > _LOOK_BYTES or reading.concerns(event):
                return True
            if order({"file": event.file, "pos": event.end}) >= end:
                return False
    return True


def lost(server: Server, why: str) -> TailraceError:
    """Changes cannot be read on. Beginning anew is for people to decide."""
    what = f"changes of {server.place} cannot be read on from where they were: {why}"
    hint = "remove the log and the destinations' offsets, then run again: the source is copied anew"
    return TailraceError("source.position_lost", what, hint=hint)


def _batch(waiting: _Rows) -> Batch:
    layout = waiting.layout
    columns: dict[str, pa.Array[Any]] = {
        "op": pa.array(waiting.op, pa.int8()),
        "timestamp": pa.array(waiting.time_us, pa.int64()).cast(TIMESTAMP),
        "lsn": pa.array(waiting.lsn, pa.int64()),
        "tx": pa.array(waiting.tx, pa.string()),
        "data": _struct(layout, waiting.data),
    }
    if any(row is not None for row in waiting.before):
        columns["before"] = _struct(layout, waiting.before)
    made = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return Batch(layout.namespace, with_key(made, layout.key), Mode.SYNC)


def _struct(layout: _Layout, found: Sequence[Sequence[Any] | None]) -> pa.StructArray:
    nothing = (None,) * len(layout.cells)
    by_column = zip(*(nothing if row is None else row for row in found), strict=True)
    columns, fields = [], []
    for each, values in zip(layout.cells, by_column, strict=True):
        if each.is_wanted:
            columns.append(converted(layout.namespace, each.name, each.gather, values, hint=HINT))
            fields.append(each.kind.field(each.name))
    mask: Any = pa.array([row is None for row in found]) if any(row is None for row in found) else None
    return pa.StructArray.from_arrays(columns, fields=fields, mask=mask)


def _unsupported(event: Event, what: str, cure: str) -> TailraceError:
    place = f"the event of the binary log that ends at {event.file}:{event.end}"
    return TailraceError("source.unsupported", f"{place} {what}", hint=f"{cure}, then copy the source again")


def _untold(namespace: str, why: str) -> TailraceError:
    what = f"rows of {namespace} in the binary log are older than a change of the table: {why}"
    hint = "set binlog_row_metadata = FULL, with which rows tell their columns, then copy the source again"
    return TailraceError("source.unsupported", what, hint=hint)

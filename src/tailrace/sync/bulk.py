"""Receiving many rows at once, where the receive view would do nothing but what sync does by itself.

The rows go into a temporary table, and from there in a few statements to where they belong. What is not simple is left
to `receiving`, which takes rows one by one: deletions, rows without a stamp, and rows that the database refuses.
"""
# ruff: noqa: S608  names cannot be bound; all of them go through `quoted`

from __future__ import annotations

from typing import Final

from tailrace.sync import authors, fresh, names, postgresddl, quarantine, spelling, sqliteddl
from tailrace.sync.columns import Columns
from tailrace.sync.database import Overtaken
from tailrace.sync.exchange import ROW_STAMP, Key, Receipt, RowBatch
from tailrace.sync.incoming import Here, Incoming, Reception
from tailrace.sync.names import CHANGED_KEY, Dialect, equal
from tailrace.sync.shape import Shape
from tailrace.sync.trackers import take_turn
from tailrace.sync.valuelist import run_with_values
from tailrace.sync.values import columns_from_wire, recordset

_STAMP: Final = ("time", "node")
"""None is gone, and the version stands in its own column."""
_BY_INDEX: Final = "SELECT set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)"
"""PostgreSQL knows nothing about temporary tables, and would read whole tables for a few rows."""
_TRACKER: Final = (names.TRACKER_NODE, names.TRACKER_VERSION, names.TRACKER_VERSION_NODE, names.TRACKER_PROCESSED)


class _NotAll(Exception):
    """Some row has to be left or refused, and others not."""


def receive(reception: Reception, batch: RowBatch) -> Receipt | None:
    """Take rows of a node; None when they have to be taken one by one, and nothing was done."""
    link, shape = reception.link, reception.shape
    if not _is_simple(reception, batch):
        return None
    try:
        if shape.dialect is Dialect.SQLITE and (receipt := fresh.receive(reception, _in_order(shape, batch))):
            return receipt
        if not _has_own_keys(shape, batch):
            return None
        with link.savepoint():
            return _Bulk(reception, _in_order(shape, batch)).received()
    except _NotAll:
        pass
    except reception.refusals:
        pass
    reception.room.forget()
    return None


def _is_simple(reception: Reception, batch: RowBatch) -> bool:
    """Whether all rows have a value for each column and a sound stamp, none is gone, and no author matters."""
    shape, latest_ms = reception.shape, reception.horizon.latest_ms
    if not len(batch) or not batch.is_even or not set(shape.column_names) <= set(batch.columns):
        return False
    columns = batch.by_column
    places = range(len(batch.columns), len(columns.values))
    times, nodes, gone, versions = (columns.values[place] for place in places)
    of_times, of_nodes, of_gone, of_versions = (columns.types(place) for place in places)
    if of_times | of_nodes != {int} or of_gone - {bool, int} or any(gone):
        return False
    if not (min(times) >= 0 and max(times) <= latest_ms and min(nodes) >= 0 and max(nodes) < 1 << 63):
        return False
    if not authors.are_known(reception, times, nodes):
        return False
    told = columns.values[batch.columns.index(shape.entity.version)]
    if list(told) != list(versions) or (of_versions != {str} if shape.is_hash else list(versions) != list(times)):
        return False
    return not any({type(None), list, dict} & columns.types(batch.columns.index(name)) for name in shape.key)


def _has_own_keys(shape: Shape, batch: RowBatch) -> bool:
    """Whether each row has a key that no other has."""
    keys = [batch.by_column.values[batch.columns.index(name)] for name in shape.key]
    return len(set(zip(*keys, strict=True))) == len(batch)


def _in_order(shape: Shape, batch: RowBatch) -> Columns:
    """The columns as they are here, and the stamp. Those that nobody knows here yet are left out."""
    stamp = range(len(batch.columns), len(batch.columns) + len(ROW_STAMP))
    return batch.by_column.picked([*map(batch.columns.index, shape.column_names), *stamp])


class _Bulk:
    """Rows in a temporary table: the columns c0, c1 … of the entity, their stamps, and whether each one wins."""

    def __init__(self, reception: Reception, rows: Columns) -> None:
        self._reception = reception
        self._link = reception.link
        self._shape = shape = reception.shape
        self._rows = rows
        self._is_postgres = shape.dialect is Dialect.POSTGRES
        self._yes, self._no = ("true", "false") if self._is_postgres else ("1", "0")
        count = len(shape.columns)
        self._name = f"door_in_{shape.table_id}_{count}"
        self._table = f"{'pg_temp' if self._is_postgres else 'temp'}.{self._name}"
        self._columns = [f"c{place}" for place in range(count)]
        self._keys = [f"i.c{shape.column_names.index(name)}" for name in shape.key]
        self._at_stamp = equal([f"s.{name}" for name in shape.stamp_key], self._keys)

    def received(self) -> Receipt:
        self._fill()
        keys = self._rows.picked([self._shape.column_names.index(name) for name in self._shape.key])
        if spelling.misspelt(self._link, self._shape, keys):
            raise _NotAll
        receipt, losing = Receipt(), list[quarantine.Lost]()
        if self._link.rows(f"SELECT 1 FROM {self._shape.stamp} LIMIT 1"):
            receipt, losing = self._judged()
        if quarantine.without_room(self._reception, losing):
            raise _NotAll
        self._write()
        quarantine.keep_lost(self._reception, losing)
        take_turn(self._link, self._shape)
        others = [row[0] for row in self._link.rows(f"SELECT nodeId FROM {self._shape.own_table(names.NODES)}")]
        self._note()
        if others != [self._reception.sender] or self._reception.is_watched:
            self._log("1", f"WHERE i.wins = {self._yes}")
        self._link.run(f"DELETE FROM {self._table}")
        return receipt

    def _fill(self) -> None:
        shape, columns = self._shape, (*self._columns, *_STAMP)
        bound = self._rows.picked(range(len(columns)))
        columns_from_wire(shape, bound, shape.column_names)
        values = bound.values
        if not self._is_postgres:
            listed = ", ".join(columns)
            self._link.run(f"CREATE TEMP TABLE IF NOT EXISTS {self._name}({listed}, wins DEFAULT 1)")
            run_with_values(self._link, lambda rows: f"INSERT INTO {self._table}({listed}) {rows}", values)
            return
        kinds = (*(column.declared for column in shape.columns), "bigint", "bigint")
        typed = ", ".join(f"{name} {kind}" for name, kind in zip(columns, kinds, strict=True))
        read = (*(column.read_as for column in shape.columns), *kinds[len(shape.columns) :])
        sent = ", ".join(f"c{place} {kind}" for place, kind in enumerate(read))
        picked = ", ".join(f"r.c{place}::{kind}" for place, kind in enumerate(kinds))
        own = f"{self._name}({typed}, place bigint, wins boolean)"
        self._link.run(f"CREATE TEMP TABLE IF NOT EXISTS {own} {postgresddl.SCRATCH}")
        self._link.run(_BY_INDEX)
        self._link.run(
            f"""INSERT INTO {self._table} SELECT {picked}, r.ordinality, true
                FROM ROWS FROM (jsonb_to_recordset($1::jsonb) AS ({sent})) WITH ORDINALITY AS r""",
            (recordset(zip(*values, strict=True)),),
        )

    def _judged(self) -> tuple[Receipt, list[quarantine.Lost]]:
        """Which rows do not win, and what loses although nobody knew it."""
        shape = self._shape
        time, node, gone = (f"s.{shape.own(name)}" for name in ("stTime", "stNode", "stDeleted"))
        with_stamp = f"JOIN {shape.stamp} AS s ON {self._at_stamp}"
        place = "i.place" if self._is_postgres else "i.rowid"
        found = self._link.rows(
            f"""SELECT {place}, {time}, {node}, {gone} FROM {self._table} AS i {with_stamp}
                WHERE {node} <> i.node OR {time} >= i.time"""
        )
        before: dict[Key, Here] = {}
        rows: list[Incoming] = []
        receipt = Receipt()
        for number, here_time, here_node, here_gone in found:
            row, here = self._incoming(number - 1), Here(here_time, here_node, bool(here_gone))
            rows.append(row)
            before[row.key] = here
            if here.stamp > row.stamp:
                receipt.older.append(row.tracker)
        at_stamp = f"{self._at_stamp} AND ({time}, {node}) >= (i.time, i.node)"
        beaten = f"EXISTS (SELECT 1 FROM {shape.stamp} AS s WHERE {at_stamp})"
        self._link.run(f"UPDATE {self._table} AS i SET wins = {self._no} WHERE {beaten}")
        return receipt, quarantine.unknown_edits(self._reception, rows, before)

    def _incoming(self, place: int) -> Incoming:
        row = self._rows.row(place)
        values = row[: len(self._columns)]
        time, node, _, version = row[len(self._columns) :]
        key = tuple(values[self._shape.column_names.index(name)] for name in self._shape.key)
        return Incoming(key, values, time, node, False, version)

    def _write(self) -> None:
        """The winners, and their stamps."""
        shape = self._shape
        ddl = postgresddl if self._is_postgres else sqliteddl
        winners = f"FROM {self._table} AS i WHERE i.wins = {self._yes}"
        be_quiet, be_loud = ddl.quiet(shape)
        self._link.run(be_quiet)
        self._link.run(shape.upsert(f"SELECT {', '.join(f'i.{name}' for name in self._columns)} {winners}"))
        self._link.run(be_loud)
        keys, stamp = ", ".join(shape.stamp_key), [shape.own(name) for name in ("stTime", "stNode", "stDeleted")]
        changes = ", ".join(f"{name} = excluded.{name}" for name in stamp)
        is_newer = f"WHERE (s.{stamp[0]}, s.{stamp[1]}) < (excluded.{stamp[0]}, excluded.{stamp[1]})"
        written = self._link.run(
            f"""INSERT INTO {shape.stamp} AS s ({keys}, {", ".join(stamp)})
                SELECT {", ".join(self._keys)}, i.time, i.node, {self._no} {winners}
                ON CONFLICT ({keys}) DO UPDATE SET {changes} {is_newer}"""
        )
        if self._is_postgres and written != self._link.value(f"SELECT count(*) {winners}"):
            raise Overtaken

    def _note(self) -> None:
        """The sender has what it sent. If another version stays here, it gets that, or the hooks are asked."""
        shape = self._shape
        time, node = shape.own("stTime"), shape.own("stNode")
        is_here = f"""i.wins = {self._yes} OR EXISTS (SELECT 1 FROM {shape.stamp} AS s
            WHERE {self._at_stamp} AND s.{time} = i.time AND s.{node} = i.node)"""
        if not shape.entity.is_told_by_hooks:
            self._put_trackers(is_here, f"{self._yes} = {self._yes}")  # without a condition SQLite would misread it
            return
        self._put_trackers(self._yes, f"({is_here})")
        self._put_trackers(self._yes, f"NOT ({is_here})", leaves_open=True)
        gone = f"CASE WHEN s.{shape.own('stDeleted')} = {self._yes} THEN 2 ELSE 1 END"
        self._log(gone, f"JOIN {shape.stamp} AS s ON {self._at_stamp} WHERE NOT ({is_here})")

    def _put_trackers(self, is_done: str, which: str, *, leaves_open: bool = False) -> None:
        """What the sender has, and whether it gets nothing else; `receiving` does the same for single rows."""
        shape = self._shape
        own = [shape.own(name) for name in _TRACKER]
        changes = ", ".join(f"{name} = excluded.{name}" for name in (own[1:-1] if leaves_open else own[1:]))
        to = ", ".join((*shape.tracker_key, own[0]))
        into = f"INSERT INTO {shape.tracker}({', '.join((*shape.tracker_key, *own))})"
        version = self._columns[shape.column_names.index(shape.entity.version)]
        values = ", ".join(
            (*self._keys, f"{self._reception.sender:d}", f"i.{version}", "0" if shape.is_hash else "i.node")
        )
        rows = f"SELECT {values}, {is_done} FROM {self._table} AS i WHERE {which}"
        self._link.run(f"{into} {rows} ON CONFLICT ({to}) DO UPDATE SET {changes}")

    def _log(self, kind: str, which: str) -> None:
        """Lines of the ChangeLog, by which nodes get rows. If there are no others, nobody misses those of winners."""
        shape = self._shape
        columns = ", ".join(("chTableId", *CHANGED_KEY[: len(shape.key)], "chType"))
        keys = [f"{key}::text" for key in self._keys] if self._is_postgres else self._keys
        self._link.run(
            f"""INSERT INTO {shape.own_table(names.CHANGES)}({columns})
                SELECT {shape.table_id}, {", ".join(keys)}, {kind} FROM {self._table} AS i {which}"""
        )

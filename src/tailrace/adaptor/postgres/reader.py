"""Reading a PostgreSQL database: tables by key ranges from one snapshot, changes from a replication slot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg

from tailrace.adaptor.postgres import catalog, changes, copying, sql
from tailrace.adaptor.postgres.catalog import TableInfo
from tailrace.adaptor.postgres.changes import ChangeReader
from tailrace.adaptor.postgres.server import Server
from tailrace.adaptor.postgres.slot import PLUGIN, Slot, SlotState, Snapshot, lsn_text
from tailrace.adaptor.postgres.types import Choices
from tailrace.errors import TailraceError
from tailrace.log.batch import Batch
from tailrace.source.contract import Piece, Position, Table


class PostgresReader:
    """A source. While its first copy lasts the driver's reader keeps the slot's snapshot open, and no change is read:
    rows of the snapshot are older than every change, so they must come first."""

    def __init__(self, server: Server, slot: str, choices: Choices, piece_rows: int) -> None:
        self._server = server
        self._slot = Slot(server, slot)
        self._choices = choices
        self._piece_rows = piece_rows
        self._snapshot: Snapshot | None = None
        self._connection: psycopg.Connection[Any] | None = None
        self._reached: Position | None = None

    def tables(self) -> list[Table]:
        with self._server.errors():
            found = self._usable()
        return [
            Table(
                namespace=table.namespace,
                schema=table.schema_arrow,
                key=table.key,
                rows=table.rows or None,
                empty=tuple(column.name for column in table.columns if not column.has_default),
            )
            for table in found
        ]

    def left_out(self) -> Mapping[str, str]:
        with self._server.errors():
            found = catalog.all_tables(self._session(), catalog.load_kinds(self._session(), self._choices))
        return {table.namespace: why for table in found if (why := catalog.why_unusable(table))}

    def install(self, tables: Sequence[Table]) -> None:
        wanted = {table.namespace for table in tables}
        with self._server.errors():
            connection = self._session()
            self._slot.publish(connection, [table for table in self._usable() if table.namespace in wanted])
            state = self._slot.state(connection)
            if state is None:
                self._snapshot = self._slot.create()
            else:
                self._check_usable(state)

    def uninstall(self) -> None:
        self._let_go()
        with self._server.errors():
            self._slot.drop(self._session())

    def position(self) -> Position:
        if self._snapshot is not None:
            return self._position(self._snapshot.lsn)
        with self._server.errors():
            (flushed,) = self._session().execute(sql.FLUSHED).fetchone() or (0,)
        return self._position(flushed)

    def plan_copy(self, table: Table) -> list[Piece]:
        snapshot = self._snapshot.name if self._snapshot else None
        with self._server.errors():
            found = next((each for each in self._usable() if each.namespace == table.namespace), None)
            return [] if found is None else copying.plan(self._session(), found, self._piece_rows, snapshot)

    def read_copy(self, namespace: str, piece: Piece) -> Iterator[Batch]:
        return copying.read(self._server, self._choices, piece)

    def copied(self) -> None:
        """The snapshot is not needed any more; holding it would keep the server from cleaning up."""
        if self._snapshot is not None:
            self._snapshot.close()
            self._snapshot = None

    def plan_changes(self, start: Position, end: Position) -> list[Piece]:
        if end["lsn"] <= start["lsn"]:
            return []
        with self._server.errors():
            self._check(self._slot.state(self._session()), start)
            if not self._slot.has_changes(self._session(), end["lsn"]):
                return []
        begin = {"slot": self._slot.name, "lsn": start["lsn"], "seq": start.get("seq", 0)}
        return [{**begin, "upto": end["lsn"], "changes_max": changes.CHANGES_MAX}]

    def read_changes(self, piece: Piece) -> Iterator[Batch]:
        reading = ChangeReader(self._slot, self._choices)
        yield from reading.read(piece)
        self._reached = reading.reached

    def reached(self) -> Position | None:
        return self._reached

    def forget(self, upto: Position) -> None:
        if self._snapshot is not None:
            return
        with self._server.errors():
            self._check(self._slot.state(self._session()), upto, may_be_ahead=True)
            self._slot.advance(self._session(), upto["lsn"])

    def close(self) -> None:
        self._let_go()

    def _let_go(self) -> None:
        self.copied()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _session(self) -> psycopg.Connection[Any]:
        """One connection for the small questions of the driver."""
        if self._connection is None or self._connection.closed:
            self._connection = self._server.connect()
        return self._connection

    def _usable(self) -> list[TableInfo]:
        kinds = catalog.load_kinds(self._session(), self._choices)
        return [table for table in catalog.all_tables(self._session(), kinds) if not catalog.why_unusable(table)]

    def _position(self, lsn: int) -> Position:
        return {"slot": self._slot.name, "lsn": lsn}

    def _check(self, state: SlotState | None, place: Position, *, may_be_ahead: bool = False) -> None:
        """Refuse a position that the slot cannot go on from."""
        if place["slot"] != self._slot.name:
            raise self._lost(f"they were read through slot {place['slot']}, and now `slot` is {self._slot.name}")
        if state is None:
            raise self._lost(f"slot {self._slot.name} is gone")
        self._check_usable(state)
        if state.confirmed > place["lsn"] and not may_be_ahead:
            ours, theirs = lsn_text(place["lsn"]), lsn_text(state.confirmed)
            raise self._lost(f"slot {self._slot.name} begins at {theirs}, behind {ours}; does something else use it?")

    def _check_usable(self, state: SlotState) -> None:
        if state.is_lost:
            raise self._lost(f"slot {self._slot.name} was invalidated: the server removed what it was to keep")
        if state.plugin != PLUGIN:
            what = f"slot {self._slot.name} of {self._server.place} speaks {state.plugin}, not {PLUGIN}"
            raise TailraceError("source.unsupported", what, hint="give another name with `slot`")

    def _lost(self, why: str) -> TailraceError:
        what = f"changes of {self._server.place} cannot be read on from where they were: {why}"
        hint = "tailrace slot drop PIPELINE.yml, then copy the source again, into a new log"
        return TailraceError("source.position_lost", what, hint=hint)

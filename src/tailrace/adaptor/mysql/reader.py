"""Reading a MySQL or MariaDB server: tables by key ranges, changes from the binary log."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Final

import pymysql

from tailrace.adaptor.mysql import catalog, changes, copying, place, sql
from tailrace.adaptor.mysql.catalog import TableInfo
from tailrace.adaptor.mysql.changes import ChangeReader, lost
from tailrace.adaptor.mysql.server import Server, rows
from tailrace.adaptor.mysql.types import ZeroDates
from tailrace.errors import TailraceError
from tailrace.log.batch import Batch
from tailrace.source.contract import Piece, Position, Table

NEEDED: Final = {"log_bin": ("ON",), "binlog_format": ("ROW",), "binlog_row_image": ("FULL",)}
"""Settings without which changes cannot be followed, and what they must be."""
_WRONG: Final = {
    "binlog_row_value_options": "PARTIAL_JSON",
    "binlog_transaction_compression": "ON",
    "log_bin_compress": "ON",
}
"""Settings that put something into the log that is not read."""


class MysqlReader:
    """A source. Rows are copied as they are when they are read, and what changed since follows as changes.

    Where a table has no key, a row that is in its copy and in a change would be there twice. So such a table is read as
    of a place in the log, and changes before that place are left out.
    """

    def __init__(self, server: Server, server_id: int, zero_dates: ZeroDates, piece_rows: int) -> None:
        self._server = server
        self._server_id = server_id
        self._zero_dates = zero_dates
        self._piece_rows = piece_rows
        self._connection: pymysql.Connection[Any] | None = None
        self._wanted: list[str] | None = None
        self._keyless: set[str] = set()
        self._uncopied: set[str] = set()
        """Tables without a key whose copy is still to come."""
        self._is_copying = True
        self._is_checked = False
        self._reached: Position | None = None

    def tables(self) -> list[Table]:
        with self._server.errors():
            found = self._usable()
        return [
            Table(
                namespace=table.namespace,
                schema=table.fields(self._zero_dates),
                key=table.key,
                rows=table.rows or None,
                empty=tuple(
                    c.name for c in table.read_columns if c.is_nullable and not (c.has_default or c.is_generated)
                ),
            )
            for table in found
        ]

    def left_out(self) -> Mapping[str, str]:
        with self._server.errors():
            found = catalog.all_tables(self._session(), self._server.database)
        return {table.namespace: why for table in found if (why := catalog.why_unusable(table))}

    def check(self, position: Position) -> None:
        with self._server.errors():
            why = place.gone(self._session(), position) or place.gtids_lost(self._session(), position)
        if why:
            raise lost(self._server, why)
        self._is_checked = True

    def install(self, tables: Sequence[Table]) -> None:
        """The server notes all changes by itself; only its settings must be right."""
        with self._server.errors():
            wrong = wrong_settings(settings(self._session()))
        if wrong:
            name, (found, needed) = next(iter(wrong.items()))
            what = f"changes of {self._server.place} cannot be followed: {name} is {found or 'not set'}"
            raise TailraceError("source.unsupported", what, hint=f"set {name} = {needed}; tailrace doctor")
        self._wanted = [table.namespace for table in tables]
        self._keyless = {table.namespace for table in tables if not table.key}

    def uninstall(self) -> None:
        """Nothing was left in the source."""

    def position(self) -> Position:
        with self._server.errors():
            return place.current(self._session(), is_settled=self._is_copying)

    def plan_copy(self, table: Table) -> list[Piece]:
        self._is_copying = True
        with self._server.errors():
            found = next((each for each in self._usable() if each.namespace == table.namespace), None)
            return [] if found is None else copying.plan(self._session(), found, self._piece_rows)

    def read_copy(self, namespace: str, piece: Piece) -> Iterator[Batch]:
        return copying.read(self._server, self._zero_dates, piece, self._look)

    def copied(self) -> None:
        self._is_copying = False

    def copying(self, namespaces: Collection[str]) -> None:
        self._uncopied = self._keyless.intersection(namespaces)

    def plan_changes(self, start: Position, end: Position) -> list[Piece]:
        if place.order(end) == place.order(start):
            return []
        if place.order(end) < place.order(start):
            why = f"the binary log ends at {end['file']}:{end['pos']}, before {start['file']}:{start['pos']}"
            raise lost(self._server, why)
        if not self._is_checked:
            self.check(start)
        piece = {
            "file": start["file"],
            "pos": start["pos"],
            "seq": start.get("seq", 0),
            "gtids": dict(start.get("gtids", {})),
            "upto": {"file": end["file"], "pos": end["pos"]},
            "tables": None if self._wanted is None else [name for name in self._wanted if name not in self._uncopied],
            "views": {name: view for name in self._keyless if (view := start.get(place.view_of(name)))},
            "changes_max": changes.CHANGES_MAX,
        }
        return [piece] if changes.may_have_changes(self._server, self._server_id, piece) else []

    def read_changes(self, piece: Piece) -> Iterator[Batch]:
        reading = ChangeReader(self._server, self._server_id, self._zero_dates)
        yield from reading.read(piece)
        self._reached = reading.reached

    def reached(self) -> Position | None:
        return self._reached

    def forget(self, upto: Position) -> None:
        """The server removes its binary log by itself, when it is old enough."""

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _look(self, connection: pymysql.Connection[Any], table: TableInfo) -> None:
        if not table.key:
            self._reached = {place.view_of(table.namespace): place.begin_view(connection)}

    def _session(self) -> pymysql.Connection[Any]:
        """One connection for the small questions of the driver."""
        if self._connection is None or not self._connection.open:
            self._connection = self._server.connect()
        return self._connection

    def _usable(self) -> list[TableInfo]:
        found = catalog.all_tables(self._session(), self._server.database)
        return [table for table in found if not catalog.why_unusable(table)]


def settings(connection: pymysql.Connection[Any]) -> dict[str, str]:
    """What the server is set to."""
    return {name: value or "" for name, value in rows(connection, sql.SETTINGS)}


def wrong_settings(found: Mapping[str, str]) -> dict[str, tuple[str, str]]:
    """The settings with which changes cannot be followed: what they are, and what they must be."""
    needed = {
        name: (found.get(name, ""), allowed[0])
        for name, allowed in NEEDED.items()
        if name in found and found[name].upper() not in allowed
    }
    harmful = {name: (value, "OFF") for name, value in _WRONG.items() if value in found.get(name, "").upper()}
    return {**needed, **harmful}

"""Reading a PostgreSQL database: tables by key ranges, changes from a replication slot or from triggers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import psycopg

from tailrace.adaptor.postgres import catalog, copying
from tailrace.adaptor.postgres.catalog import TableInfo
from tailrace.adaptor.postgres.feed import Feed
from tailrace.adaptor.postgres.server import Server
from tailrace.adaptor.postgres.types import Choices
from tailrace.log.batch import Batch
from tailrace.source.contract import Piece, Position, Table


class PostgresReader:
    """A source. One connection serves the small questions of the driver; tasks have connections of their own."""

    def __init__(self, server: Server, feed: Feed, choices: Choices, piece_rows: int, view: str | None = None) -> None:
        """`view` is a snapshot through which alone tables are copied, by whoever keeps it open."""
        self._server = server
        self._feed = feed
        self._choices = choices
        self._piece_rows = piece_rows
        self._view = view
        self._connection: psycopg.Connection[Any] | None = None

    def tables(self) -> list[Table]:
        return [
            Table(
                namespace=table.namespace,
                schema=table.schema_arrow,
                key=table.key,
                rows=table.rows or None,
                empty=tuple(column.name for column in table.columns if not column.has_default),
            )
            for table in self._usable()
        ]

    def left_out(self) -> Mapping[str, str]:
        tables = self._all()
        shared = catalog.shared_names(tables)
        return {table.namespace: why for table in tables if (why := catalog.why_unusable(table, shared))}

    def check(self, position: Position) -> None:
        with self._server.errors():
            self._feed.check(self._session(), position)

    def install(self, tables: Sequence[Table]) -> None:
        wanted = {table.namespace for table in tables}
        found = [table for table in self._usable() if table.namespace in wanted]
        with self._server.errors():
            self._feed.install(self._session(), found)

    def made_anew(self) -> Collection[str]:
        return self._feed.made_anew()

    def uninstall(self) -> None:
        with self._server.errors():
            self._feed.uninstall(self._session())

    def position(self) -> Position:
        with self._server.errors():
            return self._feed.position(self._session())

    def plan_copy(self, table: Table) -> list[Piece]:
        found = next((each for each in self._usable() if each.namespace == table.namespace), None)
        if found is None:
            return []
        with self._server.errors():
            return copying.plan(self._session(), found, self._piece_rows, self._view or self._feed.snapshot)

    def read_copy(self, namespace: str, piece: Piece) -> Iterator[Batch]:
        if self._view is None:
            return copying.read(self._server, self._choices, piece)
        seen = {**piece, "snapshot": self._view}  # it may have been planned through another one
        return copying.read(self._server, self._choices, seen, is_view=True)

    def copied(self) -> None:
        self._feed.copied()

    def plan_changes(self, start: Position, end: Position) -> list[Piece]:
        with self._server.errors():
            return self._feed.plan(self._session(), start, end)

    def read_changes(self, piece: Piece) -> Iterator[Batch]:
        return self._feed.read(piece)

    def reached(self) -> Position | None:
        return self._feed.reached()

    def held_bytes(self) -> int | None:
        with self._server.errors():
            return self._feed.held_bytes(self._session())

    def forget(self, upto: Position) -> None:
        with self._server.errors():
            self._feed.forget(self._session(), upto)

    def close(self) -> None:
        self._feed.close()
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _session(self) -> psycopg.Connection[Any]:
        if self._connection is None or self._connection.closed:
            self._connection = self._server.connect()
        return self._connection

    def _all(self) -> list[TableInfo]:
        with self._server.errors():
            return catalog.all_tables(self._session(), catalog.load_kinds(self._session(), self._choices))

    def _usable(self) -> list[TableInfo]:
        tables = self._all()
        shared = catalog.shared_names(tables)
        return [table for table in tables if not catalog.why_unusable(table, shared)]

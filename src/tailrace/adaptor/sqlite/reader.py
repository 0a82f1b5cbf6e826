"""Reading a SQLite database: tables by key ranges, changes from the changelog."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from tailrace.adaptor.sqlite import catalog, changelog, changes, copying
from tailrace.adaptor.sqlite.changelog import State
from tailrace.adaptor.sqlite.database import Database
from tailrace.adaptor.sqlite.kinds import kind_of_field
from tailrace.errors import TailraceError
from tailrace.log.batch import Batch
from tailrace.source.contract import Piece, Position, Table
from tailrace.source.owner import refuse_other

_FORGET_ROWS: Final = 20_000
"""Removed per transaction, so that other programs can write between."""
_FORGET_BUSY_S: Final = 0.1


class SqliteReader:
    """A source in one file. Nothing stays open between calls."""

    def __init__(self, database: Database, piece_rows: int, pipeline: str = "") -> None:
        self._database = database
        self._piece_rows = piece_rows
        self._pipeline = pipeline

    def tables(self) -> list[Table]:
        with self._database.reading() as connection:
            usable = [table for table in catalog.all_tables(connection) if not catalog.why_unusable(table)]
            return [
                Table(
                    namespace=table.namespace,
                    schema=catalog.schema_of(catalog.kinds_of(connection, table)),
                    key=table.key,
                    rows=copying.estimated_rows(connection, table),
                )
                for table in usable
            ]

    def left_out(self) -> dict[str, str]:
        with self._database.reading() as connection:
            reasons = {table.namespace: catalog.why_unusable(table) for table in catalog.all_tables(connection)}
        return {namespace: why for namespace, why in reasons.items() if why}

    def install(self, tables: Sequence[Table]) -> None:
        names = [_table_name(table.namespace) for table in tables]
        with self._database.reading() as connection:
            self._refuse_other(connection)
            if changelog.is_current(connection, names):
                return
        with self._database.writing() as connection:
            changelog.install(connection, names, self._pipeline)

    def uninstall(self) -> None:
        with self._database.writing() as connection:
            self._refuse_other(connection)
            changelog.uninstall(connection)

    def position(self) -> Position:
        state = self._state()
        return changes.position(changes.check(state, changes.position(state), self._database.path))

    def plan_copy(self, table: Table) -> list[Piece]:
        with self._database.reading(exact=True) as connection:
            found = catalog.find_source(connection, _table_name(table.namespace))
            if found is None:
                return []
            kinds = {field.name: kind_of_field(field) for field in table.schema}
            return copying.plan(connection, found, kinds, self._piece_rows)

    def read_copy(self, namespace: str, piece: Piece) -> Iterator[Batch]:
        return copying.read(self._database, piece)

    def copied(self) -> None:
        """No view was kept."""

    def plan_changes(self, start: Position, end: Position) -> list[Piece]:
        return changes.plan(self._state(), start, end, self._database.path)

    def read_changes(self, piece: Piece) -> Iterator[Batch]:
        return changes.read(self._database, piece)

    def reached(self) -> None:
        """Pieces are read to their end."""

    def forget(self, upto: Position) -> None:
        """Does what it can without keeping others waiting; the rest is for the next time."""
        state = changes.check(self._state(), upto, self._database.path)
        with suppress(TailraceError):
            for number in range(state.forgotten, upto["seq"], _FORGET_ROWS):
                with self._database.writing(busy_s=_FORGET_BUSY_S) as connection:
                    changelog.forget(connection, min(number + _FORGET_ROWS, upto["seq"]))

    def close(self) -> None:
        """Nothing is open."""

    def _refuse_other(self, connection: sqlite3.Connection) -> None:
        state = changelog.state(connection)
        refuse_other(self._database.path, state.pipeline if state else None, self._pipeline)

    def _state(self) -> State:
        with self._database.reading() as connection:
            state = changelog.state(connection)
        if state is None:
            what = f"changes of {self._database.path} are not captured: it has no changelog"
            raise TailraceError("source.position_lost", what, hint="tailrace run")
        return state


def _table_name(namespace: str) -> str:
    return namespace.removeprefix(f"{catalog.SCHEMA}.")

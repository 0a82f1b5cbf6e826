"""Feeds: the two ways in which a server tells its changes, through a replication slot or through triggers."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, Protocol

import psycopg

from tailrace.adaptor.postgres.catalog import TableInfo
from tailrace.log.batch import Batch
from tailrace.source.contract import Piece, Position


class Feed(Protocol):
    """The changes of one database; what `source.contract.Reader` promises about them, with a connection to ask by."""

    @property
    def snapshot(self) -> str | None:
        """The view from which tables are copied, None when they are read as they are."""

    def check(self, connection: psycopg.Connection[Any], position: Position) -> None: ...

    def install(self, connection: psycopg.Connection[Any], tables: Sequence[TableInfo]) -> None: ...

    def made_anew(self) -> Collection[str]: ...

    def uninstall(self, connection: psycopg.Connection[Any]) -> None: ...

    def position(self, connection: psycopg.Connection[Any]) -> Position: ...

    def copied(self) -> None: ...

    def plan(self, connection: psycopg.Connection[Any], start: Position, end: Position) -> list[Piece]: ...

    def read(self, piece: Piece) -> Iterator[Batch]: ...

    def reached(self) -> Position | None: ...

    def held_bytes(self, connection: psycopg.Connection[Any]) -> int | None: ...

    def forget(self, connection: psycopg.Connection[Any], upto: Position) -> None: ...

    def close(self) -> None: ...

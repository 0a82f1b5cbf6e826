"""Databases of applications, each with an outbox, and with all kinds of connections."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Self

import psycopg
import sqlalchemy
from sqlalchemy import orm
from sqlalchemy.pool import NullPool

from tailrace.queues.fullness import Fullness
from tailrace.queues.outbox import Outbox, OutboxBatch, Owner, Position
from tailrace.queues.outboxpostgres import PostgresOutbox
from tailrace.queues.outboxsqlite import SqliteOutbox

SITE = Owner("site", "0" * 16)
KINDS = ["driver", "connection", "session"]


class TestPlace:
    """`with` it: an outbox in which the client `shop` may send to `plant` and `store`."""

    __test__ = False
    outbox: Outbox
    url: str

    def __init__(self) -> None:
        self._closing = ExitStack()

    def __enter__(self) -> Self:
        self.outbox = self.make_outbox()
        self._closing.callback(self.outbox.close)
        self.engine = sqlalchemy.create_engine(self.url, poolclass=NullPool)
        self.outbox.install()
        self.outbox.set_destinations("shop", {"plant": Fullness(), "store": Fullness()})
        self.change("CREATE TABLE orders (id integer PRIMARY KEY)")
        return self

    def __exit__(self, *_: object) -> None:
        self._closing.close()
        self.engine.dispose()

    def make_outbox(self, owner: Owner = SITE, **options: Any) -> Outbox:
        raise NotImplementedError

    def driver(self) -> Any:
        raise NotImplementedError

    def connect(self, kind: str = "driver") -> Any:
        """A connection that is closed at the end of the test."""
        made = self.connecting(kind)()
        self._closing.callback(made.close)
        return made

    def connecting(self, kind: str = "driver") -> Callable[[], Any]:
        """Makes connections that their user closes."""
        match kind:
            case "driver":
                return self.driver
            case "connection":
                return self.engine.connect
        return lambda: orm.Session(self.engine)

    def ask(self, query: str) -> list[Any]:
        with self.engine.connect() as connection:
            return [tuple(row) for row in connection.exec_driver_sql(query).fetchall()]

    def change(self, statement: str) -> None:
        with self.engine.begin() as connection:
            connection.exec_driver_sql(statement)

    def read_all(self, after: Position | None = None) -> list[OutboxBatch]:
        found: list[OutboxBatch] = []
        while (batch := self.outbox.read(found[-1].position if found else after)) is not None:
            found.append(batch)
        return found

    def payloads(self) -> list[bytes]:
        return [entry.payload for batch in self.read_all() for _, entries in batch.transactions for entry in entries]


class SqlitePlace(TestPlace):
    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path
        self.url = f"sqlite:///{path}"

    def make_outbox(self, owner: Owner = SITE, **options: Any) -> Outbox:
        return SqliteOutbox(str(self.path), owner, **options)

    def driver(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path)


class PostgresPlace(TestPlace):
    def __init__(self, address: str) -> None:
        super().__init__()
        self.address = address
        self.url = address.replace("postgresql://", "postgresql+psycopg://")

    def make_outbox(self, owner: Owner = SITE, **options: Any) -> Outbox:
        return PostgresOutbox(self.address, owner, **options)

    def driver(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.address)

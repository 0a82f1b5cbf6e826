"""Nodes that each have a SQLite database."""

from __future__ import annotations

import re
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pyarrow.flight as fl

from tailrace.adaptor.sqlite.options import SqliteReaderOptions, SqliteWriterOptions
from tailrace.node.conflict import Policies
from tailrace.node.identity import Identity, become_registered, enter
from tailrace.node.store import Store
from tailrace.relay.applier import Applier, Source, register
from tailrace.relay.copies import Copies
from tailrace.relay.join import Joins
from tailrace.relay.joining import Joining
from tailrace.relay.reading import Readings
from tailrace.relay.service import Service
from tests.relay.nodes import HEARTBEAT_S, TOKEN, TestNode, wait_for


class Shop(TestNode):
    """A node with a database. `turn` does what its thread would do."""

    __test__ = False

    def __init__(
        self,
        directory: Path,
        cluster: str | None,
        *,
        port: int = 0,
        piece_rows: int = 100_000,
        policies: Policies | None = None,
        is_anonymous: bool = False,
        table: str = "CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, word TEXT)",
    ) -> None:
        self.is_anonymous = is_anonymous
        super().__init__(directory, cluster, port=port)
        self._policies = policies
        self.path = directory / "shop.db"
        self._piece_rows = piece_rows
        self.run("PRAGMA journal_mode = WAL", table)
        self.open_store()

    def open_store(self) -> None:
        reading = SqliteReaderOptions(path=str(self.path), piece_rows=self._piece_rows)
        writing = SqliteWriterOptions(path=str(self.path), consumer="node")
        self.store = Store(
            reading, writing, self.journal, re.compile("."), policies=self._policies, is_read_only=self.is_anonymous
        )
        self.service._joins = Joins(self.journal, self.store, str(self.directory / "joins"))
        self.serve_pipelines()

    def serve_pipelines(self) -> None:
        service, copies = self.service, Copies(self.store, str(self.directory / "copies"))
        service.serve_pipelines(Readings(self.journal, service.consumers, service.holds, self.store, copies))

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self.store.close()

    def run(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.path, isolation_level=None)) as connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, query: str = "SELECT * FROM t ORDER BY id") -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(query).fetchall()

    def turn(self) -> None:
        self.store.capture()
        self.store.apply()

    def join(self, other: Shop) -> Applier:
        """Follow another node, from nothing."""

        def join(client: fl.FlightClient, source: Source, cluster: str) -> Identity:
            if self.identity.is_anonymous:
                register(client, source, self.identity, self.journal.vclock, is_newcomer=True)
                self.identity = become_registered(str(self.directory))
            else:
                joining = Joining(
                    source, self.identity, str(self.directory / "joining"), is_anonymous=self.is_anonymous
                )
                joining.run(client, self.journal, self.store)
                self.identity = enter(str(self.directory), cluster, is_anonymous=self.is_anonymous)
            self.service = self.server._service = Service(self.identity, self.journal, self.service._joins)
            self.serve_pipelines()
            return self.identity

        source = Source("source", other.location, TOKEN)
        applier = Applier(
            source,
            self.identity,
            self.journal,
            heartbeat_s=HEARTBEAT_S,
            join=join,
            is_anonymous=self.is_anonymous,
        )
        self.appliers.append(applier)
        applier.start()
        return applier


def settle(shops: list[Shop]) -> None:
    """Until everybody has everything."""

    def is_settled() -> bool:
        for shop in shops:
            shop.turn()
        return len({shop.journal.vclock for shop in shops}) == 1 and not any(shop.store.apply() for shop in shops)

    try:
        wait_for(is_settled)
    except AssertionError:
        told = [(str(shop.journal.vclock), [applier.progress for applier in shop.appliers]) for shop in shops]
        raise AssertionError(f"they do not settle: {told}") from None

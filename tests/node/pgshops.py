"""Nodes that each have a database of a PostgreSQL server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import psycopg
from pydantic import SecretStr

from tailrace.adaptor.postgres.options import PostgresReaderOptions, PostgresWriterOptions
from tailrace.node.conflict import Policies
from tailrace.node.store import Store
from tailrace.relay.join import Joins
from tests.node.shops import Shop
from tests.relay.nodes import TestNode

TABLE = "CREATE TABLE IF NOT EXISTS t(id bigint PRIMARY KEY, word text)"


class PgShop(Shop):
    """A node with a database of a server. Its tables are where those of SQLite are: in the schema `main`."""

    __test__ = False

    def __init__(
        self,
        directory: Path,
        cluster: str | None,
        url: str,
        *,
        piece_rows: int = 100_000,
        tables: str = TABLE,
        policies: Policies | None = None,
    ) -> None:
        self.is_anonymous = False
        TestNode.__init__(self, directory, cluster)
        self.is_anonymous = False
        self._policies = policies
        self.url = url
        self._piece_rows = piece_rows
        self.run("CREATE SCHEMA IF NOT EXISTS main", tables)
        self.open_store()

    def open_store(self) -> None:
        url = SecretStr(self.url)
        name = f"{self.directory.name} {psycopg.conninfo.conninfo_to_dict(self.url)['dbname']}"
        reading = PostgresReaderOptions(url=url, piece_rows=self._piece_rows, pipeline=name)
        writing = PostgresWriterOptions(url=url, consumer="node")
        self.store = Store(reading, writing, self.journal, re.compile("."), policies=self._policies)
        self.serve_pipelines()
        self.joins = self.service._joins = Joins(self.journal, self.store, str(self.directory / "joins"))
        self.serve_pipelines()

    def __exit__(self, *_: object) -> None:
        self.joins.close()
        super().__exit__()

    def connect(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True, options="-c search_path=main,tailrace")

    def run(self, *statements: str) -> None:
        with self.connect() as connection:
            for statement in statements:
                connection.execute(statement.encode())

    def rows(self, query: str = "SELECT * FROM t ORDER BY id") -> list[tuple[Any, ...]]:
        with self.connect() as connection:
            return connection.execute(query.encode()).fetchall()

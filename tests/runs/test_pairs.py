"""From every database to every destination: copy, changes, and both ends are equal."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.adaptor.lake import lake
from tailrace.adaptor.mysql import mysql
from tailrace.adaptor.postgres import postgres
from tailrace.adaptor.sqlite import sqlite
from tailrace.pipeline import Pipeline
from tailrace.pipeline.run import Until, run
from tailrace.verify.verify import Scope, verify
from tests.servers import mariadb as mariadb_servers
from tests.servers.mariadb import MariaDbServer
from tests.servers.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TABLES = (
    "CREATE TABLE plain (id bigint PRIMARY KEY, name varchar(90), amount numeric(12,2), at timestamp NULL, is_on bool)",
    "CREATE TABLE pair (a varchar(20), b int, note text, PRIMARY KEY (a, b))",
)
ROWS = (
    "INSERT INTO plain VALUES (1, 'Zoë 🦆', 12.50, '2024-02-29 12:30:01', true), (2, '', NULL, NULL, false)",
    "INSERT INTO plain VALUES (3, 'null', -0.01, '1999-12-31 23:59:59', NULL), (4, NULL, 9999999999.99, NULL, true)",
    "INSERT INTO pair VALUES ('x', 1, 'one'), ('x', 2, 'two'), ('y', 1, NULL)",
)
CHANGES = (
    "UPDATE plain SET name = 'changed', amount = 0 WHERE id = 1",
    "UPDATE plain SET id = 40 WHERE id = 4",
    "DELETE FROM plain WHERE id = 2",
    "INSERT INTO plain VALUES (5, 'new', 5.5, '2026-01-01 00:00:00', true)",
    "UPDATE pair SET b = 20, note = 'moved' WHERE a = 'x' AND b = 2",
    "DELETE FROM pair WHERE a = 'y'",
    "ALTER TABLE pair ADD COLUMN more int",
    "INSERT INTO pair VALUES ('z', 9, 'nine', 99)",
)


class Source:
    """A database with two tables that change."""

    def __init__(self, end: Any, execute: Callable[[str], Any]) -> None:
        self.end = end
        self._execute = execute

    def do(self, statements: tuple[str, ...]) -> None:
        for statement in statements:
            self._execute(statement)


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[PostgresServer]:
    server = PostgresServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture(scope="module")
def mariadb_server() -> Iterator[MariaDbServer]:
    if why := mariadb_servers.missing():
        pytest.skip(why)
    server = MariaDbServer()
    server.start()
    yield server
    server.remove()


@pytest.fixture(params=["postgres", "mysql"])
def source(
    request: pytest.FixtureRequest, postgres_server: PostgresServer, mariadb_server: MariaDbServer, name: str
) -> Source:
    if request.param == "postgres":
        url = postgres_server.create(f"{name}_source")
        connection = postgres_server.connect(f"{name}_source")
        request.addfinalizer(connection.close)
        return Source(postgres(url=url, slot=name), connection.execute)
    mariadb_server.run(f"CREATE DATABASE {name}_source")
    url = mariadb_server.url(f"{name}_source")
    return Source(mysql(url=url), lambda statement: mariadb_server.run(f"USE {name}_source", statement))


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of this test, as a database may be called."""
    return "".join(sign if sign.isalnum() else "_" for sign in request.node.name.lower())[-40:].strip("_")


@pytest.fixture(params=["postgres", "mysql", "sqlite", "lake", pytest.param("delta", marks=pytest.mark.long)])
def destination(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    postgres_server: PostgresServer,
    mariadb_server: MariaDbServer,
    name: str,
) -> Any:
    match request.param:
        case "postgres":
            return postgres(url=postgres_server.create(f"{name}_copy"), into_schema="copy")
        case "mysql":
            mariadb_server.run(f"CREATE DATABASE {name}_copy")
            return mysql(url=mariadb_server.url(f"{name}_copy"), into_database=f"{name}_copy")
        case "sqlite":
            return sqlite(str(tmp_path / "copy.db"))
        case "lake":
            return lake(str(tmp_path / "lake"))
        case _:
            return lake(str(tmp_path / "lake"), format="delta")


def test_both_ends_are_equal(tmp_path: Path, spark: SparkSession, source: Source, destination: Any) -> None:
    pipeline = Pipeline("pair", log=str(tmp_path / "log")).read(source.end, namespace=r"\.(plain|pair)$")
    spec = pipeline.write(destination, name="copy").spec()
    source.do(TABLES + ROWS)
    for statements in ((), CHANGES):
        source.do(statements)
        assert run(spec, Until.ONCE, session=lambda: spark).errors == []
        (writer,) = verify(Scope(spec), lambda: spark, lambda _: None).writers
        assert writer.incomparable is None
        assert {each.namespace.rpartition(".")[2] for each in writer.namespaces} == {"plain", "pair"}
        assert not any(each.differences.counts for each in writer.namespaces), writer

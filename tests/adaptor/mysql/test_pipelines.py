"""Whole pipelines from MySQL and into it: copy, changes, and source and destinations compared."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.adaptor.mysql import mysql
from tailrace.adaptor.postgres import postgres
from tailrace.pipeline import Pipeline
from tailrace.pipeline.run import Until, run
from tailrace.verify.verify import Scope, verify
from tests.adaptor.mysql.test_types import COLUMNS
from tests.servers.mariadb import MariaDbServer
from tests.servers.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NAMES = [name for name, (_, values, _) in COLUMNS.items() if values is not None]


@pytest.fixture
def elsewhere() -> Iterator[str]:
    """A database of PostgreSQL."""
    server = PostgresServer()
    server.start()
    yield server.url()
    server.remove()


def insert(id_: int, at: int) -> str:
    values = [values[at] for _, values, _ in COLUMNS.values() if values is not None]
    return f"INSERT INTO shop.kinds(id, {', '.join(NAMES)}) VALUES ({id_}, {', '.join(values)})"


def test_there_and_back(mariadb: MariaDbServer, elsewhere: str, tmp_path: Path, spark: SparkSession) -> None:
    """Every type into another MySQL and into PostgreSQL, and from there back into MySQL."""
    declared = ", ".join(f"{name} {kind}" for name, (kind, _, _) in COLUMNS.items())
    mariadb.run(
        "CREATE DATABASE shop",
        f"CREATE TABLE shop.kinds(id int PRIMARY KEY, {declared})",
        "CREATE TABLE shop.items(name varchar(40) COLLATE utf8mb4_bin, part int, n int, PRIMARY KEY (name, part))",
        "INSERT INTO shop.items SELECT concat('item ', seq % 7), seq, seq FROM seq_1_to_500",
        insert(1, 0),
        database="mysql",
    )
    out = (
        Pipeline("out", log=str(tmp_path / "log"))
        .read(mysql(mariadb.url("shop"), piece_rows=100))
        .write(mysql(mariadb.url(), into_database="copy"), name="mysql")
        .write(postgres(elsewhere), name="postgres")
        .spec()
    )
    assert run(out, Until.ONCE, session=lambda: spark).errors == []
    mariadb.run(
        insert(2, 1),
        "UPDATE shop.items SET n = -n WHERE part % 3 = 0",
        "UPDATE shop.items SET part = 1000 + part WHERE part < 10",
        "DELETE FROM shop.items WHERE part BETWEEN 100 AND 200",
        "INSERT INTO shop.items VALUES ('ITEM 1', 1, 1), ('', 0, 0)",
        "CREATE TABLE shop.late(id int PRIMARY KEY, note text)",
        "INSERT INTO shop.late VALUES (1, 'new')",
    )
    assert run(out, Until.ONCE, session=lambda: spark).errors == []
    report = verify(Scope(out, (), None), lambda: spark, lambda _: None).encode()
    assert report["equal"], report
    back = (
        Pipeline("back", log=str(tmp_path / "log-back"))
        .read(postgres(elsewhere))
        .write(mysql(mariadb.url(), into_database="again"), name="again")
        .spec()
    )
    assert run(back, Until.ONCE, session=lambda: spark).errors == []
    report = verify(Scope(back, (), None), lambda: spark, lambda _: None).encode()
    assert report["equal"], report
    query = "SELECT id, big_u, decimal_0, text_, hex(varbinary_), datetime_6, bit_10 FROM {}.kinds ORDER BY id"
    assert mariadb.ask(query.format("again")) == mariadb.ask(query.format("shop"))

"""Servers as users have them, with rules of their own: foreign keys, unique columns, logs that do not last for ever."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.adaptor.mysql import mysql
from tailrace.adaptor.postgres import postgres as postgres_end
from tailrace.errors import TailraceError
from tailrace.log.consumers import Consumers
from tailrace.log.operator import Operator
from tailrace.pipeline import Pipeline
from tailrace.pipeline.run import Until, run
from tailrace.pipeline.spec import PipelineSpec
from tests.adaptor.postgres import databases as pg
from tests.runs.test_outages import wait_for
from tests.servers import mariadb
from tests.servers.mariadb import MariaDbServer
from tests.servers.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SHORT_LOG = {"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"}


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    """A source and a destination; what a slot needs is not kept for ever."""
    started = PostgresServer(settings=SHORT_LOG)
    started.start()
    yield started
    started.remove()


_NUMBERS = count()


@pytest.fixture
def shop(server: PostgresServer) -> Iterator[str]:
    name = f"shop_{next(_NUMBERS)}"
    yield server.create(name)
    server.drop(name)


@pytest.fixture
def office(server: PostgresServer) -> Iterator[str]:
    name = f"office_{next(_NUMBERS)}"
    yield server.create(name)
    server.drop(name)


def spec_of(directory: Path, shop: str, office: str, **options: Any) -> PipelineSpec:
    slot = f"slot_{shop.rpartition('/')[2]}"
    pipeline = Pipeline("test", log=str(directory / "log")).read(postgres_end(url=shop, slot=slot))
    return pipeline.write(postgres_end(url=office, **options), name="office").spec()


def test_changes_in_order_keep_foreign_keys(tmp_path: Path, spark: SparkSession, shop: str, office: str) -> None:
    """Each statement below is right only after the one before, in another table."""
    tables = (
        "CREATE TABLE customer(id int PRIMARY KEY, name text)",
        "CREATE TABLE sale(id int PRIMARY KEY, customer int NOT NULL REFERENCES customer)",
    )
    pg.run(shop, *tables)
    pg.run(office, *tables)
    spec = spec_of(tmp_path, shop, office, in_order=True)
    run(spec, Until.ONCE, session=lambda: spark)
    for number in range(1, 40):
        pg.run(
            shop,
            f"INSERT INTO customer VALUES ({number}, 'new'), ({-number}, 'other')",
            f"INSERT INTO sale VALUES ({number}, {number})",
            f"UPDATE sale SET customer = {-number} WHERE id = {number}",
            f"DELETE FROM customer WHERE id = {number}",
        )
        if number % 3 == 0:
            pg.run(shop, f"DELETE FROM sale WHERE id = {number}", f"DELETE FROM customer WHERE id = {-number}")

    summary = run(spec, Until.ONCE, session=lambda: spark)

    assert summary.errors == []
    for table in ("customer", "sale"):
        rows = f"SELECT * FROM {table} ORDER BY id"
        assert pg.ask(office, rows) == pg.ask(shop, rows)
        assert pg.ask(office, rows)


def test_a_row_that_the_destination_has_already(tmp_path: Path, spark: SparkSession, shop: str, office: str) -> None:
    """Rows before the one that collides are written, and after it was acknowledged those behind it."""
    table = "CREATE TABLE t(id int PRIMARY KEY, mail text UNIQUE)"
    pg.run(shop, table)
    pg.run(office, table, "INSERT INTO t VALUES (1000, 'taken@example.org')")
    spec = spec_of(tmp_path, shop, office)
    run(spec, Until.ONCE, session=lambda: spark)
    pg.run(
        shop,
        "INSERT INTO t SELECT n, n || '@example.org' FROM generate_series(1, 59) n",
        "INSERT INTO t VALUES (60, 'taken@example.org')",
        "INSERT INTO t SELECT n, n || '@example.org' FROM generate_series(61, 100) n",
    )
    here = "SELECT count(*), max(id) FROM t WHERE id < 1000"

    first = run(spec, Until.ONCE, session=lambda: spark)
    assert [error.code for error in first.errors] == ["destination.refused"]
    assert pg.ask(office, here) == [(0, None)]

    again = run(spec, Until.ONCE, session=lambda: spark)
    assert pg.ask(office, here) == [(59, 59)]
    told = f"{again.errors[0].what} {again.errors[0].hint}"
    assert "taken@example.org" in told
    (ack,) = re.findall(r"tailrace offset ack office (\d+)", told)

    Operator(Consumers(spec.log)).acknowledge("office", int(ack), reason="it is there")
    assert run(spec, Until.ONCE, session=lambda: spark).errors == []
    assert pg.ask(office, here) == [(99, 100)]
    assert pg.ask(office, "SELECT id FROM t WHERE mail = 'taken@example.org'") == [(1000,)]


def test_a_slot_that_the_server_gave_up(tmp_path: Path, spark: SparkSession, shop: str, office: str) -> None:
    pg.run(shop, "CREATE TABLE t(id int PRIMARY KEY, word text)", "INSERT INTO t VALUES (1, 'copied')")
    spec = spec_of(tmp_path, shop, office)
    run(spec, Until.ONCE, session=lambda: spark)
    for _ in range(4):
        pg.run(shop, "INSERT INTO t SELECT n, repeat('x', 900) FROM generate_series(2, 9000) n", "TRUNCATE t")
        pg.run(shop, "SELECT pg_switch_wal()")
        pg.run(shop, "CHECKPOINT")
    pg.run(shop, "INSERT INTO t VALUES (2, 'lost')")

    with pytest.raises(TailraceError, match="was invalidated") as caught:
        run(spec, Until.ONCE, session=lambda: spark)

    assert caught.value.code == "source.position_lost"
    assert "slot drop" in caught.value.hint
    assert pg.ask(office, "SELECT id FROM t") == [(1,)]


def test_a_binary_log_that_was_removed(tmp_path: Path, spark: SparkSession, office: str) -> None:
    if why := mariadb.missing():
        pytest.skip(why)
    server = MariaDbServer()
    server.start()
    try:
        server.run("CREATE DATABASE shop", "CREATE TABLE shop.t(id int PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)")
        reading = Pipeline("test", log=str(tmp_path / "log")).read(mysql(url=server.url("shop")))
        spec = reading.write(postgres_end(url=office), name="office").spec()
        run(spec, Until.ONCE, session=lambda: spark)
        ((read, *_),) = server.ask("SHOW MASTER STATUS")
        server.run("INSERT INTO shop.t VALUES (2)")
        wait_for(lambda: _is_removed(server, read))

        with pytest.raises(TailraceError, match="has removed") as caught:
            run(spec, Until.ONCE, session=lambda: spark)

        assert caught.value.code == "source.position_lost"
        assert pg.ask(office, "SELECT id FROM shop.t") == [(1,)]
    finally:
        server.remove()


def _is_removed(server: MariaDbServer, file: str) -> bool:
    """Remove it, which the server does only when it does not need the file itself any more."""
    server.run("FLUSH BINARY LOGS")
    ((last, *_),) = server.ask("SHOW MASTER STATUS")
    server.run(f"PURGE BINARY LOGS TO '{last}'")
    return file not in [found for found, *_ in server.ask("SHOW BINARY LOGS")]

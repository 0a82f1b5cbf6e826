"""Servers that are killed while a pipeline runs: it waits for them, and nothing is lost, repeated or half done."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tailrace.adaptor.mysql import mysql
from tailrace.adaptor.postgres import postgres as postgres_end
from tailrace.errors import TailraceError
from tailrace.log.reader import LogReader
from tailrace.pipeline import Pipeline
from tailrace.pipeline.run import Summary, Until
from tailrace.pipeline.spec import PipelineSpec
from tests.runs.test_run import Listener, start
from tests.servers import far as far_away
from tests.servers import mariadb
from tests.servers.far import FarNetwork
from tests.servers.mariadb import MariaDbServer
from tests.servers.postgres import PostgresServer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROWS = 60_000
SURE = {"fsync": "on", "synchronous_commit": "on"}


@pytest.fixture
def source() -> Iterator[PostgresServer]:
    yield from _server()


@pytest.fixture
def postgres() -> Iterator[PostgresServer]:
    yield from _server()


@pytest.fixture
def destination() -> Iterator[PostgresServer]:
    yield from _server()


def _server() -> Iterator[PostgresServer]:
    server = PostgresServer(settings=SURE)
    server.start()
    yield server
    server.remove()


def spec_of(directory: Path, source: PostgresServer, destination: PostgresServer, **options: Any) -> PipelineSpec:
    pipeline = Pipeline("test", log=str(directory / "log")).read(postgres_end(url=source.url(), **options))
    return pipeline.write(postgres_end(url=destination.url(), into_schema="copy"), name="copy").spec()


def rows_of(server: PostgresServer, table: str) -> list[tuple[Any, ...]]:
    with server.connect() as connection:
        return connection.execute(f"SELECT id, v FROM {table} ORDER BY id").fetchall()


def fill(source: PostgresServer, first: int, count: int) -> None:
    with source.connect() as connection:
        connection.execute("CREATE TABLE IF NOT EXISTS t (id int PRIMARY KEY, v text)")
        connection.execute(
            "INSERT INTO t SELECT g, 'row ' || g FROM generate_series(%s::int, %s) g", (first, first + count - 1)
        )
        connection.execute("ANALYZE t")


def wait_for(what: Any, seconds: int = 60) -> None:
    for _ in range(20 * seconds):
        try:
            if what():
                return
        except psycopg.Error:
            pass
        time.sleep(0.05)
    raise AssertionError(f"it did not happen within {seconds} s")


@contextmanager
def going_on(spec: PipelineSpec, spark: SparkSession) -> Iterator[tuple[Listener, list[Any]]]:
    """A run that ends behind the body, when it is caught up; gives what it says, and its result afterwards."""
    over, listener = threading.Event(), Listener()
    thread, result = start(spec, spark, Until.CAUGHT_UP, watcher=listener, not_before=over)
    try:
        assert listener.is_up.wait(60)
        yield listener, result
    finally:
        over.set()
        thread.join()


def terminate(server: PostgresServer) -> None:
    """End the connections of pipelines."""
    with server.connect() as connection:
        connection.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'tailrace'")


def test_servers_are_killed_in_the_middle(
    tmp_path: Path, spark: SparkSession, source: PostgresServer, destination: PostgresServer
) -> None:
    fill(source, 0, ROWS)
    spec = spec_of(tmp_path, source, destination, piece_rows=2_000)

    def captured() -> int:
        return LogReader(spec.log).next_offset

    with going_on(spec, spark) as (listener, result):
        wait_for(lambda: 0 < captured() < ROWS)
        source.kill()  # in the middle of the copy
        source.start()
        wait_for(lambda: captured() > ROWS)
        with suppress(psycopg.OperationalError), source.connect() as connection, connection.transaction():
            connection.execute("UPDATE t SET v = 'never' WHERE id < 1000")
            source.kill()  # in the middle of a transaction
        source.start()
        fill(source, ROWS, ROWS)
        destination.kill()  # in the middle of a write, as likely as not
        fill(source, 2 * ROWS, 1_000)
        destination.start()
        wait_for(lambda: len(rows_of(destination, "copy.t")) > ROWS)
        with source.connect() as connection:
            connection.execute("DELETE FROM t WHERE id % 10 = 0")
        terminate(source)
        terminate(destination)

    summary: Summary = result[0]
    assert summary.errors == []
    assert set(rows_of(destination, "copy.t")) ^ set(rows_of(source, "t")) == set()
    assert any("goes on after" in line for line in listener.said)


@pytest.fixture
def far() -> Iterator[FarNetwork]:
    if why := far_away.missing():
        pytest.skip(why)
    network = FarNetwork()
    yield network
    network.remove()


@pytest.mark.long
@pytest.mark.parametrize("end", ["source", "destination"])
def test_a_connection_is_black_holed(
    tmp_path: Path, spark: SparkSession, far: FarNetwork, postgres: PostgresServer, end: str
) -> None:
    """What is sent is lost without a word: only the time that nothing comes back tells."""
    away = PostgresServer(settings=SURE, network=far)
    away.start()
    ends = {"source": postgres, "destination": postgres, end: away}
    spec = spec_of(tmp_path, ends["source"], ends["destination"])
    fill(ends["source"], 0, 1_000)
    try:
        with going_on(spec, spark) as (listener, result):
            wait_for(lambda: len(rows_of(ends["destination"], "copy.t")) == 1_000)
            far.cut()
            if end == "destination":
                fill(ends["source"], 1_000, 10)
            wait_for(lambda: any("tried again" in line for line in listener.said), 120)
            far.mend()
            wait_for(lambda: rows_of(ends["source"], "t"))  # the first connection after a cut is often refused
            fill(ends["source"], 2_000, 10)
            wait_for(lambda: any("goes on after" in line for line in listener.said), 120)
        assert result[0].errors == []
        assert rows_of(ends["destination"], "copy.t") == rows_of(ends["source"], "t")
    finally:
        away.remove()


def test_mariadb_is_killed_in_the_middle(tmp_path: Path, spark: SparkSession) -> None:
    """As a source and as a destination."""
    if why := mariadb.missing():
        pytest.skip(why)
    server = MariaDbServer()
    server.start()
    try:
        server.run(
            "CREATE DATABASE shop",
            "CREATE DATABASE copy",
            "CREATE TABLE shop.t (id int PRIMARY KEY, v varchar(20))",
            f"INSERT INTO shop.t SELECT seq, concat('row ', seq) FROM shop.seq_1_to_{ROWS}",
        )
        pipeline = Pipeline("test", log=str(tmp_path / "log")).read(
            mysql(url=server.url("shop"), piece_rows=2_000), namespace=r"^shop\.t$"
        )
        spec = pipeline.write(mysql(url=server.url("copy"), into_database="copy"), name="copy").spec()
        with going_on(spec, spark) as (listener, result):
            wait_for(lambda: 0 < LogReader(spec.log).next_offset < ROWS)
            server.kill()
            server.start()
            wait_for(lambda: LogReader(spec.log).next_offset > ROWS)
            server.run("UPDATE shop.t SET v = 'changed' WHERE id % 7 = 0", "DELETE FROM shop.t WHERE id % 10 = 0")
            server.kill()
            server.start()
        assert result[0].errors == []
        rows = "SELECT id, v FROM {}.t ORDER BY id"
        assert server.ask(rows.format("copy")) == server.ask(rows.format("shop"))
        assert any("goes on after" in line for line in listener.said)
    finally:
        server.remove()


def test_a_truncate_goes_all_the_way(
    tmp_path: Path, spark: SparkSession, source: PostgresServer, destination: PostgresServer
) -> None:
    fill(source, 0, 1_000)
    spec = spec_of(tmp_path, source, destination)
    start(spec, spark, Until.ONCE)[0].join()
    with source.connect() as connection:
        connection.execute("INSERT INTO t VALUES (5000, 'before')")
        connection.execute("TRUNCATE t")
        connection.execute("INSERT INTO t VALUES (6000, 'after')")

    thread, result = start(spec, spark, Until.ONCE)
    thread.join()

    assert result[0].errors == []
    assert rows_of(destination, "copy.t") == [(6000, "after")]


def test_a_slot_that_is_gone_is_not_made_again(
    tmp_path: Path, spark: SparkSession, source: PostgresServer, destination: PostgresServer
) -> None:
    fill(source, 0, 10)
    spec = spec_of(tmp_path, source, destination, slot="lost")
    start(spec, spark, Until.ONCE)[0].join()
    with source.connect() as connection:
        connection.execute("SELECT pg_drop_replication_slot('lost')")
        thread, result = start(spec, spark, Until.ONCE)
        thread.join()
        assert isinstance(result[0], TailraceError)
        assert result[0].code == "source.position_lost"
        assert "slot lost is gone" in result[0].what
        assert connection.execute("SELECT count(*) FROM pg_replication_slots").fetchone() == (0,)
    assert len(rows_of(destination, "copy.t")) == 10


def test_a_table_that_is_made_anew(
    tmp_path: Path, spark: SparkSession, source: PostgresServer, destination: PostgresServer
) -> None:
    """Its old rows are gone, and the new ones are there, whenever they came."""
    fill(source, 0, 100)
    spec = spec_of(tmp_path, source, destination)
    with going_on(spec, spark) as (listener, result), source.connect() as connection:
        wait_for(lambda: len(rows_of(destination, "copy.t")) == 100)
        connection.execute("INSERT INTO t VALUES (500, 'last')")
        connection.execute("DROP TABLE t")
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, v text)")
        connection.execute("INSERT INTO t VALUES (1, 'new'), (900, 'too')")
        wait_for(lambda: any("another table than before" in line for line in listener.said))
        connection.execute("INSERT INTO t VALUES (901, 'later')")
    assert result[0].errors == []
    assert rows_of(destination, "copy.t") == [(1, "new"), (900, "too"), (901, "later")]


def test_an_idle_slot_moves_on(
    tmp_path: Path,
    spark: SparkSession,
    source: PostgresServer,
    destination: PostgresServer,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Although all that happens is in tables that nobody wants."""
    monkeypatch.setattr("tailrace.source.capture.HEARTBEAT_S", 0.5)
    fill(source, 0, 10)
    spec = spec_of(tmp_path, source, destination, slot="idle")
    confirmed = "SELECT confirmed_flush_lsn - '0/0'::pg_lsn FROM pg_replication_slots WHERE slot_name = 'idle'"
    with going_on(spec, spark) as (_, result), source.connect() as connection:
        wait_for(lambda: len(rows_of(destination, "copy.t")) == 10)
        connection.execute("SELECT pg_logical_emit_message(false, 'other', repeat('x', 100000))")
        (end,) = connection.execute("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").fetchone() or (0,)
        wait_for(lambda: (connection.execute(confirmed).fetchone() or (0,))[0] >= end)
    assert result[0].errors == []

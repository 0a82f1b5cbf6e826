"""Changes: what the binary log tells, also when tables change in between, and when it does not tell enough."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest

from tailrace.adaptor.mysql import changes, place
from tailrace.adaptor.mysql.options import MysqlReaderOptions
from tailrace.errors import TailraceError
from tailrace.message import Message, Op
from tailrace.source.contract import Position
from tests.adaptor.contract import messages
from tests.adaptor.mysql.databases import run
from tests.servers.mariadb import MariaDbServer


def position_of(url: str) -> Position:
    with closing(MysqlReaderOptions(url=url).open()) as reader:  # type: ignore[arg-type]
        return reader.position()


def read(url: str, start: Position, **options: Any) -> list[Message]:
    """The changes of the rest of the log."""
    with closing(MysqlReaderOptions(url=url, **options).open()) as reader:  # type: ignore[arg-type]
        pieces = reader.plan_changes(start, reader.position())
        return messages(batch for piece in pieces for batch in reader.read_changes(piece))


@contextmanager
def setting(server: MariaDbServer, name: str, value: str) -> Iterator[None]:
    """The server set otherwise for a while; connections that are open keep what they have."""
    ((before,),) = server.ask(f"SELECT @@GLOBAL.{name}")
    server.run(f"SET GLOBAL {name} = {value}")
    try:
        yield
    finally:
        server.run(f"SET GLOBAL {name} = '{before}'")


def test_tables_that_change_in_mid_stream(database: str) -> None:
    """Rows have the names and types that their columns had."""
    run(database, "CREATE TABLE t(id int PRIMARY KEY, a varchar(9), n int)")
    start = position_of(database)
    run(database, "INSERT INTO t VALUES (1, 'one', -1)")
    run(database, "ALTER TABLE t ADD COLUMN first int unsigned FIRST, CHANGE a b text CHARACTER SET latin1")
    run(database, "INSERT INTO t VALUES (4294967295, 2, 'zwölf', 3)")
    run(database, "ALTER TABLE t DROP COLUMN n, MODIFY first bigint")
    run(database, "INSERT INTO t VALUES (-5, 3, 'x')")
    found = [message.data for message in read(database, start)]
    assert found == [
        {"id": 1, "a": "one", "n": -1},
        {"first": 2**32 - 1, "id": 2, "b": "zwölf", "n": 3},
        {"first": -5, "id": 3, "b": "x"},
    ]


def test_without_names_in_the_log(mariadb: MariaDbServer, database: str) -> None:
    """The table's present names are taken as long as they fit; then it is an error, not a guess."""
    run(database, "CREATE TABLE t(id int unsigned PRIMARY KEY, a enum('x','y'), b text CHARACTER SET latin1)")
    with setting(mariadb, "binlog_row_metadata", "NO_LOG"):
        start = position_of(database)
        run(database, "INSERT INTO t VALUES (4294967295, 'y', 'é')")
        assert [message.data for message in read(database, start)] == [{"id": 2**32 - 1, "a": "y", "b": "é"}]
        for statement in ("ALTER TABLE t ADD COLUMN c int", "ALTER TABLE t DROP COLUMN c, MODIFY a char(1)"):
            run(database, statement)
            with pytest.raises(TailraceError, match="older than a change of the table") as caught:
                read(database, start)
            assert "binlog_row_metadata" in caught.value.hint


def test_truncate_comes_where_it_happened(database: str) -> None:
    run(database, "CREATE TABLE `a b`(id int PRIMARY KEY)", "CREATE TABLE other(id int PRIMARY KEY)")
    start = position_of(database)
    run(database, "INSERT INTO `a b` VALUES (1)", "/* why */ truncate `a b`", "INSERT INTO `a b` VALUES (2)")
    run(database, "TRUNCATE TABLE other")
    found = sorted(read(database, start), key=lambda message: message.lsn)
    name = database.rpartition("/")[2]
    assert [(message.namespace, message.op, message.data) for message in found] == [
        (f"{name}.a b", Op.INSERT, {"id": 1}),
        (f"{name}.a b", Op.COMMAND, {"command": "truncate"}),
        (f"{name}.a b", Op.INSERT, {"id": 2}),
        (f"{name}.other", Op.COMMAND, {"command": "truncate"}),
    ]
    ours = [message.op for message in read(database, start) if message.namespace == f"{name}.a b"]
    assert ours == [Op.INSERT, Op.COMMAND, Op.INSERT]


def test_only_what_is_wanted(mariadb: MariaDbServer, database: str) -> None:
    """Neither tables that nobody asked for nor other databases."""
    run(database, "CREATE TABLE t(id int PRIMARY KEY)", "CREATE TABLE u(id int PRIMARY KEY)")
    mariadb.run("CREATE DATABASE main", "CREATE TABLE main.t(id int PRIMARY KEY)")
    name = database.rpartition("/")[2]
    with closing(MysqlReaderOptions(url=database).open()) as reader:  # type: ignore[arg-type]
        reader.install([table for table in reader.tables() if table.namespace == f"{name}.t"])
        start = reader.position()
        run(database, "INSERT INTO t VALUES (1)", "INSERT INTO u VALUES (2)", "INSERT INTO main.t VALUES (3)")
        (piece,) = reader.plan_changes(start, reader.position())
        found = messages(reader.read_changes(piece))
    assert [(message.namespace, message.data) for message in found] == [(f"{name}.t", {"id": 1})]
    everything = read(mariadb.url(), start)
    assert {message.namespace for message in everything} == {f"{name}.t", f"{name}.u", "main.t"}


def test_rows_without_all_columns_are_refused(mariadb: MariaDbServer, database: str) -> None:
    run(database, "CREATE TABLE t(id int PRIMARY KEY, a int)", "INSERT INTO t VALUES (1, 1)")
    start = position_of(database)
    with setting(mariadb, "binlog_row_image", "MINIMAL"), closing(MysqlReaderOptions(url=database).open()) as reader:  # type: ignore[arg-type]
        run(database, "UPDATE t SET a = 2")
        with pytest.raises(TailraceError, match="binlog_row_image is MINIMAL"):
            reader.install(reader.tables())
    with pytest.raises(TailraceError, match="without all of their columns") as caught:
        read(database, start)
    assert "binlog_row_image" in caught.value.hint


def test_statements_are_refused(database: str) -> None:
    run(database, "CREATE TABLE t(id int PRIMARY KEY)")
    start = position_of(database)
    run(database, "SET SESSION binlog_format = 'STATEMENT'", "INSERT INTO t VALUES (1)")
    with pytest.raises(TailraceError, match="is a statement and not rows") as caught:
        read(database, start)
    assert "binlog_format" in caught.value.hint


def test_a_log_that_is_gone(mariadb: MariaDbServer, database: str) -> None:
    """Removed, or begun anew under the same name: never taken for what it was."""
    run(database, "CREATE TABLE t(id int PRIMARY KEY)")
    start = position_of(database)
    mariadb.run("FLUSH BINARY LOGS")
    end = position_of(database)
    mariadb.purge_binary_logs(end["file"])
    with pytest.raises(TailraceError, match=r"removed .*; the oldest that it has is") as caught:
        read(database, start)
    assert caught.value.code == "source.position_lost"
    mariadb.run("RESET MASTER")
    with closing(MysqlReaderOptions(url=database).open()) as reader:  # type: ignore[arg-type]
        start = reader.position()
        run(database, "INSERT INTO t VALUES (1)")
        (piece,) = reader.plan_changes(start, reader.position())
        assert len(messages(reader.read_changes(piece))) == 1
        reached = reader.reached()
    assert reached is not None
    mariadb.run("RESET MASTER")
    run(database, *[f"REPLACE INTO t VALUES ({number})" for number in range(50)])
    run(database, "INSERT INTO t VALUES (99)")
    with pytest.raises(TailraceError, match="reset") as caught:
        read(database, reached)
    assert caught.value.code == "source.position_lost"
    mariadb.run("RESET MASTER")
    with pytest.raises(TailraceError) as caught:
        read(database, reached)
    assert caught.value.code == "source.position_lost"


def test_a_huge_transaction(database: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is read in one piece, whole, but never held whole; the next piece goes on behind it."""
    monkeypatch.setattr(changes, "CHANGES_MAX", 1000)
    run(database, "CREATE TABLE t(id int PRIMARY KEY, note text)")
    start = position_of(database)
    rows, size = 50_000, 1000
    run(database, f"INSERT INTO t SELECT seq, repeat('x', {size}) FROM seq_1_to_{rows}")
    run(database, "INSERT INTO t VALUES (0, 'last')")
    with closing(MysqlReaderOptions(url=database).open()) as reader:  # type: ignore[arg-type]
        (piece,) = reader.plan_changes(start, reader.position())
        count = 0
        tracemalloc.start()
        for batch in reader.read_changes(piece):
            assert len(batch) <= 20_000
            count += len(batch)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert count == rows
        assert peak < rows * size // 2
        reached = reader.reached()
        assert reached is not None
        assert reached["seq"] == rows
        assert [message.data for message in read(database, reached)] == [{"id": 0, "note": "last"}]


@pytest.mark.crash
def test_the_server_is_killed_and_comes_back(own_server: MariaDbServer) -> None:
    """What was committed is told once, whatever file it is in."""
    server = own_server
    server.run("CREATE DATABASE d", "CREATE TABLE d.t(id int PRIMARY KEY)")
    start = position_of(server.url("d"))
    server.run("INSERT INTO d.t VALUES (1)")
    server.kill()
    with pytest.raises(TailraceError) as caught:
        position_of(server.url("d"))
    assert caught.value.code == "source.unreachable"
    server.start()
    server.run("INSERT INTO d.t VALUES (2)", "FLUSH BINARY LOGS", "INSERT INTO d.t VALUES (3)")
    assert [message.data for message in read(server.url("d"), start)] == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_a_place_under_a_lock_is_the_same(mariadb: MariaDbServer) -> None:
    """MySQL has no place that belongs to a view, so the log's end is looked up while nobody can commit."""
    with closing(mariadb.connect()) as connection:
        mariadb.run("FLUSH BINARY LOGS")
        assert place._under_lock(connection) == place.status(connection) == place.current(connection, is_settled=True)
        mariadb.run("FLUSH BINARY LOGS")

"""The slot: nothing is forgotten too early, and what is lost is told."""

from __future__ import annotations

from contextlib import closing

import pytest

from tailrace.adaptor.postgres.options import PostgresReaderOptions
from tailrace.errors import TailraceError
from tests.adaptor.contract import messages
from tests.adaptor.postgres.databases import ask, connected, run
from tests.servers.postgres import PostgresServer

CONFIRMED = "SELECT (confirmed_flush_lsn - '0/0')::int8 FROM pg_replication_slots WHERE slot_name = %s"


def options(database: str, name: str = "") -> PostgresReaderOptions:
    slot = name or f"s_{database.rpartition('/')[2]}"
    return PostgresReaderOptions(url=database, slot=slot)  # type: ignore[arg-type]


def test_reading_alone_forgets_nothing(database: str) -> None:
    run(database, "CREATE TABLE t(id int PRIMARY KEY)")
    slot = options(database).slot_name
    with closing(options(database).open()) as reader:
        reader.install(reader.tables())
        start = reader.position()
        reader.copied()
        run(database, "INSERT INTO t VALUES (1)")
        (before,) = ask(database, CONFIRMED, (slot,))
        pieces = reader.plan_changes(start, reader.position())
        for _ in range(2):
            assert len(messages(batch for piece in pieces for batch in reader.read_changes(piece))) == 1
        assert ask(database, CONFIRMED, (slot,)) == [before]
        reader.forget({**start, **(reader.reached() or {})})
        assert ask(database, CONFIRMED, (slot,)) > [before]
        assert reader.plan_changes({**start, **(reader.reached() or {})}, reader.position()) == []


def test_a_copy_is_that_of_the_slot(database: str) -> None:
    """What is written after the slot was made comes as changes only, until the copy is done."""
    run(database, "CREATE TABLE t(a int)", "INSERT INTO t VALUES (1), (2)")
    with closing(options(database).open()) as reader, closing(options(database).open()) as task:
        (table,) = reader.tables()
        reader.install([table])
        start = reader.position()
        plan = reader.plan_copy(table)
        run(database, "INSERT INTO t VALUES (3)", "DELETE FROM t WHERE a = 1")
        assert reader.position() == start
        copied = messages(batch for piece in plan for batch in task.read_copy("public.t", piece))
        assert [(message.data or {})["a"] for message in copied] == [1, 2]
        reader.copied()
        changed = [
            batch for piece in reader.plan_changes(start, reader.position()) for batch in task.read_changes(piece)
        ]
        assert [(message.data or {})["a"] for message in messages(changed)] == [3]


def test_after_a_restart_the_rest_is_copied_as_it_is(database: str) -> None:
    run(database, "CREATE TABLE t(id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
    with closing(options(database).open()) as reader:
        (table,) = reader.tables()
        reader.install([table])
        start = reader.position()
        plan = reader.plan_copy(table)
    run(database, "INSERT INTO t VALUES (2)")
    with closing(options(database).open()) as reader:
        copied = messages(batch for piece in plan for batch in reader.read_copy("public.t", piece))
        assert [(message.data or {})["id"] for message in copied] == [1, 2]
        pieces = reader.plan_changes(start, reader.position())
        assert len(messages(batch for piece in pieces for batch in reader.read_changes(piece))) == 1


def test_a_slot_that_is_gone(database: str) -> None:
    run(database, "CREATE TABLE t(id int PRIMARY KEY)")
    with closing(options(database).open()) as reader:
        reader.install(reader.tables())
        start = reader.position()
        reader.copied()
        run(database, "INSERT INTO t VALUES (1)", f"SELECT pg_drop_replication_slot('{options(database).slot_name}')")
        with pytest.raises(TailraceError, match=r"is gone.*slot drop PIPELINE.yml") as lost:
            reader.plan_changes(start, reader.position())
        assert lost.value.code == "source.position_lost"


def test_a_slot_that_somebody_else_has_read(database: str) -> None:
    run(database, "CREATE TABLE t(id int PRIMARY KEY)")
    with closing(options(database).open()) as reader:
        reader.install(reader.tables())
        start = reader.position()
        reader.copied()
        run(database, "INSERT INTO t VALUES (1)")
        consume = "SELECT pg_replication_slot_advance(%s, pg_current_wal_lsn())"
        ask(database, consume, (options(database).slot_name,))
        run(database, "INSERT INTO t VALUES (2)")
        with pytest.raises(TailraceError, match="does something else use it") as lost:
            reader.plan_changes(start, reader.position())
        assert lost.value.code == "source.position_lost"


def test_a_slot_that_the_server_gave_up() -> None:
    server = PostgresServer(settings={"max_slot_wal_keep_size": "1MB", "min_wal_size": "32MB", "max_wal_size": "32MB"})
    server.start()
    try:
        run(server.url(), "CREATE TABLE t(id int PRIMARY KEY, filler text)")
        with closing(options(server.url(), "given_up").open()) as reader:
            reader.install(reader.tables())
            start = reader.position()
            reader.copied()
            for number in range(4):
                fill = f"INSERT INTO t SELECT g, repeat('x', 500) FROM generate_series({number}0000, {number}9999) g"
                run(server.url(), fill, "SELECT pg_switch_wal()", "CHECKPOINT")
            with pytest.raises(TailraceError, match="invalidated") as lost:
                reader.plan_changes(start, reader.position())
            assert lost.value.code == "source.position_lost"
        found = {check.what: check for check in options(server.url(), "given_up").probe()}
        assert not found["slot given_up"].ok
    finally:
        server.remove()


def test_doctor_sees_what_is_missing() -> None:
    server = PostgresServer(settings={"wal_level": "replica"})
    server.start()
    try:
        run(server.url(), "CREATE ROLE poor LOGIN PASSWORD 'x'", "CREATE TABLE nokey(a serial)")
        url = server.url().replace("postgres:canary-9f4e", "poor:x")
        bad = {check.what: check.cure for check in options(url).probe() if not check.ok}
        assert "wal_level = logical" in bad["changes can be decoded"]
        assert "REPLICATION" in bad["role may replicate"]
        told = {check.what: check.found for check in options(url).probe()}
        assert "public.nokey" in told["updates and deletes"]
        assert "public.nokey_a_seq" in told["sequences"]
        with closing(options(server.url()).open()) as reader, pytest.raises(TailraceError, match="wal_level"):
            reader.install(reader.tables())
    finally:
        server.remove()


def test_a_server_that_does_not_answer() -> None:
    nobody = PostgresReaderOptions(url="postgresql://nobody:sesame81@127.0.0.1:1/none")  # type: ignore[arg-type]
    with pytest.raises(TailraceError, match=r"127\.0\.0\.1:1/none") as unreachable, closing(nobody.open()) as reader:
        reader.tables()
    assert unreachable.value.code == "source.unreachable"
    assert "sesame81" not in str(unreachable.value)
    assert not nobody.probe()[0].ok


def test_the_end_of_the_log_is_the_end_of_a_record(database: str) -> None:
    """Although a record that nobody has committed yet is only in part on disk: asking the slot up to there is answered
    at once, and not when the server happens to write on."""
    asked = options(database)
    run(database, "CREATE TABLE t (id int PRIMARY KEY, v text)")
    with closing(asked.open()) as reader, connected(database) as other, connected(database) as asking:
        reader.install(reader.tables())
        reader.copied()
        start = reader.position()
        run(database, "INSERT INTO t VALUES (1, 'seen')")
        other.execute("INSERT INTO t SELECT g, repeat('x', 1000) FROM generate_series(2, 2000) g")
        end = reader.position()
        asking.execute("SET statement_timeout = '5s'")
        peek = "pg_logical_slot_peek_binary_changes(%s, '0/0'::pg_lsn + %s::numeric, NULL, %s, '1', %s, %s)"
        parameters = (asked.slot_name, end["lsn"], "proto_version", "publication_names", asked.slot_name)
        (told,) = asking.execute(f"SELECT count(*) FROM {peek}", parameters).fetchone() or (0,)
        assert told >= 3  # begin, insert, commit
        assert reader.plan_changes(start, end)

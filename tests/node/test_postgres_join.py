"""Newcomers from and to PostgreSQL: they get all there is, once, whatever happens meanwhile."""

from __future__ import annotations

import threading
import uuid
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tailrace.errors import TailraceError
from tailrace.log.batch import decode_body
from tailrace.relay.applier import State
from tailrace.relay.join import Joins
from tailrace.relay.request import Join
from tests.node.pgshops import PgShop
from tests.node.shops import Shop, settle
from tests.node.test_postgres_store import NewDatabase, agree, new_database, postgres, stack
from tests.relay.nodes import wait_for, wait_until
from tests.servers.postgres import PostgresServer

__all__ = ["new_database", "postgres", "stack"]  # fixtures

CLUSTER = str(uuid.UUID(int=9))
SOME = "INSERT INTO t SELECT value, 'old' FROM generate_series(1, 1000) AS value"
SOME_OF_SQLITE = """INSERT INTO t WITH RECURSIVE n(value) AS
    (SELECT 1 UNION ALL SELECT value + 1 FROM n WHERE value < 1000) SELECT value, 'old' FROM n"""


@pytest.fixture
def a(new_database: NewDatabase, stack: ExitStack, tmp_path: Path) -> PgShop:
    """A PostgreSQL node that had rows before it was one, and some that came since."""
    url = new_database()
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE SCHEMA main")
        connection.execute("CREATE TABLE main.t(id bigint PRIMARY KEY, word text)")
        connection.execute("SET search_path = main")
        connection.execute(SOME.encode())
        connection.execute("ANALYZE t")
    shop = stack.enter_context(PgShop(tmp_path / "a", CLUSTER, url, piece_rows=100))
    shop.run("INSERT INTO t VALUES (-1, 'new')", "UPDATE t SET word = 'changed' WHERE id = 5")
    shop.turn()
    return shop


def newcomer(kind: str, stack: ExitStack, directory: Path, new_database: NewDatabase) -> Shop:
    if kind == "sqlite":
        return stack.enter_context(Shop(directory, None))
    return stack.enter_context(PgShop(directory, None, new_database(), tables="SELECT 1"))


@pytest.mark.parametrize("kind", ["sqlite", "postgres"])
def test_a_newcomer_gets_all(a: PgShop, new_database: NewDatabase, stack: ExitStack, tmp_path: Path, kind: str) -> None:
    b = newcomer(kind, stack, tmp_path / "b", new_database)
    wait_until(b.join(a), State.FOLLOW)
    a.follow(b)
    settle([a, b])
    assert b.rows() == a.rows()
    assert len(b.rows()) == 1001
    assert all(session.is_fetched for session in a.joins._sessions.values()), "no view is kept open"
    a.run("DELETE FROM t WHERE id = 3", "INSERT INTO t VALUES (5000, 'later')")
    b.run("UPDATE t SET id = 6000 WHERE id = 7", "UPDATE t SET word = 'of b' WHERE id = 5")
    settle([a, b])
    agree([a, b])
    assert {(5000, "later"), (6000, "old"), (5, "of b")} <= set(a.rows())


def test_a_newcomer_of_a_sqlite_node(stack: ExitStack, tmp_path: Path, new_database: NewDatabase) -> None:
    """Its table is made, with its key."""
    a = stack.enter_context(Shop(tmp_path / "a", CLUSTER, piece_rows=100))
    a.run(SOME_OF_SQLITE)
    a.turn()
    b = newcomer("postgres", stack, tmp_path / "b", new_database)
    wait_until(b.join(a), State.FOLLOW)
    a.follow(b)
    settle([a, b])
    assert b.rows() == a.rows()
    assert len(b.rows()) == 1000
    b.run("INSERT INTO t VALUES (1, 'over') ON CONFLICT (id) DO UPDATE SET word = excluded.word")
    settle([a, b])
    agree([a, b])
    assert (1, "over") in a.rows()


def test_rows_of_its_own_are_not_lost(a: PgShop, new_database: NewDatabase, stack: ExitStack, tmp_path: Path) -> None:
    """Unless it is asked for: then they are replaced, and what happened to them is no news."""
    b = stack.enter_context(PgShop(tmp_path / "b", None, new_database()))
    b.run("INSERT INTO t VALUES (7777, 'of another life')")
    applier = b.join(a)
    wait_until(applier, State.STOPPED)
    assert applier.progress.error is not None
    assert applier.progress.error.code == "relay.not_empty"
    assert b.rows() == [(7777, "of another life")]
    b.store._replaces = True
    wait_until(b.join(a), State.FOLLOW)
    a.follow(b)
    settle([a, b])
    agree([a, b])
    assert (7777, "of another life") not in a.rows()


def test_what_is_written_all_the_time(a: PgShop, new_database: NewDatabase, stack: ExitStack, tmp_path: Path) -> None:
    """Nothing is lost and nothing comes twice, whichever moment the view is of."""
    over = threading.Event()

    def write() -> None:
        number = 10_000
        with a.connect() as connection:
            while not over.is_set():
                number += 1
                with connection.transaction():
                    connection.execute(f"INSERT INTO t VALUES ({number}, 'meanwhile')".encode())
                    connection.execute(b"UPDATE t SET word = word || '+' WHERE id = 1")

    def tend() -> None:
        while not over.is_set():
            a.turn()

    threads = [threading.Thread(target=write), threading.Thread(target=tend)]
    for thread in threads:
        thread.start()
    b = newcomer("postgres", stack, tmp_path / "b", new_database)
    wait_until(b.join(a), State.FOLLOW)
    over.set()
    for thread in threads:
        thread.join()
    settle([a, b])
    agree([a, b])
    (words,) = (word for id_, word in b.rows() if id_ == 1)
    assert words.count("+") == sum(word == "meanwhile" for _, word in b.rows()) > 0


def test_what_was_not_merged_yet_is_in_the_view(
    a: PgShop, new_database: NewDatabase, stack: ExitStack, tmp_path: Path
) -> None:
    """Messages that the source has in its log and not in its database, and what its users have written since."""
    b = newcomer("sqlite", stack, tmp_path / "b", new_database)
    wait_until(b.join(a), State.FOLLOW)
    a.follow(b)
    settle([a, b])
    b.run("UPDATE t SET word = 'older, of b' WHERE id = 20", "UPDATE t SET word = 'of b' WHERE id = 21")
    b.store.capture()
    wait_for(lambda: b.journal.vclock <= a.journal.vclock)
    a.run("UPDATE t SET word = 'newer, of a' WHERE id = 20")
    c = newcomer("postgres", stack, tmp_path / "c", new_database)
    wait_until(c.join(a), State.FOLLOW)
    assert {(20, "newer, of a"), (21, "of b")} <= set(c.rows())
    settle([a, b, c])
    agree([a, b, c])


def test_a_view_does_not_change(a: PgShop) -> None:
    """Its rows are those of its moment, as often as they are asked for, until it ends; its session is gone then."""
    joined = a.joins.begin(Join(node=77))
    first = [frames(a.joins, joined.session, number) for number in range(joined.chunks)]
    a.run("UPDATE t SET word = 'changed'", "DELETE FROM t WHERE id > 500", "VACUUM t")
    a.turn()
    with pytest.raises(psycopg.errors.LockNotAvailable):  # no snapshot survives that
        a.run("SET lock_timeout = 100", "TRUNCATE t")
    assert [frames(a.joins, joined.session, number) for number in range(joined.chunks)] == first
    a.joins.end(joined.session)
    a.run("SET lock_timeout = 10000", "VACUUM FULL t")
    with pytest.raises(TailraceError, match="not known here"):
        frames(a.joins, joined.session, 0)


def test_a_view_that_is_lost(stack: ExitStack, tmp_path: Path) -> None:
    """A server that was restarted has no snapshot any more; its rows of now are never taken for those of then."""
    server = PostgresServer()
    stack.callback(server.remove)
    server.start()
    a = stack.enter_context(PgShop(tmp_path / "a", CLUSTER, server.create("one")))
    a.run("INSERT INTO t VALUES (1, 'x')")
    joined = a.joins.begin(Join(node=77))
    server.stop()
    server.start()
    for number in range(joined.chunks):
        with pytest.raises(TailraceError) as lost:
            frames(a.joins, joined.session, number)
        assert lost.value.code == "relay.join_lost"


def test_a_join_that_nobody_goes_on_with(a: PgShop, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its transaction must not stay open."""
    held = "SELECT count(*) FROM pg_stat_activity WHERE state = 'idle in transaction' AND datname = current_database()"
    a.joins.begin(Join(node=77))
    a.joins.forget_old()
    assert a.rows(held) == [(1,)]
    a.joins.begin(Join(node=77))  # it begins again, so the first one is over
    wait_for(lambda: a.rows(held) == [(1,)])
    monkeypatch.setattr("tailrace.relay.join.KEEP_S", -1.0)
    a.joins.forget_old()
    wait_for(lambda: a.rows(held) == [(0,)])


def frames(joins: Joins, session: str, number: int) -> list[Any]:
    return [decode_body(body).column("data").to_pylist() for group in joins.chunk(session, number) for _, body in group]

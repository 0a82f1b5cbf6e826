"""PostgreSQL databases that nodes write, beside SQLite: what one has, all have, and nothing goes round in circles."""

from __future__ import annotations

import random
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tailrace.adaptor.postgres.nodewriter import PostgresNodeWriter
from tailrace.errors import TailraceError
from tailrace.message import NodeId, Offset
from tailrace.relay.applier import State
from tests.adaptor.postgres.conftest import database, postgres
from tests.node.pgshops import PgShop
from tests.node.shops import Shop, settle
from tests.relay.nodes import wait_for, wait_until
from tests.servers.postgres import PostgresServer, installations

__all__ = ["database", "postgres"]  # fixtures

CLUSTER = str(uuid.UUID(int=8))
VERSIONS = "SELECT namespace, key, at, origin, lsn FROM tailrace_version ORDER BY namespace, key"
_NUMBERS = count()
NewDatabase = Callable[[], str]


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def new_database(postgres: PostgresServer) -> Iterator[NewDatabase]:
    """Gives the address of another empty database."""
    with ExitStack() as made:

        def new() -> str:
            name = f"store_{next(_NUMBERS)}"
            made.callback(postgres.drop, name)
            return postgres.create(name)

        yield new


@pytest.fixture
def pair(new_database: NewDatabase, stack: ExitStack, tmp_path: Path) -> tuple[Shop, PgShop]:
    """A SQLite node and a PostgreSQL node that follow each other."""
    a = stack.enter_context(Shop(tmp_path / "a", CLUSTER))
    b = stack.enter_context(PgShop(tmp_path / "b", CLUSTER, new_database()))
    a.follow(b)
    b.follow(a)
    return a, b


@pytest.fixture
def shops(pair: tuple[Shop, PgShop], new_database: NewDatabase, stack: ExitStack, tmp_path: Path) -> list[Shop]:
    """One of SQLite, two of PostgreSQL, each of which follows all."""
    c = stack.enter_context(PgShop(tmp_path / "c", CLUSTER, new_database()))
    for shop in pair:
        shop.follow(c)
        c.follow(shop)
    return [*pair, c]


def test_both_write(pair: tuple[Shop, PgShop]) -> None:
    """Deletes and moves come with the key alone."""
    a, b = pair
    for number, shop in enumerate(pair):
        shop.run(f"INSERT INTO t VALUES ({number}, 'from {number}'), ({number + 10}, 'too')")
    settle([a, b])
    assert a.rows() == b.rows() == [(0, "from 0"), (1, "from 1"), (10, "too"), (11, "too")]
    b.run("UPDATE t SET word = 'changed' WHERE id = 0", "DELETE FROM t WHERE id = 10")
    b.run("UPDATE t SET id = 12 WHERE id = 11")
    a.run("UPDATE t SET id = 2 WHERE id = 1")
    settle([a, b])
    assert a.rows() == b.rows() == [(0, "changed"), (2, "from 1"), (12, "too")]


def test_what_came_from_elsewhere_is_not_captured_again(pair: tuple[Shop, PgShop]) -> None:
    a, b = pair
    a.run("INSERT INTO t VALUES (1, 'once')")
    settle([a, b])
    known = a.journal.vclock
    assert known.total == 1
    for _ in range(3):
        settle([a, b])
    assert a.journal.vclock == b.journal.vclock == known


def test_what_other_origins_write_is_captured(pair: tuple[Shop, PgShop]) -> None:
    """As PostgreSQL's own replication does: for the node that is a user like any other."""
    a, b = pair
    with b.connect() as connection:
        connection.execute("SELECT pg_replication_origin_create('another')")
        try:
            connection.execute("SELECT pg_replication_origin_session_setup('another')")
            connection.execute("INSERT INTO t VALUES (1, 'replicated')")
            connection.execute("SELECT pg_replication_origin_session_reset()")
        finally:
            connection.execute("SELECT pg_replication_origin_drop('another')")
    settle([a, b])
    assert a.rows() == [(1, "replicated")]


def test_a_store_that_comes_back(pair: tuple[Shop, PgShop]) -> None:
    """What is in the journal and not in the database is applied; what is in the database and not in the journal is
    captured."""
    a, b = pair
    a.run("INSERT INTO t VALUES (1, 'a')")
    a.store.capture()
    wait_for(lambda: b.journal.vclock[NodeId(a.id)] == 1)
    b.run("INSERT INTO t VALUES (2, 'b')")
    b.store.close()
    b.open_store()
    settle([a, b])
    assert a.rows() == b.rows() == [(1, "a"), (2, "b")]


def test_a_crash_before_the_commit(pair: tuple[Shop, PgShop], monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is there, and everything the next time; a crash after it leaves it there once."""
    a, b = pair
    a.run("INSERT INTO t VALUES (1, 'a')")
    a.store.capture()
    wait_for(lambda: b.journal.vclock[NodeId(a.id)] == 1)
    commit = PostgresNodeWriter.commit

    def cut_before(writer: PostgresNodeWriter, upto: Offset) -> None:
        writer._begin().close()
        commit(writer, upto)

    def cut_after(writer: PostgresNodeWriter, upto: Offset) -> None:
        commit(writer, upto)
        raise TailraceError("destination.unreachable", "the cable is pulled", hint="")

    for crash, there in ((cut_before, []), (cut_after, [(1, "a")])):
        monkeypatch.setattr(PostgresNodeWriter, "commit", crash)
        with pytest.raises(TailraceError):
            b.store.apply()
        assert b.rows() == there
    monkeypatch.undo()
    b.store.close()
    b.open_store()
    settle([a, b])
    assert a.rows() == b.rows() == [(1, "a")]
    assert b.journal.vclock.total == 1


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in (1, 2))])
def test_all_write_the_same_rows_and_agree_in_the_end(shops: list[Shop], seed: int) -> None:
    """Inserts, updates, deletes and rows that move to another key, by all at once, seen by each in another order."""
    chosen = random.Random(seed)
    for number in range(50):
        shop = chosen.choice(shops)
        shop.run(*change(chosen, f"row {number}"))
        if chosen.random() < 0.5:
            chosen.choice(shops).store.capture()
        if chosen.random() < 0.5:
            chosen.choice(shops).turn()
    settle(shops)
    agree(shops)


def change(chosen: random.Random, word: str, rows: int = 6) -> list[str]:
    """What one user does, in words of both databases."""
    id_, other = chosen.randrange(rows), chosen.randrange(rows)
    return chosen.choice(
        [
            [f"INSERT INTO t VALUES ({id_}, '{word}') ON CONFLICT (id) DO UPDATE SET word = excluded.word"],
            [f"UPDATE t SET word = '{word}' WHERE id = {id_}"],
            [f"DELETE FROM t WHERE id = {id_}"],
            [f"DELETE FROM t WHERE id = {other} AND {other} <> {id_}", f"UPDATE t SET id = {other} WHERE id = {id_}"],
        ]
    )


def agree(shops: list[Shop]) -> None:
    assert [shop.rows() for shop in shops] == [shops[0].rows()] * len(shops)
    assert [shop.rows(VERSIONS) for shop in shops] == [shops[0].rows(VERSIONS)] * len(shops)


@pytest.mark.long
def test_users_write_while_nodes_apply(shops: list[Shop]) -> None:
    """Several users of each server, in transactions of several rows, while all nodes work."""
    over = threading.Event()
    failures: list[Exception] = []

    def write(shop: PgShop, seed: int) -> None:
        chosen = random.Random(seed)
        while not over.wait(chosen.random() / 50):
            with shop.connect() as connection, suppress(psycopg.errors.UniqueViolation), connection.transaction():
                for statement in change(chosen, f"{shop.directory.name} {chosen.random()}", rows=20):
                    connection.execute(statement.encode())  # another user may have moved a row to that key

    def tend(shop: Shop, seed: int) -> None:
        """Two copies of SQLite in one process must not open a file at the same time, so its user is here."""
        chosen = random.Random(seed)
        while not over.is_set():
            try:
                if not isinstance(shop, PgShop):
                    shop.run(*change(chosen, f"a {chosen.random()}", rows=20))
                shop.turn()
            except TailraceError as error:
                if "lock timeout" not in error.what:  # with it the next turn tries again
                    raise

    def run(work: Callable[..., None], *given: Any) -> None:
        try:
            work(*given)
        except Exception as error:
            failures.append(error)
            raise

    works: list[tuple[Callable[..., None], Shop]] = [(tend, shop) for shop in shops]
    works += [(write, shop) for shop in shops for _ in range(2) if isinstance(shop, PgShop)]
    threads = [threading.Thread(target=run, args=(*work, number)) for number, work in enumerate(works)]
    for thread in threads:
        thread.start()
    wait_for(lambda: shops[0].journal.vclock.total > 300 or bool(failures), 60)
    over.set()
    for thread in threads:
        thread.join()
    assert not failures
    settle(shops)
    agree(shops)


def test_a_user_is_never_overwritten_by_what_is_older(pair: tuple[Shop, PgShop]) -> None:
    """What they have committed before the rows are locked is noticed, though it was not captured."""
    a, b = pair
    a.run("INSERT INTO t VALUES (1, 'from a'), (2, 'from a')")
    a.store.capture()
    wait_for(lambda: b.journal.vclock[NodeId(a.id)] == 2)
    b.run("INSERT INTO t VALUES (1, 'by a user of b')")
    b.store.apply()
    assert b.rows() == [(1, "by a user of b"), (2, "from a")]
    settle([a, b])
    assert a.rows() == b.rows() == [(1, "by a user of b"), (2, "from a")]


def test_a_user_has_a_lock(pair: tuple[Shop, PgShop]) -> None:
    """The node gives way; when the user is done it goes on, and knows what they did."""
    a, b = pair
    b.run("INSERT INTO t VALUES (1, 'old')")
    settle([a, b])
    a.run("UPDATE t SET word = 'from a' WHERE id = 1")
    a.store.capture()
    wait_for(lambda: b.journal.vclock[NodeId(a.id)] == 1)
    with b.connect() as connection, connection.transaction():
        connection.execute("UPDATE t SET word = 'by a user of b' WHERE id = 1")
        with pytest.raises(TailraceError, match="lock timeout") as refused:
            b.store.apply()
        assert refused.value.code == "destination.unreachable"
    b.store.apply()
    assert b.rows() == [(1, "by a user of b")]
    settle([a, b])
    agree([a, b])


def test_truncate_is_refused(pair: tuple[Shop, PgShop]) -> None:
    """The rows would be gone here alone."""
    a, b = pair
    b.run("INSERT INTO t VALUES (1, 'x')")
    with pytest.raises(psycopg.errors.FeatureNotSupported, match="cannot be replicated"):
        b.run("TRUNCATE t")
    settle([a, b])
    agree([a, b])


def test_closed_to_users(pair: tuple[Shop, PgShop]) -> None:
    """Only the node writes then, whichever rights its users have."""
    a, b = pair
    b.run("CREATE TABLE u(id int PRIMARY KEY)")
    b.store.apply()
    b.store.close_to_users()
    for statement in ("INSERT INTO t VALUES (1, 'x')", "DELETE FROM u", "UPDATE t SET word = 'y'"):
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction, match="read-only now"):
            b.run(statement)
    a.run("INSERT INTO t VALUES (2, 'from a')")
    settle([a, b])
    assert b.rows() == [(2, "from a")]
    b.store.open_to_users()
    b.run("INSERT INTO t VALUES (1, 'x')", "INSERT INTO u VALUES (1)")
    b.store.close_to_users()
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        b.run("DELETE FROM t")


def test_a_schema_that_sqlite_does_not_have(pair: tuple[Shop, PgShop]) -> None:
    """Its table would have another name there; that is said, before anything is written."""
    a, b = pair
    b.run("CREATE TABLE public.other(id int PRIMARY KEY)")
    b.store.close()
    b.open_store()
    b.run("INSERT INTO public.other VALUES (1)")
    b.turn()
    wait_for(lambda: b.journal.vclock <= a.journal.vclock)
    with pytest.raises(TailraceError, match=r"public.other would be table 'other' here"):
        a.store.apply()
    assert a.rows("SELECT name FROM sqlite_master WHERE name = 'other'") == []


@pytest.mark.parametrize("version", ["15", "16"])
@pytest.mark.long
def test_older_servers(stack: ExitStack, tmp_path: Path, version: str) -> None:
    """They tell origins in the same way."""
    if version not in installations():
        pytest.skip(f"PostgreSQL {version} is not installed")
    server = PostgresServer(version)
    stack.callback(server.remove)
    server.start()
    a = stack.enter_context(PgShop(tmp_path / "a", CLUSTER, server.create("one")))
    b = stack.enter_context(PgShop(tmp_path / "b", CLUSTER, server.create("two")))
    a.follow(b)
    b.follow(a)
    a.run("INSERT INTO t VALUES (1, 'a'), (2, 'a')")
    b.run("INSERT INTO t VALUES (3, 'b')")
    settle([a, b])
    b.run("UPDATE t SET id = 4 WHERE id = 1", "DELETE FROM t WHERE id = 2")
    settle([a, b])
    agree([a, b])
    assert a.rows() == [(3, "b"), (4, "a")]
    assert a.journal.vclock.total == 5
    c = stack.enter_context(PgShop(tmp_path / "c", None, server.create("three"), tables="SELECT 1"))
    wait_until(c.join(a), State.FOLLOW)
    assert c.rows() == a.rows()


KEYS = [
    ("bigint", ["1", "-5", "9007199254740993"]),
    ("text", ["'a'", "'Ä \"quoted\"'", "''"]),
    ("uuid", ["'6b3c1c2e-0f9d-4c1d-9a55-0d6f5f2f9a11'", "'00000000-0000-0000-0000-000000000001'"]),
    ("timestamp", ["'2024-02-29 12:00:00'", "'1999-12-31 23:59:59.123456'"]),
    ("timestamptz", ["'2024-02-29 12:00:00+02'", "'1999-12-31 23:59:59.5+00'"]),
    ("date", ["'2024-02-29'", "'0001-01-01'"]),
    ("numeric(10,2)", ["1.50", "-0.01"]),
    ("boolean", ["true", "false"]),
    ("bytea", ["'\\x00ff'", "'\\x'"]),
]


@pytest.mark.parametrize(("kind", "keys"), KEYS, ids=[kind for kind, _ in KEYS])
def test_keys_of_many_types(
    stack: ExitStack, tmp_path: Path, new_database: NewDatabase, kind: str, keys: list[str]
) -> None:
    """A row has one key in all stores: those who write it in SQLite change what was written in PostgreSQL."""
    url = new_database()
    table = f"CREATE TABLE k(id {kind}, n int, word text, PRIMARY KEY(id, n))"
    b = stack.enter_context(PgShop(tmp_path / "b", CLUSTER, url, tables=table))
    for number, key in enumerate(keys):
        b.run(f"INSERT INTO k VALUES ({key}, {number}, 'first')")
    b.store.capture()
    a = stack.enter_context(Shop(tmp_path / "a", CLUSTER))
    a.follow(b)
    b.follow(a)
    settle([a, b])
    a.store.close()
    a.open_store()  # it has a new table
    a.run("UPDATE k SET word = 'of sqlite' WHERE n = 0")
    settle([a, b])
    b.run("UPDATE k SET word = word || ', of postgres'")
    settle([a, b])
    a.run("DELETE FROM k WHERE n = 1")
    settle([a, b])
    found = "SELECT n, word FROM k ORDER BY n"
    assert a.rows(found) == b.rows(found)
    assert b.rows(found)[0] == (0, "of sqlite, of postgres")
    assert [n for n, _ in b.rows(found)] == [number for number in range(len(keys)) if number != 1]
    assert a.rows(VERSIONS) == b.rows(VERSIONS)
    assert len(a.rows(VERSIONS)) == len(keys)


def test_a_store_that_is_closed_is_written_by_the_node_alone(pair: tuple[Shop, PgShop]) -> None:
    here, there = pair
    there.store.close_to_users()
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction, match="this node is read-only now"):
        there.run("INSERT INTO t VALUES (1, 'no')")
    here.run("INSERT INTO t VALUES (2, 'yes')")
    settle([here, there])
    assert there.rows() == [(2, "yes")]
    there.store.open_to_users()
    there.run("INSERT INTO t VALUES (3, 'again')")
    settle([here, there])
    assert here.rows() == [(2, "yes"), (3, "again")]

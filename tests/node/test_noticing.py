"""Tables and columns that come while nodes run are replicated, with what they had before they were noticed (I9)."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.node.pgshops import PgShop
from tests.node.shops import Shop, settle
from tests.node.test_postgres_store import NewDatabase, database, new_database, postgres
from tests.node.test_serve import NodeProcess, free_ports, node_file
from tests.relay.nodes import wait_for

__all__ = ["database", "new_database", "postgres"]  # fixtures

CLUSTER = str(uuid.UUID(int=8))
LATER = "SELECT * FROM later ORDER BY id"
WIDE = "SELECT id, word, more FROM t ORDER BY id"


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def shops(stack: ExitStack, tmp_path: Path) -> list[Shop]:
    made = [stack.enter_context(Shop(tmp_path / name, CLUSTER)) for name in "ab"]
    for node, other in (made, made[::-1]):
        node.follow(other)
    return made


@pytest.fixture
def pg_shops(new_database: NewDatabase, stack: ExitStack, tmp_path: Path) -> list[Shop]:
    made: list[Shop] = [
        stack.enter_context(PgShop(tmp_path / "a", CLUSTER, new_database())),
        stack.enter_context(Shop(tmp_path / "b", CLUSTER)),
    ]
    for node, other in (made, made[::-1]):
        node.follow(other)
    return made


def test_a_table_with_rows(shops: list[Shop]) -> None:
    a, b = shops
    settle(shops)
    a.run("CREATE TABLE later(id INTEGER PRIMARY KEY, x)", "INSERT INTO later VALUES (1, 'early'), (2, 'gone')")
    a.run("DELETE FROM later WHERE id = 2")
    settle(shops)
    a.run("INSERT INTO later VALUES (3, 'after')")
    settle(shops)
    assert b.rows(LATER) == [(1, "early"), (3, "after")]
    assert a.journal.vclock.total == 2, "each row is told once"


def test_the_node_that_got_the_table_writes_it(shops: list[Shop]) -> None:
    """Its rows came from elsewhere, and are not told again; what its users do is."""
    a, b = shops
    a.run("CREATE TABLE later(id INTEGER PRIMARY KEY, x)", "INSERT INTO later VALUES (1, 'from a'), (2, 'from a')")
    settle(shops)
    b.run("UPDATE later SET x = 'from b' WHERE id = 1", "INSERT INTO later VALUES (3, 'from b')")
    settle(shops)
    assert a.rows(LATER) == b.rows(LATER) == [(1, "from b"), (2, "from a"), (3, "from b")]
    assert a.journal.vclock[a.id] == b.journal.vclock[b.id] == 2


def test_both_make_it(shops: list[Shop]) -> None:
    for shop, word in zip(shops, "ab", strict=True):
        shop.run("CREATE TABLE later(id INTEGER PRIMARY KEY, x)", f"INSERT INTO later VALUES ({ord(word)}, '{word}')")
    settle(shops)
    assert [shop.rows(LATER) for shop in shops] == [[(97, "a"), (98, "b")]] * 2


def test_a_column_that_was_filled(shops: list[Shop]) -> None:
    """Rows that have its default are as they were, and are not told."""
    a, b = shops
    a.run("INSERT INTO t VALUES (1, 'old'), (2, 'old')")
    settle(shops)
    a.run("ALTER TABLE t ADD COLUMN more TEXT DEFAULT 'none'", "UPDATE t SET more = 'new' WHERE id = 1")
    a.run("INSERT INTO t VALUES (3, 'three', 'too')")
    settle(shops)
    a.run("UPDATE t SET more = 'later' WHERE id = 3")
    settle(shops)
    assert b.rows(WIDE) == [(1, "old", "new"), (2, "old", None), (3, "three", "later")]
    assert not b.store.storage.conflicts()
    b.run("UPDATE t SET more = 'from b' WHERE id = 2")
    settle(shops)
    assert a.rows(WIDE)[1] == (2, "old", "from b")


def test_while_the_node_was_away(shops: list[Shop]) -> None:
    a, b = shops
    a.run("INSERT INTO t VALUES (1, 'old')")
    settle(shops)
    a.store.close()
    a.run("CREATE TABLE later(id INTEGER PRIMARY KEY, x)", "INSERT INTO later VALUES (1, 'early')")
    a.run("ALTER TABLE t ADD COLUMN more TEXT", "UPDATE t SET more = 'new'")
    a.open_store()
    settle(shops)
    assert b.rows(LATER) == [(1, "early")]
    assert b.rows(WIDE) == [(1, "old", "new")]


def test_a_table_that_cannot_be_replicated_keeps_nothing_else_waiting(shops: list[Shop]) -> None:
    a, b = shops
    settle(shops)
    a.run("CREATE TABLE bare(x)", "INSERT INTO bare VALUES (1)", "INSERT INTO t VALUES (1, 'one')")
    settle(shops)
    assert b.rows() == [(1, "one")]
    assert [why.code for why in a.store.left_out()] == ["config.invalid"]
    assert b.rows("SELECT name FROM sqlite_master WHERE name = 'bare'") == []


def test_a_newcomer_gets_rows_once(stack: ExitStack, tmp_path: Path) -> None:
    """What its founder had from the beginning has no version, and is not the newcomer's to tell."""
    a = stack.enter_context(Shop(tmp_path / "a", CLUSTER))
    b = stack.enter_context(
        Shop(tmp_path / "b", None, table="CREATE TABLE IF NOT EXISTS other(id INTEGER PRIMARY KEY)")
    )
    a.store.close()
    a.run("INSERT INTO t VALUES (1, 'before'), (2, 'before')")
    a.open_store()
    a.run("CREATE TABLE later(id INTEGER PRIMARY KEY, x)", "INSERT INTO later VALUES (1, 'early')")
    b.join(a)
    wait_for(lambda: b.identity.cluster is not None)
    settle([a, b])
    assert a.rows() == b.rows()
    assert a.rows(LATER) == b.rows(LATER) == [(1, "early")]
    assert b.journal.vclock[b.id] == 0


def test_postgres(pg_shops: list[Shop]) -> None:
    a, b = pg_shops
    settle(pg_shops)
    a.run("CREATE TABLE later(id bigint PRIMARY KEY, x text)", "INSERT INTO later VALUES (1, 'early'), (2, 'gone')")
    a.run("DELETE FROM later WHERE id = 2", "ALTER TABLE t ADD COLUMN more text")
    a.run("INSERT INTO t VALUES (1, 'one', 'more')")

    def has_table() -> bool:
        settle(pg_shops)
        return b.rows("SELECT 1 FROM sqlite_master WHERE name = 'later'") == [(1,)]

    wait_for(has_table)
    a.run("INSERT INTO later VALUES (3, 'after')")
    settle(pg_shops)
    b.run("UPDATE later SET x = 'from b' WHERE id = 1")
    settle(pg_shops)
    assert a.rows(LATER) == b.rows(LATER) == [(1, "from b"), (3, "after")]
    assert b.rows(WIDE) == [(1, "one", "more")]
    assert a.journal.vclock[a.id] == 3


def test_postgres_gets_a_table_and_writes_it(pg_shops: list[Shop]) -> None:
    """Also before it would have looked."""
    a, b = pg_shops
    b.run("CREATE TABLE later(id INTEGER PRIMARY KEY, x TEXT)", "INSERT INTO later VALUES (1, 'from b')")
    settle(pg_shops)
    a.run("UPDATE later SET x = 'from a'", "INSERT INTO later VALUES (2, 'from a')")
    settle(pg_shops)
    assert a.rows(LATER) == b.rows(LATER) == [(1, "from a"), (2, "from a")]
    assert a.journal.vclock[a.id] == 2


def test_postgres_while_the_node_was_away(pg_shops: list[Shop]) -> None:
    a, b = pg_shops
    settle(pg_shops)
    a.store.close()
    a.run("CREATE TABLE later(id bigint PRIMARY KEY, x text)", "INSERT INTO later VALUES (1, 'early')")
    a.open_store()
    settle(pg_shops)
    assert b.rows(LATER) == [(1, "early")]


def test_nodes_at_work(stack: ExitStack, tmp_path: Path) -> None:
    first, second = free_ports(2)
    a = NodeProcess(tmp_path, "a", node_file("a", first, {"b": second}, founder="true"))
    a.run("INSERT INTO t VALUES (1, 'x')")
    stack.enter_context(a)
    b = stack.enter_context(NodeProcess(tmp_path, "b", node_file("b", second, {"a": first})))
    b.follows("a")
    a.follows("b")
    a.run("CREATE TABLE later(id INTEGER PRIMARY KEY, x)", "INSERT INTO later VALUES (1, 'early')")
    a.run("ALTER TABLE t ADD COLUMN more INTEGER", "UPDATE t SET more = 7")
    wait_for(lambda: b.asked("SELECT name FROM sqlite_master WHERE name = 'later'") != [])
    wait_for(lambda: b.asked(LATER) == [(1, "early")] and b.rows() == [(1, "x", 7)])
    b.run("INSERT INTO later VALUES (2, 'from b')")
    wait_for(lambda: a.asked(LATER) == [(1, "early"), (2, "from b")])
    a.run("CREATE TABLE bare(x)")
    wait_for(lambda: "main.bare has no primary key" in a.said())

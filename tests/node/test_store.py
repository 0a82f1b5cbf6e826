"""Databases that several nodes write: what one has, all have, and nothing goes round in circles."""

from __future__ import annotations

import re
import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest

from tailrace.adaptor.sqlite.options import SqliteReaderOptions, SqliteWriterOptions
from tailrace.message import NodeId
from tailrace.node.store import Store
from tests.relay.nodes import TestNode, wait_for

CLUSTER = str(uuid.UUID(int=8))


class Shop(TestNode):
    """A node with a database."""

    __test__ = False

    def __init__(self, directory: Path) -> None:
        super().__init__(directory, CLUSTER)
        self.path = directory / "shop.db"
        self.run("CREATE TABLE IF NOT EXISTS t(id INTEGER PRIMARY KEY, word TEXT)")
        self.open_store()

    def open_store(self) -> None:
        reading = SqliteReaderOptions(path=str(self.path))
        writing = SqliteWriterOptions(path=str(self.path), consumer="node")
        self.store = Store(reading, writing, self.journal, re.compile("."))

    def __exit__(self, *_: object) -> None:
        self.store.close()
        super().__exit__()

    def run(self, *statements: str) -> None:
        with closing(sqlite3.connect(self.path)) as connection, connection:
            for statement in statements:
                connection.execute(statement)

    def rows(self, query: str = "SELECT * FROM t ORDER BY id") -> list[tuple[Any, ...]]:
        with closing(sqlite3.connect(self.path)) as connection:
            return connection.execute(query).fetchall()

    def turn(self) -> None:
        self.store.capture()
        self.store.apply()


@pytest.fixture
def shops(tmp_path: Path) -> Iterator[list[Shop]]:
    with ExitStack() as stack:
        nodes = [stack.enter_context(Shop(tmp_path / name)) for name in "abc"]
        for node in nodes:
            for other in nodes:
                if other is not node:
                    node.follow(other)
        yield nodes


def settle(shops: list[Shop]) -> None:
    """Until everybody has everything."""

    def is_settled() -> bool:
        for shop in shops:
            shop.turn()
        return len({shop.journal.vclock for shop in shops}) == 1 and not any(shop.store.apply() for shop in shops)

    wait_for(is_settled)


def test_what_one_writes_all_have(shops: list[Shop]) -> None:
    for number, shop in enumerate(shops):
        shop.run(f"INSERT INTO t VALUES ({number}, 'from {number}'), ({number + 10}, 'too')")
    settle(shops)
    assert [shop.rows() for shop in shops] == [shops[0].rows()] * 3
    assert len(shops[0].rows()) == 6
    shops[1].run("UPDATE t SET word = 'changed' WHERE id = 0", "DELETE FROM t WHERE id = 12")
    settle(shops)
    for shop in shops:
        assert (0, "changed") in shop.rows()
        assert len(shop.rows()) == 5


def test_what_came_from_elsewhere_is_not_captured_again(shops: list[Shop]) -> None:
    shops[0].run("INSERT INTO t VALUES (1, 'once')")
    settle(shops)
    known = shops[0].journal.vclock
    assert known.total == 1
    for _ in range(3):
        settle(shops)
    assert {shop.journal.vclock for shop in shops} == {known}
    assert shops[1].rows("SELECT count(*) FROM tailrace_changelog") == [(0,)]


def test_both_at_once(shops: list[Shop]) -> None:
    """What the database's own users write beside what is applied is noted, though numbers are left out between."""
    for number in range(20):
        for at, shop in enumerate(shops):
            shop.run(f"INSERT INTO t VALUES ({number * 3 + at}, 'x')")
            shop.turn()
    settle(shops)
    assert [len(shop.rows()) for shop in shops] == [60] * 3
    assert shops[0].journal.vclock.total == 60


def test_a_store_that_comes_back(shops: list[Shop]) -> None:
    """What is in the journal and not in the database is applied; what is in the database and not in the journal is
    captured."""
    a, b, _ = shops
    a.run("INSERT INTO t VALUES (1, 'a')")
    a.store.capture()
    wait_for(lambda: b.journal.vclock[NodeId(a.id)] == 1)
    b.run("INSERT INTO t VALUES (2, 'b')")
    b.store.close()
    b.open_store()
    settle(shops)
    assert a.rows() == b.rows() == [(1, "a"), (2, "b")]

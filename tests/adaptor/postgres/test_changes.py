"""What the stream of changes tells, whatever users do to their tables."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import psycopg
import pytest

from tailrace.adaptor.postgres import changes as changes_module
from tailrace.adaptor.postgres.options import PostgresReaderOptions
from tailrace.adaptor.postgres.reader import PostgresReader
from tailrace.log.batch import key_of
from tailrace.message import Message, Op
from tailrace.source.contract import Position
from tests.adaptor.contract import messages
from tests.adaptor.postgres.databases import ask, run


@dataclass
class Shop:
    """A database whose changes are followed since `install`."""

    url: str
    position: Position = field(default_factory=dict)

    def open(self) -> PostgresReader:
        return PostgresReaderOptions(url=self.url, slot=f"s_{self.url.rpartition('/')[2]}").open()  # type: ignore[arg-type]

    def install(self) -> None:
        with closing(self.open()) as reader:
            reader.install(reader.tables())
            self.position = self.position or reader.position()

    def changes(self) -> list[Message]:
        """What came since the last time, read in one piece and then forgotten."""
        with closing(self.open()) as reader:
            found: list[Message] = []
            for piece in reader.plan_changes(self.position, reader.position()):
                found += messages(reader.read_changes(piece))
                self.position = {**self.position, **(reader.reached() or {})}
            reader.forget(self.position)
        return found


@pytest.fixture
def shop(database: str) -> Iterator[Shop]:
    run(database, "CREATE TABLE t(id int PRIMARY KEY, a int, big text)", "ALTER TABLE t ALTER big SET STORAGE EXTERNAL")
    yield Shop(database)


def rows(found: list[Message]) -> list[tuple[Op, Any]]:
    return [(message.op, message.data) for message in found]


LONG = "x" * 5000


class TestUntouchedLongValues:
    def test_they_are_asked_for(self, shop: Shop) -> None:
        run(shop.url, f"INSERT INTO t VALUES (1, 1, '{LONG}'), (2, 2, '{LONG}')")
        shop.install()
        run(shop.url, "UPDATE t SET a = 10 WHERE id = 1", "UPDATE t SET id = 20 WHERE id = 2")
        first, second = shop.changes()
        assert first.data == {"id": 1, "a": 10, "big": LONG}
        assert second.data == {"id": 20, "a": 2, "big": LONG}
        assert second.before is not None
        assert second.before["id"] == 2

    def test_the_old_row_has_them(self, shop: Shop) -> None:
        run(shop.url, "ALTER TABLE t REPLICA IDENTITY FULL", f"INSERT INTO t VALUES (1, 1, '{LONG}')")
        shop.install()
        run(shop.url, "UPDATE t SET a = 10", "DELETE FROM t")
        updated, deleted = shop.changes()
        assert updated.data == {"id": 1, "a": 10, "big": LONG}
        assert updated.before == {"id": 1, "a": 1, "big": LONG}
        assert deleted.data == {"id": 1, "a": 10, "big": LONG}

    def test_they_are_left_out_when_the_row_is_gone(self, shop: Shop) -> None:
        run(shop.url, f"INSERT INTO t VALUES (1, 1, '{LONG}'), (2, 2, '{LONG}')")
        shop.install()
        run(shop.url, "UPDATE t SET a = a + 1", "DELETE FROM t WHERE id = 1")
        assert rows(shop.changes()) == [
            (Op.UPDATE, {"id": 1, "a": 2}),
            (Op.UPDATE, {"id": 2, "a": 3, "big": LONG}),
            (Op.DELETE, {"id": 1, "a": None, "big": None}),
        ]

    def test_null_and_set_to_null_are_null(self, shop: Shop) -> None:
        run(shop.url, f"INSERT INTO t VALUES (1, 1, NULL), (2, 2, '{LONG}')")
        shop.install()
        run(shop.url, "UPDATE t SET a = 9 WHERE id = 1", "UPDATE t SET big = NULL WHERE id = 2")
        assert [message.data for message in shop.changes()] == [
            {"id": 1, "a": 9, "big": None},
            {"id": 2, "a": 2, "big": None},
        ]


def test_a_table_is_emptied(shop: Shop) -> None:
    shop.install()
    run(shop.url, "INSERT INTO t VALUES (1, 1, 'a')", "TRUNCATE t", "INSERT INTO t VALUES (1, 2, 'b')")
    assert rows(shop.changes()) == [
        (Op.INSERT, {"id": 1, "a": 1, "big": "a"}),
        (Op.COMMAND, {"command": "truncate"}),
        (Op.INSERT, {"id": 1, "a": 2, "big": "b"}),
    ]


def test_columns_change_between_changes(shop: Shop) -> None:
    shop.install()
    run(
        shop.url,
        "INSERT INTO t VALUES (1, 1, 'one')",
        "ALTER TABLE t ADD COLUMN note text",
        "INSERT INTO t VALUES (2, 2, 'two', 'noted')",
        "ALTER TABLE t DROP COLUMN big",
        "INSERT INTO t VALUES (3, 3, 'noted')",
        "ALTER TABLE t ALTER COLUMN a TYPE numeric(6,2), ALTER COLUMN note TYPE bytea USING note::bytea",
        "INSERT INTO t VALUES (4, 4.25, 'raw')",
        "ALTER TABLE t RENAME COLUMN a TO amount",
        "INSERT INTO t(id, amount) VALUES (5, 5)",
    )
    found = shop.changes()
    assert [message.data for message in found[:3]] == [
        {"id": 1, "a": 1, "big": "one"},
        {"id": 2, "a": 2, "big": "two", "note": "noted"},
        {"id": 3, "a": 3, "note": "noted"},
    ]
    assert str((found[3].data or {})["a"]) == "4.25"
    assert (found[3].data or {})["note"] == b"raw"
    assert list(found[4].data or {}) == ["id", "amount", "note"]


def test_a_key_changes_between_changes(shop: Shop) -> None:
    """Rows have the key of their time, though all are read afterwards."""
    shop.install()
    run(
        shop.url,
        "INSERT INTO t VALUES (1, 1, 'x')",
        "ALTER TABLE t DROP CONSTRAINT t_pkey, ADD PRIMARY KEY (a, id)",
        "INSERT INTO t VALUES (1, 2, 'y')",
        "UPDATE t SET a = 3 WHERE a = 1",
    )
    with closing(shop.open()) as reader:
        (piece,) = reader.plan_changes(shop.position, reader.position())
        keys = [key_of(batch.rows.schema) for batch in reader.read_changes(piece)]
    assert keys == [("id",), ("a", "id")]


def test_schemas_partitions_and_generated_columns(database: str) -> None:
    run(
        database,
        "CREATE SCHEMA other",
        "CREATE TABLE other.t(id int PRIMARY KEY, twice int GENERATED ALWAYS AS (id * 2) STORED)",
        "CREATE TABLE p(id int, day date, PRIMARY KEY (id, day)) PARTITION BY RANGE (day)",
        "CREATE TABLE p2025 PARTITION OF p FOR VALUES FROM ('2025-01-01') TO ('2026-01-01')",
        "CREATE TABLE p2026 PARTITION OF p FOR VALUES FROM ('2026-01-01') TO ('2027-01-01')",
        "CREATE UNLOGGED TABLE quick(id int PRIMARY KEY)",
    )
    shop = Shop(database)
    with closing(shop.open()) as reader:
        assert [table.namespace for table in reader.tables()] == ["other.t", "public.p"]
        assert list(reader.left_out()) == ["public.quick"]
    shop.install()
    run(
        database,
        "INSERT INTO other.t VALUES (1)",
        "INSERT INTO p VALUES (1, '2025-06-01'), (2, '2026-06-01')",
        "UPDATE p SET day = '2026-07-01' WHERE id = 1",
    )
    found = shop.changes()
    assert [(message.namespace, message.op) for message in found] == [
        ("other.t", Op.INSERT),
        ("public.p", Op.INSERT),
        ("public.p", Op.INSERT),
        ("public.p", Op.DELETE),
        ("public.p", Op.INSERT),
    ]
    assert found[0].data == {"id": 1, "twice": 2}


def test_programs_can_go_on_updating_a_table_without_a_key(database: str) -> None:
    run(database, "CREATE TABLE t(a int)", "INSERT INTO t VALUES (1)")
    shop = Shop(database)
    shop.install()
    run(database, "UPDATE t SET a = 2", "INSERT INTO t VALUES (3)", "DELETE FROM t WHERE a = 2")
    assert rows(shop.changes()) == [(Op.INSERT, {"a": 3})]
    run(database, "ALTER TABLE t REPLICA IDENTITY FULL")
    shop.install()
    run(database, "UPDATE t SET a = 4")
    (updated,) = shop.changes()
    assert (updated.data, updated.before) == ({"a": 4}, {"a": 3})


def test_long_stretches_are_cut_between_transactions(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes_module, "CHANGES_MAX", 50)
    shop.install()
    big = "INSERT INTO t SELECT g, 0, '' FROM generate_series(1000, 1199) g"
    run(shop.url, big)
    for number in range(30):
        run(shop.url, f"INSERT INTO t VALUES ({number * 2}, 0, ''), ({number * 2 + 1}, 0, '')")
    pieces = []
    while found := shop.changes():
        pieces.append(found)
    ids = [(message.data or {})["id"] for piece in pieces for message in piece]
    assert ids == [*range(1000, 1200), *range(60)]
    assert len(pieces[0]) == 200
    assert max(len(piece) for piece in pieces[1:]) <= 50
    for before, after in pairwise(pieces):
        assert before[-1].tx != after[0].tx
    numbers = [message.lsn for piece in pieces for message in piece]
    assert numbers == sorted(set(numbers))


def test_rolled_back_and_interleaved_transactions(shop: Shop) -> None:
    """The order is that of the commits, and each transaction is whole."""
    shop.install()
    with psycopg.connect(shop.url) as early, psycopg.connect(shop.url) as late:
        early.execute("INSERT INTO t VALUES (1, 1, 'early')")
        late.execute("INSERT INTO t VALUES (2, 2, 'late')")
        early.execute("INSERT INTO t VALUES (3, 3, 'early')")
        late.commit()
        early.commit()
        late.execute("INSERT INTO t VALUES (4, 4, 'never')")
        late.rollback()
    found = shop.changes()
    assert [(message.data or {})["id"] for message in found] == [2, 1, 3]
    assert len({message.tx for message in found}) == 2
    assert [message.lsn for message in found] == sorted(message.lsn for message in found)
    assert ask(shop.url, "SELECT count(*) FROM t") == [(3,)]


def test_tables_that_inherit_are_not_their_parent(database: str) -> None:
    run(database, "CREATE TABLE parent(id int PRIMARY KEY)", "CREATE TABLE child(more text) INHERITS (parent)")
    run(database, "INSERT INTO parent VALUES (1)", "INSERT INTO child VALUES (2, 'c')")
    with closing(Shop(database).open()) as reader:
        tables = {table.namespace: table for table in reader.tables()}
        copied = {
            name: [
                message.data for piece in reader.plan_copy(table) for message in messages(reader.read_copy(name, piece))
            ]
            for name, table in tables.items()
        }
    assert copied == {"public.parent": [{"id": 1}], "public.child": [{"id": 2, "more": "c"}]}


def test_a_table_that_is_no_longer_wanted_stands_in_nobodys_way(database: str) -> None:
    """Changes that were made before are told all the same, among them one that cannot be represented."""
    run(database, "CREATE TABLE good(id int PRIMARY KEY)", "CREATE TABLE bad(id int PRIMARY KEY, v int[])")
    shop = Shop(database)
    shop.install()
    run(database, "INSERT INTO bad VALUES (1, '{{1,2}}')", "INSERT INTO good VALUES (1)")
    with closing(shop.open()) as reader:
        reader.install([table for table in reader.tables() if table.namespace == "public.good"])
        pieces = reader.plan_changes(shop.position, reader.position())
        found = [message for piece in pieces for message in messages(reader.read_changes(piece))]
    assert [(message.namespace, message.data) for message in found] == [("public.good", {"id": 1})]


def test_names_that_are_the_same_with_a_dot_are_left_out(database: str) -> None:
    run(
        database,
        'CREATE SCHEMA "a.b"',
        "CREATE SCHEMA a",
        'CREATE TABLE "a.b".c(id int)',
        'CREATE TABLE a."b.c"(id int)',
    )
    with closing(Shop(database).open()) as reader:
        assert reader.tables() == []
        assert dict(reader.left_out()) == {
            "a.b.c": "two tables have this name when schema and table are joined by a dot"
        }

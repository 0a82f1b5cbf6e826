"""How rows come into tables: in bulk, one by one, over what is there, through views, and never in part."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from tailrace.adaptor.postgres.options import PostgresWriterOptions
from tailrace.adaptor.postgres.writer import PostgresWriter
from tailrace.deliver.contract import Target
from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.message import Mode, Offset, Op
from tests.adaptor.contract import FIELDS, KEY, Changes, fields, row, write_of
from tests.adaptor.postgres.databases import ask, run
from tests.servers.postgres import PostgresServer

MANY = 500
"""More than are sent one by one."""


@pytest.fixture
def deliver(database: str) -> Iterator[Callable[..., None]]:
    def deliver_all(*batches: Messages, **options: Any) -> None:
        with closing(open_writer(database, **options)) as writer:
            last = 0
            for batch in batches:
                writer.prepare(Target(batch.namespace, pa.schema(list(batch.data.type)), batch.key))
                writer.write(batch)
                last = batch.offsets()[-1].as_py() or 0
            writer.commit(Offset(last))

    yield deliver_all


def open_writer(url: str, **options: Any) -> PostgresWriter:
    given: dict[str, Any] = {"url": url, "consumer": "test", **options}
    return PostgresWriterOptions(**given).open()


def copied(first: int, count: int) -> Messages:
    rows: Changes = [(Op.INSERT, row(number, f"name {number}")) for number in range(first, first + count)]
    return replace(write_of(rows, first=first), mode=Mode.COPY)


def state(url: str) -> list[tuple[Any, ...]]:
    return ask(url, "SELECT id, name, amount FROM main.t ORDER BY id")


def test_a_copy_over_what_is_there(database: str, deliver: Callable[..., None]) -> None:
    """Rows of a copy go straight into the table unless one is there already."""
    deliver(copied(0, MANY))
    deliver(write_of([(Op.UPDATE, row(3, "changed"))], first=MANY))
    deliver(copied(0, MANY + 5))
    assert state(database) == [(number, f"name {number}", 1.5) for number in range(MANY + 5)]


def test_many_changes_at_once(database: str, deliver: Callable[..., None]) -> None:
    deliver(copied(0, MANY))
    story: list[Any] = [(Op.DELETE, row(number)) for number in range(0, MANY, 2)]
    story += [(Op.UPDATE, row(number, "odd")) for number in range(1, MANY, 2)]
    story += [(Op.UPDATE, row(number + 10_000, "moved"), row(number)) for number in range(1, 101, 2)]
    deliver(write_of(story, first=MANY))
    expected = [(number, "odd", 1.5) for number in range(101, MANY, 2)]
    assert state(database) == expected + [(number + 10_000, "moved", 1.5) for number in range(1, 101, 2)]


@pytest.mark.parametrize("more", [0, MANY])
def test_last_states_that_collide_on_their_way(database: str, deliver: Callable[..., None], more: int) -> None:
    """Two rows swap a unique value: only in the source's own order does each step hold."""
    deliver(write_of([(Op.INSERT, row(1, "a")), (Op.INSERT, row(2, "b"))]))
    run(database, "CREATE UNIQUE INDEX ON main.t(name)")
    swap: list[Any] = [(Op.UPDATE, row(1, "tmp")), (Op.UPDATE, row(2, "a")), (Op.UPDATE, row(1, "b"))]
    swap += [(Op.INSERT, row(number, f"name {number}")) for number in range(10, 10 + more)]
    deliver(write_of(swap, first=2))
    assert state(database)[:2] == [(1, "b", 1.5), (2, "a", 1.5)]
    assert len(state(database)) == 2 + more


def test_a_violation_names_the_offsets_and_leaves_nothing(database: str, deliver: Callable[..., None]) -> None:
    deliver(write_of([(Op.INSERT, row(1, "a"))]))
    run(database, "CREATE UNIQUE INDEX only_one ON main.t(name)")
    with pytest.raises(TailraceError, match=r"main\.t, offsets 1\.\.2: .*only_one") as refused:
        deliver(write_of([(Op.INSERT, row(2, "b")), (Op.INSERT, row(3, "a"))], first=1))
    assert refused.value.code == "destination.refused"
    assert state(database) == [(1, "a", 1.5)]
    with closing(open_writer(database)) as writer:
        assert writer.applied("main.t") == 0


def test_triggers_and_foreign_keys_can_rest(database: str, deliver: Callable[..., None]) -> None:
    run(
        database,
        "CREATE SCHEMA main",
        "CREATE TABLE main.parent(id bigint PRIMARY KEY)",
        "CREATE TABLE main.t(id bigint PRIMARY KEY REFERENCES main.parent, name text, amount float8)",
    )
    child = write_of([(Op.INSERT, row(1))])
    with pytest.raises(TailraceError, match="foreign key"):
        deliver(child)
    deliver(child, as_replica=True)
    assert state(database) == [(1, "n", 1.5)]


def test_changes_in_the_order_of_the_source(database: str, deliver: Callable[..., None]) -> None:
    """Messages come namespace by namespace; `lsn` says what happened first."""
    run(
        database,
        "CREATE SCHEMA main",
        "CREATE TABLE main.parent(id bigint PRIMARY KEY, name text, amount float8)",
        "CREATE TABLE main.t(id bigint PRIMARY KEY REFERENCES main.parent, name text, amount float8)",
    )
    children = write_of([(Op.INSERT, row(1)), (Op.DELETE, row(1)), (Op.INSERT, row(2))])
    parents = write_of(
        [(Op.INSERT, row(1)), (Op.INSERT, row(2)), (Op.DELETE, row(1))], first=3, namespace="main.parent"
    )
    children = children.with_column("lsn", pa.array([2, 3, 6], pa.int64()))
    parents = parents.with_column("lsn", pa.array([1, 4, 5], pa.int64()))
    with pytest.raises(TailraceError, match="foreign key"):
        deliver(children, parents)
    deliver(children, parents, in_order=True)
    assert state(database) == [(2, "n", 1.5)]
    assert ask(database, "SELECT id FROM main.parent") == [(2,)]


def test_a_receive_view_gets_the_rows(database: str, deliver: Callable[..., None]) -> None:
    run(
        database,
        "CREATE SCHEMA main",
        "CREATE TABLE main.t(id bigint PRIMARY KEY, name text, amount float8)",
        'CREATE VIEW main."t_ReceiveView" AS SELECT * FROM main.t',
        "CREATE FUNCTION main.receive() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN"
        " INSERT INTO main.t VALUES (NEW.id, upper(NEW.name), NEW.amount)"
        " ON CONFLICT (id) DO UPDATE SET name = upper(NEW.name); RETURN NEW; END$$",
        'CREATE TRIGGER receive INSTEAD OF INSERT ON main."t_ReceiveView" FOR EACH ROW EXECUTE FUNCTION main.receive()',
    )
    deliver(write_of([(Op.INSERT, row(1, "one")), (Op.INSERT, row(2, "two"))]))
    deliver(write_of([(Op.UPDATE, row(1, "changed")), (Op.DELETE, row(2))], first=2))
    assert state(database) == [(1, "CHANGED", 1.5)]


def test_a_table_of_ones_own(database: str, deliver: Callable[..., None]) -> None:
    """Other types, an identity that is always generated, a default, a generated column: what is there is respected."""
    run(
        database,
        "CREATE SCHEMA main",
        "CREATE TABLE main.t(id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name varchar(5), amount numeric(8,3),"
        " made text DEFAULT 'here', double float8 GENERATED ALWAYS AS (amount * 2) STORED)",
    )
    deliver(write_of([(Op.INSERT, row(7, "seven", 1.5))]))
    deliver(write_of([(Op.UPDATE, row(7, "7", 2.25))], first=1))
    assert ask(database, "SELECT id, name, amount::text, made, double FROM main.t") == [(7, "7", "2.250", "here", 4.5)]
    with pytest.raises(TailraceError, match="too long"):
        deliver(write_of([(Op.INSERT, row(8, "too long for it"))], first=2))


def test_types_widen(database: str, deliver: Callable[..., None]) -> None:
    narrow = fields(("id", pa.int64()), ("n", pa.int32()), ("d", pa.decimal128(6, 2)), ("f", pa.float32()))
    wide = fields(("id", pa.int64()), ("n", pa.string()), ("d", pa.decimal128(10, 4)), ("f", pa.float64()))
    one = {"id": 1, "n": 5, "d": Decimal("1.25"), "f": 0.5}
    two = {"id": 2, "n": "five", "d": Decimal("123456.1234"), "f": 0.1}
    deliver(write_of([(Op.INSERT, one)], schema=narrow))
    deliver(write_of([(Op.INSERT, two)], first=1, schema=wide))
    assert ask(database, "SELECT n, d::text, f FROM main.t ORDER BY id") == [
        ("5", "1.2500", 0.5),
        ("five", "123456.1234", 0.1),
    ]


def test_without_permission_to_create(database: str, deliver: Callable[..., None]) -> None:
    with pytest.raises(TailraceError, match="create: true"):
        deliver(write_of([(Op.INSERT, row(1))]), create=False)
    with pytest.raises(TailraceError, match="no unique index on id"):
        run(database, "CREATE SCHEMA main", "CREATE TABLE main.t(id bigint, name text, amount float8)")
        deliver(write_of([(Op.INSERT, row(1))]), create=False)


def test_all_into_one_schema(database: str, deliver: Callable[..., None]) -> None:
    a, b = (write_of([(Op.INSERT, row(1))], namespace=name) for name in ("main.a", "other.b"))
    deliver(a, b, into_schema="copy")
    assert ask(database, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'copy' ORDER BY 1") == [
        ("a",),
        ("b",),
    ]
    clash: Sequence[Messages] = [write_of([(Op.INSERT, row(1))], namespace=name) for name in ("main.c", "other.c")]
    with pytest.raises(TailraceError, match="would both be written"):
        deliver(*clash, into_schema="copy")


def test_the_server_dies_in_the_middle_of_a_write() -> None:
    """Nothing of the batch is there afterwards; the same again is."""
    server = PostgresServer()
    server.start()
    try:
        with closing(open_writer(server.url())) as writer:
            writer.prepare(Target("main.t", FIELDS, KEY))
            writer.commit(Offset(0))
            writer.write(copied(0, MANY))
            server.kill()
            with pytest.raises(TailraceError) as gone:
                writer.write(copied(MANY, MANY))
                writer.commit(Offset(2 * MANY))
            assert gone.value.code == "destination.unreachable"
        server.start()
        assert state(server.url()) == []
        with closing(open_writer(server.url())) as writer:
            assert writer.applied("main.t") is None
            writer.write(copied(0, 2 * MANY))
            writer.commit(Offset(2 * MANY))
        assert len(state(server.url())) == 2 * MANY
    finally:
        server.remove()

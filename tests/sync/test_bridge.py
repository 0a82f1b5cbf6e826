"""Sync beside the log: what is synced is captured, too, and what sync keeps for itself is left alone."""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psycopg
import pytest

from tailrace.adaptor.files import files
from tailrace.adaptor.lake import lake
from tailrace.adaptor.postgres import postgres as postgres_end
from tailrace.adaptor.postgres.options import PostgresReaderOptions
from tailrace.adaptor.sqlite.options import SqliteReaderOptions
from tailrace.pipeline import Pipeline
from tailrace.pipeline.run import Until, run
from tailrace.sync.database import open_database
from tailrace.sync.entity import Entity
from tailrace.sync.exchange import Ack, Tracker
from tailrace.sync.store import CALLS_US, WE_CALL, SyncStore
from tests.adaptor.lake.lakes import CurrentLake
from tests.adaptor.postgres import databases as pg
from tests.node.pgshops import PgShop
from tests.node.shops import Shop, settle

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TODO = Entity("todo", 42, "changed", generate_key=True)
SQLITE_TODO = "CREATE TABLE todo(id INTEGER PRIMARY KEY, title TEXT, changed INTEGER NOT NULL DEFAULT 0)"
POSTGRES_TODO = "CREATE TABLE todo(id bigint PRIMARY KEY, title text, changed bigint NOT NULL DEFAULT 0)"
ROWS = "SELECT id, title, changed FROM todo ORDER BY id"
CLUSTER = str(uuid.UUID(int=8))


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as found:
        yield found


def synced(stack: ExitStack, address: str) -> SyncStore:
    database = stack.enter_context(closing(open_database(address)))
    return SyncStore.install(database, [TODO])


def laptop(stack: ExitStack, path: Path) -> SyncStore:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(SQLITE_TODO)
    return synced(stack, str(path))


def carry(source: SyncStore, target: SyncStore) -> None:
    """What one has for the other goes there."""
    source.meet(target.node_id, CALLS_US)
    target.meet(source.node_id, WE_CALL)
    source.process_changes()
    batch = source.pending_rows(42, target.node_id, None, 1000)
    receipt = target.receive(42, source.node_id, batch)
    assert receipt.refused == []
    source.mark_processed(42, target.node_id, [Ack(Tracker((row[0],), row[-1], row[-3])) for row in batch.rows])


def rows(store: SyncStore) -> list[tuple[Any, ...]]:
    return store.database.read(lambda link: link.rows(ROWS))


def test_sqlite_keeps_what_is_of_sync_to_itself(stack: ExitStack, tmp_path: Path) -> None:
    laptop(stack, tmp_path / "todo.db")
    reader = SqliteReaderOptions(path=str(tmp_path / "todo.db")).open()
    assert [table.namespace for table in reader.tables()] == ["main.todo"]


def test_tables_of_users_that_are_called_like_those_of_sync(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "shop.db")) as connection:
        for name in ("ChangeLog", "DoorEntity", "DoorSelf", "todoStamp"):
            connection.execute(f"CREATE TABLE {name}(id INTEGER PRIMARY KEY)")
    reader = SqliteReaderOptions(path=str(tmp_path / "shop.db")).open()
    assert len(list(reader.tables())) == 4


def test_postgres_keeps_what_is_of_sync_to_itself(stack: ExitStack, postgres_address: str) -> None:
    pg.run(
        postgres_address,
        POSTGRES_TODO,
        "CREATE SCHEMA other",
        *(f"CREATE TABLE other.{name}(id int PRIMARY KEY)" for name in ("changelog", "doorself", "doorentity")),
    )
    store = synced(stack, postgres_address)
    options: dict[str, Any] = {"url": postgres_address, "slot": "sync_names", "pipeline": "test"}
    with closing(PostgresReaderOptions(**options).open()) as reader:
        found = [table.namespace for table in reader.tables()]
    assert found == ["other.changelog", "other.doorentity", "other.doorself", "public.todo"]
    assert store.secret


def test_who_may_not_read_which_entities_there_are(stack: ExitStack, postgres_address: str) -> None:
    """Even then the secret is not there to be read."""
    pg.run(postgres_address, POSTGRES_TODO)
    synced(stack, postgres_address)
    role = f"reader_{uuid.uuid4().hex[:8]}"
    pg.run(
        postgres_address,
        f"CREATE ROLE {role} LOGIN PASSWORD 'canary-9f4e'",
        f"GRANT SELECT ON doorself, todo TO {role}",
    )
    address = postgres_address.replace("postgres:canary", f"{role}:canary", 1)
    try:
        options: dict[str, Any] = {"url": address, "slot": "sync_names", "pipeline": "test"}
        with closing(PostgresReaderOptions(**options).open()) as reader:
            assert "public.doorself" not in [table.namespace for table in reader.tables()]
    finally:
        pg.run(postgres_address, f"DROP OWNED BY {role}", f"DROP ROLE {role}")


@pytest.mark.parametrize("is_synced_first", [True, False])
def test_a_node_and_sync_have_one_sqlite_database(stack: ExitStack, tmp_path: Path, is_synced_first: bool) -> None:
    """Whoever follows the node has what the table has, though sync writes to each row a second time."""
    here, there = tmp_path / "here", tmp_path / "there"
    here.mkdir()
    if is_synced_first:
        laptop(stack, here / "shop.db")
    table = SQLITE_TODO.replace("TABLE todo", "TABLE IF NOT EXISTS todo")
    node = stack.enter_context(Shop(here, CLUSTER, table=table))
    follower = stack.enter_context(Shop(there, CLUSTER, table=table))
    follower.follow(node)
    node.run("INSERT INTO todo VALUES (1, 'before', 5)")
    settle([node, follower])
    store = synced(stack, str(here / "shop.db"))
    other = laptop(stack, tmp_path / "other.db")
    node.run(
        "INSERT INTO todo(id, title) VALUES (0, 'a key is made')",
        "INSERT INTO todo(id, title) VALUES (2, 'without a version')",
        "UPDATE todo SET title = 'changed' WHERE id = 1",
        "INSERT INTO todo VALUES (3, 'gone', 9)",
        "DELETE FROM todo WHERE id = 3",
    )
    other.database.write(lambda link: link.run("INSERT INTO todo(id, title) VALUES (7, 'by sync')"))
    carry(other, store)
    settle([node, follower])

    assert follower.rows(ROWS) == node.rows(ROWS) == rows(store)
    assert [title for _, title, _ in rows(store)] == ["changed", "without a version", "by sync", "a key is made"]
    assert {table.namespace for table in node.store.tables()} == {"main.todo"}
    assert follower.rows("SELECT count(*) FROM sqlite_master WHERE name LIKE 'Door%' OR name = 'ChangeLog'") == [(0,)]


def test_what_comes_to_a_node_goes_on_by_sync(stack: ExitStack, tmp_path: Path) -> None:
    """The node writes into the receive view, and sync notices."""
    node = stack.enter_context(Shop(tmp_path / "a", CLUSTER, table=SQLITE_TODO))
    (tmp_path / "b").mkdir()
    laptop(stack, tmp_path / "b" / "shop.db")
    table = SQLITE_TODO.replace("TABLE todo", "TABLE IF NOT EXISTS todo")
    follower = stack.enter_context(Shop(tmp_path / "b", CLUSTER, table=table))
    follower.follow(node)
    node.run("INSERT INTO todo VALUES (1, 'one', 5), (2, 'two', 5)")
    settle([node, follower])
    node.run("UPDATE todo SET title = 'changed', changed = 6 WHERE id = 1", "DELETE FROM todo WHERE id = 2")
    settle([node, follower])
    device = laptop(stack, tmp_path / "device.db")
    carry(synced(stack, str(tmp_path / "b" / "shop.db")), device)
    assert rows(device) == node.rows(ROWS) == [(1, "changed", 6)]


def test_a_node_and_sync_have_one_postgres_database(stack: ExitStack, tmp_path: Path, postgres_address: str) -> None:
    pg.run(postgres_address, "CREATE SCHEMA main", POSTGRES_TODO.replace("TABLE todo", "TABLE main.todo"))
    store = synced(stack, postgres_address + "?options=-csearch_path%3Dmain")
    node = stack.enter_context(PgShop(tmp_path / "a", CLUSTER, postgres_address, tables="SELECT 1"))
    table = SQLITE_TODO
    follower = stack.enter_context(Shop(tmp_path / "b", CLUSTER, table=table))
    follower.follow(node)
    other = laptop(stack, tmp_path / "other.db")
    node.run("INSERT INTO todo(title) VALUES ('a key is made')", "INSERT INTO todo(id, title) VALUES (2, 'two')")
    other.database.write(lambda link: link.run("INSERT INTO todo(id, title) VALUES (7, 'by sync')"))
    carry(other, store)
    settle([node, follower])
    assert follower.rows(ROWS) == node.rows(ROWS)
    assert [title for _, title, _ in node.rows(ROWS)] == ["two", "by sync", "a key is made"]
    assert {table.namespace for table in node.store.tables()} == {"main.todo"}


def test_a_lake_is_fed_and_a_correction_reaches_a_device(
    stack: ExitStack, tmp_path: Path, spark: SparkSession, postgres_address: str
) -> None:
    pg.run(postgres_address, POSTGRES_TODO)
    central = synced(stack, postgres_address)
    device = laptop(stack, tmp_path / "device.db")
    device.database.write(lambda link: link.run("INSERT INTO todo(id, title) VALUES (7, 'buy mlik')"))
    slot = f"slot_{postgres_address.rpartition('/')[2]}"
    out = Pipeline("out", log=str(tmp_path / "out")).read(postgres_end(url=postgres_address, slot=slot))
    to_lake = out.write(lake(str(tmp_path / "lake")), name="lake").spec()
    found = CurrentLake(tmp_path / "lake")
    try:
        assert run(to_lake, Until.ONCE, session=lambda: spark).errors == []
        carry(device, central)
        assert run(to_lake, Until.ONCE, session=lambda: spark).errors == []
        assert [(row["id"], row["title"]) for row in found.rows("public.todo")] == [(7, "buy mlik")]
        assert sorted(path.name for path in (tmp_path / "lake").iterdir() if path.is_dir()) == ["public.todo"]

        (tmp_path / "corrections").mkdir()
        (tmp_path / "corrections" / "todo.jsonl").write_text('{"id": 7, "title": "buy milk"}\n')
        back = Pipeline("back", log=str(tmp_path / "back"))
        back = back.read(files(str(tmp_path / "corrections"), namespace="public.todo"))
        spec = back.write(postgres_end(url=postgres_address, key={"public.todo": ["id"]}), name="central").spec()
        assert run(spec, Until.ONCE, session=lambda: spark).errors == []
        carry(central, device)
        assert [(key, title) for key, title, _ in rows(device)] == [(7, "buy milk")]
        assert run(to_lake, Until.ONCE, session=lambda: spark).errors == []
        assert [row["title"] for row in found.rows("public.todo")] == ["buy milk"]
        assert rows(device) == rows(central)
    finally:
        with psycopg.connect(postgres_address, autocommit=True) as connection:
            connection.execute("SELECT pg_drop_replication_slot(%s)", (slot,))

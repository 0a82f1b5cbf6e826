"""Triggers: whatever an application does to a table, each row's last change is known, and sent."""

from __future__ import annotations

import sqlite3
from typing import Any

import pytest
from psycopg import errors

from tailrace.sync.entity import Deletes, Entity, Receive, Sql, VersionKind
from tailrace.sync.exchange import Ack, RowBatch, Tracker
from tailrace.sync.store import WE_CALL, SyncStore
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.direct import meet, sync
from tests.sync.places import Place

PEER = 4711
UNIQUE = "CREATE TABLE todo(id bigint PRIMARY KEY, changed bigint, what text UNIQUE, is_done boolean)"


def stamps(place: Place, table: str = "todo") -> dict[Any, tuple[int, bool]]:
    """By key: the author, and whether the row is gone."""
    found = place.ask(f"SELECT stEntityPrimaryKey, stNode, stDeleted FROM {table}Stamp")
    return {key: (node, bool(gone)) for key, node, gone in found}


def pending(store: SyncStore) -> dict[Any, bool]:
    """What a peer should get: by key, whether the row is gone."""
    store.process_changes()
    return {row[0]: bool(row[-2]) for row in store.pending_rows(todo.TABLE_ID, PEER, None, 1000).rows}


def confirm(store: SyncStore) -> None:
    store.process_changes()
    trackers = store.pending_trackers(todo.TABLE_ID, PEER, None, 1000)
    store.mark_processed(todo.TABLE_ID, PEER, [Ack(each) for each in trackers])


@pytest.fixture
def store(place: Place) -> SyncStore:
    found = todo.node(place)
    found.meet(PEER, WE_CALL)
    return found


def test_versions_rise_with_every_change(place: Place, store: SyncStore) -> None:
    todo.put(place, 1, "milk")
    versions = [todo.version(place, 1)]
    for number in range(5):
        todo.put(place, 1, f"milk {number}")
        versions.append(todo.version(place, 1))
    assert versions == sorted(set(versions))
    future = versions[-1] + 10_000_000
    todo.put(place, 1, "by an application that knows its time", changed=future)
    assert todo.version(place, 1) == future
    todo.put(place, 1, "by one whose clock is behind", changed=1000)
    assert todo.version(place, 1) == future + 1
    assert place.ask("SELECT stTime, stNode FROM todoStamp") == [(future + 1, store.node_id)]


@pytest.mark.parametrize("told", [0, -5, 1 << 60])
def test_what_is_no_time_becomes_one(place: Place, store: SyncStore, told: int) -> None:
    """Nanoseconds, for example, after which no change would ever be newer."""
    todo.put(place, 1, "milk", changed=told)
    assert 1_600_000_000_000 < todo.version(place, 1) < 1 << 53


def test_a_statement_with_many_rows(place: Place, store: SyncStore) -> None:
    place.run("INSERT INTO todo(id, what) VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    confirm(store)
    place.run("UPDATE todo SET what = 'all' WHERE id < 3", "DELETE FROM todo WHERE id = 3")
    assert pending(store) == {1: False, 2: False, 3: True}


def test_upserts(place: Place, store: SyncStore) -> None:
    insert = "INSERT INTO todo(id, what) VALUES (1, 'a'), (2, 'b') ON CONFLICT (id) DO"
    place.run(f"{insert} NOTHING")
    confirm(store)
    place.run(f"{insert} NOTHING")
    assert pending(store) == {}
    before = todo.version(place, 1)
    place.run(f"{insert} UPDATE SET what = excluded.what WHERE todo.id = 1")
    assert pending(store) == {1: False}
    assert todo.version(place, 1) > before


def test_a_change_that_is_rolled_back_did_not_happen(place: Place, store: SyncStore) -> None:
    with pytest.raises((sqlite3.Error, errors.Error)):
        place.run("INSERT INTO todo(id, what) VALUES (1, 'a')", "INSERT INTO todo(id, what) VALUES (1, 'b')")
    assert pending(store) == {} and stamps(place) == {}


def test_another_key_is_a_deletion_and_a_new_row(place: Place, store: SyncStore) -> None:
    todo.put(place, 1, "milk")
    confirm(store)
    place.run("UPDATE todo SET id = 2 WHERE id = 1")
    assert pending(store) == {1: True, 2: False}
    place.run("UPDATE todo SET id = 1 WHERE id = 2")
    assert stamps(place) == {1: (store.node_id, False), 2: (store.node_id, True)}


@pytest.mark.parametrize("recursive", ["ON", "OFF"])
@pytest.mark.parametrize("dialect", ["sqlite"])
def test_replace_and_ignore(place: Place, store: SyncStore, recursive: str) -> None:
    """With recursive triggers REPLACE deletes the row before it inserts it, without them it only inserts it."""
    place.run(f"PRAGMA recursive_triggers = {recursive}")
    place.connection.execute(f"PRAGMA recursive_triggers = {recursive}")
    place.run("INSERT INTO todo(id, what) VALUES (1, 'a'), (2, 'b')")
    confirm(store)
    before = todo.version(place, 1)
    place.run("INSERT OR REPLACE INTO todo(id, what) VALUES (1, 'replaced'), (3, 'new')")
    place.run("INSERT OR IGNORE INTO todo(id, what) VALUES (2, 'ignored'), (4, 'not ignored')")
    assert pending(store) == {1: False, 3: False, 4: False}
    assert todo.version(place, 1) > before
    confirm(store)
    place.run("UPDATE OR REPLACE todo SET id = 1 WHERE id = 2")
    assert pending(store) == {1: False, 2: True}
    assert todo.whats(place)[1] == "b"


@pytest.mark.parametrize("recursive", ["ON", "OFF"])
@pytest.mark.parametrize("dialect", ["sqlite"])
@pytest.mark.parametrize("deletes", Deletes)
def test_rows_that_are_pushed_out_by_others_are_gone(place: Place, recursive: str, deletes: Deletes) -> None:
    """REPLACE removes whatever collides with a new row, by any unique index."""
    place.run(UNIQUE)
    store = place.install(todo.todo(deletes=deletes))
    store.meet(PEER, WE_CALL)
    place.connection.execute(f"PRAGMA recursive_triggers = {recursive}")
    place.run("INSERT INTO todo(id, what) VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    confirm(store)
    place.run("REPLACE INTO todo(id, what) VALUES (9, 'a')")
    place.run("UPDATE OR REPLACE todo SET what = 'b' WHERE id = 3")
    place.run("INSERT OR IGNORE INTO todo(id, what) VALUES (10, 'b')")
    gone = {1: True, 2: True} if deletes is Deletes.REPLICATE else {}
    assert pending(store) == {3: False, 9: False, **gone}
    assert todo.whats(place) == {3: "b", 9: "a"}


@pytest.mark.parametrize("dialect", ["sqlite"])
def test_a_row_that_was_pushed_out_is_not_sent_before_that_is_noticed(place: Place) -> None:
    place.run(UNIQUE)
    store = place.install(todo.todo())
    store.meet(PEER, WE_CALL)
    place.run("INSERT INTO todo(id, what) VALUES (1, 'a')")
    store.process_changes()
    place.run("REPLACE INTO todo(id, what) VALUES (9, 'a')")
    assert store.pending_rows(todo.TABLE_ID, PEER, None, 10).rows == []
    assert store.pending_trackers(todo.TABLE_ID, PEER, None, 10) == []


@pytest.mark.parametrize("dialect", ["postgres"])
@pytest.mark.parametrize("deletes", Deletes)
def test_truncate_deletes_every_row(place: Place, deletes: Deletes) -> None:
    store = todo.node(place, deletes=deletes)
    store.meet(PEER, WE_CALL)
    place.run("INSERT INTO todo(id, what) VALUES (1, 'a'), (2, 'b')")
    confirm(store)
    place.run("TRUNCATE todo")
    assert pending(store) == ({1: True, 2: True} if deletes is Deletes.REPLICATE else {})


SESSIONS = {
    "date": ("SET DateStyle = 'SQL, DMY'", "2024-02-01", "2024-02-13"),
    "timestamp": ("SET DateStyle = 'German'", "2024-02-01 10:00:00", "2024-02-13 10:00:00"),
    "timestamptz": (
        "SET DateStyle = 'SQL, DMY'; SET TimeZone = 'Asia/Tokyo'",
        "2024-02-01 10:00Z",
        "2024-02-13 10:00Z",
    ),
    "daterange": ("SET DateStyle = 'SQL, DMY'", "[2024-02-01,2024-02-05)", "[2024-02-13,2024-02-14)"),
    "interval": ("SET IntervalStyle = 'sql_standard'", "-1 year -2 mons 3 days", "1 day"),
    "double precision": ("SET extra_float_digits = -5", "0.1234567890123456", "0.1234567890123457"),
    "bytea": ("SET bytea_output = 'escape'", "\\x00ff", "\\x41"),
}


@pytest.mark.parametrize("kind", SESSIONS)
def test_keys_are_noticed_whatever_the_application_s_session_has_set(places: Places, kind: str) -> None:
    place, other = places("postgres"), places("postgres")
    for each in (place, other):
        each.run(f"CREATE TABLE todo(id {kind} PRIMARY KEY, changed bigint, what text)")
    one, two = place.install(todo.todo()), other.install(todo.todo())
    sync(two, one)
    setting, first, second = SESSIONS[kind]
    place.run(*setting.split(";"), f"INSERT INTO todo(id, what) VALUES ('{first}', 'a'), ('{second}', 'b')")
    sync(two, one)
    rows = f"SELECT id = '{first}', what FROM todo ORDER BY what"
    assert other.ask(rows) == [(True, "a"), (False, "b")]
    place.run(f"DELETE FROM todo WHERE id = '{first}'")
    sync(two, one)
    assert other.ask(rows) == [(False, "b")]
    place.run("TRUNCATE todo")
    sync(two, one)
    assert other.ask(rows) == []
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}


def test_deletes_that_are_kept_to_oneself(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place, deletes=Deletes.KEEP), todo.node(other, deletes=Deletes.KEEP)
    todo.put(place, 1, "milk")
    sync(two, one)
    todo.remove(place, 1)
    sync(two, one)
    assert (todo.whats(place), todo.whats(other)) == ({}, {1: "milk"})
    todo.put(other, 1, "bread")
    sync(two, one)
    assert todo.whats(place) == {1: "bread"}


CASCADES = (
    "CREATE TABLE todo(id bigint PRIMARY KEY, changed bigint, what text, parent bigint REFERENCES todo ON DELETE {})"
)


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL"])
def test_what_a_foreign_key_does_is_noticed(places: Places, dialect: str, action: str) -> None:
    """At the node where the row is deleted, and at that which hears of it, and there is nothing left to tell."""
    place, other = places(dialect), places(dialect)
    stores = []
    for each in (place, other):
        each.run(CASCADES.format(action))
        stores.append(each.install(todo.todo()))
    one, two = stores
    place.run("INSERT INTO todo(id, parent) VALUES (1, NULL), (2, 1), (3, 2)")
    sync(two, one)
    place.run("DELETE FROM todo WHERE id = 1")
    sync(two, one)
    sync(two, one)
    left = {1: True, 2: action == "CASCADE", 3: action == "CASCADE"}
    for each in (place, other):
        assert {key: gone for key, (_, gone) in stamps(each).items()} == left
        rows = each.ask("SELECT id, parent FROM todo ORDER BY id")
        assert rows == ([] if action == "CASCADE" else [(2, None), (3, 2)])
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}
    assert place.ask("SELECT * FROM todo ORDER BY id") == other.ask("SELECT * FROM todo ORDER BY id")


def test_rows_that_refer_to_each_other_come_in_any_order(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    for each in (place, other):
        each.run(CASCADES.format("CASCADE"))
    one, two = place.install(todo.todo()), other.install(todo.todo())
    place.run("INSERT INTO todo(id, parent) VALUES (9, NULL), (5, 9), (3, 5), (4, 5), (1, 3)")
    progress = sync(two, one)
    assert (progress.fetched, progress.refused) == (5, 0)
    assert other.ask("SELECT id, parent FROM todo ORDER BY id") == [(1, 3), (3, 5), (4, 5), (5, 9), (9, None)]


LISTS = "CREATE TABLE list(id bigint PRIMARY KEY, changed bigint)"
ITEMS = "CREATE TABLE item(id bigint PRIMARY KEY, changed bigint, list bigint REFERENCES list(id) {})"
DEFERRED = "DEFERRABLE INITIALLY DEFERRED"


def lists_and_items(place: Place, timing: str, list_id: int, batches: tuple[int, int]) -> SyncStore:
    place.run(LISTS, ITEMS.format(timing))
    entities = (
        Entity("list", list_id, "changed", batch=batches[0]),
        Entity("item", 2, "changed", batch=batches[1]),
    )
    return place.install(*entities)


def contents(place: Place) -> list[list[tuple[Any, ...]]]:
    return [place.ask(f"SELECT * FROM {table} ORDER BY id") for table in ("list", "item")]


@pytest.mark.parametrize("timing", ["", DEFERRED])
@pytest.mark.parametrize("caller", ["who has it", "who gets it"])
@pytest.mark.parametrize(("list_id", "batches"), [(1, (1, 2)), (3, (100, 100)), (1, (2, 1))])
def test_tables_that_refer_to_each_other(
    place: Place, other: Place, timing: str, caller: str, list_id: int, batches: tuple[int, int]
) -> None:
    """Rows may come before those to which they refer, and deletions after them: then they wait."""
    one, two = (lists_and_items(each, timing, list_id, batches) for each in (place, other))
    calls = (one, two) if caller == "who has it" else (two, one)
    place.run("INSERT INTO list(id) VALUES (1), (2)", "INSERT INTO item(id, list) VALUES (1, 1), (2, 1), (3, 2)")
    assert sync(*calls).refused == 0
    two.process_changes()
    assert contents(other) == contents(place)
    place.run("DELETE FROM item WHERE list = 1", "DELETE FROM list WHERE id = 1")
    assert sync(*calls).refused == 0
    two.process_changes()
    assert contents(other) == contents(place)
    assert [len(rows) for rows in contents(other)] == [1, 1]
    assert one.quarantined() == two.quarantined() == []
    sync(*calls)
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}


@pytest.mark.parametrize("timing", ["", DEFERRED])
def test_a_row_waits_for_what_it_refers_to_and_is_told_meanwhile(place: Place, other: Place, timing: str) -> None:
    one, two = (lists_and_items(each, timing, 1, (1, 2)) for each in (place, other))
    place.run("INSERT INTO list(id) VALUES (1)", "INSERT INTO item(id, list) VALUES (1, 1), (2, NULL), (3, 1)")
    meet(one, two)
    one.process_changes()
    two.receive(2, one.node_id, one.pending_rows(2, two.node_id, None, 100))
    assert other.ask("SELECT id FROM item") == [(2,)]
    assert sorted((each.why, each.key, each.node) for each in two.quarantined()) == [
        ("waiting", [1], one.node_id),
        ("waiting", [3], one.node_id),
    ]
    assert not two.process_changes() or other.ask("SELECT id FROM item") == [(2,)]
    again = other.install(*(shape.entity for shape in two.by_batch()))  # another process, later
    other.run("INSERT INTO list(id, changed) VALUES (1, 5)")
    assert again.process_changes()
    assert contents(other)[1] == contents(place)[1]
    assert again.quarantined() == []


def test_what_triggers_of_the_application_change_is_a_change_made_here(places: Places, dialect: str) -> None:
    """Of other rows than the one that came, even if they have its version."""
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place), todo.node(other)
    count = "UPDATE todo SET what = 'there is another one' WHERE id <> NEW.id AND what = 'alone'"
    if other.is_postgres:
        body = f"$$BEGIN {count}; RETURN NEW; END$$"
        other.run(
            f"CREATE FUNCTION counts() RETURNS trigger LANGUAGE plpgsql AS {body}",
            "CREATE TRIGGER counts AFTER INSERT ON todo FOR EACH ROW EXECUTE FUNCTION counts()",
        )
    else:
        other.run(f"CREATE TRIGGER counts AFTER INSERT ON todo BEGIN {count}; END")
    place.run("INSERT INTO todo(id, what, changed) VALUES (1, 'alone', 5000), (2, 'second', 5000)")
    sync(two, one)
    assert todo.whats(other) == {1: "there is another one", 2: "second"}
    assert stamps(other) == {1: (two.node_id, False), 2: (one.node_id, False)}
    sync(two, one)
    assert todo.whats(place) == todo.whats(other)


HASHED = "CREATE TABLE todo(id bigint PRIMARY KEY, etag text, what text)"


def test_hashes_as_versions(places: Places, dialect: str) -> None:
    """Which of two is newer is told by when the change was noticed; equal hashes are the same version."""
    place, other = places(dialect), places(dialect)
    entity = Entity("todo", 42, "etag", VersionKind.HASH)
    for each in (place, other):
        each.run(HASHED, "INSERT INTO todo VALUES (1, 'same', 'milk')")
    one, two = place.install(entity), other.install(entity)
    assert sync(two, one).fetched == 0
    place.run("UPDATE todo SET etag = 'of one', what = 'bread' WHERE id = 1", "INSERT INTO todo VALUES (2, 'h2', 'x')")
    sync(two, one)
    assert todo.whats(other) == {1: "bread", 2: "x"}
    other.run("DELETE FROM todo WHERE id = 1", "UPDATE todo SET etag = 'h3', what = 'y' WHERE id = 2")
    sync(two, one)
    assert todo.whats(place) == todo.whats(other) == {2: "y"}
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}


TABLES = {
    "without rowid": ("sqlite", "CREATE TABLE todo(id INTEGER PRIMARY KEY, changed INTEGER, what TEXT) WITHOUT ROWID"),
    "strict": ("sqlite", "CREATE TABLE todo(id INTEGER PRIMARY KEY, changed INTEGER, what TEXT) STRICT"),
    "generated": (
        "sqlite",
        """CREATE TABLE todo(id INTEGER PRIMARY KEY, changed INTEGER, what TEXT,
            shout TEXT AS (upper(what)) STORED, length INTEGER AS (length(what)))""",
    ),
    "generated in PostgreSQL": (
        "postgres",
        """CREATE TABLE todo(id bigint PRIMARY KEY, changed bigint, what text,
            shout text GENERATED ALWAYS AS (upper(what)) STORED)""",
    ),
    "identity": (
        "postgres",
        """CREATE TABLE todo(id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, changed bigint, what text,
            number bigint GENERATED BY DEFAULT AS IDENTITY)""",
    ),
    "numbered beside the key": (
        "postgres",
        "CREATE TABLE todo(id bigint PRIMARY KEY, changed bigint, what text, n int GENERATED ALWAYS AS IDENTITY)",
    ),
}


@pytest.mark.parametrize("kind", TABLES)
def test_tables_of_all_kinds(places: Places, kind: str) -> None:
    dialect, create = TABLES[kind]
    place, other = places(dialect), places(dialect)
    for each in (place, other):
        each.run(create)
    one, two = place.install(todo.todo()), other.install(todo.todo())
    if kind == "identity":
        place.run("INSERT INTO todo(what) VALUES ('a'), ('b'), ('c')")
    else:
        place.run("INSERT INTO todo(id, what) VALUES (1, 'a'), (2, 'b'), (3, 'c')")
    sync(two, one)
    other.run("UPDATE todo SET what = 'changed' WHERE id = 2", "DELETE FROM todo WHERE id = 3")
    sync(two, one)
    assert todo.whats(place) == {1: "a", 2: "changed"}
    assert place.ask("SELECT * FROM todo ORDER BY id") == other.ask("SELECT * FROM todo ORDER BY id")


KEYS: dict[str, tuple[str, list[str]]] = {
    "text": ("id text", ["'a'", "'ä''\"'", "''"]),
    "two": ("id bigint, b text", ["1, 'a'", "1, 'b'", "2, 'a'"]),
    "four": ("id text, b bigint, c text, d bigint", ["'x', 1, 'y', 2", "'x', 1, 'y', 3", "'x', 2, 'y', 2"]),
    "bytes": ("id bytea", [r"'\x00ff'", r"'\x'", r"'\x5c78'"]),
    "uuid": ("id uuid", ["'6f2c4f1e-0000-4000-8000-000000000001'", "'6f2c4f1e-0000-4000-8000-000000000002'"]),
    "date": ("id date", ["'2024-02-29'", "'1999-12-31'"]),
    "numeric": ("id numeric", ["1.50", "2"]),
}
SQLITE_KEYS = {"bytes": ("id blob", ["x'00ff'", "x''", "x'5c78'"])}


@pytest.mark.parametrize("kind", KEYS)
def test_keys_of_all_kinds(places: Places, dialect: str, kind: str) -> None:
    columns, values = (SQLITE_KEYS if dialect == "sqlite" else {}).get(kind, KEYS[kind])
    key = ", ".join(column.split()[0] for column in columns.split(","))
    place, other = places(dialect), places(dialect)
    for each in (place, other):
        each.run(f"CREATE TABLE todo({columns}, changed bigint, what text, PRIMARY KEY ({key}))")
    one, two = place.install(todo.todo(batch_rows=2)), other.install(todo.todo(batch_rows=2))
    for value in values:
        place.run(f"INSERT INTO todo({key}, what) VALUES ({value}, 'new')")
    sync(two, one)
    assert place.ask("SELECT * FROM todo") and _rows(place) == _rows(other)
    other.run(f"UPDATE todo SET what = 'changed' WHERE ({key}) = ({values[0]})")
    other.run(f"DELETE FROM todo WHERE ({key}) = ({values[1]})")
    sync(two, one)
    assert _rows(place) == _rows(other) and len(_rows(place)) == len(values) - 1
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}


def _rows(place: Place) -> list[tuple[Any, ...]]:
    return sorted(place.ask("SELECT * FROM todo"), key=repr)


@pytest.mark.parametrize("dialect", ["sqlite"])
def test_keys_that_are_not_compared_byte_by_byte_are_refused(place: Place) -> None:
    place.run("CREATE TABLE todo(id text COLLATE NOCASE PRIMARY KEY, changed bigint)")
    with pytest.raises(Exception, match="byte by byte"):
        place.install(todo.todo())


def test_a_pipeline_writes_into_the_receive_view(place: Place, store: SyncStore) -> None:
    """What it writes is a change made here; of what is newer here it writes nothing."""
    todo.put(place, 1, "milk", changed=5000)
    confirm(store)
    view = "INSERT INTO \"todo_ReceiveView\"(id, what, changed{}) VALUES ({}, '{}', {}{})"
    place.run(view.format("", 1, "older", 4000, ""), view.format("", 2, "new", 4000, ""))
    place.run(view.format("", 3, "no time", "NULL", ""))
    assert todo.whats(place) == {1: "milk", 2: "new", 3: "no time"}
    assert pending(store) == {2: False, 3: False}
    yes = "true" if place.is_postgres else "1"
    place.run(view.format(", doorDeleted", 2, "", "NULL", f", {yes}"), 'DELETE FROM "todo_ReceiveView" WHERE id = 3')
    assert todo.whats(place) == {1: "milk"}
    assert pending(store) == {2: True, 3: True}
    assert stamps(place)[2] == (store.node_id, True)


def test_a_body_that_writes_something_else_makes_a_change_of_its_own(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    body = """INSERT INTO todo(id, what, changed) VALUES (NEW.id, NEW.what || '!', NEW.changed + 1)
        ON CONFLICT (id) DO UPDATE SET what = excluded.what, changed = excluded.changed"""
    one, two = todo.node(place), todo.node(other, receive=Receive(body=Sql(body)))
    todo.put(place, 1, "milk", changed=1000)
    sync(two, one)
    assert stamps(other) == {1: (two.node_id, False)}
    assert todo.whats(place) == todo.whats(other) == {1: "milk!"}


def test_lines_about_tables_that_a_store_does_not_know_are_left(place: Place) -> None:
    for table in ("todo", "done"):
        place.run(f"CREATE TABLE {table}(id bigint PRIMARY KEY, changed bigint)")
    both = place.install(todo.todo(), Entity("done", 43, "changed"))
    both.meet(PEER, WE_CALL)
    place.run("INSERT INTO done(id) VALUES (1)", "INSERT INTO todo(id) VALUES (2)")
    less = SyncStore(place.database(), [todo.todo()])
    assert less.process_changes() and not less.process_changes()
    assert less.nodes_with_pending() == {PEER: [42]}
    both.process_changes()
    assert both.nodes_with_pending() == {PEER: [42, 43]}


def test_a_tracker_can_be_inserted_by_hand(place: Place) -> None:
    store = todo.node(place, by_hand=True)
    store.meet(PEER, WE_CALL)
    todo.put(place, 1, "milk")
    todo.put(place, 2, "bread")
    assert pending(store) == {}
    place.run(f"INSERT INTO todoReplicate(trkrEntityPrimaryKey, trkrDestinationNode) VALUES (2, {PEER})")
    assert pending(store) == {2: False}
    batch = RowBatch(("id", "changed", "what", "is_done"), [(3, 1000, "x", None, 1000, PEER, False, 1000)])
    store.receive(todo.TABLE_ID, PEER, batch)
    store.mark_processed(todo.TABLE_ID, PEER, [Ack(Tracker((2,), todo.version(place, 2)))])
    assert pending(store) == {}

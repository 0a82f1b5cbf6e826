"""Installing: again and again, after the table or its declaration has changed, and taking everything away."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.sync import install
from tailrace.sync.entity import Entity, Receive, Rule, Sql, VersionKind
from tailrace.sync.exchange import RowBatch
from tailrace.sync.store import CALLS_US, WE_CALL, SyncStore
from tests.log.material import eventually
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.direct import sync
from tests.sync.places import Place, PostgresPlace

PEER = 4711
OTHER_PEER = 4712
_POSTGRES_OBJECTS = """
SELECT 'class', relname::text, relkind::text FROM pg_class WHERE relnamespace = 'public'::regnamespace
UNION ALL SELECT 'function', proname::text, prosrc FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL SELECT 'trigger', tgname::text, pg_get_triggerdef(oid) FROM pg_trigger WHERE NOT tgisinternal
UNION ALL SELECT 'column', attname::text, atttypid::regtype::text FROM pg_attribute
    WHERE attrelid = to_regclass('todo') AND attnum > 0
ORDER BY 1, 2, 3"""


def objects(place: Place) -> list[tuple[Any, ...]]:
    """Everything that has a name."""
    if place.is_postgres:
        return place.ask(_POSTGRES_OBJECTS)
    return place.ask("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite%' ORDER BY 1, 2")


def uninstall(place: Place, *entities: Entity) -> list[str]:
    database = place.database()
    return database.write(lambda link: install.uninstall(link, entities, database.dialect))


def keys(store: SyncStore, node: int = PEER) -> list[Any]:
    store.process_changes()
    return [each.key[0] for each in store.pending_trackers(todo.TABLE_ID, node, None, 1000)]


def test_installing_again_changes_nothing(place: Place) -> None:
    store = todo.node(place)
    store.meet(PEER, WE_CALL)
    todo.put(place, 1, "milk")
    store.process_changes()
    before = objects(place), todo.trackers(place)
    again = place.install(todo.todo())
    assert (objects(place), todo.trackers(place)) == before
    assert (again.node_id, again.secret) == (store.node_id, store.secret)


def test_uninstalling_leaves_the_tables_as_they_were(place: Place) -> None:
    place.run(
        todo.CREATE,
        "INSERT INTO todo VALUES (1, 5, 'milk', NULL)",
        "CREATE TABLE other(id bigint PRIMARY KEY, c bigint)",
    )
    before = objects(place), place.ask("SELECT * FROM todo")
    entities = (todo.todo(), Entity("other", 43, "c"))
    place.install(*entities).meet(PEER, WE_CALL)
    assert uninstall(place, entities[0]) == ["todo"]
    SyncStore(place.database(), entities[1:])
    assert uninstall(place, *entities) == ["other"]
    assert (objects(place), place.ask("SELECT * FROM todo")) == before
    assert uninstall(place, *entities) == []
    place.run("UPDATE todo SET what = 'bread'", "DELETE FROM todo")


MOVES = {
    "renamed": ("ALTER TABLE todo RENAME TO done", "ALTER TABLE done RENAME TO todo"),
    "moved": ("CREATE SCHEMA away; ALTER TABLE todo SET SCHEMA away", "ALTER TABLE away.todo SET SCHEMA public"),
    "with a name to be quoted": ('ALTER TABLE todo RENAME TO "To ""do"', 'ALTER TABLE "To ""do" RENAME TO todo'),
}


@pytest.mark.parametrize(
    ("dialect", "how"),
    [(dialect, how) for dialect in ("sqlite", "postgres") for how in MOVES if (dialect, how) != ("sqlite", "moved")],
)
def test_uninstalling_after_the_table_was_renamed(places: Places, dialect: str, how: str) -> None:
    place, (there, back) = places(dialect), MOVES[how]
    place.run(todo.CREATE)
    before = objects(place)
    place.install(todo.todo())
    place.run(*there.split(";"))
    assert uninstall(place, todo.todo()) == ["todo"]
    place.run(back)
    if place.is_postgres:
        assert objects(place) == before
    else:  # which writes down a name that was changed with quotes
        assert [each[:2] for each in objects(place)] == [each[:2] for each in before]


def test_rows_that_were_there_are_sent_and_equal_ones_are_not(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    rows = "INSERT INTO todo(id, changed, what) VALUES (1, 1000, 'same'), (2, {}, 'differs'), (3, NULL, 'no version')"
    place.run(todo.CREATE, rows.format(2000))
    other.run(todo.CREATE, rows.format(1999), "DELETE FROM todo WHERE id = 3")
    one, two = place.install(todo.todo()), other.install(todo.todo())
    progress = sync(two, one)
    assert (progress.fetched, progress.sent) == (2, 0) or (progress.fetched, progress.sent, progress.older) == (2, 1, 1)
    assert place.ask("SELECT * FROM todo ORDER BY id") == other.ask("SELECT * FROM todo ORDER BY id")
    assert one.quarantined() == two.quarantined() == []


def test_versions_that_were_there_and_are_no_times_become_times(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    rows = f"(1, -5, 'before 1970'), (2, {1 << 53}, 'nothing is later'), (3, 7, 'long ago'), (4, 0, 'never')"
    place.run(todo.CREATE, f"INSERT INTO todo(id, changed, what) VALUES {rows}")
    if not place.is_postgres:
        place.run("INSERT INTO todo(id, changed, what) VALUES (5, 'yesterday', 'no number')")
    one, two = place.install(todo.todo()), todo.node(other)
    sync(two, one)
    assert todo.whats(other) == todo.whats(place)
    versions = dict(other.ask("SELECT id, changed FROM todo"))
    assert (versions.pop(3), versions.pop(4)) == (7, 0)
    assert all(1_600_000_000_000 < each < 1 << 53 for each in versions.values())


def test_what_is_not_installed_cannot_be_opened(place: Place) -> None:
    place.run(todo.CREATE)
    with pytest.raises(TailraceError) as caught:
        SyncStore(place.database(), [todo.todo()])
    assert caught.value.code == "sync.not_installed"
    place.install(todo.todo())
    with pytest.raises(TailraceError) as caught:
        SyncStore(place.database(), [todo.todo(conflict=Rule.CUSTOM)])
    assert caught.value.code == "sync.not_installed" and "otherwise" in caught.value.what


def test_what_somebody_removed_is_made_again(place: Place) -> None:
    todo.node(place)
    before = objects(place)
    place.run('DROP TRIGGER "!door_42_noticed" ON todo' if place.is_postgres else "DROP TRIGGER door_42_ins")
    assert objects(place) != before
    place.install(todo.todo())
    assert objects(place) == before


def test_triggers_by_the_names_of_an_older_program_are_made_anew(places: Places) -> None:
    place = places("postgres")
    todo.node(place)
    before = objects(place)
    for now, then in (("!door_42_noticed", "door_42_noticed"), ("~door_42_versioned", "door_42_versioned")):
        place.run(f'ALTER TRIGGER "{now}" ON todo RENAME TO {then}')
    place.install(todo.todo())
    assert objects(place) == before


def test_rows_that_came_past_the_triggers_are_told_after_installing_again(place: Place) -> None:
    store = todo.node(place)
    store.meet(PEER, WE_CALL)
    todo.put(place, 1, "noticed")
    assert keys(store) == [1]
    place.run('DROP TRIGGER "!door_42_noticed" ON todo' if place.is_postgres else "DROP TRIGGER door_42_ins")
    place.run("INSERT INTO todo(id, what) VALUES (2, 'past the trigger')")
    assert keys(place.install(todo.todo())) == [1, 2]


def test_rows_that_came_while_triggers_were_disabled_are_told_after_installing_again(places: Places) -> None:
    place = places("postgres")
    store = todo.node(place)
    store.meet(PEER, WE_CALL)
    insert = "INSERT INTO todo(id, what, changed) VALUES (1, 'milk', NULL), (2, 'bread', 5)"
    place.run("ALTER TABLE todo DISABLE TRIGGER USER", insert, "ALTER TABLE todo ENABLE TRIGGER USER")
    assert keys(store) == []
    assert keys(place.install(todo.todo())) == [1, 2]
    assert place.ask("SELECT chId FROM ChangeLog") == []
    place.install(todo.todo())
    assert place.ask("SELECT chId FROM ChangeLog") == [], "they are known by now"


def test_rows_of_transactions_that_were_open_while_it_was_installed(places: Places) -> None:
    place = places("postgres")
    assert isinstance(place, PostgresPlace)
    place.run(todo.CREATE)
    waits = "SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'todo'::regclass"
    with ThreadPoolExecutor() as threads, place.connect() as writer:
        with writer.transaction():
            writer.execute("INSERT INTO todo(id, what) VALUES (1, 'not committed yet')")
            installed = threads.submit(place.install, todo.todo())
            eventually(lambda: bool(place.ask(waits)))
        store = installed.result()
    store.meet(PEER, WE_CALL)
    assert keys(store) == [1]


def test_a_transaction_that_does_not_end_is_told(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    place = places("postgres")
    assert isinstance(place, PostgresPlace)
    place.run(todo.CREATE)
    before = objects(place)
    monkeypatch.setattr(install, "_LOCK_MS", 50)
    with place.connect() as writer, writer.transaction():
        writer.execute("INSERT INTO todo(id, what) VALUES (1, 'not committed yet')")
        with pytest.raises(TailraceError) as caught:
            place.install(todo.todo())
    assert caught.value.code == "sync.busy" and "todo" in caught.value.what
    assert objects(place) == before


def test_a_new_column_travels_after_installing_again(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place), todo.node(other)
    todo.put(place, 1, "milk")
    sync(two, one)
    trackers = todo.trackers(place)
    for each in (place, other):
        each.run("ALTER TABLE todo ADD COLUMN color text DEFAULT 'white'")
    with pytest.raises(TailraceError):
        SyncStore(place.database(), [todo.todo()])
    one, two = place.install(todo.todo()), other.install(todo.todo())
    assert todo.trackers(place) == trackers
    place.run("UPDATE todo SET color = 'red'")
    sync(two, one)
    assert other.ask("SELECT color FROM todo") == [("red",)]


def test_a_column_that_is_dropped(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place), todo.node(other)
    todo.put(place, 1, "milk")
    sync(two, one)
    place.run('DROP VIEW "todo_ReceiveView"', "ALTER TABLE todo DROP COLUMN is_done")
    if place.is_postgres:
        place.run("ALTER TABLE todo ALTER COLUMN what TYPE varchar(100)")
    one = place.install(todo.todo())
    other.run("UPDATE todo SET what = 'bread', is_done = true")
    todo.put(place, 2, "cheese")
    sync(two, one)
    assert todo.whats(place) == todo.whats(other) == {1: "bread", 2: "cheese"}
    assert one.quarantined() == two.quarantined() == []


def test_a_table_that_grows_sooner_than_another(places: Places, dialect: str) -> None:
    """Who does not know a column changes nothing in it, and gets its values with it; new rows get the default."""
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place), todo.node(other)
    todo.put(place, 1, "milk")
    sync(two, one)
    place.run("ALTER TABLE todo ADD COLUMN color text NOT NULL DEFAULT 'white'", "ALTER TABLE todo ADD COLUMN n bigint")
    one = place.install(todo.todo())
    place.run("UPDATE todo SET color = 'red', n = 5 WHERE id = 1")
    sync(two, one)
    todo.put(other, 1, "bread")
    todo.put(other, 2, "new")
    sync(two, one)
    query = "SELECT id, what, color, n FROM todo ORDER BY id"
    assert place.ask(query) == [(1, "bread", "red", 5), (2, "new", "white", None)]
    other.run("ALTER TABLE todo ADD COLUMN color text NOT NULL DEFAULT 'white'")
    two = other.install(todo.todo())
    other.run("UPDATE todo SET what = 'edited before it has heard of the color' WHERE id = 2")
    sync(two, one)
    assert other.ask("SELECT id, what, color FROM todo ORDER BY id") == [
        (1, "bread", "red"),
        (2, "edited before it has heard of the color", "white"),
    ]
    assert one.quarantined() == two.quarantined() == []
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}
    versions = [each.ask("SELECT id, changed FROM todo ORDER BY id") for each in (place, other)]
    assert versions[0] == versions[1]


@pytest.mark.parametrize("declared", ["n bigint NOT NULL", "n text NOT NULL", "n boolean NOT NULL"])
def test_a_column_that_must_have_a_value_gets_that_of_its_type(places: Places, dialect: str, declared: str) -> None:
    place, other = places(dialect), places(dialect)
    other.run(f"CREATE TABLE todo(id bigint PRIMARY KEY, changed bigint, what text, is_done boolean, {declared})")
    one, two = todo.node(place), other.install(todo.todo())
    todo.put(place, 1, "milk")
    assert sync(two, one).refused == 0
    (value,) = other.ask("SELECT n FROM todo")[0]
    assert not value and value is not None


def test_who_gets_what_is_asked_anew_when_its_rule_changes(place: Place) -> None:
    store = todo.node(place, audience=Sql("todo.id < 10 AND :nodeId <> 4712"))
    for node in (PEER, OTHER_PEER):
        store.meet(node, WE_CALL)
    for key in (1, 11):
        todo.put(place, key, "milk")
    assert (keys(store), keys(store, OTHER_PEER)) == ([1], [])
    wider = place.install(todo.todo(audience=Sql("todo.id < 20")))
    assert (keys(wider), keys(wider, OTHER_PEER)) == ([1, 11], [1, 11])
    narrower = place.install(todo.todo(audience=Sql("todo.id > 10")))
    assert (keys(narrower), keys(narrower, OTHER_PEER)) == ([11], [11])
    todo.put(place, 1, "not for anybody")
    assert keys(narrower) == [11]


def test_another_rule_for_what_comes(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place), todo.node(other)
    todo.put(place, 1, "milk")
    sync(two, one)
    two = other.install(todo.todo(receive=Receive(condition=Sql("NEW.what <> 'beer'"))))
    todo.put(place, 1, "beer")
    todo.put(place, 2, "bread")
    assert sync(two, one).refused == 1
    assert todo.whats(other) == {1: "milk", 2: "bread"}


REFUSED: dict[str, tuple[str, dict[str, Any]]] = {
    "no key": ("CREATE TABLE todo(id bigint, changed bigint)", {}),
    "no unique index": ("CREATE TABLE todo(id bigint, changed bigint)", {"key": ("id",)}),
    "no table": ("CREATE TABLE other(id bigint)", {}),
    "no such version": ("CREATE TABLE todo(id bigint PRIMARY KEY)", {}),
    "a version of text": ("CREATE TABLE todo(id bigint PRIMARY KEY, changed text)", {}),
    "a hash of numbers": (
        "CREATE TABLE todo(id bigint PRIMARY KEY, changed bigint)",
        {"version_kind": VersionKind.HASH},
    ),
    "the version in the key": ("CREATE TABLE todo(id bigint, changed bigint, PRIMARY KEY (id, changed))", {}),
    "five columns": (
        "CREATE TABLE todo(a int, b int, c int, d int, e int, changed bigint, PRIMARY KEY (a, b, c, d, e))",
        {},
    ),
    "a text as a generated key": ("CREATE TABLE todo(id text PRIMARY KEY, changed bigint)", {"generate_key": True}),
}


@pytest.mark.parametrize("why", REFUSED)
def test_tables_that_cannot_be_synced(place: Place, why: str) -> None:
    create, more = REFUSED[why]
    place.run(create)
    before = objects(place)
    with pytest.raises(TailraceError) as caught:
        place.install(todo.todo(**more))
    assert caught.value.code == "config.invalid"
    assert objects(place) == before


def test_what_cannot_be_changed_without_starting_over(place: Place) -> None:
    place.run("CREATE TABLE todo(id bigint PRIMARY KEY, other bigint UNIQUE, changed bigint)")
    place.run("CREATE TABLE another(id bigint PRIMARY KEY, changed bigint)")
    place.install(todo.todo())
    entities = (todo.todo(key=("other",)), todo.todo(tracker="Otherwise"), Entity("another", 42, "changed"))
    for entity in (*entities, Entity("todo", 43, "changed")):
        with pytest.raises(TailraceError) as caught:
            place.install(entity)
        assert caught.value.code == "config.invalid" and "uninstall" in (caught.value.hint or "")


@pytest.mark.parametrize(
    "entities",
    [
        (todo.todo(), Entity("other", 42, "changed")),
        (todo.todo(), Entity("TODO", 43, "changed")),
        (todo.todo(), Entity("other", 43, "changed", tracker="todoreplicate")),
        (todo.todo(), Entity("other", 43, "changed", receive=Receive(view="todo_receiveview"))),
    ],
)
def test_entities_that_cannot_be_together(place: Place, entities: tuple[Entity, ...]) -> None:
    with pytest.raises(TailraceError) as caught:
        place.install(*entities)
    assert caught.value.code == "config.invalid"


WITHOUT_COUNTS = (
    "ALTER TABLE DoorNode DROP COLUMN ownCount",
    "ALTER TABLE DoorNode DROP COLUMN theirCount",
    "ALTER TABLE DoorSelf DROP COLUMN ownUntil",
)
"""What a program before the fourth format had not."""


def test_a_database_of_an_older_program_is_brought_up(place: Place) -> None:
    store = todo.node(place)
    store.call(PEER, "central")
    place.run(
        *WITHOUT_COUNTS,
        "ALTER TABLE DoorNode DROP COLUMN calledAs",
        "DROP INDEX door_quarantine_sender",
        "ALTER TABLE DoorQuarantine DROP COLUMN qSender",
        "ALTER TABLE DoorQuarantine DROP COLUMN qBytes",
        "UPDATE DoorSelf SET format = 1",
    )
    with pytest.raises(TailraceError) as caught:
        SyncStore(place.database(), [todo.todo()])
    assert caught.value.code == "sync.not_installed"
    again = place.install(todo.todo())
    assert (again.node_id, again.nodes()) == (store.node_id, [PEER])
    again.call(PEER, "central")
    assert place.install(todo.todo()).called("central") == PEER


def test_a_quarantine_of_an_older_program_knows_whose_rows_it_has(place: Place) -> None:
    store = todo.node(place)
    store.meet(PEER, CALLS_US)
    late = RowBatch(("id", "changed", "what"), [(1, 1 << 60, "x", 1 << 60, PEER, False, 1 << 60)])
    assert len(store.receive(todo.TABLE_ID, PEER, late).refused) == 1
    held = store.status().held
    place.run(
        *WITHOUT_COUNTS,
        "DROP INDEX door_quarantine_sender",
        "ALTER TABLE DoorQuarantine DROP COLUMN qSender",
        "ALTER TABLE DoorQuarantine DROP COLUMN qBytes",
        "UPDATE DoorSelf SET format = 2",
    )
    assert place.install(todo.todo()).status().held == held
    assert held[PEER].rows == 1


def test_a_database_of_a_newer_program_is_left_alone(place: Place) -> None:
    todo.node(place)
    place.run("UPDATE DoorSelf SET format = 99")
    with pytest.raises(TailraceError) as caught:
        place.install(todo.todo())
    assert caught.value.code == "sync.not_installed" and "newer" in caught.value.what


def test_an_audience_that_is_no_sql_is_told_at_once(place: Place) -> None:
    odd: Any = "what = 'x'"
    place.run(todo.CREATE)
    with pytest.raises(TailraceError) as caught:
        place.install(todo.todo(audience=odd))
    assert caught.value.code == "config.invalid"
    assert "has to be Sql(" in caught.value.what

"""What happens to a table while sync's triggers are away: that they are is told, and what can be known is noticed."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.sync import install
from tailrace.sync.auth import Accept
from tailrace.sync.client import SyncNode
from tailrace.sync.entity import Deletes
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer
from tailrace.sync.store import WE_CALL, SyncStore
from tailrace.sync.unnoticed import Unnoticed
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.direct import sync
from tests.sync.places import Place

PEER = 4711
REBUILD = (
    'DROP VIEW "todo_ReceiveView"',
    "CREATE TABLE new(id bigint PRIMARY KEY, changed bigint, what text CHECK (length(what) < 100), is_done boolean)",
    "INSERT INTO new SELECT * FROM todo",
    "DROP TABLE todo",
    "ALTER TABLE new RENAME TO todo",
)
"""How SQLite's manual tells one to change a table; the view is in its way."""


def lose_triggers(place: Place) -> None:
    place.run(*(("ALTER TABLE todo DISABLE TRIGGER USER",) if place.is_postgres else REBUILD))


def install_again(place: Place, **more: Any) -> Unnoticed:
    database = place.database()
    (found,) = database.write(lambda link: install.install(link, [todo.todo(**more)], database.dialect))
    return found


def opened(place: Place) -> SyncStore:
    return SyncStore(place.database(), [todo.todo()])


def same(place: Place, other: Place) -> bool:
    query = "SELECT * FROM todo ORDER BY id"
    return place.ask(query) == other.ask(query)


def test_triggers_that_are_away_are_told(place: Place) -> None:
    todo.node(place)
    lose_triggers(place)
    with pytest.raises(TailraceError) as caught:
        opened(place)
    assert (caught.value.code, caught.value.hint) == ("sync.not_installed", "tailrace sync install")
    assert "not noticed" in caught.value.what and "door_42_" in caught.value.what
    assert "door_42_" in install_again(place).told()[1]
    opened(place)
    assert install_again(place).told() == []


@pytest.mark.parametrize("dialect", ["postgres"])
def test_a_view_that_is_gone_is_told(place: Place) -> None:
    todo.node(place)
    place.run('DROP VIEW "todo_ReceiveView"')
    with pytest.raises(TailraceError, match="door_42_received"):
        opened(place)


def test_what_happened_meanwhile_is_noticed(place: Place, other: Place) -> None:
    one, two = todo.node(place), todo.node(other)
    for key in (1, 2, 3, 4):
        todo.put(place, key, "milk")
    todo.remove(place, 4)
    sync(two, one)
    later = todo.version(place, 1) + 5000
    lose_triggers(place)
    todo.put(place, 1, "with a later version", changed=later)
    todo.put(place, 2, "with an older version", changed=5)
    todo.remove(place, 3)
    todo.put(place, 4, "inserted again")
    todo.put(place, 5, "new")
    found = install_again(place)
    assert (found.gone, found.changed) == (1, 3)
    assert todo.version(place, 1) == later and todo.version(place, 2) > 5
    one = opened(place)
    sync(two, one)
    assert same(place, other) and set(todo.whats(other)) == {1, 2, 4, 5}
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}
    todo.put(place, 1, "noticed again")
    sync(two, one)
    assert same(place, other)


@pytest.mark.parametrize("dialect", ["postgres"])
def test_what_happened_while_they_were_disabled_is_noticed_though_they_fire_again(place: Place, other: Place) -> None:
    one, two = todo.node(place), todo.node(other)
    for key in (1, 2):
        todo.put(place, key, "milk")
    sync(two, one)
    place.run(
        "ALTER TABLE todo DISABLE TRIGGER USER",
        "DELETE FROM todo WHERE id = 1",
        "UPDATE todo SET what = 'bread', changed = changed + 1",
        "ALTER TABLE todo ENABLE TRIGGER USER",
    )
    opened(place)
    found = install_again(place)
    assert (found.gone, found.changed, found.were_away) == (1, 1, ())
    assert len(found.told()) == 1
    sync(two, one)
    assert same(place, other) and todo.whats(other) == {2: "bread"}


def test_a_deletion_that_is_kept_to_oneself_leaves_nothing(place: Place) -> None:
    store = todo.node(place, deletes=Deletes.KEEP)
    for key in (1, 2):
        todo.put(place, key, "milk")
    store.meet(PEER, WE_CALL)
    lose_triggers(place)
    todo.remove(place, 1)
    assert install_again(place, deletes=Deletes.KEEP).gone == 1
    assert place.ask("SELECT stEntityPrimaryKey FROM todoStamp") == [(2,)]
    assert [tracker[0] for tracker in todo.trackers(place)] == [2]


def test_the_rows_of_a_table_that_was_made_anew_come_back(place: Place, other: Place) -> None:
    """Nobody has deleted them."""
    central = todo.node(other)
    todo.node(place)
    for key in (1, 2, 3):
        todo.put(place, key, "milk")
    with SyncServer(central, options=ServerOptions(Accept.ANYONE)) as server:
        SyncNode.over(opened(place)).sync_with(server.url)
        todo.remove(place, 3)
        place.run('DROP VIEW "todo_ReceiveView"', "DROP TABLE todo", todo.CREATE)
        found = install_again(place)
        assert (found.forgotten, found.gone) == (2, 0)
        assert "asked for again" in found.told()[0]
        node = SyncNode.over(opened(place))
        node.sync_with(server.url)
        node.sync_with(server.url)
    assert todo.whats(place) == todo.whats(other) == {1: "milk", 2: "milk"}
    assert node.store.nodes_with_pending() == central.nodes_with_pending() == {}


PARTITIONED = (
    """CREATE TABLE todo(id bigint, part bigint, changed bigint, what text, PRIMARY KEY (id, part))
        PARTITION BY LIST (part)""",
    *(f"CREATE TABLE todo{number} PARTITION OF todo FOR VALUES IN ({number})" for number in (1, 2, 3)),
)


def partitioned(places: Places, **more: Any) -> tuple[Place, Place, SyncStore, SyncStore]:
    """Three rows in three partitions, and a node that has them."""
    place, other = places("postgres"), places("sqlite")
    place.run(*PARTITIONED)
    other.run("CREATE TABLE todo(id bigint, part bigint, changed bigint, what text, PRIMARY KEY (id, part))")
    one, two = place.install(todo.todo(**more)), other.install(todo.todo(**more))
    place.run("INSERT INTO todo(id, part, what) VALUES (1, 1, 'a'), (2, 2, 'b'), (3, 3, 'c')")
    sync(two, one)
    return place, other, one, two


def test_rows_of_a_partition_that_is_detached_are_deleted_with_the_next_install(places: Places) -> None:
    place, other, one, two = partitioned(places)
    place.run("ALTER TABLE todo DETACH PARTITION todo3")
    assert install_again(place).gone == 1
    sync(two, one)
    assert todo.whats(other) == {1: "a", 2: "b"}
    place.run("INSERT INTO todo(id, part, what) VALUES (2, 1, 'd')", "TRUNCATE todo3")
    sync(two, one)
    assert same(place, other) and len(other.ask("SELECT * FROM todo")) == 3


def test_a_partition_that_is_emptied(places: Places) -> None:
    place, other, one, two = partitioned(places)
    place.run("TRUNCATE todo2")
    sync(two, one)
    assert todo.whats(other) == {1: "a", 3: "c"}
    place.run("CREATE TABLE todo4 PARTITION OF todo FOR VALUES IN (4)")
    one = place.install(todo.todo())
    place.run("INSERT INTO todo(id, part, what) VALUES (4, 4, 'd')")
    sync(two, one)
    place.run("TRUNCATE todo4, todo1")
    sync(two, one)
    assert todo.whats(other) == {3: "c"} and same(place, other)
    place.run("TRUNCATE todo")
    sync(two, one)
    assert todo.whats(other) == {}
    database = place.database()
    database.write(lambda link: install.uninstall(link, [todo.todo()], database.dialect))
    assert place.ask("SELECT tgname FROM pg_trigger WHERE NOT tgisinternal") == []


def test_a_partition_that_is_emptied_where_deletes_are_kept_to_oneself(places: Places) -> None:
    place, other, one, two = partitioned(places, deletes=Deletes.KEEP)
    place.run("TRUNCATE todo2")
    sync(two, one)
    assert todo.whats(other) == {1: "a", 2: "b", 3: "c"}
    assert place.ask("SELECT stEntityPrimaryKey1 FROM todoStamp ORDER BY 1") == [(1,), (3,)]


def test_what_logical_replication_applies_is_noticed_if_triggers_always_fire(places: Places) -> None:
    """As the guide says it."""
    place, other = places("postgres"), places("sqlite")
    one, two = todo.node(place), todo.node(other)
    for key in (1, 2):
        todo.put(place, key, "milk")
    sync(two, one)
    for name in ("!door_42_noticed", "~door_42_versioned", "door_42_emptied"):
        place.run(f'ALTER TABLE todo ENABLE ALWAYS TRIGGER "{name}"')
    place.run(
        "SET LOCAL session_replication_role = replica",
        "UPDATE todo SET what = 'bread' WHERE id = 1",
        "DELETE FROM todo WHERE id = 2",
    )
    opened(place)
    sync(two, one)
    assert todo.whats(other) == {1: "bread"}

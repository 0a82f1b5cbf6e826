"""Columns that a table gets while a node runs: what others have in them comes, though the versions are known."""

from __future__ import annotations

import pytest

from tailrace.errors import TailraceError
from tailrace.sync.exchange import RowBatch
from tailrace.sync.store import WE_CALL, SyncStore
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.direct import sync
from tests.sync.places import Place

GROW = "ALTER TABLE todo ADD COLUMN extra text"


def extras(place: Place) -> dict[int, str | None]:
    return dict(place.ask("SELECT id, extra FROM todo ORDER BY id"))


def settle(caller: SyncStore, called: SyncStore) -> None:
    """A round may meet what is outdated, and the next one does not."""
    try:
        sync(caller, called)
    except TailraceError as error:
        assert error.code == "sync.busy"
    sync(caller, called)


@pytest.mark.parametrize("calls", ["the running", "the other"])
@pytest.mark.parametrize("rows", [1, 50])
def test_a_node_that_runs_on_after_installing_takes_the_new_column(
    places: Places, dialect: str, rows: int, calls: str
) -> None:
    """Another process has installed; the one that runs had ignored the column before."""
    place, other = places(dialect), places(dialect)
    place.run(todo.CREATE, GROW)
    one, running = place.install(todo.todo()), todo.node(other)
    caller, called = (running, one) if calls == "the running" else (one, running)
    place.run("INSERT INTO todo(id, what, extra) VALUES (1000, 'before', 'a')")
    sync(caller, called)
    other.run(GROW)
    other.install(todo.todo())
    for key in range(rows):
        place.ask("INSERT INTO todo(id, what, extra) VALUES (?, 'milk', 'b')", (key,))
    settle(caller, called)
    assert extras(other) == {**dict.fromkeys(range(rows), "b"), 1000: "a"}
    other.run("UPDATE todo SET what = 'bread'")
    sync(caller, called)
    assert extras(place) == {**dict.fromkeys(range(rows), "b"), 1000: "a"}
    assert one.nodes_with_pending() == running.nodes_with_pending() == {}


@pytest.mark.parametrize("calls", ["the running", "the other"])
def test_a_node_that_runs_on_after_installing_sends_the_new_column(places: Places, dialect: str, calls: str) -> None:
    place, other = places(dialect), places(dialect)
    running = todo.node(place)
    other.run(todo.CREATE, GROW)
    two = other.install(todo.todo())
    caller, called = (running, two) if calls == "the running" else (two, running)
    todo.put(place, 1, "milk")
    sync(caller, called)
    place.run(GROW)
    place.install(todo.todo())
    place.run("UPDATE todo SET extra = 'a'")
    settle(caller, called)
    assert extras(other) == {1: "a"}
    assert running.nodes_with_pending() == two.nodes_with_pending() == {}


@pytest.mark.parametrize("default", ["", " DEFAULT 'a'"])
def test_what_was_written_to_a_column_before_it_was_installed_is_sent(place: Place, other: Place, default: str) -> None:
    """The process that runs has sent the rows without it, under versions that stand for all columns."""
    running = todo.node(place)
    other.run(todo.CREATE, GROW + default)
    two = other.install(todo.todo())
    todo.put(place, 1, "milk")
    todo.put(place, 2, "bread")
    sync(running, two)
    place.run(GROW + default, "UPDATE todo SET extra = 'b' WHERE id = 1")
    sync(running, two)
    untouched = todo.version(place, 2)
    again = place.install(todo.todo())
    assert sync(again, two).sent == 1
    assert extras(other) == extras(place) == {1: "b", 2: "a" if default else None}
    assert todo.version(place, 2) == untouched
    assert sync(again, two).sent == sync(two, again).sent == 0


@pytest.mark.parametrize("meets", [False, True])
def test_a_column_that_is_renamed_at_one_node_after_the_other_is_no_edit(
    place: Place, other: Place, meets: bool
) -> None:
    one, two = (each.install(todo.todo()) for each in (place, other) if each.run(todo.CREATE, GROW) is None)
    place.run("INSERT INTO todo(id, what, extra) VALUES (1, 'milk', 'a')")
    sync(one, two)
    place.run("ALTER TABLE todo RENAME COLUMN extra TO more")
    one = place.install(todo.todo())
    place.run("UPDATE todo SET more = 'b'")
    if meets:
        sync(one, two)
    other.run("ALTER TABLE todo RENAME COLUMN extra TO more")
    two = other.install(todo.todo())
    sync(two, one)
    assert place.ask("SELECT more FROM todo") == other.ask("SELECT more FROM todo") == [("b",)]


def test_a_column_that_comes_with_values_takes_no_edit_away(place: Place, other: Place) -> None:
    one, two = todo.node(place), todo.node(other)
    todo.put(place, 1, "milk")
    sync(one, two)
    todo.put(place, 1, "bread")
    for each in (place, other):
        each.run(GROW)
    other.run("UPDATE todo SET extra = 'a', changed = changed")
    two = other.install(todo.todo())
    sync(two, place.install(todo.todo()))
    assert todo.whats(place) == todo.whats(other)


def test_what_is_declared_otherwise_by_now_is_not_guessed(place: Place, other: Place) -> None:
    one, running = todo.node(place), todo.node(other)
    todo.put(place, 1, "milk")
    sync(one, running)
    other.install(todo.todo(generate_key=True))
    todo.put(place, 1, "bread")
    with pytest.raises(TailraceError) as caught:
        sync(one, running)
    assert caught.value.code == "sync.not_installed"
    assert todo.whats(other) == {1: "milk"}


def test_rows_that_were_read_for_the_old_columns_are_sent_again(place: Place) -> None:
    """Whether what is outdated is seen when they are taken, or was seen by another request before."""
    running = todo.node(place)
    running.meet(4711, WE_CALL)
    batch = RowBatch(("id", "changed", "what"), [(1, 1000, "milk", 1000, 4711, False, 1000)], frozenset({"extra"}))
    running.receive(todo.TABLE_ID, 4711, batch)
    place.run(GROW)
    place.install(todo.todo())
    later = RowBatch(batch.columns, [(2, 1000, "bread", 1000, 4711, False, 1000)], batch.unknown)
    for _ in range(2):
        with pytest.raises(TailraceError) as caught:
            running.receive(todo.TABLE_ID, 4711, later)
        assert caught.value.code == "sync.busy"
    assert todo.whats(place) == {1: "milk"}

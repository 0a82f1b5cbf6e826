"""Rows that exchange values of which no two may have the same."""

from __future__ import annotations

import pytest

from tailrace.sync.entity import Entity
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.direct import sync
from tests.sync.places import Place

COLUMNS = {
    "text": ("text UNIQUE", "'{}'"),
    "text that must be there": ("text NOT NULL UNIQUE", "'{}'"),
    "numbers that must be there": ("integer NOT NULL UNIQUE", "{}"),
}


def made(place: Place, what: str, other: str = "") -> None:
    place.run(f"CREATE TABLE todo(id bigint PRIMARY KEY, changed bigint, what {what}{other})")


def whats(place: Place) -> list[str]:
    return [str(what) for (what,) in place.ask("SELECT what FROM todo ORDER BY id")]


def put(place: Place, key: int, what: str) -> None:
    place.run(f"UPDATE todo SET what = {what} WHERE id = {key}")


@pytest.mark.parametrize("kind", COLUMNS)
def test_rows_that_exchange_values(places: Places, dialect: str, kind: str) -> None:
    declared, value = COLUMNS[kind]
    place, other = places(dialect), places(dialect)
    for each in (place, other):
        made(each, declared)
    one, two = place.install(todo.todo()), other.install(todo.todo())
    for key in range(1, 7):
        place.run(f"INSERT INTO todo(id, what) VALUES ({key}, {value.format(key)})")
    sync(one, two)
    first, second, third, aside = (value.format(number) for number in (1, 2, 3, 99))
    place.run(
        f"UPDATE todo SET what = {aside} WHERE id = 1",
        f"UPDATE todo SET what = {first} WHERE id = 3",
        f"UPDATE todo SET what = {third} WHERE id = 2",
        f"UPDATE todo SET what = {second} WHERE id = 1",
    )
    done = sync(one, two)
    assert (done.sent, done.refused) == (3, 0)
    assert whats(other) == whats(place) == ["2", "3", "1", "4", "5", "6"]
    assert two.quarantined() == []
    stamps = "SELECT stEntityPrimaryKey, stTime, stNode FROM todoStamp ORDER BY 1"
    assert place.ask(stamps) == other.ask(stamps)
    assert sync(two, one).fetched == 0, "nobody has made a change of it"
    assert two.nodes_with_pending() == {}


def test_rows_that_refer_to_them_stay(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    for each in (place, other):
        made(each, "text NOT NULL UNIQUE")
    other.run("CREATE TABLE part(id bigint PRIMARY KEY, todo bigint REFERENCES todo(id) ON DELETE CASCADE)")
    one, two = place.install(todo.todo()), other.install(todo.todo())
    place.run("INSERT INTO todo(id, what) VALUES (1, 'a'), (2, 'b')")
    sync(one, two)
    other.run("INSERT INTO part VALUES (10, 1), (20, 2)")
    place.run(*(f"UPDATE todo SET what = '{what}' WHERE id = {key}" for what, key in (("x", 1), ("a", 2), ("b", 1))))
    sync(one, two)
    assert whats(other) == ["b", "a"]
    assert other.ask("SELECT id, todo FROM part ORDER BY id") == [(10, 1), (20, 2)]


@pytest.mark.parametrize("batch_rows", [1, 2])
def test_rows_that_come_in_parts_wait_for_each_other(places: Places, dialect: str, batch_rows: int) -> None:
    place, other = places(dialect), places(dialect)
    for each in (place, other):
        made(each, "text NOT NULL UNIQUE")
    declared = Entity("todo", todo.TABLE_ID, "changed", batch_rows=batch_rows)
    one, two = place.install(declared), other.install(declared)
    place.run("INSERT INTO todo(id, what) VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
    sync(one, two)
    swapped = (("x", 1), ("y", 2), ("d", 4), ("a", 4), ("d", 1), ("b", 3), ("c", 2))
    place.run("UPDATE todo SET what = 'z' WHERE id = 4", "UPDATE todo SET what = 'w' WHERE id = 3")
    place.run(*(f"UPDATE todo SET what = '{what}' WHERE id = {key}" for what, key in swapped))
    assert sync(one, two).refused == 0
    two.process_changes()
    assert whats(other) == whats(place) == ["d", "c", "b", "a"]
    assert two.quarantined() == []


def test_a_row_that_collides_with_one_that_stays_waits_alone(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    for each in (place, other):
        made(each, "text UNIQUE")
    one, two = place.install(todo.todo()), other.install(todo.todo())
    place.run("INSERT INTO todo(id, what) VALUES (1, 'a'), (2, 'b')")
    sync(one, two)
    other.run("INSERT INTO todo(id, what) VALUES (9, 'mine')")
    place.run(
        *(f"UPDATE todo SET what = {what} WHERE id = {key}" for what, key in (("NULL", 1), ("'a'", 2), ("'b'", 1)))
    )
    place.run("INSERT INTO todo(id, what) VALUES (3, 'mine'), (4, 'd')")
    assert sync(one, two).refused == 0
    assert whats(other) == ["b", "a", "d", "mine"]
    assert [(each.why, each.key) for each in two.quarantined()] == [("waiting", [3])]
    put(other, 9, "'another'")
    two.process_changes()
    assert other.ask("SELECT id, what FROM todo WHERE id IN (3, 9) ORDER BY id") == [(3, "mine"), (9, "another")]
    assert two.quarantined() == []


@pytest.mark.parametrize("action", ["CASCADE", "SET NULL"])
def test_what_refers_to_such_a_column_is_not_taken_along(places: Places, dialect: str, action: str) -> None:
    """A value that is parked for a moment would go into the rows that refer to it, and be sent as a change."""
    place, other = places(dialect), places(dialect)
    for each in (place, other):
        made(each, "text UNIQUE")
        each.run(f"CREATE TABLE tag(id bigint PRIMARY KEY, what text REFERENCES todo(what) ON UPDATE {action})")
    one, two = place.install(todo.todo()), other.install(todo.todo())
    place.run("INSERT INTO todo(id, what) VALUES (1, 'a'), (2, 'b')")
    sync(one, two)
    other.run("INSERT INTO tag VALUES (1, 'a'), (2, 'b')")
    place.run(
        "UPDATE todo SET what = 'c' WHERE id = 1",
        "UPDATE todo SET what = 'a' WHERE id = 2",
        "UPDATE todo SET what = 'b' WHERE id = 1",
    )
    sync(one, two)
    assert other.ask("SELECT what FROM tag ORDER BY id") == [("a",), ("b",)]
    assert [each.why for each in two.quarantined()] == ["waiting", "waiting"]

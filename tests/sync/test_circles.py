"""Tables that refer to each other in a circle: their rows wait for each other, and come together."""

from __future__ import annotations

from typing import Any, Final

import pytest

from tailrace.sync.entity import Authors, Entity, Receive, Sql
from tailrace.sync.exchange import Receipt, RowBatch
from tailrace.sync.store import SyncStore
from tests.sync.conftest import Places
from tests.sync.direct import sync
from tests.sync.lists import PAIRS
from tests.sync.places import Place

DEFERRED: Final = "DEFERRABLE INITIALLY DEFERRED"
STAMPS: Final = "SELECT stEntityPrimaryKey, stTime, stNode, stDeleted FROM {}Stamp ORDER BY 1"


def office(place: Place, boss: str = "", dept: str = "NOT NULL", **more: Any) -> SyncStore:
    """Departments with a boss who is in a department."""
    place.run("CREATE TABLE dept(id bigint PRIMARY KEY, changed bigint, boss bigint)")
    place.run(f"CREATE TABLE emp(id bigint PRIMARY KEY, changed bigint, dept bigint {dept} REFERENCES dept(id) {boss})")
    if place.is_postgres:
        place.run(f"ALTER TABLE dept ADD FOREIGN KEY (boss) REFERENCES emp(id) {boss}")
    else:
        create = f"CREATE TABLE dept(id bigint PRIMARY KEY, changed bigint, boss bigint REFERENCES emp(id) {boss})"
        place.run("DROP TABLE dept", create)
    return place.install(Entity("dept", 1, "changed", **more), Entity("emp", 2, "changed"))


def fill(place: Place, count: int) -> None:
    numbers = range(1, count + 1)
    place.run(
        *(f"INSERT INTO dept(id) VALUES ({number})" for number in numbers),
        *(f"INSERT INTO emp(id, dept) VALUES ({number}, {number})" for number in numbers),
        "UPDATE dept SET boss = id",
    )


def rows(place: Place) -> list[list[tuple[Any, ...]]]:
    return [place.ask("SELECT id, boss, changed FROM dept ORDER BY id"), place.ask("SELECT * FROM emp ORDER BY id")]


def check_equal(place: Place, other: Place, one: SyncStore, two: SyncStore) -> None:
    assert rows(place) == rows(other)
    assert one.quarantined() == two.quarantined() == []
    for table in ("dept", "emp"):
        here, there = (
            [(*stamp, bool(gone)) for *stamp, gone in each.ask(STAMPS.format(table))] for each in (place, other)
        )
        assert here == there, "nobody has made a change of it"
    done = sync(one, two)
    assert (done.sent, done.fetched) == (0, 0)
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}


@pytest.mark.parametrize("calls", ["sender", "receiver"])
@pytest.mark.parametrize("timing", ["", DEFERRED])
@pytest.mark.parametrize("kinds", [*PAIRS, ("postgres", "postgres")])
def test_rows_of_a_circle_arrive(places: Places, kinds: tuple[str, str], timing: str, calls: str) -> None:
    place, other = map(places, kinds)
    one, two = office(place, timing), office(other, timing)
    fill(place, 20)
    sync(*((one, two) if calls == "sender" else (two, one)))
    two.process_changes()
    check_equal(place, other, one, two)
    assert len(rows(other)[0]) == 20


@pytest.mark.parametrize("kinds", PAIRS)
def test_keys_that_must_be_there_and_are_looked_at_later(places: Places, kinds: tuple[str, str]) -> None:
    place, other = map(places, kinds)
    stores = []
    for each in (place, other):
        each.run("CREATE TABLE emp(id bigint PRIMARY KEY, changed bigint, dept bigint NOT NULL)")
        create = f"""CREATE TABLE dept(id bigint PRIMARY KEY, changed bigint,
            boss bigint NOT NULL REFERENCES emp(id) {DEFERRED})"""
        if each.is_postgres:
            each.run(create, f"ALTER TABLE emp ADD FOREIGN KEY (dept) REFERENCES dept(id) {DEFERRED}")
        else:
            refers = f"dept bigint NOT NULL REFERENCES dept(id) {DEFERRED}"
            each.run("DROP TABLE emp", f"CREATE TABLE emp(id bigint PRIMARY KEY, changed bigint, {refers})", create)
        stores.append(each.install(Entity("dept", 1, "changed"), Entity("emp", 2, "changed")))
    one, two = stores
    place.run("INSERT INTO dept(id, boss) VALUES (1, 1)", "INSERT INTO emp(id, dept) VALUES (1, 1)")
    sync(one, two)
    two.process_changes()
    check_equal(place, other, one, two)


def test_rows_that_wait_for_something_else_hold_up_nobody(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    one, two = office(place), office(other)
    fill(place, 3)
    place.run("INSERT INTO dept(id) VALUES (9)", "INSERT INTO emp(id, dept) VALUES (9, 9)", "UPDATE dept SET boss = id")
    ask = two.receive

    def but_one(table_id: int, sender: int, batch: RowBatch, whose: Authors = Authors.ANY) -> Receipt:
        if table_id == 2:
            batch, _ = batch.parted(3)
        return ask(table_id, sender, batch, whose)

    two.receive = but_one  # type: ignore[method-assign]
    sync(one, two)
    two.process_changes()
    assert other.ask("SELECT id, boss FROM dept ORDER BY id") == [(1, 1), (2, 2), (3, 3)]
    assert [(each.why, each.table_id, each.key) for each in two.quarantined()] == [("waiting", 1, [9])]


def test_rows_that_are_here_get_bosses_that_are_new(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    one, two = office(place), office(other)
    fill(place, 2)
    sync(one, two)
    place.run("INSERT INTO dept(id) VALUES (3)", "INSERT INTO emp(id, dept) VALUES (3, 3)")
    place.run("UPDATE dept SET boss = 3", "UPDATE emp SET dept = 3")
    sync(one, two)
    two.process_changes()
    check_equal(place, other, one, two)


def test_a_condition_that_looks_at_a_row_sees_it_as_it_came(places: Places, dialect: str) -> None:
    """In PostgreSQL such rows are not taken together: for a moment they would be otherwise."""
    place, other = places(dialect), places(dialect)
    one = office(place)
    two = office(other, receive=Receive(condition=Sql("NEW.boss IS NOT NULL")))
    fill(place, 1)
    sync(one, two)
    two.process_changes()
    assert {each.why for each in two.quarantined()} == ({"waiting"} if other.is_postgres else set())
    assert rows(other) == ([[], []] if other.is_postgres else rows(place))

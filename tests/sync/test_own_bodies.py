"""Receive views with a body of their own that makes something else of a row: it is sent once, then all are quiet."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.sync.entity import Receive, Rule, Sql
from tailrace.sync.store import SyncStore
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.direct import sync
from tests.sync.places import Place

ROUNDS_MAX = 4


def body(what: str, changed: str) -> Receive:
    return Receive(
        body=Sql(
            f"""INSERT INTO todo(id, what, changed) VALUES (NEW.id, {what}, {changed})
            ON CONFLICT (id) DO UPDATE SET what = excluded.what, changed = excluded.changed"""
        )
    )


BODIES = {
    "a version of its own": body("NEW.what", "NEW.changed + 1"),
    "an older version": body("NEW.what", "NEW.changed - 1"),
    "no version": body("NEW.what", "NULL"),
    "its own text and version": body("upper(NEW.what)", "NEW.changed + 1"),
    "its own text and no version": body("upper(NEW.what)", "NULL"),
}


def rounds(one: SyncStore, two: SyncStore) -> int:
    """How many it takes until nothing is exchanged any more."""
    for number in range(ROUNDS_MAX):
        done = sync(one, two)
        if not (done.sent or done.fetched):
            return number
    return ROUNDS_MAX


@pytest.mark.parametrize("conflict", list(Rule))
@pytest.mark.parametrize("who", ["the caller", "the called", "both"])
@pytest.mark.parametrize("made", BODIES)
def test_it_settles(place: Place, other: Place, made: str, who: str, conflict: Rule) -> None:
    own: dict[str, Any] = {"conflict": conflict, "receive": BODIES[made]}
    plain: dict[str, Any] = {"conflict": Rule.NEWER}
    one = todo.node(place, **(plain if who == "the called" else own))
    two = todo.node(other, **(plain if who == "the caller" else own))
    todo.put(place, 1, "of one")
    todo.put(other, 2, "of two")
    todo.put(place, 3, "of both, one")
    todo.put(other, 3, "of both, two")
    found = rounds(one, two)
    assert found < ROUNDS_MAX
    assert todo.whats(place) == todo.whats(other)
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}


LONGEST = Receive(
    body=Sql(
        """INSERT INTO todo(id, what, changed) VALUES (NEW.id, NEW.what, NEW.changed)
        ON CONFLICT (id) DO UPDATE SET changed = NULL,
            what = CASE WHEN length(excluded.what) > length(todo.what) THEN excluded.what ELSE todo.what END"""
    )
)


@pytest.mark.parametrize("conflict", list(Rule))
@pytest.mark.parametrize("calls", ["the longer", "the shorter"])
def test_a_body_that_merges_settles_with_the_same_at_both(
    place: Place, other: Place, calls: str, conflict: Rule
) -> None:
    own: dict[str, Any] = {"conflict": conflict, "receive": LONGEST}
    one, two = todo.node(place, **own), todo.node(other, **own)
    caller, called = (one, two) if calls == "the longer" else (two, one)
    todo.put(place, 1, "a longer text", changed=1000)
    todo.put(other, 1, "a text", changed=2000)
    if conflict is Rule.CUSTOM:
        assert rounds(caller, called) < ROUNDS_MAX
        assert todo.whats(place) == todo.whats(other) == {1: "a longer text"}
    todo.put(other, 1, "a longer text than that")
    assert rounds(caller, called) < ROUNDS_MAX
    todo.put(place, 1, "short")
    assert rounds(caller, called) < ROUNDS_MAX
    assert todo.whats(place) == todo.whats(other) == {1: "a longer text than that"}
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}


def test_a_third_node_gets_what_the_body_of_the_second_has_made(places: Places, dialect: str) -> None:
    here, middle, there = places(dialect), places(dialect), places(dialect)
    one, two, three = (
        todo.node(here, receive=BODIES["its own text and version"]),
        todo.node(middle, receive=BODIES["its own text and version"]),
        todo.node(there),
    )
    todo.put(here, 1, "milk")
    for _ in range(2):
        sync(one, two)
        sync(two, three)
    assert todo.whats(here) == todo.whats(middle) == todo.whats(there) == {1: "MILK"}
    for first, second in ((one, two), (two, three)):
        done = sync(first, second)
        assert (done.sent, done.fetched) == (0, 0)
    todo.put(there, 1, "bread")
    for _ in range(2):
        sync(two, three)
        sync(one, two)
    assert todo.whats(here) == todo.whats(middle) == todo.whats(there) == {1: "BREAD"}


def test_values_are_compared_as_the_table_has_them(places: Places) -> None:
    """What one database writes otherwise than another is not something else that a body has made."""
    place, other = places("sqlite"), places("postgres")
    columns = "place, at, price, rate, raw, doc, flag"
    kinds = "place text, at timestamptz, price numeric(10, 2), rate real, raw bytea, doc jsonb, flag boolean"
    place.run(f"CREATE TABLE todo(id bigint, {columns}, changed bigint, PRIMARY KEY (id, place))")
    other.run(f"CREATE TABLE todo(id bigint, {kinds}, changed bigint, PRIMARY KEY (id, place))")
    values = ", ".join(f"NEW.{name}" for name in columns.split(", "))
    changes = ", ".join(f"{name} = excluded.{name}" for name in columns.split(", ")[1:])
    own = f"""INSERT INTO todo(id, {columns}, changed) VALUES (NEW.id, {values}, NEW.changed + 1)
        ON CONFLICT (id, place) DO UPDATE SET {changes}, changed = excluded.changed"""
    receive = Receive(body=Sql(own))
    one, two = place.install(todo.todo(receive=receive)), other.install(todo.todo(receive=receive))
    place.run("""INSERT INTO todo(id, place, at, price, rate, raw, doc, flag)
        VALUES (1, 'here', '2024-05-01T12:00Z', 1.5, 0.1, '\\x0aff', '{"b":1,  "a":2}', 1)""")
    assert rounds(one, two) < ROUNDS_MAX
    assert other.ask("SELECT price::text, doc->>'a' FROM todo") == [("1.50", "2")]
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}

"""Spelling: a key that one database writes otherwise than it came is refused alone, and the reason shows both."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.sync.entity import Entity
from tailrace.sync.exchange import Tracker
from tailrace.sync.store import SyncStore
from tests.sync.conftest import Places
from tests.sync.direct import meet, sync
from tests.sync.places import Place

CODE, OTHER = Entity("code", 1, "changed"), Entity("other", 2, "changed", batch=200)
UPPER, LOWER = "E621E1F8-C36C-495A-93FC-0C247A3E6E5F", "e621e1f8-c36c-495a-93fc-0c247a3e6e5f"
SPELLINGS = [
    ("uuid", LOWER, UPPER),
    ("timestamptz", "2026-01-01 10:00:00+00", "2026-01-01T10:00:00Z"),
    ("date", "2026-01-01", "20260101"),
    ("char(6)", "ab", "ab "),
    ("varchar(2)", "ab", "ab "),
    ("numeric(10,2)", "1.00", "1.0"),
    ("numeric", "1.0", "1.00"),
    ("bigint", "1", "01"),
    ("boolean", "1", "true"),
    ("bytea", "\\x0a", "\\x0A"),
    ("double precision", "0.5", ".50"),
]


def made(place: Place, kind: str) -> SyncStore:
    place.run(
        f"CREATE TABLE code(id {kind} PRIMARY KEY, what text, changed bigint)",
        "CREATE TABLE other(id bigint PRIMARY KEY, changed bigint)",
    )
    return place.install(CODE, OTHER)


def put(place: Place, key: Any, what: str) -> None:
    place.ask("INSERT INTO code(id, what) VALUES (?, ?)", (key, what))


def codes(place: Place) -> dict[Any, str]:
    key = "id::text" if place.is_postgres else "id"
    return dict(place.ask(f"SELECT {key}, what FROM code"))


@pytest.mark.parametrize(("kind", "usual", "odd"), SPELLINGS)
def test_of_two_keys_that_are_one_only_the_usual_is_taken(places: Places, kind: str, usual: str, odd: str) -> None:
    """Neither the other rows nor the tables of a higher batch wait for the one that is refused."""
    laptop, central = places("sqlite"), places("postgres")
    one, two = made(laptop, "TEXT"), made(central, kind)
    put(laptop, usual, "usual")
    put(laptop, odd, "odd")
    laptop.run("INSERT INTO other(id) VALUES (1)")
    assert sync(one, two).refused == 1
    assert list(codes(central).values()) == ["usual"]
    assert central.ask("SELECT id FROM other") == [(1,)]
    (rejected,), (refused,) = one.quarantined(), two.quarantined()
    assert (rejected.why, rejected.key, refused.why, refused.key) == ("rejected", [odd], "refused", [odd])
    assert (
        rejected.reason == refused.reason and repr(odd) in refused.reason and "this database writes" in refused.reason
    )
    central.run("UPDATE code SET what = 'central'")
    sync(one, two)
    assert codes(laptop) == {usual: "central", odd: "odd"}
    laptop.ask("DELETE FROM code WHERE id = ?", (usual,))
    sync(one, two)
    assert codes(central) == {}
    assert one.nodes_with_pending() == {}


def test_the_usual_spelling_still_reaches_who_sent_the_other(places: Places) -> None:
    laptop, central = places("sqlite"), places("postgres")
    one, two = made(laptop, "TEXT"), made(central, "uuid")
    put(laptop, UPPER, "odd")
    sync(one, two)
    put(central, LOWER, "central")
    sync(one, two)
    assert codes(laptop) == {UPPER: "odd", LOWER: "central"}
    laptop.ask("DELETE FROM code WHERE id = ?", (UPPER,))
    sync(one, two)
    assert codes(laptop) == codes(central) == {LOWER: "central"}


def test_a_row_that_is_here_says_how_its_key_is_spelt(places: Places) -> None:
    """1.50 and 1.5 are one number, and both are written as they were given."""
    laptop, central = places("sqlite"), places("postgres")
    one, two = made(laptop, "TEXT"), made(central, "numeric")
    put(central, 1, "here")
    central.run("UPDATE code SET id = 1.50")
    put(laptop, "1.5", "odd")
    assert sync(one, two).refused == 1
    laptop.run("UPDATE code SET what = 'edited' WHERE id = '1.50'")
    sync(one, two)
    assert codes(central) == {"1.50": "edited"}
    assert codes(laptop) == {"1.50": "edited", "1.5": "odd"}


@pytest.mark.parametrize(("kind", "sent"), [("bigint", "TEXT"), ("text", "INTEGER"), ("numeric(9,2)", "NUMERIC")])
def test_columns_of_other_kinds_may_have_the_same_key(places: Places, kind: str, sent: str) -> None:
    """1, '1' and '1.00' come back as the key that they were."""
    laptop, central = places("sqlite"), places("postgres")
    one, two = made(laptop, sent), made(central, kind)
    put(laptop, 1, "laptop")
    assert sync(one, two).refused == 0
    central.run("UPDATE code SET what = 'central'")
    sync(one, two)
    assert list(codes(laptop).values()) == list(codes(central).values()) == ["central"]


def test_each_column_of_a_key_counts(places: Places) -> None:
    laptop, central = places("sqlite"), places("postgres")
    for place, kind in ((laptop, "TEXT"), (central, "uuid")):
        place.run(f"CREATE TABLE code(list bigint, id {kind}, what text, changed bigint, PRIMARY KEY (list, id))")
    one, two = laptop.install(CODE), central.install(CODE)
    laptop.run(f"INSERT INTO code(list, id, what) VALUES (1, '{UPPER}', 'odd'), (2, '{LOWER}', 'usual')")
    assert sync(one, two).refused == 1
    assert central.ask("SELECT list, what FROM code") == [(2, "usual")]


def test_what_was_there_before_is_not_the_same_if_it_is_spelt_otherwise(places: Places) -> None:
    """Otherwise neither side would ever say that there are two."""
    laptop, central = places("sqlite"), places("postgres")
    for place, kind, key in ((laptop, "TEXT", UPPER), (central, "uuid", LOWER)):
        place.run(
            f"CREATE TABLE code(id {kind} PRIMARY KEY, what text, changed bigint)",
            f"INSERT INTO code VALUES ('{key}', 'x', 5)",
        )
    one, two = laptop.install(CODE), central.install(CODE)
    meet(one, two)
    asked = [Tracker((UPPER,), 5, 0), Tracker((LOWER,), 5, 0)]
    assert two.already_received(1, one.node_id, asked).trackers == [asked[1]]
    assert sync(one, two).refused == 1
    assert [each.key for each in one.quarantined()] == [[UPPER]]

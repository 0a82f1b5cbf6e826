"""Rows of which no other node can be told: they stay where they are, and hold up nobody."""

from __future__ import annotations

from tailrace.sync.entity import Entity, VersionKind
from tailrace.sync.store import SyncStore
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.direct import meet, sync
from tests.sync.places import Place

NOTE = 44


def notes(place: Place) -> SyncStore:
    place.run("CREATE TABLE note(id bigint PRIMARY KEY, body text, etag text)")
    return place.install(Entity("note", NOTE, "etag", version_kind=VersionKind.HASH))


def keys(place: Place) -> list[int]:
    return [key for (key,) in place.ask("SELECT id FROM note ORDER BY id")]


def test_a_row_whose_hash_is_null_waits_alone_until_it_has_one(place: Place, other: Place) -> None:
    place.run("CREATE TABLE note(id bigint PRIMARY KEY, body text, etag text)")
    place.run("INSERT INTO note VALUES (1, 'x', 'h1'), (2, 'there before', NULL)")
    one, two = place.install(Entity("note", NOTE, "etag", version_kind=VersionKind.HASH)), notes(other)
    meet(one, two)
    place.run("INSERT INTO note VALUES (3, 'no hash', NULL), (4, 'good', 'h4')")
    other.run("INSERT INTO note VALUES (13, 'no hash', NULL), (14, 'good', 'h14')")
    sync(two, one)
    sync(one, two)
    assert keys(place) == [1, 2, 3, 4, 14]
    assert keys(other) == [1, 4, 13, 14]
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}
    kept = sorted((each.why, each.key, each.node, each.reason) for each in one.quarantined())
    assert kept == [("rejected", [key], one.node_id, "its version is NULL: set etag") for key in (2, 3)]
    assert [each.key for each in two.quarantined()] == [[13]]
    place.run("UPDATE note SET etag = 'h3' WHERE id = 3", "UPDATE note SET etag = NULL WHERE id = 4")
    sync(two, one)
    assert other.ask("SELECT id, etag FROM note ORDER BY id") == [
        (1, "h1"),
        (3, "h3"),
        (4, "h4"),
        (13, None),
        (14, "h14"),
    ]
    place.run("DELETE FROM note WHERE id IN (2, 4)")
    sync(two, one)
    assert keys(other) == [1, 3, 13, 14]


def test_a_key_of_bytes_where_texts_belong_holds_up_no_other(places: Places, dialect: str) -> None:
    place, other = places("sqlite"), places(dialect)
    for each in (place, other):
        each.run("CREATE TABLE todo(id text PRIMARY KEY, changed bigint, what text, is_done boolean)")
    place.ask("INSERT INTO todo(id, what) VALUES (?, 'bad'), ('k1', 'good')", (b"\x00\xff",))
    one, two = place.install(todo.todo()), other.install(todo.todo())
    sync(one, two)
    todo.put(place, b"\x01", "bad")
    todo.put(place, "k2", "good")
    sync(one, two)
    sync(two, one)
    assert other.ask("SELECT id FROM todo ORDER BY id") == [("k1",), ("k2",)]
    why = "its key has bytes in id, which is no column of bytes"
    assert [(each.key, each.reason) for each in one.quarantined()] == [
        ([{"$bytes": "01"}], why),
        ([{"$bytes": "00ff"}], why),
    ]
    place.run("DELETE FROM todo WHERE what = 'bad'")
    sync(one, two)
    assert one.nodes_with_pending() == {}

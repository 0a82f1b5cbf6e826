"""Texts that are none: bytes that are no UTF-8, half characters, NUL. They hold up no other row."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.sync.content import read_json
from tailrace.sync.store import WE_CALL
from tailrace.sync.wire import Wire
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.direct import sync
from tests.sync.places import Place
from tests.sync.served import Served, serve, served

__all__ = ["serve", "served"]

NO_TEXT = b"\xff\x61\xfe"


@pytest.mark.parametrize("calls", ["the sender", "the receiver"])
@pytest.mark.parametrize("more", [0, 40])
def test_bytes_that_are_no_text_hold_up_no_other(places: Places, dialect: str, calls: str, more: int) -> None:
    """SQLite keeps them as bytes, and gives them back so; PostgreSQL has nothing for them in a column of text."""
    place, other = places("sqlite"), places(dialect)
    one, two = todo.node(place), todo.node(other)
    for key in range(10, 10 + more):
        todo.put(place, key, "milk")
    todo.put(place, 1, "milk")
    place.run("INSERT INTO todo(id, what) VALUES (2, CAST(x'ff61fe' AS TEXT))")
    todo.put(place, 3, "bread")
    caller, called = (one, two) if calls == "the sender" else (two, one)
    done = sync(caller, called)
    assert done.refused == int(other.is_postgres)
    assert (todo.whats(other)[1], todo.whats(other)[3], len(todo.whats(other))) == (
        "milk",
        "bread",
        3 + more - done.refused,
    )
    if other.is_postgres:
        why = "column what, which is text, cannot keep bytes that are no text"
        (refused,), (rejected,) = two.quarantined(), one.quarantined()
        assert (refused.why, refused.key, refused.reason) == ("refused", [2], why)
        assert (rejected.why, rejected.key, rejected.reason) == ("rejected", [2], why)
        assert refused.row is not None and refused.row["what"] == {"$bytes": NO_TEXT.hex()}
        assert rejected.row is not None and rejected.row["what"] == {"$bytes": NO_TEXT.hex()}
    else:
        assert other.ask("SELECT what FROM todo WHERE id = 2") == [(NO_TEXT,)]
        other.run("UPDATE todo SET is_done = 1 WHERE id = 2")
        sync(caller, called)
        assert place.ask("SELECT CAST(what AS BLOB), is_done FROM todo WHERE id = 2") == [(NO_TEXT, 1)]
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}
    todo.put(place, 2, "a text")
    sync(caller, called)
    assert todo.whats(other)[2] == "a text"


def test_a_key_that_is_no_text_holds_up_no_other(places: Places, dialect: str) -> None:
    place, other = places("sqlite"), places(dialect)
    for each in (place, other):
        each.run("CREATE TABLE todo(id text PRIMARY KEY, changed bigint, what text, is_done boolean)")
    place.run("INSERT INTO todo(id, what) VALUES (CAST(x'ff' AS TEXT), 'bad'), ('k1', 'good')")
    one, two = place.install(todo.todo()), other.install(todo.todo())
    sync(one, two)
    place.run("INSERT INTO todo(id, what) VALUES ('k2', 'good'), (CAST(x'61fe' AS TEXT), 'bad'), ('k3', 'good')")
    sync(one, two)
    sync(two, one)
    assert other.ask("SELECT id FROM todo ORDER BY id") == [("k1",), ("k2",), ("k3",)]
    why = "its key has text in id that is no UTF-8"
    assert [(each.why, each.key, each.reason) for each in one.quarantined()] == [
        ("rejected", [{"$bytes": "61fe"}], why),
        ("rejected", [{"$bytes": "ff"}], why),
    ]
    place.run("DELETE FROM todo WHERE what = 'bad'")
    done = sync(one, two)
    assert (done.sent, done.refused) == (0, 0)
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}


def test_bytes_that_are_no_text_can_lose(places: Places, dialect: str) -> None:
    place, other = places("sqlite"), places(dialect)
    one, two = todo.node(place), todo.node(other)
    place.run("INSERT INTO todo(id, what, changed) VALUES (2, CAST(x'ff61fe' AS TEXT), 1000)")
    todo.put(other, 2, "newer", changed=2000)
    sync(one, two)
    assert todo.whats(place) == todo.whats(other) == {2: "newer"}
    lost = [each for each in (*one.quarantined(), *two.quarantined()) if each.why == "lost"]
    assert [each.row and each.row["what"] for each in lost] == [{"$bytes": NO_TEXT.hex()}]


HALF = rb'[{"id": 1, "what": "milk", "changed": 1000}, {"id": 2, "what": "a\ud83d", "changed": 1000}]'


def test_half_a_character_holds_up_no_other_row(served: Served) -> None:
    """As a page in a browser may send it."""
    answer = served.client().put("receive?tableId=42", content=HALF, headers={"content-type": "application/json"})
    assert answer.status_code == 200
    is_postgres = served.address.startswith("postgres")
    assert [each["primaryKey"] for each in answer.json()["refused"]] == ([2] if is_postgres else [])
    expected: list[tuple[Any, ...]] = [(1, "milk")]
    assert served.ask("SELECT id, what FROM todo ORDER BY id") == (
        expected if is_postgres else [*expected, (2, b"a\xed\xa0\xbd")]
    )
    kept = [each.row and each.row["what"] for each in served.store.quarantined()]
    assert kept == ([{"$bytes": "61eda0bd"}] if is_postgres else [])


@pytest.mark.parametrize(
    "content",
    [
        rb'[{"\ud83d": 1}]',
        rb'["\ud83d"]',
        rb'{"what": "\ud83d"}',
        rb'[{"what": "\ud83d", "weight": NaN}]',
        rb'[{"what": "\ud83d"}',
        rb'[{"what": "\ud83d", "id": ' + b"9" * 5000 + b"}]",
        rb'[{"what": "\ud83d", "id": ' + b"[" * 100_000 + b"]" * 100_000 + b"}]",
        b'[{"what": "\xed\xa0\xbd"}]',
    ],
)
def test_half_characters_excuse_nothing_else(content: bytes) -> None:
    with pytest.raises(TailraceError) as caught:
        read_json(content)
    assert caught.value.code == "sync.malformed"


@pytest.mark.parametrize("more", [0, 40])
def test_nul_in_a_text_holds_up_no_other_row(places: Places, more: int) -> None:
    place, other = places("sqlite"), places("postgres")
    one, two = todo.node(place), todo.node(other)
    for key in range(10, 10 + more):
        todo.put(place, key, "milk")
    todo.put(place, 1, "a\0b")
    todo.put(place, 2, "milk")
    assert sync(one, two).refused == 1
    assert 1 not in todo.whats(other) and len(todo.whats(other)) == 1 + more
    (refused,), (rejected,) = two.quarantined(), one.quarantined()
    assert refused.row is not None and refused.row["what"] == "a\0b" and refused.reason
    assert rejected.row is not None and rejected.row["what"] == "a\0b"


def test_a_reason_with_nul_is_kept_without_it(place: Place) -> None:
    store = todo.node(place)
    store.meet(4711, WE_CALL)
    todo.put(place, 1, "milk")
    store.process_changes()
    told = [{"primaryKey": 1, "versionId": todo.version(place, 1), "refused": "no\0thing"}]
    store.mark_processed(todo.TABLE_ID, 4711, Wire(store.shape(todo.TABLE_ID)).read_acks(told))
    assert [each.reason for each in store.quarantined()] == ["nothing"]

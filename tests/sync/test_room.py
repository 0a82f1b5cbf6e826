"""Room in quarantine: one node cannot fill the disk of another, and what is left is not lost."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.sync.auth import Accept
from tailrace.sync.client import SyncNode
from tailrace.sync.entity import Entity, Receive, Sql
from tailrace.sync.exchange import Ack, RowBatch, Tracker
from tailrace.sync.room import Room, RoomLimit
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer
from tailrace.sync.store import SyncStore
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.direct import meet, sync
from tests.sync.places import Place
from tests.sync.served import TODO, Serve, serve

__all__ = ["serve"]

FOUR = RoomLimit(rows_max=4)
NO_BAD_ONES = Receive(condition=Sql("NEW.what <> 'bad'"))
BAD, GOOD = range(1, 11), range(101, 106)
PEER = 77


def limited(place: Place, limit: RoomLimit, *others: Entity, **more: Any) -> SyncStore:
    return SyncStore.install(place.database(), [todo.todo(**more), *others], limit)


def fill(place: Place) -> None:
    for key in BAD:
        todo.put(place, key, "bad")
    for key in GOOD:
        todo.put(place, key, "good")


@pytest.mark.parametrize("is_called", [True, False], ids=["called", "calling"])
def test_what_there_is_no_room_for_stays_with_its_sender(places: Places, dialect: str, is_called: bool) -> None:
    """Over HTTP, whichever of the two calls; rows of a higher batch do not wait for those that are left."""
    sender, receiver = places("sqlite"), places(dialect)
    for place in (sender, receiver):
        place.run(todo.CREATE, "CREATE TABLE note(id bigint PRIMARY KEY, changed bigint, body text)")
    note = Entity("note", 7, "changed", batch=200)
    one = sender.install(todo.todo(batch_rows=2), note)
    two = limited(receiver, FOUR, note, receive=NO_BAD_ONES, batch_rows=2)
    fill(sender)
    sender.run("INSERT INTO note(id, body) VALUES (1, 'higher')")
    calling, called = (one, two) if is_called else (two, one)
    with SyncServer(called, options=ServerOptions(Accept.ANYONE)) as server:
        done = SyncNode.over(calling).sync_with(server.url)
        assert (done.refused, done.left, done.sent + done.fetched) == (4, 6, 4 + 5 + 1)
        (warning,) = done.warnings
        assert "rows of table todo were left" in warning and "did not take it" in warning
        assert set(todo.whats(receiver)) == set(GOOD)
        assert receiver.ask("SELECT body FROM note") == [("higher",)]
        assert [len(store.quarantined()) for store in (one, two)] == [4, 4]
        assert one.status().entities[0].pending == {two.node_id: 6}, "they are not lost"
        found = two.status()
        assert found.full == [one.node_id] and found.held[one.node_id].rows == 4
        again = SyncNode.over(calling).sync_with(server.url)
        assert (again.refused, again.left, again.sent, again.fetched) == (0, 6, 0, 0)
        assert two.release_all(one.node_id) == 4
        done = SyncNode.over(calling).sync_with(server.url)
        assert (done.refused, done.left) == (4, 2)


def test_rows_that_are_mended_go_through_though_there_is_no_room(place: Place, other: Place) -> None:
    one = todo.node(other)
    place.run(todo.CREATE)
    two = limited(place, FOUR, receive=NO_BAD_ONES)
    fill(other)
    assert sync(one, two).left == 6
    for key in BAD:
        todo.put(other, key, "mended")
    done = sync(one, two)
    assert (done.left, done.warnings) == (0, ())
    assert todo.whats(place) == todo.whats(other)


def test_bytes_count_too(place: Place, other: Place) -> None:
    one = todo.node(other)
    place.run(todo.CREATE)
    two = limited(place, RoomLimit(bytes_max=1500), receive=Receive(condition=Sql("length(NEW.what) < 10")))
    for key in range(1, 9):
        todo.put(other, key, "x" * 1000)
    done = sync(one, two)
    assert (done.refused, done.left) == (2, 6)
    assert 2000 < two.status().held[one.node_id].bytes < 2600


def test_an_edit_that_would_lose_without_a_trace_does_not_lose(place: Place, other: Place) -> None:
    one = todo.node(other)
    place.run(todo.CREATE)
    two = limited(place, RoomLimit(rows_max=1))
    for key in (1, 2, 3):
        todo.put(place, key, f"here {key}", changed=1000 + key)
        todo.put(other, key, f"there {key}", changed=2000 + key)
    meet(one, two)
    one.process_changes()
    receipt = two.receive(todo.TABLE_ID, one.node_id, one.pending_rows(todo.TABLE_ID, two.node_id, None, 10))
    assert [ack.tracker.key for ack in receipt.left] == [(2,), (3,)]
    assert todo.whats(place) == {1: "there 1", 2: "here 2", 3: "here 3"}
    sync(two, one)
    assert todo.whats(place) == todo.whats(other) == {key: f"there {key}" for key in (1, 2, 3)}
    kept = [each.row and each.row["what"] for store in (two, one) for each in store.quarantined()]
    assert sorted(map(str, kept)) == ["here 1", "here 2", "here 3"], "where there is no room, the other node keeps it"


def test_rows_that_would_have_to_wait_are_left_too(place: Place, other: Place) -> None:
    tables = (
        "CREATE TABLE parent(id bigint PRIMARY KEY, changed bigint)",
        "CREATE TABLE child(id bigint PRIMARY KEY, changed bigint, parent bigint REFERENCES parent)",
    )
    child, parent = Entity("child", 1, "changed"), Entity("parent", 2, "changed")
    other.run("CREATE TABLE child(id bigint PRIMARY KEY, changed bigint, parent bigint)", tables[0])
    place.run(*tables)
    one = other.install(child, parent)
    two = SyncStore.install(place.database(), [child, parent], RoomLimit(rows_max=2))
    meet(one, two)
    for key in range(1, 6):
        other.run(f"INSERT INTO parent(id) VALUES ({key})", f"INSERT INTO child(id, parent) VALUES ({key}, {key})")
    one.process_changes()
    rows = one.pending_rows(1, two.node_id, None, 100)
    receipt = two.receive(1, one.node_id, rows)
    assert [ack.tracker.key for ack in receipt.left] == [(3,), (4,), (5,)]
    one.mark_processed(1, two.node_id, [Ack(Tracker((key,), rows.rows[key - 1][1], one.node_id)) for key in (1, 2)])
    fewer = SyncStore(place.database(), [child, parent], RoomLimit(rows_max=1))
    assert not fewer.process_changes(), "they wait on, though there would be no room for them today"
    assert len(fewer.quarantined()) == 2
    sync(one, fewer)
    sync(one, fewer)
    assert place.ask("SELECT id, parent FROM child ORDER BY id") == [(key, key) for key in range(1, 6)]
    assert fewer.quarantined() == []


def test_nobody_rejects_what_it_was_never_to_get_nor_more_than_there_is_room_for(place: Place) -> None:
    place.run(todo.CREATE)
    store = limited(place, FOUR)
    for key in BAD:
        todo.put(place, key, "x")
    store.meet(PEER, 2)
    store.process_changes()
    strange = [Ack(Tracker((key,), 5, 1), "no") for key in range(1000, 1100)]
    store.mark_processed(todo.TABLE_ID, PEER, strange)
    assert store.quarantined() == []
    mine = [Ack(tracker, "no") for tracker in store.pending_trackers(todo.TABLE_ID, PEER, None, 100)]
    assert len(mine) == 10
    store.mark_processed(todo.TABLE_ID, PEER, mine)
    assert len(store.quarantined()) == 4
    assert len(store.pending_trackers(todo.TABLE_ID, PEER, None, 100)) == 6, "these stay pending"
    store.mark_processed(todo.TABLE_ID, PEER, mine[:4])
    assert len(store.quarantined()) == 4, "what was said before is said again"


def test_a_caller_that_does_not_read_receipts_sees_an_error(serve: Serve) -> None:
    """Its rows are kept where they are, then; what can be taken is taken even so."""
    served = serve(accept=Accept.KNOWN)
    served.store._taking._limit = RoomLimit(rows_max=1)
    late = 1 << 60
    rows = [{"id": key, "what": "x", "changed": late, "doorTime": late} for key in (1, 2, 3)]
    answer = served.client().put("receive", params={"tableId": TODO}, json=[*rows, {"id": 4, "changed": 9}])
    assert answer.status_code == 507
    told = answer.json()
    assert told["error"]["code"] == "sync.left"
    assert [each["primaryKey"] for each in told["refused"]] == [1]
    assert [each["primaryKey"] for each in told["left"]] == [2, 3]
    assert served.ask("SELECT id FROM todo") == [(4,)]


def test_a_row_that_is_in_quarantine_already_needs_no_room(place: Place) -> None:
    place.run(todo.CREATE)
    store = limited(place, RoomLimit(rows_max=1), receive=NO_BAD_ONES)
    store.meet(PEER, 2)
    batch = RowBatch(("id", "changed", "what"), [(1, 10, "bad", 10, PEER, False, 10)])
    for _ in range(2):
        receipt = store.receive(todo.TABLE_ID, PEER, batch)
        assert (len(receipt.refused), receipt.left) == (1, [])


def test_room_is_given_back(place: Place) -> None:
    store = todo.node(place)
    room = Room(RoomLimit(rows_max=1))
    shape = store.shape(todo.TABLE_ID)

    def ask() -> bool:
        return store.database.read(lambda link: room.take(link, shape, PEER, 10))

    assert [ask(), ask()] == [True, False]
    room.forget()
    assert ask()

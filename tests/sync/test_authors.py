"""Authors: in whose name a node may send rows."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.sync.entity import Authors, Deletes, Receive, Sql
from tailrace.sync.exchange import Receipt, RowBatch
from tailrace.sync.meeting import wall_clock_ms
from tailrace.sync.store import CALLS_US, SyncStore
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.direct import sync
from tests.sync.places import Place
from tests.sync.served import ALICE, BOB, Serve, serve

__all__ = ["serve"]  # a fixture

PEER = 4711
OTHER = 4712
COLUMNS = ("id", "changed", "what", "is_done")
LATE = wall_clock_ms() + 3_600_000
WAYS: dict[str, dict[str, Any]] = {
    "many at once": {},
    "one by one": {"receive": Receive(condition=Sql("NEW.id < 1000"))},
}


def sent(store: SyncStore, *rows: tuple[int, int, int], gone: bool = False, whose: Authors = Authors.ANY) -> Receipt:
    """Rows of a peer: key, time and author."""
    told: list[tuple[Any, ...]] = [(key, time, "told", None, time, node, gone, time) for key, time, node in rows]
    return store.receive(todo.TABLE_ID, PEER, RowBatch(COLUMNS, told), whose)


@pytest.fixture(params=WAYS)
def store(place: Place, request: pytest.FixtureRequest) -> SyncStore:
    found = todo.node(place, **WAYS[request.param])
    found.meet(PEER, CALLS_US)
    todo.put(place, 1, "own")
    return found


def own(place: Place) -> tuple[int, int]:
    ((time, node),) = place.ask("SELECT stTime, stNode FROM todoStamp WHERE stEntityPrimaryKey = 1")
    return time, node


@pytest.mark.parametrize("gone", [False, True])
def test_nobody_makes_versions_in_the_name_of_the_node_that_takes_them(
    place: Place, store: SyncStore, gone: bool
) -> None:
    oneself = store.node_id
    receipt = sent(store, (1, LATE, oneself), (2, LATE, oneself), (3, LATE, PEER), gone=gone)
    assert [ack.tracker.key for ack in receipt.left] == [(1,), (2,)]
    assert "tailrace sync resync" in (receipt.left[0].refused or "")
    assert todo.whats(place) == ({1: "own"} if gone else {1: "own", 3: "told"})
    assert receipt.refused == [] and store.quarantined() == []


def test_a_version_that_this_node_made_may_come_back(place: Place, store: SyncStore) -> None:
    time, oneself = own(place)
    assert sent(store, (1, time, oneself)) == Receipt()
    assert [each.key for each in sent(store, (1, time - 1, oneself)).older] == [(1,)]
    assert todo.whats(place) == {1: "own"}


def test_after_a_resync_own_versions_are_taken_from_others(place: Place, store: SyncStore) -> None:
    time = own(place)[0]
    store.resync()
    receipt = sent(store, (2, time, store.node_id), (3, LATE, store.node_id))
    assert [ack.tracker.key for ack in receipt.left] == [(3,)]
    assert todo.whats(place) == {1: "own", 2: "told"}


def test_who_forgets_deletions_cannot_know_what_it_has_made(place: Place) -> None:
    store = todo.node(place, deletes=Deletes.KEEP)
    store.meet(PEER, CALLS_US)
    assert sent(store, (1, LATE, store.node_id)).left == []
    assert todo.whats(place) == {1: "told"}


def test_a_row_that_is_left_comes_when_its_author_says_that_it_was_set_back(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place), todo.node(other)
    sync(one, two)
    two.receive(
        todo.TABLE_ID, one.node_id, RowBatch(COLUMNS, [(1, 9, "lost", None, 9, one.node_id, False, 9)])
    )  # it was sent by the first node, which does not know it any more
    other.run("UPDATE todoReplicate SET trkrProcessed = false")
    place.run("UPDATE DoorSelf SET ownUntil = 0")
    done = sync(one, two)
    assert (done.fetched, done.left, todo.whats(place)) == (0, 1, {})
    assert any("tailrace sync resync" in warning for warning in done.warnings)
    one.resync()
    assert sync(one, two).fetched == 1
    assert todo.whats(place) == {1: "lost"}


def test_those_who_call_send_only_what_is_their_own(place: Place, store: SyncStore) -> None:
    rows = [(2, LATE, OTHER), (3, LATE, PEER), (4, LATE, 0)]
    receipt = sent(store, *rows, whose=Authors.OWN)
    assert [ack.tracker.key for ack in receipt.refused] == [(2,)]
    assert sorted(todo.whats(place)) == [1, 3, 4]
    (kept,) = store.quarantined()
    assert (kept.why, kept.key, kept.sender) == ("refused", [2], PEER)
    assert kept.reason == f"node {OTHER} made it, and those who call may send only what is their own (authors: own)"


def test_what_is_here_anyway_may_come_from_anybody(store: SyncStore) -> None:
    sent(store, (2, 1000, OTHER))
    assert sent(store, (2, 1000, OTHER), whose=Authors.OWN).refused == []
    assert store.quarantined() == []
    assert [each.key for each in sent(store, (2, 5, OTHER), whose=Authors.OWN).older] == [(2,)]


def test_a_server_says_whose_rows_it_takes(serve: Serve) -> None:
    served = serve(authors=Authors.OWN)
    rows = [{"id": 1, "changed": 1000, "doorNode": BOB}, {"id": 2, "changed": 1000, "doorNode": ALICE}]
    answer = served.client(ALICE).put("receive?tableId=42", json=rows).json()
    assert [each["primaryKey"] for each in answer["refused"]] == [1]
    assert served.ask("SELECT id FROM todo") == [(2,)]

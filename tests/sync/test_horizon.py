"""Rows from the far future: nobody takes them, and no application makes them, for nobody could change them again."""

from __future__ import annotations

import time
from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.sync.clock import ClockPolicy, ClockRule
from tailrace.sync.entity import Entity, VersionKind
from tailrace.sync.exchange import RowBatch
from tailrace.sync.store import WE_CALL, SyncStore
from tests.sync import todo
from tests.sync.conftest import Places
from tests.sync.direct import sync
from tests.sync.places import Place

PEER = 4711
COLUMNS = ("id", "changed", "what", "is_done")
DAY_MS = 86_400_000
LAST = (1 << 53) - 1
FAR = {"the last time": LAST, "nanoseconds": 1 << 60, "two days": int(time.time() * 1000) + 2 * DAY_MS}


def row(key: int, changed: int, what: str = "x", gone: bool = False) -> tuple[Any, ...]:
    return (key, changed, what, None, changed, PEER, gone, changed)


def set_clock(place: Place, ahead_ms: int) -> None:
    place.run(f"UPDATE DoorSelf SET clockShift = {ahead_ms}")


@pytest.mark.parametrize("told", FAR)
def test_an_application_cannot_put_a_row_out_of_everybody_s_reach(place: Place, other: Place, told: str) -> None:
    one, two = todo.node(place), todo.node(other)
    todo.put(place, 1, "inserted", changed=FAR[told])
    todo.put(place, 2, "milk")
    todo.put(place, 2, "changed", changed=FAR[told])
    assert todo.version(place, 1) < time.time() * 1000 + DAY_MS
    assert todo.version(place, 2) < time.time() * 1000 + DAY_MS
    sync(one, two)
    todo.put(other, 1, "changed by another")
    todo.put(other, 2, "changed by another")
    assert sync(one, two).refused == 0
    assert todo.whats(place) == todo.whats(other) == {1: "changed by another", 2: "changed by another"}


def test_rows_that_are_there_already_come_back_from_the_far_future(place: Place, other: Place) -> None:
    for each in (place, other):
        each.run(todo.CREATE)
    place.run(f"INSERT INTO todo(id, what, changed) VALUES (1, 'milk', {LAST}), (2, 'bread', 5000)")
    one, two = place.install(todo.todo()), other.install(todo.todo())
    assert todo.version(place, 1) < time.time() * 1000 + DAY_MS and todo.version(place, 2) == 5000
    assert sync(one, two).refused == 0
    todo.put(other, 1, "changed by another")
    sync(one, two)
    assert todo.whats(place) == {1: "changed by another", 2: "bread"}


@pytest.mark.parametrize("told", FAR)
def test_rows_of_the_far_future_are_refused_alone(place: Place, told: str) -> None:
    store = todo.node(place)
    store.meet(PEER, WE_CALL)
    todo.put(place, 4, "stays")
    late = FAR[told]
    soon = int(time.time() * 1000) + DAY_MS // 2
    batch = RowBatch(COLUMNS, [row(1, 1000), row(2, late, "late"), row(3, soon), row(4, late, gone=True)])
    receipt = store.receive(todo.TABLE_ID, PEER, batch)
    assert [ack.tracker.key for ack in receipt.refused] == [(2,), (4,)]
    assert todo.whats(place) == {1: "x", 3: "x", 4: "stays"}
    kept = {each.key[0]: each for each in store.quarantined()}
    assert {key: (each.why, each.node, each.version) for key, each in kept.items()} == {
        key: ("refused", PEER, str(late)) for key in (2, 4)
    }
    assert "more than 1.0 d ahead of this node's clock" in kept[2].reason
    assert kept[2].row is not None and kept[2].row["what"] == "late"
    todo.put(place, 2, "written here")
    assert todo.version(place, 2) < time.time() * 1000 + DAY_MS


def test_what_was_written_while_a_clock_was_years_ahead_is_told_on_both_sides(place: Place, other: Place) -> None:
    one, two = todo.node(place), todo.node(other)
    todo.put(other, 1, "milk")
    todo.put(other, 2, "bread")
    sync(one, two)
    set_clock(place, 3650 * DAY_MS)
    todo.put(place, 1, "in ten years")
    set_clock(place, 0)
    todo.put(place, 2, "today")
    assert sync(one, two).refused == 1
    assert todo.whats(other) == {1: "milk", 2: "today"}
    assert [(each.why, each.key) for each in two.quarantined()] == [("refused", [1])]
    assert [(each.why, each.key, each.node) for each in one.quarantined()] == [("rejected", [1], two.node_id)]
    for _ in range(2):
        done = sync(one, two)
        assert (done.sent, done.fetched, done.refused) == (0, 0, 0)
    assert one.nodes_with_pending() == two.nodes_with_pending() == {}


def test_a_refused_row_is_taken_when_the_receiver_s_clock_is_set(place: Place, other: Place) -> None:
    """It was the receiver's that was wrong; the sender says so with `retry`."""
    one, two = todo.node(place), todo.node(other)
    set_clock(other, -2 * DAY_MS)
    todo.put(place, 1, "milk")
    assert sync(one, two).refused == 1
    set_clock(other, 0)
    (rejected,) = one.quarantined()
    assert one.send_again(rejected.id)
    sync(one, two)
    assert todo.whats(other) == {1: "milk"}


def test_the_limit_is_the_node_s_own(place: Place, other: Place) -> None:
    one = todo.node(place)
    other.run(todo.CREATE)
    two = SyncStore.install(other.database(), [todo.todo()], ahead_max_s=60)
    todo.put(place, 1, "soon", changed=int(time.time() * 1000) + 3_600_000)
    todo.put(place, 2, "now")
    assert sync(one, two).refused == 1
    assert todo.whats(other) == {2: "now"}


def test_hashes_have_a_time_too(place: Place, other: Place) -> None:
    note = Entity("note", 44, "etag", version_kind=VersionKind.HASH)
    for each in (place, other):
        each.run("CREATE TABLE note(id bigint PRIMARY KEY, body text, etag text)")
    one, two = place.install(note), other.install(note)
    set_clock(place, 3650 * DAY_MS)
    place.run("INSERT INTO note VALUES (1, 'in ten years', 'h1')")
    set_clock(place, 0)
    place.run("INSERT INTO note VALUES (2, 'today', 'h2')")
    assert sync(one, two).refused == 1
    assert other.ask("SELECT id FROM note") == [(2,)]


def test_nodes_whose_clocks_are_days_apart_exchange_nothing() -> None:
    """Otherwise one of them would refuse all that the other has changed, row by row."""
    for ahead_ms in (2 * DAY_MS, -2 * DAY_MS):
        with pytest.raises(TailraceError) as refused:
            ClockRule(ClockPolicy.WARN).judge("central", ahead_ms)
        assert refused.value.code == "sync.clock" and "2.0 d" in refused.value.what
        assert ClockRule(ClockPolicy.CORRECT).judge("central", ahead_ms).shift_ms == ahead_ms
        assert ClockRule(ClockPolicy.WARN, ahead_max_s=7 * 86_400).judge("central", ahead_ms).warning


def test_a_conflict_with_a_clock_that_is_hours_ahead_still_converges(places: Places, dialect: str) -> None:
    place, other = places(dialect), places(dialect)
    one, two = todo.node(place), todo.node(other)
    set_clock(place, 20 * 3_600_000)
    todo.put(place, 1, "by a clock that is ahead")
    sync(one, two)
    todo.put(other, 1, "later, by one that is right")
    assert sync(one, two).refused == 0
    assert todo.whats(place) == todo.whats(other) == {1: "later, by one that is right"}

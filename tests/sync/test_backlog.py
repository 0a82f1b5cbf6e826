"""How much waits for other nodes, and for how long."""

from __future__ import annotations

import time
from typing import Final

from tailrace.observe.model import Kind, Lag
from tailrace.observe.syncs import overview_of_sync
from tailrace.sync.entity import Sql, VersionKind
from tailrace.sync.store import CALLS_US, SyncStore
from tests.sync.places import Place
from tests.sync.todo import CREATE, node, put, todo

DEVICE: Final = 4711
OTHER: Final = 4712
HOUR_S: Final = 3600


def met(store: SyncStore, *devices: int) -> SyncStore:
    for device in devices:
        store.meet(device, CALLS_US)
    return store


def set_time(place: Place, key: int, at_ms: int) -> None:
    place.run(f"UPDATE todoStamp SET stTime = {at_ms:d} WHERE stEntityPrimaryKey = {key:d}")


def lag_of(store: SyncStore, device: int) -> Lag | None:
    name = f"node {device}"
    (found,) = (part.lag for part in overview_of_sync("x.yml", store).of(Kind.SYNC) if part.name == name)
    return found


def test_the_oldest_row_says_how_long_a_node_is_behind(place: Place) -> None:
    store = met(node(place), DEVICE)
    assert lag_of(store, DEVICE) == Lag(0, None, 0.0)
    put(place, 1, "old")
    put(place, 2, "new")
    store.process_changes()
    set_time(place, 1, int((time.time() - HOUR_S) * 1000))
    found = lag_of(store, DEVICE)
    assert found is not None and found.seconds is not None
    assert (found.messages, found.bytes) == (2, None)
    assert HOUR_S <= found.seconds < 2 * HOUR_S


def test_a_clock_that_is_ahead_makes_no_lag_below_nothing(place: Place) -> None:
    store = met(node(place), DEVICE)
    put(place, 1, "from the future")
    store.process_changes()
    set_time(place, 1, int((time.time() + HOUR_S) * 1000))
    assert lag_of(store, DEVICE) == Lag(1, None, 0.0)


def test_a_clock_that_is_corrected_counts_as_it_is_corrected(place: Place) -> None:
    store = met(node(place), DEVICE)
    put(place, 1, "by the corrected clock")
    store.process_changes()
    place.run(f"UPDATE DoorSelf SET clockShift = {-HOUR_S * 1000}")
    set_time(place, 1, int((time.time() - HOUR_S) * 1000))
    found = lag_of(store, DEVICE)
    assert found is not None and found.seconds is not None
    assert found.seconds < HOUR_S, "it was changed just now"


def test_what_a_node_may_not_have_does_not_wait_for_it(place: Place) -> None:
    place.run(CREATE)
    store = met(place.install(todo(audience=Sql(f"todo.what = 'open' OR :nodeId = {OTHER}"))), DEVICE, OTHER)
    put(place, 1, "open")
    put(place, 2, "open")
    store.process_changes()
    place.run("UPDATE todo SET what = 'closed' WHERE id = 2")
    assert store.status().entities[0].pending == {DEVICE: 1, OTHER: 2}
    assert {each.node: each.waiting for each in store.standings()} == {DEVICE: 1, OTHER: 2}
    place.run("DELETE FROM todo WHERE id = 2")
    assert store.status().entities[0].pending == {DEVICE: 2, OTHER: 2}, "deletions go to all who have it"


def test_versions_that_are_a_hash(place: Place) -> None:
    place.run("CREATE TABLE todo(id bigint PRIMARY KEY, changed text, what text)")
    store = met(place.install(todo(version_kind=VersionKind.HASH)), DEVICE)
    place.run("INSERT INTO todo VALUES (1, 'aa', 'x'), (2, NULL, 'nobody can be told of it')")
    store.process_changes()
    found = lag_of(store, DEVICE)
    assert found is not None and found.seconds is not None
    assert found.messages == 1

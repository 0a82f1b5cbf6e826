"""Clocks that show another time."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tailrace.errors import TailraceError
from tailrace.sync.auth import Accept
from tailrace.sync.client import SyncNode
from tailrace.sync.clock import ClockPolicy, ClockRule, ahead_ms
from tailrace.sync.server import ServerOptions
from tailrace.sync.serving import SyncServer
from tailrace.sync.store import SyncStore
from tests.sync.conftest import Places
from tests.sync.places import Place
from tests.sync.todo import CREATE, node, put, todo, version, whats

HOUR_MS = 3_600_000


@contextmanager
def served(store: SyncStore) -> Iterator[str]:
    with SyncServer(store, options=ServerOptions(Accept.ANYONE)) as server:
        yield server.url


def late(place: Place, policy: ClockPolicy, told: list[str]) -> SyncNode:
    """A node whose clock is an hour behind."""
    place.run(CREATE)
    rule = ClockRule(policy)
    return SyncNode(
        place.address, [todo()], clock=rule, warn=told.append, now_ms=lambda: int(time.time() * 1000) - HOUR_MS
    )


def test_an_hour_is_told_and_sync_goes_on(places: Places) -> None:
    laptop, central = places("sqlite"), places("sqlite")
    told: list[str] = []
    other = node(central)
    put(central, 1, "x")
    with served(other) as url, late(laptop, ClockPolicy.WARN, told) as calling:
        assert calling.sync_with(url).fetched == 1
    assert len(told) == 1 and ("60.0 m ahead" in told[0] or "1.0 h ahead" in told[0])


def test_an_hour_is_refused_before_anything_is_exchanged(places: Places) -> None:
    laptop, central = places("sqlite"), places("sqlite")
    other = node(central)
    put(central, 1, "x")
    with (
        served(other) as url,
        late(laptop, ClockPolicy.REFUSE, []) as calling,
        pytest.raises(TailraceError) as refused,
    ):
        calling.sync_with(url)
    assert refused.value.code == "sync.clock" and whats(laptop) == {}


def test_an_hour_is_corrected_once_and_taken_back_when_the_clock_is_set(places: Places, dialect: str) -> None:
    laptop, central = places(dialect), places("sqlite")
    other = node(central)
    told: list[str] = []
    with served(other) as url:
        with late(laptop, ClockPolicy.CORRECT, told) as calling:
            calling.sync_with(url)
            calling.sync_with(url)
        assert len(told) == 1, "after the correction there is nothing to correct"
        (shift_ms,) = laptop.ask("SELECT clockShift FROM DoorSelf")[0]
        assert abs(shift_ms - HOUR_MS) < 60_000
        put(laptop, 1, "x")
        assert version(laptop, 1) > time.time() * 1000 + HOUR_MS - 60_000, "changes are stamped by the corrected clock"
        rule = ClockRule(ClockPolicy.CORRECT)
        with SyncNode(laptop.address, [todo()], clock=rule) as calling:
            calling.sync_with(url)
        assert abs(laptop.ask("SELECT clockShift FROM DoorSelf")[0][0]) < 60_000


def test_an_edit_that_loses_because_of_a_clock_is_in_quarantine(places: Places) -> None:
    """The laptop's clock is an hour behind, so what it writes later is older by the clocks."""
    laptop, central = places("sqlite"), places("sqlite")
    one, other = node(laptop), node(central)
    with served(other) as url:
        put(central, 1, "first")
        SyncNode.over(one).sync_with(url)
        put(central, 1, "at the office, before")
        laptop.run("UPDATE DoorSelf SET clockShift = -3600000")
        put(laptop, 1, "at home, later")
        SyncNode.over(one).sync_with(url)
        SyncNode.over(one).sync_with(url)
    assert whats(laptop) == whats(central) == {1: "at the office, before"}
    lost = [each for store in (one, other) for each in store.quarantined()]
    assert [(each.why, each.row and each.row["what"]) for each in lost] == [("lost", "at home, later")]


def test_the_time_that_a_request_takes_does_not_count() -> None:
    assert ahead_ms(150, 100, 200) == 0
    assert ahead_ms(260, 100, 200) == 60
    assert ahead_ms(40, 100, 200) == -60

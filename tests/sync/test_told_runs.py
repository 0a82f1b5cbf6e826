"""What a run has said of its peers, beside what stands in its database."""

from __future__ import annotations

import time
from typing import Final

from tailrace.errors import TailraceError
from tailrace.observe.model import Health, Kind, Lag, Overview
from tailrace.observe.syncruns import SILENT_S, SyncRun
from tailrace.observe.syncs import overview_of_sync
from tailrace.sync.peerloop import PeerStatus, State
from tailrace.sync.store import SyncStore
from tests.sync.places import Place
from tests.sync.todo import node

OFFICE: Final = 4711
AWAY: Final = TailraceError("sync.unreachable", "no route", hint="look at the network")


def seen(store: SyncStore, runs_as: str | None, age_s: float = 0.0) -> Overview:
    """A run that has not reached its peer since it began, so that it knows no number of it."""
    peer = PeerStatus("office", "http://127.0.0.1:1", State.OFFLINE, last_error=AWAY)
    told = {"node": str(store.node_id), "url": None, "error": None, "peers": [peer.told()], "known": None}
    return overview_of_sync("x.yml", store, SyncRun(told, runs_as, time.time() - age_s))


def test_a_peer_is_told_of_once_by_who_knows_more(place: Place) -> None:
    store = node(place)
    store.call(OFFICE, "office")
    store.saw([OFFICE])
    found = seen(store, "process 1")
    (office,) = found.of(Kind.SYNC)
    assert (office.state, office.health, office.lag) == ("offline", Health.TROUBLED, Lag(0, None, 0.0))
    assert office.wrong is not None and office.wrong.cure == "look at the network"
    assert found.is_running is True and "process 1" in found.runs and found.wrong == ()


def test_one_that_hangs_and_one_that_is_dead(place: Place) -> None:
    store = node(place)
    hangs = seen(store, "process 1", SILENT_S + 1)
    assert [wrong.code for wrong in hangs.wrong] == ["node.silent"] and hangs.health is Health.BAD
    dead = seen(store, None, 3600.0)
    assert dead.is_running is False and dead.runs == "does not run, heard of 1.0 h ago" and dead.wrong == ()
    assert {part.state for part in dead.parts} == {"not running, was synced", "not running, was offline"}

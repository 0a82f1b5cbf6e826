"""Providers of snapshots: late, dying, raising, empty, for many sites."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.errors import TailraceError
from tailrace.queues import RoutingQueue, SnapshotContext
from tailrace.queues.application import application_of
from tailrace.queues.claims import Claims
from tailrace.queues.entries import PAYLOAD_BYTES_MAX, Kind
from tailrace.queues.outbox import Asked, SnapshotRows
from tests.queues.outboxes import KINDS, SqlitePlace, TestPlace
from tests.relay.nodes import wait_for

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def asked(place: TestPlace, request: str = "r1") -> Asked:
    return next(each for each in place.outbox.requests() if each.request == request)


def is_done(place: TestPlace, request: str = "r1") -> Callable[[], bool]:
    return lambda: asked(place, request).is_done


def supplied(place: TestPlace) -> list[SnapshotRows]:
    return [rows for batch in place.read_all() for rows in batch.snapshots]


def unmarked(rows: SnapshotRows) -> str:
    """The attempt without the mark that tells it from others with its number."""
    return rows.attempt.partition("-")[0]


def payloads(place: TestPlace) -> list[bytes]:
    return [payload for rows in supplied(place) if rows.kind is Kind.SNAPSHOT for payload in rows.payloads]


def three(context: SnapshotContext) -> None:
    for number in range(3):
        context.transmit(bytes([number]))


@pytest.mark.parametrize("kind", KINDS)
def test_a_late_provider_serves_what_was_asked_before(place: TestPlace, kind: str) -> None:
    """Acceptance test 21."""
    place.outbox.ask("r1", "shop", ["plant"])
    place.outbox.ask("r2", "shop", ["store"])
    place.outbox.ask("r3", "other", ["store"])
    with RoutingQueue("shop").provide_snapshots(place.connecting(kind), three):
        wait_for(is_done(place, "r1"))
        wait_for(is_done(place, "r2"))
    found = [(unmarked(rows), rows.sites, rows.kind, len(rows.payloads)) for rows in supplied(place)]
    assert found == [
        ("r1.1", ("plant",), Kind.SNAPSHOT, 3),
        ("r1.1", ("plant",), Kind.SNAPSHOT_END, 1),
        ("r2.1", ("store",), Kind.SNAPSHOT, 3),
        ("r2.1", ("store",), Kind.SNAPSHOT_END, 1),
    ]
    assert asked(place, "r3").attempt is None


def test_one_that_waits_is_served_as_soon_as_it_is_asked(place: TestPlace) -> None:
    with RoutingQueue("shop").provide_snapshots(place.connecting(), three):
        place.outbox.ask("r1", "shop", ["plant"])
        wait_for(is_done(place))
    assert payloads(place) == [b"\0", b"\1", b"\2"]


def test_many_sites_are_one_read(place: TestPlace) -> None:
    sites = [f"site{number}" for number in range(50)]
    calls: list[tuple[str, ...]] = []

    def provide(context: SnapshotContext) -> None:
        calls.append(tuple(context.sites))
        three(context)

    place.outbox.ask("r1", "shop", sites)
    with RoutingQueue("shop").provide_snapshots(place.connecting(), provide):
        wait_for(is_done(place))
    assert calls == [tuple(sorted(sites))]
    assert {rows.sites for rows in supplied(place)} == {tuple(sorted(sites))}
    assert len(payloads(place)) == 3


def test_an_empty_snapshot_has_only_an_end(place: TestPlace) -> None:
    """Acceptance test 22."""
    place.outbox.ask("r1", "shop", ["plant"])
    with RoutingQueue("shop").provide_snapshots(place.connecting(), lambda context: None):
        wait_for(is_done(place))
    assert [rows.kind for rows in supplied(place)] == [Kind.SNAPSHOT_END]


def test_one_that_raises_is_called_again_and_what_it_had_supplied_is_not_used(place: TestPlace) -> None:
    calls: list[str] = []
    said: list[str] = []

    def provide(context: SnapshotContext) -> None:
        calls.append(context.request)
        context.transmit(b"from call %d" % len(calls))
        context.flush()
        if len(calls) < 3:
            raise ValueError(f"call {len(calls)} failed")

    place.outbox.ask("r1", "shop", ["plant"])
    queue = RoutingQueue("shop")
    with queue.provide_snapshots(place.connecting(), provide, retry_s=0.05, report=said.append):
        wait_for(lambda: asked(place).error is not None)
        wait_for(is_done(place))
    assert payloads(place) == [b"from call 3"]
    assert asked(place).failures == 2
    assert [("call 1" in said[0], "call 2" in said[1])] == [(True, True)]


def test_one_that_raises_is_not_called_at_once(place: TestPlace) -> None:
    calls: list[str] = []

    def provide(context: SnapshotContext) -> None:
        calls.append(context.request)
        if context.request == "r1":
            raise ValueError("password=canary-secret is wrong")

    place.outbox.ask("r1", "shop", ["plant"])
    with RoutingQueue("shop").provide_snapshots(place.connecting(), provide, retry_s=3600):
        wait_for(lambda: asked(place).error is not None)
        place.outbox.ask("r2", "shop", ["plant"])
        wait_for(is_done(place, "r2"))
    assert calls == ["r1", "r2"]
    assert "ValueError" in (asked(place).error or "")
    assert (asked(place).attempt, asked(place).failures) == (None, 1)


def test_one_that_stops_showing_life_loses_its_claim(place: TestPlace) -> None:
    place.outbox.ask("r1", "shop", ["plant"])
    dead = Claims(application_of(place.connect()))
    claim = dead.claim("shop", "dead", 60)
    assert claim is not None
    dead.supply(claim, [b"of the dead"], 1, None)
    with RoutingQueue("shop").provide_snapshots(place.connecting(), three, lease_s=0.2):
        wait_for(is_done(place))
    with pytest.raises(TailraceError, match=r"queue\.claim_lost"):
        dead.supply(claim, [b"late"], 2, None)
    with pytest.raises(TailraceError, match=r"queue\.claim_lost"):
        dead.finish(claim)
    assert payloads(place) == [b"\0", b"\1", b"\2"]
    assert [unmarked(rows) for rows in supplied(place)] == ["r1.2", "r1.2"]


def test_a_database_that_is_made_anew_does_not_repeat_the_name_of_an_attempt(place: TestPlace) -> None:
    """Or rows of both would be taken for one snapshot."""
    attempts = set()
    for _ in range(2):
        place.outbox.ask("r1", "shop", ["plant"])
        claim = Claims(application_of(place.connect())).claim("shop", "me", 60)
        assert claim is not None
        attempts.add(claim.attempt)
        place.change("DELETE FROM LRQ_Requests")
    assert len(attempts) == 2


def test_one_that_comes_back_cannot_write_while_another_supplies(place: TestPlace) -> None:
    place.outbox.ask("r1", "shop", ["plant"])
    slow, quick = (Claims(application_of(place.connect())) for _ in range(2))
    old = slow.claim("shop", "slow", 60)
    new = quick.claim("shop", "quick", -1)
    assert old is not None
    assert new is not None
    quick.supply(new, [b"1"], 1, None)
    with pytest.raises(TailraceError, match=r"queue\.claim_lost"):
        slow.supply(old, [b"late"], 1, None)
    with pytest.raises(TailraceError, match=r"queue\.claim_lost"):
        slow.finish(old)
    quick.finish(new)
    assert [(unmarked(rows), rows.payloads) for rows in supplied(place)] == [("r1.2", [b"1"]), ("r1.2", [b""])]
    assert asked(place).claimed_by == "quick"


def test_one_that_is_slow_keeps_its_claim(place: TestPlace) -> None:
    """It shows life while it computes."""
    place.outbox.ask("r1", "shop", ["plant"])
    is_released = threading.Event()
    calls: list[str] = []

    def provide(context: SnapshotContext) -> None:
        calls.append(context.request)
        context.progress(1, 2)
        assert is_released.wait(20)
        three(context)

    queue = RoutingQueue("shop")
    with (
        queue.provide_snapshots(place.connecting(), provide, lease_s=0.8),
        queue.provide_snapshots(place.connecting(), provide, lease_s=0.8),
    ):
        wait_for(lambda: (asked(place).supplied, asked(place).total) == (1, 2))
        began = place.ask("SELECT claimed_at FROM LRQ_Requests")[0][0]
        wait_for(lambda: place.ask("SELECT claimed_at FROM LRQ_Requests")[0][0] > began + 1.6)
        is_released.set()
        wait_for(is_done(place))
    assert calls == ["r1"]


def test_one_whose_request_is_withdrawn_is_stopped(place: TestPlace) -> None:
    place.outbox.ask("r1", "shop", ["plant"])
    is_begun = threading.Event()
    errors: list[str] = []

    def provide(context: SnapshotContext) -> None:
        context.transmit(b"1")
        is_begun.set()
        try:
            while True:
                context.transmit(b"more")
                context.flush()
        except TailraceError as error:
            errors.append(error.code)
            raise

    with RoutingQueue("shop").provide_snapshots(place.connecting(), provide, lease_s=0.4):
        assert is_begun.wait(20)
        place.outbox.withdraw("r1")
        wait_for(lambda: errors == ["queue.claim_lost"])
    assert supplied(place) == []


def test_one_that_is_ended_gives_its_request_back(place: TestPlace) -> None:
    place.outbox.ask("r1", "shop", ["plant"])
    is_begun = threading.Event()

    def provide(context: SnapshotContext) -> None:
        is_begun.set()
        while True:
            context.transmit(b"for ever")

    with RoutingQueue("shop").provide_snapshots(place.connecting(), provide):
        assert is_begun.wait(20)
    assert (asked(place).attempt, asked(place).failures) == (None, 0)
    with RoutingQueue("shop").provide_snapshots(place.connecting(), three):
        wait_for(is_done(place))
    assert payloads(place) == [b"\0", b"\1", b"\2"]


def test_a_database_that_is_away_is_waited_for(place: TestPlace) -> None:
    said: list[str] = []
    failures = iter([OSError("away"), OSError("away")])

    def connect() -> Any:
        for error in failures:
            raise error
        return place.connecting()()

    place.outbox.ask("r1", "shop", ["plant"])
    with RoutingQueue("shop").provide_snapshots(connect, three, report=said.append):
        wait_for(is_done(place))
    assert len(said) == 1


def test_payloads_that_cannot_be_carried_fail_the_attempt(place: TestPlace) -> None:
    place.outbox.ask("r1", "shop", ["plant"])
    queue = RoutingQueue("shop")
    wrong: Any = bytes(PAYLOAD_BYTES_MAX + 1)
    with queue.provide_snapshots(place.connecting(), lambda context: context.transmit(wrong), retry_s=3600):
        wait_for(lambda: "queue.payload" in (asked(place).error or ""))
    assert supplied(place) == []


def test_much_is_written_in_pieces_and_counted(place: TestPlace) -> None:
    place.outbox.ask("r1", "shop", ["plant"])

    def provide(context: SnapshotContext) -> None:
        for number in range(2500):
            context.transmit(number.to_bytes(4, "big"))

    with RoutingQueue("shop").provide_snapshots(place.connecting(), provide):
        wait_for(is_done(place))
    assert payloads(place) == [number.to_bytes(4, "big") for number in range(2500)]
    assert asked(place).supplied == 2500


def test_a_frame_of_spark_is_a_snapshot(sqlite_place: SqlitePlace, spark: SparkSession) -> None:
    frame = spark.range(1000).repartitionByRange(4, "id").selectExpr("cast(cast(id as string) as binary) as payload")
    sqlite_place.outbox.ask("r1", "shop", ["plant"])
    sqlite_place.outbox.ask("r2", "shop", ["plant"])

    def provide(context: SnapshotContext) -> None:
        context.transmit_frame(frame if context.request == "r1" else frame.selectExpr("string(payload) as payload"))

    with RoutingQueue("shop").provide_snapshots(sqlite_place.connecting(), provide, retry_s=3600):
        wait_for(is_done(sqlite_place), 120)
        wait_for(lambda: "queue.payload" in (asked(sqlite_place, "r2").error or ""), 120)
    assert payloads(sqlite_place) == [str(number).encode() for number in range(1000)]


_DYING = """
import sqlite3, sys, time
from tailrace.queues import RoutingQueue
def provide(context):
    context.transmit(b"of the dead")
    context.flush()
    print("supplied", flush=True)
    time.sleep(600)
with RoutingQueue("shop").provide_snapshots(lambda: sqlite3.connect(sys.argv[1]), provide, lease_s=1):
    time.sleep(600)
"""


@pytest.mark.crash
def test_one_that_is_killed_is_replaced(sqlite_place: SqlitePlace) -> None:
    sqlite_place.outbox.ask("r1", "shop", ["plant"])
    command = [sys.executable, "-c", _DYING, str(sqlite_place.path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as dying:
        assert dying.stdout is not None
        assert dying.stdout.readline() == "supplied\n"
        assert payloads(sqlite_place) == [b"of the dead"]
        os.kill(dying.pid, signal.SIGKILL)
    with RoutingQueue("shop").provide_snapshots(sqlite_place.connecting(), three, lease_s=1):
        wait_for(is_done(sqlite_place))
    assert payloads(sqlite_place) == [b"\0", b"\1", b"\2"]

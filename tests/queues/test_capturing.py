"""Capturing: an outbox to the log, exactly once."""

from __future__ import annotations

import random
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tailrace.errors import TailraceError
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.consumers import Consumers
from tailrace.log.reader import LogReader
from tailrace.log.retention import retain
from tailrace.log.selection import Selection
from tailrace.message import Message, Op, now
from tailrace.queues import RoutingQueue
from tailrace.queues.application import application_of
from tailrace.queues.capturing import Capturing
from tailrace.queues.claims import Claims
from tailrace.queues.fullness import Fullness
from tailrace.queues.names import LOG_ENTRIES, SNAPSHOTS, client_tag, entry_tag, snapshot_tag
from tailrace.queues.outbox import Outbox, Position
from tests.queues.outboxes import SqlitePlace, TestPlace
from tests.relay.nodes import wait_for


@contextmanager
def capturing(directory: Path, outbox: Outbox, **options: Any) -> Iterator[tuple[Capturing, CommitLog]]:
    with CommitLog.open(directory / "log", LogConfig(segment_bytes=50_000)) as log:
        capture = Capturing("shop", outbox, log, **{"report": lambda _: None, **options})
        try:
            yield capture, log
        finally:
            capture.close()


def send(place: TestPlace, *payloads: bytes, sites: tuple[str, ...] = ("plant",)) -> None:
    connection = place.connect()
    RoutingQueue("shop").transmit_all(connection, [(payload, sites) for payload in payloads])
    connection.commit()


def logged(directory: Path, **selection: Any) -> list[Message]:
    entries = LogReader(directory / "log").entries(selection=Selection(**selection))
    return [entry.message for entry in entries if entry.message.namespace in (LOG_ENTRIES, SNAPSHOTS)]


def payloads(directory: Path, **selection: Any) -> list[bytes]:
    return [(message.data or {})["payload"] for message in logged(directory, **selection)]


class Forgetful:
    """An outbox whose database goes away when it is told to forget."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self.is_away = True

    def __getattr__(self, name: str) -> Any:
        return getattr(self._outbox, name)

    def forget(self, upto: Position) -> None:
        if self.is_away:
            raise TailraceError("source.unreachable", f"away at {upto}", hint="")
        self._outbox.forget(upto)


class TestExactlyOnce:
    def test_what_is_sent_is_in_the_log_and_not_in_the_outbox(self, place: TestPlace, tmp_path: Path) -> None:
        with capturing(tmp_path, place.outbox) as (capture, _):
            send(place, b"1", b"2")
            send(place, b"3", sites=("plant", "store"))
            assert capture.step() == 3
            assert capture.step() == 0
        assert sorted(payloads(tmp_path)) == [b"1", b"2", b"3"]
        assert payloads(tmp_path, destination=entry_tag("store")) == [b"3"]
        assert sorted(payloads(tmp_path, destination=client_tag("shop"))) == [b"1", b"2", b"3"]
        assert place.ask("SELECT count(*) FROM LRQ_Send_LogEntries") == [(0,)]
        names = [message.tx for message in sorted(logged(tmp_path), key=lambda message: message.lsn)]
        assert names[0] == names[1] != names[2]

    def test_queue_ids_follow_the_order_in_which_it_was_sent(self, place: TestPlace, tmp_path: Path) -> None:
        with capturing(tmp_path, place.outbox) as (capture, log):
            log.append_messages([Message(Op.INSERT, now(), "elsewhere", {"n": 1})])
            for number in range(6):
                send(place, bytes([number]), sites=("plant",) if number % 2 else ("store",))
            capture.step()
        found = sorted(logged(tmp_path), key=lambda message: message.lsn)
        assert [message.lsn for message in found] == list(range(1, 7))
        assert [(message.data or {})["payload"] for message in found] == [bytes([number]) for number in range(6)]

    def test_a_crash_between_append_and_forget_repeats_nothing(self, place: TestPlace, tmp_path: Path) -> None:
        send(place, b"1")
        with (
            capturing(tmp_path, Forgetful(place.outbox)) as (capture, _),
            pytest.raises(TailraceError, match=r"source\.unreachable"),
        ):
            capture.step()
        assert place.ask("SELECT count(*) FROM LRQ_Send_LogEntries") == [(1,)]
        send(place, b"2")
        with capturing(tmp_path, place.outbox) as (capture, _):
            assert capture.step() == 1
            assert capture.step() == 0
        assert payloads(tmp_path) == [b"1", b"2"]
        assert place.ask("SELECT count(*) FROM LRQ_Send_LogEntries") == [(0,)]

    def test_an_outbox_that_cannot_forget_now_forgets_later(self, place: TestPlace, tmp_path: Path) -> None:
        send(place, b"1")
        outbox = Forgetful(place.outbox)
        with capturing(tmp_path, outbox) as (capture, _):
            for _ in range(3):
                with pytest.raises(TailraceError):
                    capture.step()
            outbox.is_away = False
            assert capture.step() == 0
        assert payloads(tmp_path) == [b"1"]
        assert place.ask("SELECT count(*) FROM LRQ_Send_LogEntries") == [(0,)]

    def test_a_group_that_fails_is_not_there_and_comes_again(
        self, place: TestPlace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        send(place, b"1")
        with capturing(tmp_path, place.outbox) as (capture, _):
            with monkeypatch.context() as patch, pytest.raises(OSError, match="no"):
                patch.setattr("tailrace.queues.bookmark.Bookmark.batches", _refuse)
                capture.step()
            assert payloads(tmp_path) == []
            assert capture.step() == 1
        assert payloads(tmp_path) == [b"1"]

    def test_two_clients_have_frames_of_their_own(self, place: TestPlace, tmp_path: Path) -> None:
        place.outbox.set_destinations("stock", {"plant": Fullness()})
        connection = place.connect()
        RoutingQueue("shop").transmit(connection, b"of shop", ["plant"])
        RoutingQueue("stock").transmit(connection, b"of stock", ["plant"])
        connection.commit()
        with capturing(tmp_path, place.outbox) as (capture, _):
            capture.step()
        assert payloads(tmp_path, destination=client_tag("shop")) == [b"of shop"]
        assert payloads(tmp_path, destination=client_tag("stock")) == [b"of stock"]

    def test_snapshots_come_with_their_sites_and_their_end(self, place: TestPlace, tmp_path: Path) -> None:
        place.outbox.ask("r1", "shop", ["plant", "store"])
        claims = Claims(application_of(place.connect()))
        claim = claims.claim("shop", "me", 60)
        assert claim is not None
        claims.supply(claim, [b"1", b"2"], 2, 2)
        claims.finish(claim)
        send(place, b"delta")
        with capturing(tmp_path, place.outbox) as (capture, _):
            assert capture.step() == 4
        for site in ("plant", "store"):
            found = logged(tmp_path, destination=snapshot_tag(site))
            told = [((message.data or {})["kind"], (message.data or {})["payload"], message.tx) for message in found]
            assert told == [(2, b"1", claim.attempt), (2, b"2", claim.attempt), (3, b"", claim.attempt)]


_OLD_ROW = """INSERT INTO LRQ_Send_LogEntries (id, client, payload, destinations)
    VALUES (1, 'shop', X'31', '["plant"]')"""
"""As if it had not been forgotten."""


def _refuse(*_: object) -> Any:
    raise OSError("no")


class TestBookmark:
    def test_is_kept_while_everything_else_is_removed(self, sqlite_place: SqlitePlace, tmp_path: Path) -> None:
        send(sqlite_place, b"1")
        outbox = Forgetful(sqlite_place.outbox)
        with capturing(tmp_path, outbox) as (capture, log):
            with pytest.raises(TailraceError):
                capture.step()
            outbox.is_away = False
            for _ in range(4):
                log.append_messages([Message(Op.INSERT, now(), "elsewhere", {"x": "y" * 60_000})])
            capture.step()  # says again where it is
        retain(str(tmp_path / "log"))
        assert LogReader(tmp_path / "log").oldest > 1
        sqlite_place.change(_OLD_ROW)
        with capturing(tmp_path, sqlite_place.outbox) as (capture, _):
            assert capture.step() == 0
        assert payloads(tmp_path) == []
        assert sqlite_place.payloads() == []

    def test_of_an_outbox_that_was_never_used_holds_nothing(self, sqlite_place: SqlitePlace, tmp_path: Path) -> None:
        with capturing(tmp_path, sqlite_place.outbox) as (capture, log):
            for _ in range(3):
                log.append_messages([Message(Op.INSERT, now(), "elsewhere", {"x": "y" * 60_000})])
            end = log.next_offset
            capture.step()
        (consumer,) = Consumers(tmp_path / "log").all()
        assert consumer.positions.through("elsewhere") == end - 2


class TestRunning:
    def test_goes_on_after_an_outage(self, sqlite_place: SqlitePlace, tmp_path: Path) -> None:
        said: list[str] = []
        appended = threading.Event()
        stopping = threading.Event()
        away = sqlite_place.path.with_suffix(".away")
        with capturing(tmp_path, sqlite_place.outbox, report=said.append, appended=appended.set) as (capture, _):
            runner = threading.Thread(target=capture.run, args=(stopping,))
            runner.start()
            try:
                send(sqlite_place, b"1")
                assert appended.wait(20)
                appended.clear()
                sqlite_place.path.rename(away)
                sqlite_place.path.mkdir()
                wait_for(lambda: capture.error is not None)
                sqlite_place.path.rmdir()
                away.rename(sqlite_place.path)
                send(sqlite_place, b"2")
                assert appended.wait(20)
                wait_for(lambda: capture.error is None)
            finally:
                stopping.set()
                runner.join()
        assert payloads(tmp_path) == [b"1", b"2"]
        assert len(said) == 2
        assert "source.unreachable" in said[0]


class TestSize:
    """Acceptance test 16: a payload is in the log once, whoever gets it."""

    def test_the_log_grows_by_one_payload_and_little_for_each_destination(
        self, sqlite_place: SqlitePlace, tmp_path: Path
    ) -> None:
        size, payload = 1 << 20, random.Random(7).randbytes(1 << 20)
        with capturing(tmp_path, sqlite_place.outbox) as (capture, log):
            grown = {}
            for count in (1, 10, 100, 1000):
                sites = tuple(f"site-{number:04}" for number in range(count))
                sqlite_place.outbox.set_destinations("shop", {site: Fullness() for site in sites})
                before = _bytes(log)
                send(sqlite_place, payload, sites=sites)
                capture.step()
                grown[count] = _bytes(log) - before
        assert size < grown[1] < size + 4000  # a frame and the bookmark
        for count, found in grown.items():
            assert found - grown[1] <= 100 * (count - 1), grown


def _bytes(log: CommitLog) -> int:
    return sum(path.stat().st_size for path in Path(log.directory).glob("*.log"))

"""Receiving: order, answers, sources, clients and names of listeners."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tailrace.errors import TailraceError
from tailrace.log.agreement import Hold, Policy
from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers
from tailrace.log.retention import retain
from tailrace.message import Message, Micros, Op
from tailrace.queues import desk
from tailrace.queues.answers import Park, Retry
from tailrace.queues.desk import Patience
from tailrace.queues.entries import Kind
from tailrace.queues.incoming import Unanswered
from tailrace.queues.parked import ParkingLot
from tailrace.queues.receiving import Receiver
from tests.queues.arrivals import Notebook, arrive, arrive_snapshot, listening
from tests.relay.nodes import wait_for

QUICK = Patience(attempts_max=3, wait_s=0.01, wait_s_max=0.05)


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    with CommitLog.open(tmp_path / "queues") as log:
        yield log


def receiver(log: CommitLog, client: str = "stock", name: str = "main", patience: Patience = QUICK) -> Receiver:
    return Receiver(log.directory, client, name, patience=patience)


def payloads(receiver: Receiver, timeout_s: float = 0.0) -> list[str]:
    """Everything that is there now, acknowledged."""
    return [message.payload.decode() for message in acknowledged(receiver.messages(timeout_s))]


def acknowledged(messages: Iterable[Unanswered]) -> Iterator[Unanswered]:
    for message in messages:
        message.ack()
        yield message


class TestCallbacks:
    def test_a_snapshot_and_what_follows(self, log: CommitLog) -> None:
        arrive_snapshot(log, "stock", "north", "r1", "a", "b", "c")
        arrive(log, "stock", "north", "d", "e")
        told = Notebook()
        with listening(receiver(log), told):
            wait_for(lambda: len(told.calls) == 7)
        assert told.calls == [
            ("start", "north", "r1"),
            *(("snapshot", "north", text) for text in "abc"),
            ("end", "north", "r1"),
            ("entry", "north", "d"),
            ("entry", "north", "e"),
        ]
        assert payloads(receiver(log)) == []

    def test_an_empty_snapshot_starts_and_ends(self, log: CommitLog) -> None:
        arrive_snapshot(log, "stock", "north", "r1")
        told = Notebook()
        with listening(receiver(log), told):
            wait_for(lambda: len(told.calls) == 2)
        assert told.calls == [("start", "north", "r1"), ("end", "north", "r1")]

    def test_a_newer_snapshot_comes_after_the_older_one(self, log: CommitLog) -> None:
        arrive_snapshot(log, "stock", "north", "r1", "a", "b")
        told = Notebook()
        told.answers["a"] = [Retry(0.01)]
        with listening(receiver(log), told):
            wait_for(lambda: "a" in told.told("north"))
            arrive_snapshot(log, "stock", "north", "r2", "c")
            wait_for(lambda: ("end", "north", "r2") in told.calls)
        assert told.told("north") == ["r1", "a", "a", "b", "r1", "r2", "c", "r2"]

    def test_a_retry_blocks_its_own_source_and_no_other(self, log: CommitLog) -> None:
        """Acceptance test 24, as those around it."""
        arrive(log, "stock", "north", "a", "b")
        arrive(log, "stock", "south", "x", "y")
        told = Notebook()
        told.answers["a"] = [Retry(0.3)]
        with listening(receiver(log), told):
            wait_for(lambda: told.told("south") == ["x", "y"])
            assert told.told("north") == ["a"]
            for text in ("c", "d", "e"):  # read for others while it waits
                arrive(log, "stock", "north", text)
                arrive(log, "stock", "south", text)
            wait_for(lambda: len(told.told("south")) == 5)
            assert told.told("north") == ["a"]
            wait_for(lambda: len(told.told("north")) == 6)
            arrive(log, "stock", "north", "f")
            wait_for(lambda: len(told.told("north")) == 7)
        assert told.told("north") == ["a", "a", "b", "c", "d", "e", "f"]
        assert [message.attempt for message in told.messages if message.payload == b"a"] == [1, 2]
        assert payloads(receiver(log)) == []

    def test_a_source_that_begins_while_another_catches_up_is_not_overlooked(self, log: CommitLog) -> None:
        for source, text in (("north", "a"), ("north", "b"), ("south", "x")):
            arrive(log, "stock", source, text)
        messages = receiver(log).messages(0)
        first, other = next(messages), next(messages)
        assert (first.payload, other.payload) == (b"a", b"x")
        other.ack()
        first.ack()
        behind = next(messages)
        assert behind.payload == b"b"
        behind.ack()
        arrive(log, "stock", "east", "new")
        assert [message.payload for message in acknowledged(messages)] == [b"new"]

    def test_an_exception_is_a_retry_and_is_told(self, log: CommitLog) -> None:
        arrive(log, "stock", "north", "a", "b")
        told = Notebook()
        told.answers["a"] = [ValueError("no such item")]
        with listening(receiver(log), told):
            wait_for(lambda: "b" in told.told("north"))
        assert told.told("north") == ["a", "a", "b"]
        assert told.errors == ["north: no such item"]

    def test_what_is_no_answer_is_an_exception(self, log: CommitLog) -> None:
        arrive(log, "stock", "north", "a")
        told = Notebook()
        told.answers["a"] = [None] * 3  # type: ignore[list-item]
        received = receiver(log)
        with listening(received, told):
            wait_for(lambda: len(received.parked()) == 1)
        assert "not with None" in told.errors[0]

    def test_a_parked_message_lets_the_queue_go_on(self, log: CommitLog) -> None:
        offset = arrive(log, "stock", "north", "a", "b").first
        told = Notebook()
        told.answers["a"] = [Park("a riddle")]
        received = receiver(log)
        with listening(received, told):
            wait_for(lambda: "b" in told.told("north"))
        (parked,) = received.parked()
        assert (parked.source, parked.message.offset, parked.attempts, parked.reason) == (
            "north",
            offset,
            1,
            "a riddle",
        )
        assert parked.message.payload == b"a"

    def test_poison_is_parked_after_some_attempts(self, log: CommitLog) -> None:
        arrive(log, "stock", "north", "a", "b")
        told = Notebook()
        told.answers["a"] = [Retry(0.01), ValueError("poison"), ValueError("poison")]
        received = receiver(log)
        with listening(received, told):
            wait_for(lambda: "b" in told.told("north"))
        assert told.told("north") == ["a", "a", "a", "b"]
        (parked,) = received.parked()
        assert (parked.attempts, parked.reason) == (3, "tried 3 times: ValueError: poison")

    def test_without_a_limit_it_is_never_parked(self, log: CommitLog) -> None:
        arrive(log, "stock", "north", "a")
        told = Notebook()
        told.answers["a"] = [Retry(0.0)] * 20
        received = receiver(log, patience=Patience(attempts_max=None))
        with listening(received, told):
            wait_for(lambda: len(told.calls) == 21)
        assert received.parked() == []

    def test_a_start_that_fails_comes_again(self, log: CommitLog) -> None:
        arrive_snapshot(log, "stock", "north", "r1", "a", "b")
        told = Notebook()
        told.answers["start r1"] = [Retry(0.01)]
        told.answers["a"] = [Retry(0.01)]
        with listening(receiver(log), told):
            wait_for(lambda: ("end", "north", "r1") in told.calls)
        assert told.told("north") == ["r1", "r1", "a", "a", "b", "r1"]

    def test_what_on_error_raises_ends_the_listening(self, log: CommitLog) -> None:
        class Strict(Notebook):
            def on_error(self, source: str, error: Exception) -> None:
                raise error

        arrive(log, "stock", "north", "a")
        told = Strict()
        told.answers["a"] = [ValueError("enough")]
        with pytest.raises(ValueError, match="enough"):
            receiver(log).listen(told, threading.Event())
        assert payloads(receiver(log)) == ["a"]


class TestSnapshots:
    def test_one_that_was_interrupted_comes_again_from_its_beginning(self, log: CommitLog) -> None:
        arrive(log, "stock", "north", "before")
        arrive_snapshot(log, "stock", "north", "r1", "a", "b", "c", "d", "e")
        for message in receiver(log).messages(0):
            message.ack()
            if message.payload == b"c":
                break
        told = Notebook()
        with listening(receiver(log), told):
            wait_for(lambda: ("end", "north", "r1") in told.calls)
        assert told.told("north") == ["r1", "a", "b", "c", "d", "e", "r1"]

    def test_what_was_parked_of_it_stays_parked(self, log: CommitLog) -> None:
        arrive_snapshot(log, "stock", "north", "r1", "a", "b", "c")
        received = receiver(log)
        for message in received.messages(0):
            if message.payload == b"a":
                message.park("odd")
            else:
                message.ack()
                break
        told = Notebook()
        with listening(received, told):
            wait_for(lambda: ("end", "north", "r1") in told.calls)
        assert told.told("north") == ["r1", "b", "c", "r1"]
        assert len(received.parked()) == 1


class TestIterator:
    def test_answers(self, log: CommitLog) -> None:
        arrive(log, "stock", "north", "a", "b", "c")
        received = receiver(log)
        seen = []
        for message in received.messages(0.5):
            seen.append((message.payload.decode(), message.attempt))
            if message.payload == b"a" and message.attempt == 1:
                message.retry(0.01)
            elif message.payload == b"b":
                message.park("no")
            else:
                message.ack()
        assert seen == [("a", 1), ("a", 2), ("b", 1), ("c", 1)]
        assert len(received.parked()) == 1

    def test_a_source_waits_for_its_answer(self, log: CommitLog) -> None:
        arrive(log, "stock", "north", "a", "b")
        arrive(log, "stock", "south", "x")
        taken = []
        for message in receiver(log).messages(0):
            taken.append(message.payload.decode())
        assert sorted(taken) == ["a", "x"]
        assert payloads(receiver(log)) == ["a", "b", "x"]

    def test_a_message_is_answered_once(self, log: CommitLog) -> None:
        arrive(log, "stock", "north", "a")
        message = next(messages := receiver(log).messages(0))
        message.ack()
        with pytest.raises(TailraceError, match="answered already"):
            message.ack()
        assert list(messages) == []
        with pytest.raises(TailraceError) as refused:
            message.retry()
        assert refused.value.code == "log.closed"

    def test_kinds_and_where_they_come_from(self, log: CommitLog) -> None:
        arrive_snapshot(log, "stock", "north", "r1", "a", "b")
        found = []
        for message in receiver(log).messages(0):
            found.append((message.kind, message.starts_snapshot, message.source_id, message.transaction))
            message.ack()
        assert found == [
            (Kind.SNAPSHOT, True, 0, "r1"),
            (Kind.SNAPSHOT, False, 1, "r1"),
            (Kind.SNAPSHOT_END, False, 2, "r1"),
        ]


class TestDiscovery:
    """Acceptance test 26."""

    def test_a_new_source_is_noticed(self, log: CommitLog) -> None:
        arrive(log, "stock", "north", "a")
        told = Notebook()
        received = receiver(log)
        with listening(received, told):
            wait_for(lambda: told.told("north") == ["a"])
            arrive(log, "stock", "south_2", "x")
            wait_for(lambda: told.told("south_2") == ["x"])
        assert received.sources() == ["north", "south_2"]

    def test_underscores_part_nothing_wrongly(self, log: CommitLog) -> None:
        arrive(log, "a", "b_c", "one")
        arrive(log, "a_b", "c", "two")
        arrive(log, "a_b", "c_d", "three")
        assert payloads(receiver(log, "a")) == ["one"]
        assert sorted(payloads(receiver(log, "a_b"))) == ["three", "two"]
        assert receiver(log, "a").sources() == ["b_c"]
        assert receiver(log, "a_b").sources() == ["c", "c_d"]

    def test_other_namespaces_are_nobodys(self, log: CommitLog) -> None:
        log.append_messages([Message(Op.INSERT, Micros(1), "xLRQ_Recv_stock_north", {"id": 1})])
        arrive(log, "stock", "north", "a")
        assert payloads(receiver(log)) == ["a"]

    @pytest.mark.parametrize("name", ["", "a@b", "a/b", "_a"])
    def test_names_that_cannot_be(self, log: CommitLog, name: str) -> None:
        with pytest.raises(TailraceError, match="is no name of a listener"):
            receiver(log, name=name)


class TestManyListeners:
    def test_each_name_gets_everything(self, log: CommitLog) -> None:
        arrive(log, "stock", "north", "a", "b")
        assert payloads(receiver(log, name="one")) == ["a", "b"]
        assert payloads(receiver(log, name="two")) == ["a", "b"]

    def test_two_with_one_name_are_refused(self, log: CommitLog) -> None:
        arrive(log, "stock", "north", "a")
        first = receiver(log).messages(0)
        next(first).ack()
        with pytest.raises(TailraceError) as refused:
            next(receiver(log).messages(0))
        assert refused.value.code == "consumer.locked"
        assert list(first) == []

    def test_parked_messages_are_one_listeners(self, log: CommitLog) -> None:
        arrive(log, "stock", "north", "a")
        for message in receiver(log, name="one").messages(0):
            message.park("no")
        assert receiver(log, name="two").parked() == []
        assert payloads(receiver(log, name="two")) == ["a"]


class TestRetention:
    def test_nothing_is_removed_under_a_listener(self, log: CommitLog) -> None:
        """Acceptance test 25. What others have acknowledged stays for one that is slow, and goes when it has it."""
        told = Notebook()
        told.answers["n0"] = [Retry(60.0)]
        received = receiver(log)
        received.register()
        with listening(received, told):
            for number in range(6):
                arrive(log, "stock", "north", f"n{number}")
                arrive(log, "stock", "south", f"s{number}")
                log.roll()
                wait_for(lambda number=number: len(told.told("south")) == number + 1)  # type: ignore[misc]
                retain(log.directory)
            assert told.told("north") == ["n0"]
        assert payloads(receiver(log)) == [f"n{number}" for number in range(6)]
        assert len(retain(log.directory).removed) == 6

    def test_it_holds_nothing_that_it_does_not_want(self, log: CommitLog) -> None:
        log.append_messages([Message(Op.INSERT, Micros(1), "LRQ_Send_LogEntries", {"client": "x", "payload": b""})])
        arrive(log, "other", "north", "a")
        log.roll()
        assert payloads(receiver(log)) == []
        assert len(retain(log.directory).removed) == 1

    def test_half_a_snapshot_stays(self, log: CommitLog) -> None:
        arrive_snapshot(log, "stock", "north", "r1", "a", "b")
        log.roll()
        for message in receiver(log).messages(0):
            message.ack()
            if message.payload == b"b":
                break
        retain(log.directory)
        assert payloads(receiver(log)) == ["a", "b", ""]

    def test_one_that_held_too_much_is_told(self, log: CommitLog) -> None:
        received = Receiver(log.directory, "stock", hold=Hold(Policy.CAP, cap_bytes=1))
        received.register()
        arrive(log, "stock", "north", "a")
        log.roll()
        arrive(log, "stock", "north", "b")
        retain(log.directory)
        with pytest.raises(TailraceError) as refused:
            next(received.messages(0))
        assert refused.value.code == "consumer.invalidated"


class TestParked:
    def park_one(self, log: CommitLog) -> tuple[Receiver, int]:
        arrive(log, "stock", "north", "a", "b")
        received = receiver(log)
        for message in received.messages(0):
            if message.payload == b"a":
                message.park("odd")
            else:
                message.ack()
        return received, received.parked()[0].id

    def test_a_replay_comes_before_what_is_new(self, log: CommitLog) -> None:
        received, number = self.park_one(log)
        arrive(log, "stock", "north", "c")
        received.replay([number])
        seen = []
        for message in received.messages(0):
            seen.append((message.payload, message.is_replay, message.attempt))
            message.ack()
        assert seen == [(b"a", True, 1), (b"c", False, 1)]
        assert received.parked() == []

    def test_a_replay_comes_before_what_comes_meanwhile(self, log: CommitLog, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(desk, "_NOTE_EVERY_S", 3600.0)  # it looked just now
        received, number = self.park_one(log)
        arrive(log, "stock", "north", "c")
        messages = received.messages(0)
        first = next(messages)
        received.replay([number])
        arrive(log, "stock", "north", "d")
        first.ack()
        assert [message.payload for message in acknowledged(messages)] == [b"a", b"d"]

    def test_a_replay_that_fails_is_parked_again(self, log: CommitLog) -> None:
        received, number = self.park_one(log)
        told = Notebook()
        told.answers["a"] = [ValueError("still odd")] * 3
        with listening(received, told):
            received.replay([number])
            arrive(log, "stock", "north", "c")
            wait_for(lambda: "c" in told.told("north"))
        assert told.told("north") == [*"aaa", "c"]
        (parked,) = received.parked()
        assert (parked.id, parked.reason) == (number, "tried 3 times: ValueError: still odd")

    def test_it_can_be_read_and_replayed_after_retention(self, log: CommitLog) -> None:
        received, number = self.park_one(log)
        log.roll()
        assert len(retain(log.directory).removed) == 1
        assert received.parked()[0].message.payload == b"a"
        received.replay([number])
        assert payloads(received) == ["a"]

    def test_discarded_ones_never_come(self, log: CommitLog) -> None:
        received, number = self.park_one(log)
        received.discard([number])
        assert received.parked() == []
        assert payloads(received) == []
        with pytest.raises(TailraceError, match="no message is parked"):
            received.replay([number])

    def test_all_of_them_or_none(self, log: CommitLog) -> None:
        received, number = self.park_one(log)
        with pytest.raises(TailraceError, match="99"):
            received.discard([number, 99])
        assert [each.id for each in received.parked()] == [number]

    def test_a_message_discarded_ahead_of_its_turn_never_comes(self, log: CommitLog) -> None:
        arrive(log, "stock", "north", "a", "b")
        received = receiver(log)
        first = next(messages := received.messages(0))
        messages.close()
        with ParkingLot(log.directory) as lot:
            number = lot.park("stock", "main", "north", first, 0, "by hand")
            lot.discard([number])
        assert payloads(received) == ["b"]

    def test_a_message_replayed_ahead_of_its_turn_comes_in_it(self, log: CommitLog) -> None:
        arrive(log, "stock", "north", "a", "b")
        received = receiver(log)
        first = next(messages := received.messages(0))
        messages.close()
        with ParkingLot(log.directory) as lot:
            received.replay([lot.park("stock", "main", "north", first, 0, "by hand")])
        assert payloads(received) == ["a", "b"]
        assert received.parked() == []


def test_the_whole_log_is_acknowledged_in_the_end(log: CommitLog) -> None:
    arrive(log, "stock", "north", "a")
    arrive(log, "other", "north", "b")
    payloads(receiver(log))
    consumers = Consumers(log.directory)
    assert consumers.position(consumers.get("listener@stock@main")) == 1


def test_a_client_gets_nothing_of_another_one(log: CommitLog) -> None:
    arrive(log, "stock", "north", "a")
    arrive(log, "policy", "north", "p")
    told, others = Notebook(), Notebook()
    with listening(receiver(log), told), listening(receiver(log, "policy"), others):
        wait_for(lambda: bool(told.calls and others.calls))
    assert (told.told("north"), others.told("north")) == (["a"], ["p"])

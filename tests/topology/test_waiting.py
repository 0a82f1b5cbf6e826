"""Waiting: what comes is applied so long after it was written."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.log.view import LogView
from tailrace.message import Message, Micros, Offset, Op
from tailrace.topology.waiting import Waiting
from tests.topology.clock import Clock

WAIT_S = 60.0


@pytest.fixture
def log(tmp_path: Path) -> Iterator[CommitLog]:
    with CommitLog.open(tmp_path / "log") as made:
        yield made


def write(log: CommitLog, at_s: float, count: int = 1) -> Offset:
    """One group, written at that time; gives the end of the log."""
    at = Micros(int(at_s * 1_000_000))
    log.append_messages(Message(Op.INSERT, at, "main.t", {"id": number}) for number in range(count))
    return log.next_offset


def upto(waiting: Waiting, log: CommitLog, start: int = 0) -> int:
    waiting.arrived(log.next_offset)
    return waiting.upto(LogView(log.directory), Offset(start), log.next_offset)


def test_nothing_waits_unless_it_is_said(log: CommitLog) -> None:
    assert upto(Waiting(0.0, Clock()), log) == 0
    write(log, 1000.0)
    assert upto(Waiting(0.0, Clock()), log) == 1


def test_a_group_waits_since_it_was_written(log: CommitLog) -> None:
    clock = Clock()
    waiting = Waiting(WAIT_S, clock)
    write(log, clock.now - 50, 3)
    write(log, clock.now, 2)
    assert upto(waiting, log) == 0
    clock.now += 9.0
    assert upto(waiting, log) == 0
    clock.now += 1.0
    assert upto(waiting, log) == 3
    clock.now += 49.0
    assert upto(waiting, log, 3) == 3
    clock.now += 1.0
    assert upto(waiting, log, 3) == 5


def test_a_clock_that_is_ahead_does_not_make_it_wait_longer(log: CommitLog) -> None:
    clock = Clock()
    waiting = Waiting(WAIT_S, clock)
    write(log, clock.now + 86_400)
    assert upto(waiting, log) == 0
    clock.now += WAIT_S
    assert upto(waiting, log) == 1


def test_an_operator_can_hurry_it(log: CommitLog) -> None:
    clock = Clock()
    waiting = Waiting(WAIT_S, clock)
    end = write(log, clock.now, 3)
    assert upto(waiting, log) == 0
    waiting.hurried = end
    assert upto(waiting, log) == 3
    write(log, clock.now)
    assert upto(waiting, log, 3) == 3, "what comes afterwards waits"


def test_what_is_cut_is_not_hurried_when_it_comes_again(log: CommitLog) -> None:
    clock = Clock()
    waiting = Waiting(WAIT_S, clock)
    waiting.hurried = write(log, clock.now, 3)
    waiting.forget(Offset(0))
    assert upto(waiting, log) == 0

"""Hung replicas: those that get nowhere although there is somewhere to get to."""

from __future__ import annotations

from tailrace.topology.hung import Standstill
from tests.topology.clock import Clock

THRESHOLD_S = 60.0


def test_it_hangs_after_a_while_and_no_more_when_it_moves() -> None:
    clock = Clock()
    found = Standstill("copying", clock)
    found.note(10, 20)
    clock.now += THRESHOLD_S
    found.note(10, 30)
    assert found.alarm(THRESHOLD_S) is None
    clock.now += 1.0
    found.note(10, 30)
    assert found.alarm(THRESHOLD_S) == "copying has stood still at offset 10 for more than 60 s"
    found.note(11, 30)
    assert found.alarm(THRESHOLD_S) is None


def test_who_is_where_it_can_be_does_not_hang() -> None:
    clock = Clock()
    found = Standstill("applying", clock)
    found.note(10, 10)
    clock.now += 10 * THRESHOLD_S
    assert found.alarm(THRESHOLD_S) is None
    found.note(10, 11)
    assert found.alarm(THRESHOLD_S) is None, "only now is there something to do"


def test_a_position_that_goes_back_is_a_move() -> None:
    clock = Clock()
    found = Standstill("copying", clock)
    found.note(1000, 2000)
    clock.now += THRESHOLD_S + 1
    found.note(5, 2000)
    assert found.alarm(THRESHOLD_S) is None

"""Who is tried, when and in which order."""

from __future__ import annotations

from collections.abc import MutableSequence
from typing import Any

from tailrace.relay.applier import Source
from tailrace.topology.answers import Tuning
from tailrace.topology.candidates import Candidates
from tailrace.topology.knobs import Knobs
from tests.topology.clock import Clock

A, B, C = (Source(name, f"grpc://{name}:1", "token") for name in "abc")


def test_a_node_that_failed_is_not_tried_before_the_penalty_is_over() -> None:
    clock, knobs = Clock(), Knobs()
    candidates = Candidates(knobs, clock)
    assert candidates.now([A, B]) == [A, B]
    candidates.failed(A)
    clock.now += 4.9
    assert candidates.now([A, B]) == [B]
    assert candidates.now([A]) == []
    clock.now += 0.2
    assert candidates.now([A, B]) == [A, B]
    knobs.learn(Tuning("1", {"physrep_reconnect_penalty": "1m"}))
    candidates.failed(B)
    clock.now += 59
    assert candidates.now([A, B]) == [A]
    knobs.learn(Tuning("2", {"physrep_reconnect_penalty": "0"}))
    candidates.failed(B)
    assert candidates.now([A, B]) == [A, B]


def test_candidates_are_shuffled_if_that_is_wanted() -> None:
    def reverse(found: MutableSequence[Any]) -> None:
        found.reverse()

    knobs = Knobs()
    candidates = Candidates(knobs, Clock(), reverse)
    assert candidates.now([A, B, C]) == [A, B, C]
    knobs.learn(Tuning("1", {"physrep_shuffle_host_list": "on"}))
    assert candidates.now([A, B, C]) == [C, B, A]

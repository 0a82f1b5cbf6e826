"""Requests for snapshots: none is forgotten."""

from __future__ import annotations

from pathlib import Path

from tailrace.queues.requests import GATHER_S, Request, Requests
from tests.topology.clock import Clock


def needed(requests: Requests, clock: Clock) -> Request:
    assert requests.need("inventory", "office") is None
    clock.now += GATHER_S
    found = requests.need("inventory", "office")
    assert found is not None
    return found


def test_a_wish_that_comes_while_a_snapshot_ends_stays(tmp_path: Path) -> None:
    clock = Clock()
    requests = Requests(str(tmp_path / "requests.json"), lambda: 7, lambda _: None, lambda _: None, clock)
    first = needed(requests, clock)
    requests.force("inventory", "office")
    requests.done("inventory", "office", first.id)
    assert requests.is_forced("inventory", "office")
    second = needed(requests, clock)
    requests.done("inventory", "office", second.id)
    assert not requests.is_forced("inventory", "office")
    assert requests.open() == []

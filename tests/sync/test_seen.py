"""Seen: that a node was here is in the database as soon as it came, and seldom written again."""

from __future__ import annotations

import pytest

from tailrace.errors import TailraceError
from tailrace.sync.auth import Caller, Gate
from tailrace.sync.seen import EVERY_S, Seen
from tests.sync.served import ALICE, BOB, SECRETS, Served, serve, served

__all__ = ["serve", "served"]  # fixtures


def here(served: Served) -> dict[int, bool]:
    return {each.node: each.seen_ms > 0 for each in served.store.standings()}


def forget(served: Served) -> None:
    served.run("UPDATE DoorNode SET lastSeen = 0")


def test_each_node_is_noted_when_it_comes_first(served: Served) -> None:
    """Also one that comes a moment after another: the process may be killed before the next time."""
    gate = Gate(served.store)
    seen = Seen(served.store, gate)
    gate.check(Caller(ALICE, SECRETS[ALICE]))
    seen.note(0.0)
    gate.check(Caller(BOB, SECRETS[BOB]))
    seen.note(0.1)
    assert here(served) == {ALICE: True, BOB: True}
    forget(served)
    gate.check(Caller(BOB, SECRETS[BOB]))
    seen.note(0.2)
    assert here(served) == {ALICE: False, BOB: False}, "it is known that it is here"
    seen.note(EVERY_S)
    assert here(served) == {ALICE: False, BOB: True}


def test_who_could_not_be_noted_is_noted_the_next_time(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    gate = Gate(served.store)
    seen = Seen(served.store, gate)
    gate.check(Caller(ALICE, SECRETS[ALICE]))

    def fail(_: object) -> None:
        raise TailraceError("sync.unreachable", "the database is away", hint="")

    with monkeypatch.context() as patched:
        patched.setattr(served.store, "saw", fail)
        with pytest.raises(TailraceError):
            seen.note(0.0)
    seen.note(0.1)
    assert here(served)[ALICE]

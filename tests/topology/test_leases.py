"""Leases: each ends once, at its own time, however often it was prolonged."""

from __future__ import annotations

import math

from tailrace.topology.leases import Leases
from tailrace.topology.member import Member
from tests.topology.places import site


def test_a_lease_ends_at_the_last_time_that_was_set() -> None:
    leases, member = Leases(), Member(site(0))
    for deadline in (10.0, 20.0, 30.0):
        leases.set(member, deadline)
    assert list(leases.over(29.9)) == []
    assert list(leases.over(30.0)) == [member]
    assert list(leases.over(1000.0)) == []


def test_a_lease_can_be_shortened_and_taken_back() -> None:
    leases, member = Leases(), Member(site(0))
    leases.set(member, 100.0)
    leases.set(member, 10.0)
    assert list(leases.over(10.0)) == [member]
    leases.set(member, 20.0)
    leases.set(member, math.inf)
    assert list(leases.over(1e9)) == []
    leases.set(member, 2e9)
    assert list(leases.over(2e9)) == [member]


def test_a_reservation_that_was_replaced_does_not_end() -> None:
    leases, member, source = Leases(), Member(site(0)), Member(site(1))
    for until in (10.0, 20.0):
        member.reserved, member.reserved_until = source, until
        leases.reserve(member)
    assert list(leases.lapsed(19.0)) == []
    assert list(leases.lapsed(20.0)) == [member]

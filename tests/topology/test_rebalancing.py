"""Rebalancing: one replica at a time, only upwards, only where it can go on."""

from __future__ import annotations

from dataclasses import replace

from tailrace.topology.answers import Move
from tailrace.topology.member import UNKNOWN, Report
from tailrace.topology.placement import Placement
from tailrace.topology.rebalancing import propose_move, propose_move_of
from tests.topology import naive
from tests.topology.places import ROOT, join, placement, site


def chain(nodes: int, fanout: int = 2) -> Placement:
    """Each replicates from the one before it, then more fit."""
    found = placement(1)
    for number in range(nodes):
        join(found, number)
    found.override_fanout("orders", fanout)
    return found


def test_the_deepest_moves_as_far_up_as_possible() -> None:
    found = chain(4)
    assert propose_move(found, "orders", 0.0) == Move(site(3), ROOT, 4, 1)
    assert propose_move(found, "orders", 0.0) is None, "one is on its way"
    found.confirm(site(3), ROOT, 0.0)
    naive.check(found)
    assert found.members[site(3)].tier == 1


def test_a_move_that_is_not_made_ends() -> None:
    found = chain(4)
    assert propose_move(found, "orders", 0.0) is not None
    now = found.limits.move_lease_s
    for node in (ROOT, *map(site, range(4))):
        found.keepalive(node, UNKNOWN, now - 20)
        found.keepalive(node, UNKNOWN, now)
    assert found.tree("orders").moving is None
    assert propose_move(found, "orders", now) == Move(site(3), ROOT, 4, 1)


def test_nobody_moves_for_less_than_the_hysteresis() -> None:
    found = chain(4)
    found.set_limits(replace(found.limits, hysteresis_tiers=4))
    assert propose_move(found, "orders", 0.0) is None
    found.set_limits(replace(found.limits, hysteresis_tiers=3))
    assert propose_move(found, "orders", 0.0) is not None


def test_whoever_takes_others_along_may_move_first() -> None:
    found = chain(5)
    assert propose_move_of(found, found.members[site(3)], 0.0) is None, "it has no grandchildren and is not deepest"
    assert propose_move_of(found, found.members[site(1)], 0.0) == Move(site(1), ROOT, 2, 1)


def test_nobody_moves_to_what_is_below_it_or_away_from_a_dialling_source() -> None:
    found = chain(3)
    found.rules.add(site(2), site(1))
    assert propose_move(found, "orders", 0.0) == Move(site(1), ROOT, 2, 1)


def test_a_replica_moves_only_where_its_log_goes_on() -> None:
    found = chain(3)
    found.keepalive(ROOT, Report(first_offset=100), 0.0)
    found.keepalive(site(2), Report(received=10), 0.0)
    found.keepalive(site(0), Report(first_offset=0), 0.0)
    assert propose_move(found, "orders", 0.0) == Move(site(2), site(0), 3, 2)


def test_a_stopped_replica_stays() -> None:
    found = chain(3)
    found.members[site(2)].is_stopped = True
    assert propose_move(found, "orders", 0.0) == Move(site(1), ROOT, 2, 1)

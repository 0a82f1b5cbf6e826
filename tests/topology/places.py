"""Placements for tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tailrace.topology.answers import Confirmed, Offer
from tailrace.topology.limits import Limits
from tailrace.topology.member import UNKNOWN, Report, State
from tailrace.topology.placement import Placement
from tailrace.topology.site import Site
from tailrace.topology.tunables import Tunables

LIMITS = Limits.of(Tunables())
ROOT = Site("orders", "root:1")


def site(number: int, database: str = "orders") -> Site:
    return Site(database, f"node{number}:4700")


def placement(fanout: int = 2, **limits: Any) -> Placement:
    """With one source, which was heard of."""
    found = Placement(replace(LIMITS, fanout=fanout, **limits))
    found.reset(ROOT, State.ACTIVE, 0.0)
    found.keepalive(ROOT, UNKNOWN, 0.0)
    return found


def join(found: Placement, number: int, now: float = 0.0, report: Report = UNKNOWN) -> Site:
    """Register and confirm; gives the source."""
    offer = found.register(site(number), report, now)
    assert isinstance(offer, Offer), offer
    assert isinstance(found.confirm(site(number), offer.reserved, now), Confirmed)
    return offer.reserved

"""Rebalancing: a replica moves up when a slot is free above, one replica at a time.

Those that take most others with them go first: they may move when they gain anything, the rest when they are deepest.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from tailrace.topology.answers import Move
from tailrace.topology.member import Member, State
from tailrace.topology.placement import Placement
from tailrace.topology.tree import Tree

_LOOKED_AT_MAX: Final = 32
"""Whoever is not looked at this time is looked at another time."""


def propose_move(placement: Placement, database: str, now: float) -> Move | None:
    """Reserve a slot for one of the deepest replicas; None if nobody would gain, or somebody is on its way."""
    placement.expire(now)
    if database not in placement.trees:
        return None
    for member in _deepest(placement, placement.tree(database)):
        if (move := propose_move_of(placement, member, now)) is not None:
            return move
    return None


def propose_move_of(placement: Placement, member: Member, now: float) -> Move | None:
    """Reserve a slot for this replica where it would be shallower; None if it is not its turn."""
    tree = placement.tree(member.site.database)
    first = next(iter(tree.free), None)
    if tree.moving is not None or member.tier is None or first is None:
        return None
    if _gain(member, first) < placement.limits.hysteresis_tiers:
        return None
    if not (_may_move(placement, member) and _is_next(placement, member)):
        return None
    for target in islice(tree.free, placement.limits.candidates_max):
        gain = _gain(member, target)
        if gain >= placement.limits.hysteresis_tiers and _fits(placement, member, target):
            move = Move(member.site, target.site, member.tier, member.tier - gain)
            placement.reserve_move(member, target, now)
            return move
    return None


def _deepest(placement: Placement, tree: Tree) -> list[Member]:
    found = islice(tree.replicas.deepest_first(), _LOOKED_AT_MAX)
    return [member for member in found if _may_move(placement, member)]


def _is_next(placement: Placement, member: Member) -> bool:
    if any(child.children for child in member.children):
        return True
    deepest = _deepest(placement, placement.tree(member.site.database))
    return not deepest or member.tier == deepest[0].tier


def _may_move(placement: Placement, member: Member) -> bool:
    waits = bool(placement.rules.sources_of(member.site))  # until somebody dials it
    is_replica = member.state is State.ACTIVE and not member.is_source
    return is_replica and member.reserved is None and not member.is_stopped and not waits


def _fits(placement: Placement, member: Member, target: Member) -> bool:
    is_below = target is member or placement.is_below(target.site, member.site)
    return member.report.is_covered_by(target.report) and not is_below


def _gain(member: Member, target: Member) -> int:
    """By how many tiers a replica would get shallower."""
    if member.tier is None or target.tier is None:
        return 0
    return member.tier - (target.tier + 1)

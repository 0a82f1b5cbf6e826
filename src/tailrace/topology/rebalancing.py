"""Rebalancing: a replica of a deep tier moves up when a slot is free above, one replica at a time."""

from __future__ import annotations

from itertools import islice
from typing import Final

from tailrace.topology.answers import Move
from tailrace.topology.member import Member
from tailrace.topology.placement import Placement

_LOOKED_AT_MAX: Final = 32
"""Replicas, and places for each of them: whoever is not found this time is found another time."""


def propose_move(placement: Placement, database: str, now: float) -> Move | None:
    """Reserve a slot for the replica that gets shallower most; None if nobody would, or somebody is on its way."""
    placement.expire(now)
    tree = placement.tree(database)
    if tree.moving is not None:
        return None
    targets = list(islice(tree.free, placement.limits.candidates_max))
    if not targets:
        return None
    for member in islice(tree.replicas.deepest_first(), _LOOKED_AT_MAX):
        if _gain(member, targets[0]) < placement.limits.hysteresis_tiers:
            return None
        target = next((found for found in targets if _fits(placement, member, found)), None)
        if target is not None and member.tier is not None and target.tier is not None:
            move = Move(member.site, target.site, member.tier, target.tier + 1)
            placement.reserve_move(member, target, now)
            return move
    return None


def _fits(placement: Placement, member: Member, target: Member) -> bool:
    return (
        member.reserved is None
        and not member.is_stopped
        and target is not member
        and _gain(member, target) >= placement.limits.hysteresis_tiers
        and member.report.is_covered_by(target.report)
        and not placement.rules.sources_of(member.site)  # it waits for those who dial it
        and not placement.is_below(target.site, member.site)
    )


def _gain(member: Member, target: Member) -> int:
    """By how many tiers a replica would get shallower."""
    if member.tier is None or target.tier is None:
        return 0
    return member.tier - (target.tier + 1)

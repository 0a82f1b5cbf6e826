"""Rebalancing: a replica of a deep tier moves up when a slot is free above, one replica at a time."""

from __future__ import annotations

from itertools import islice
from typing import Final

from tailrace.topology.answers import Move
from tailrace.topology.member import Member, State
from tailrace.topology.placement import Placement

_LOOKED_AT_MAX: Final = 32
"""Whoever is not looked at this time is looked at another time."""


def propose_move(placement: Placement, database: str, now: float) -> Move | None:
    """Reserve a slot for one of the deepest replicas; None if nobody would gain, or somebody is on its way."""
    placement.expire(now)
    deepest = islice(placement.tree(database).replicas.deepest_first(), _LOOKED_AT_MAX)
    for member in list(deepest):
        if (move := propose_move_of(placement, member, now)) is not None:
            return move
    return None


def propose_move_of(placement: Placement, member: Member, now: float) -> Move | None:
    """Reserve a slot for this replica where it would be shallower; None if another is on its way, or gains far more."""
    tree = placement.tree(member.site.database)
    if tree.moving is not None or member.state is not State.ACTIVE or member.is_source or member.tier is None:
        return None
    deepest = next(tree.replicas.deepest_first(), member)
    for target in islice(tree.free, placement.limits.candidates_max):
        if _gain(member, target) < max(placement.limits.hysteresis_tiers, _gain(deepest, target) / 2):
            return None
        if _fits(placement, member, target):
            move = Move(member.site, target.site, member.tier, member.tier - _gain(member, target))
            placement.reserve_move(member, target, now)
            return move
    return None


def _fits(placement: Placement, member: Member, target: Member) -> bool:
    return (
        member.reserved is None
        and not member.is_stopped
        and target is not member
        and member.report.is_covered_by(target.report)
        and not placement.rules.sources_of(member.site)  # it waits for those who dial it
        and not placement.is_below(target.site, member.site)
    )


def _gain(member: Member, target: Member) -> int:
    """By how many tiers a replica would get shallower."""
    if member.tier is None or target.tier is None:
        return 0
    return member.tier - (target.tier + 1)

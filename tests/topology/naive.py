"""The same as the placement knows, found the slow way: by looking at everything."""

from __future__ import annotations

from collections.abc import Collection

from tailrace.topology.member import Member, Report, State
from tailrace.topology.placement import Placement
from tailrace.topology.site import Site


def tier(member: Member) -> int | None:
    """By walking up."""
    steps = 0
    while not member.is_source:
        if member.parent is None:
            return None
        member, steps = member.parent, steps + 1
        assert steps < 10_000, "a cycle"
    return steps


def load(placement: Placement, member: Member) -> int:
    """By counting whoever holds or has reserved a slot there."""
    others = placement.members.values()
    held = sum(other.parent is member and other.holds_slot for other in others)
    return held + sum(other.reserved is member for other in others)


def is_below(member: Member, ancestor: Member) -> bool:
    above = member.parent
    while above is not None:
        if above is ancestor:
            return True
        above = above.parent
    return False


def candidates(
    placement: Placement, database: str, report: Report, caller: Member | None, unreachable: Collection[Site]
) -> list[tuple[int, int]]:
    """The tier and load of everybody who may be offered, best first. The caller's own slots count as free."""
    found: list[tuple[int, int]] = []
    doubtful: list[tuple[int, int]] = []
    for member in placement.members.values():
        if member.site.database != database or member.state is not State.ACTIVE or member is caller:
            continue
        depth = tier(member)
        if depth is None or (caller is not None and is_below(member, caller)):
            continue
        slots, pending = load(placement, member), sum(o.reserved is member for o in placement.members.values())
        if caller is not None:
            slots -= caller.parent is member and caller.holds_slot
            slots -= caller.reserved is member
            pending -= caller.reserved is member
        if slots >= placement.fanout(database) or pending >= placement.limits.pending_max:
            continue
        if report.is_covered_by(member.report):
            is_doubtful = member.is_doubtful or member.site in unreachable
            (doubtful if is_doubtful else found).append((depth, slots))
    return sorted(found or doubtful)[: placement.limits.candidates_max]


def check(placement: Placement) -> None:
    """What must hold after every call."""
    for member in placement.members.values():
        assert member.tier == tier(member)
        assert member.load == load(placement, member)
        assert (member.parent is None) or member in member.parent.children
        assert all(child.parent is member for child in member.children)
        assert all(child.reserved is member for child in member.claims)
        assert not (member.is_source and member.parent is not None)
        assert (member.state is State.PENDING) <= (member.parent is None and member.reserved is not None)
        assert (member.state is State.ACTIVE) <= (member.is_source or (member.parent is not None and member.holds_slot))
        assert (member.state is State.INACTIVE) <= (not member.holds_slot and member.reserved is None)
    for tree in placement.trees.values():
        assert set(tree.pending) == {m for m in tree.members if m.state is State.PENDING}
        offered = [(m.tier, m.load) for m in tree.free]
        assert offered == sorted(offered, key=lambda key: (key[0] or 0, key[1]))
        moving = [m for m in tree.members if m.state is State.ACTIVE and m.reserved is not None]
        assert moving == ([tree.moving] if tree.moving is not None else [])

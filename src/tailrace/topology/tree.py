"""The tree of one log: who replicates from whom, how many slots are taken, how deep everybody is.

It knows no clock and decides nothing. Tiers and shelves are right after every call; a call that moves a node costs as
much as there are nodes below it, every other call costs the same in a tree of any size.
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.topology.member import Member, State
from tailrace.topology.shelf import Shelf


class Tree:
    """The members that have one log."""

    def __init__(self, fanout: int, pending_max: int) -> None:
        self.fanout = fanout
        self.pending_max = pending_max
        self.free = Shelf()
        """Who may be offered."""
        self.full = Shelf()
        """Who could be offered if it had a slot."""
        self.doubtful = Shelf()
        """Who may be offered if there is nobody better: somebody could not reach it."""
        self.crowded = Shelf()
        """Who has a slot but too many that are Pending."""
        self.replicas = Shelf()
        """Active replicas by tier."""
        self.members: dict[Member, None] = {}
        self.pending: dict[Member, None] = {}
        """Who is about to have slots for others."""
        self.moving: Member | None = None
        """The one replica that has been asked to move."""

    def add(self, member: Member) -> None:
        """Take a new member in."""
        self.members[member] = None
        self.set_state(member, member.state)

    def remove(self, member: Member) -> None:
        """Let a member go that has no children and for whose slots nobody waits."""
        self.detach(member)
        self.release(member)
        self.set_source(member, is_source=False)
        self.set_state(member, State.INACTIVE)
        del self.members[member]

    def resize(self, fanout: int, pending_max: int) -> None:
        """Other limits. Nobody loses a slot by it."""
        self.fanout, self.pending_max = fanout, pending_max
        for member in self.members:
            self._file(member)

    def attach(self, child: Member, parent: Member, *, with_slot: bool = True) -> None:
        """Link a child that has no parent."""
        child.parent = parent
        parent.children[child] = None
        child.holds_slot = with_slot
        if with_slot:
            parent.load += 1
            self._file(parent)
        self.refresh(child)

    def detach(self, child: Member) -> None:
        """Remove the link to the parent, if there is one."""
        if child.parent is None:
            return
        self.give_up_slot(child)
        del child.parent.children[child]
        child.parent = None
        self.refresh(child)

    def give_up_slot(self, child: Member) -> None:
        """Keep the link, so that the nodes below are found, but not the slot."""
        if child.parent is not None and child.holds_slot:
            child.holds_slot = False
            child.parent.load -= 1
            self._file(child.parent)

    def reserve(self, child: Member, source: Member, until: float) -> None:
        """Keep a slot for a child that has none reserved."""
        child.reserved, child.reserved_until = source, until
        source.claims[child] = None
        source.load += 1
        self._file(source)

    def release(self, child: Member) -> None:
        """Do not keep a slot for the child any longer."""
        if self.moving is child:
            self.moving = None
        if (source := child.reserved) is not None:
            child.reserved = None
            del source.claims[child]
            source.load -= 1
            self._file(source)

    def set_state(self, member: Member, state: State) -> None:
        """Change what a member is to the others."""
        member.state = state
        if state is State.PENDING:
            self.pending[member] = None
        else:
            self.pending.pop(member, None)
        self.refresh(member)

    def set_doubtful(self, member: Member, *, is_doubtful: bool) -> None:
        """Offer a member only if there is nobody else, or like the others again."""
        member.is_doubtful = is_doubtful
        self._file(member)

    def set_source(self, member: Member, *, is_source: bool) -> None:
        """Put a member without a parent into tier 0, or out of it."""
        member.is_source = is_source
        self.refresh(member)

    def refresh(self, member: Member) -> None:
        """Find the tiers of a member and of all below it, as far as they have changed."""
        waiting = [member]
        while waiting:
            found = waiting.pop()
            tier = _tier(found)
            if tier != found.tier:
                found.tier = tier
                waiting += found.children
            self._file(found)

    def has_slot(self, source: Member) -> bool:
        """Whether one more child fits."""
        return source.load < self.fanout

    def below(self, member: Member) -> Iterator[Member]:
        """All that replicate through a member, and those for whom a slot is kept at one of these."""
        waiting = [*member.children, *member.claims]
        met = {member}
        while waiting:
            found = waiting.pop()
            if found not in met:
                met.add(found)
                yield found
                waiting += found.children
                waiting += found.claims

    def _file(self, member: Member) -> None:
        tier = member.tier if member.state is State.ACTIVE else None
        shelf = None if tier is None else self._shelf_for(member)
        key = (tier or 0, member.load)
        if shelf is not member.shelf or key != member.key:
            if member.shelf is not None:
                member.shelf.take(member.key, member)
            if shelf is not None:
                shelf.put(key, member)
            member.shelf, member.key = shelf, key
        rank = None if member.parent is None else tier
        if rank != member.rank:
            if member.rank is not None:
                self.replicas.take((member.rank, 0), member)
            if rank is not None:
                self.replicas.put((rank, 0), member)
            member.rank = rank

    def _shelf_for(self, member: Member) -> Shelf:
        if member.load >= self.fanout:
            return self.full
        if len(member.claims) >= self.pending_max:
            return self.crowded
        return self.doubtful if member.is_doubtful else self.free


def _tier(member: Member) -> int | None:
    if member.is_source:
        return 0
    if member.parent is None or member.parent.tier is None:
        return None
    return member.parent.tier + 1

"""Placement: which node replicates from which, decided in memory.

What holds after every call: a node has one parent; nobody is above itself; no node has more replicas than the fan-out,
those for whom a slot is reserved included, unless somebody asked for more; a refusal has changed nothing.
The time is handed in.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from tailrace.errors import TailraceError
from tailrace.topology.answers import Answer, Candidate, Confirmed, Needed, Offer, Reason, Refusal
from tailrace.topology.choosing import Choice
from tailrace.topology.leases import Leases
from tailrace.topology.limits import Limits
from tailrace.topology.member import Member, Report, State
from tailrace.topology.rules import Rules
from tailrace.topology.site import Site
from tailrace.topology.tree import Tree


class Placement:
    """The members of all logs."""

    def __init__(self, limits: Limits) -> None:
        self.members: dict[Site, Member] = {}
        self.trees: dict[str, Tree] = {}
        self.rules = Rules()
        self.changed: dict[Member, None] = {}
        """Whose place or state is another than when this was last emptied."""
        self.reported: dict[Member, None] = {}
        """Who has told how far it is since this was last emptied."""
        self.forgotten: dict[Site, None] = {}
        self._limits = limits
        self._fanouts: dict[str, int] = {}
        self._leases = Leases()

    @property
    def limits(self) -> Limits:
        return self._limits

    def set_limits(self, limits: Limits) -> None:
        """Other limits for all. Nobody loses a slot by it."""
        self._limits = limits
        for database, tree in self.trees.items():
            tree.resize(self.fanout(database), limits.pending_max)

    def fanout(self, database: str) -> int:
        """How many replicas a node of this log may have."""
        return self._fanouts.get(database, self._limits.fanout)

    def override_fanout(self, database: str, fanout: int | None) -> None:
        """Another fan-out for one log; None takes that back."""
        if fanout is None:
            self._fanouts.pop(database, None)
        else:
            self._fanouts[database] = fanout
        if database in self.trees:
            self.trees[database].resize(self.fanout(database), self._limits.pending_max)

    def tree(self, database: str) -> Tree:
        """The tree of a log that somebody has, or is about to have."""
        if database not in self.trees:
            self.trees[database] = Tree(self.fanout(database), self._limits.pending_max)
        return self.trees[database]

    def register(
        self,
        site: Site,
        report: Report,
        now: float,
        *,
        sources: Sequence[Site] = (),
        unreachable: Sequence[Site] = (),
        over_fanout: bool = False,
    ) -> Offer | Refusal:
        """Candidates for a node, which is Pending from then on, with a slot reserved at the first of them.

        Who is unreachable for it comes last, for others too, until it is heard of again.
        """
        self.expire(now)
        for source in sources:
            self._check_same_log(site, source)
            if source != site and source not in self.members:
                self._add_source(source)
        if site.database not in self.trees:
            return self._refusal(Reason.NO_SOURCE, f"nobody has log {site.database}")
        tree = self.trees[site.database]
        self._doubt(site, unreachable)
        known = self.members.get(site)
        if known is not None and known.is_stopped:
            return self._stopped(site)
        member = known or Member(site)
        before = member.parent, member.holds_slot, member.reserved, member.reserved_until, member.is_source
        tree.detach(member)  # so nobody below it has a tier, and none of them is offered
        moving = tree.moving
        tree.release(member)
        if member.is_source:
            tree.set_source(member, is_source=False)
        found = self._choose(tree, member, report, over_fanout=over_fanout)
        if isinstance(found, Refusal):
            self._restore(tree, member, before)
            tree.moving = moving
            return found
        if known is None:
            self._add(member)
        member.report, member.seen = report, now
        tree.set_state(member, State.PENDING)
        candidates = tuple(Candidate(node.site, node.tier or 0, node.load) for node in found)
        self._reserve(tree, member, found[0], now + self._limits.pending_lease_s)
        self._leases.set(member, math.inf)
        return Offer(candidates, self._limits.pending_lease_s)

    def confirm(
        self, site: Site, source_site: Site, now: float, *, unreachable: Sequence[Site] = ()
    ) -> Confirmed | Refusal:
        """Make a node a replica of a source: where a slot is kept for it, or where one is free."""
        self.expire(now)
        self._check_same_log(site, source_site)
        self._doubt(site, unreachable)
        source = self.members.get(source_site)
        if site == source_site or self.is_below(source_site, site):
            return self._refusal(Reason.CYCLE, f"{source_site} replicates from {site} itself")
        member = self.members.get(site)
        if member is not None and member.is_stopped:
            return self._stopped(site)
        is_there = member is not None and member.parent is source and member.holds_slot
        if source is None or not (is_there or source.state is State.ACTIVE):
            return self._refusal(Reason.NOT_A_SOURCE, f"{source_site} may not be replicated from now")
        tree = self.tree(site.database)
        is_expected = is_there or (member is not None and member.reserved is source)
        if not is_expected and not tree.has_slot(source):
            return self._refusal(Reason.FULL, f"{source_site} has no free slot")
        if member is None:
            member = Member(site)
            self._add(member)
        tree.release(member)
        if not is_there:
            tree.detach(member)
            if member.is_source:
                tree.set_source(member, is_source=False)
            tree.attach(member, source)
        member.seen = now
        tree.set_state(member, State.ACTIVE)
        self._keep(member, now)
        self.changed[member] = None
        return Confirmed(member.tier, self._limits.active_lease_s)

    def keepalive(self, site: Site, report: Report, now: float) -> Answer:
        """Prolong a node's lease. One whose lease was over gets its slot back if it is still free."""
        self.expire(now)
        member = self.members.get(site)
        if member is None:
            return Answer(is_known=False)
        member.report, member.seen = report, now
        self.reported[member] = None
        if member.is_doubtful:
            self.tree(site.database).set_doubtful(member, is_doubtful=False)
        if member.state is State.INACTIVE and not self._revive(member):
            self._leases.set(member, now + self._limits.forget_s)
            return Answer(is_known=False, is_stopped=member.is_stopped)
        if member.state is State.ACTIVE:
            self._keep(member, now)
            move = member.reserved.site if member.reserved is not None else None
            return Answer(is_known=True, move=move, is_stopped=member.is_stopped)
        return Answer(is_known=True, is_stopped=member.is_stopped)

    def reset(self, site: Site, state: State, now: float) -> None:
        """Cut a node off: Active makes it a source, Inactive makes it nobody's source. The lease of a source begins
        when it is heard of itself: one that an operator names need not keep alive."""
        self.expire(now)
        if state is State.PENDING:
            raise TailraceError("input.invalid", "a node is not reset to Pending", hint="let it register")
        member = self.members.get(site)
        if member is None:
            member = Member(site)
            self._add(member)
        tree = self.tree(site.database)
        tree.detach(member)
        tree.release(member)
        member.seen = None if state is State.ACTIVE else now
        if state is State.ACTIVE:
            tree.set_source(member, is_source=True)
        tree.set_state(member, state)
        self._keep(member, now)
        self.changed[member] = None

    def expire(self, now: float) -> None:
        """End the leases that are over."""
        for member in self._leases.lapsed(now):
            tree = self.tree(member.site.database)
            tree.release(member)
            self.changed[member] = None
            if member.state is State.PENDING:
                tree.set_state(member, State.INACTIVE)
                self._leases.set(member, now + self._limits.forget_s)
        for member in self._leases.over(now):
            if member.state is State.ACTIVE:
                self._lose(member)
                self._leases.set(member, now + self._limits.forget_s)
            elif member.state is State.INACTIVE and not member.children and not member.claims:
                self._forget(member)
            else:
                self._leases.set(member, now + self._limits.forget_s)

    def is_below(self, site: Site, ancestor: Site) -> bool:
        """Whether a node gets what the ancestor has, by links or by reverse rules."""
        waiting, met = [site], {site}
        while waiting:
            found = waiting.pop()
            member = self.members.get(found)
            above = list(self.rules.sources_of(found))
            if member is not None and member.parent is not None:
                above.append(member.parent.site)
            if ancestor in above:
                return True
            new = [other for other in above if other not in met]
            met.update(new)
            waiting += new
        return False

    def needed(self, member: Member) -> Needed:
        """Which part of its log the live replicas below a member still need."""
        tree = self.tree(member.site.database)
        live = [below.report.received for below in tree.below(member) if below.state is not State.INACTIVE]
        told = [position for position in live if position is not None]
        return Needed(len(told) == len(live), min(told, default=None), len(live))

    def reserve_move(self, member: Member, target: Member, now: float) -> None:
        """Keep a slot for a replica that is asked to move; there is one such replica in a tree."""
        tree = self.tree(member.site.database)
        self._reserve(tree, member, target, now + self._limits.move_lease_s)
        tree.moving = member

    def restore(self, member: Member, now: float) -> None:
        """Take in a member that was kept. Its lease begins anew."""
        self._add(member)
        self._keep(member, now)

    def restore_links(self, member: Member, parent: Member | None, reserved: Member | None, now: float) -> None:
        """Link a member that was kept, after all have been taken in."""
        tree = self.tree(member.site.database)
        tree.set_source(member, is_source=member.is_source)
        if parent is not None and not self.is_below(parent.site, member.site):
            tree.attach(member, parent, with_slot=member.state is State.ACTIVE)
        if reserved is not None and reserved is not member:
            moves = member.state is State.ACTIVE
            lease_s = self._limits.move_lease_s if moves else self._limits.pending_lease_s
            self._reserve(tree, member, reserved, now + lease_s)
            tree.moving = member if moves else tree.moving
        elif member.state is State.PENDING:
            tree.set_state(member, State.INACTIVE)

    def _choose(self, tree: Tree, member: Member, report: Report, *, over_fanout: bool) -> list[Member] | Refusal:
        choice = Choice(tree, member.site.database, report, self._limits)
        if self.rules:
            choice.is_barred = lambda node: self.is_below(node.site, member.site)
        return choice.within_fanout() or (over_fanout and choice.over_fanout()) or choice.refusal()

    def _refusal(self, reason: Reason, what: str) -> Refusal:
        return Refusal(reason, what, self._limits.retry_s)

    def _doubt(self, site: Site, unreachable: Sequence[Site]) -> None:
        for other in unreachable:
            if other.database == site.database and (doubted := self.members.get(other)) is not None:
                self.tree(site.database).set_doubtful(doubted, is_doubtful=True)

    def _stopped(self, site: Site) -> Refusal:
        return self._refusal(Reason.STOPPED, f"{site} is stopped, by an operator")

    def _restore(
        self, tree: Tree, member: Member, before: tuple[Member | None, bool, Member | None, float, bool]
    ) -> None:
        parent, holds_slot, reserved, until, is_source = before
        if is_source:
            tree.set_source(member, is_source=True)
        if parent is not None:
            tree.attach(member, parent, with_slot=holds_slot)
        if reserved is not None:
            tree.reserve(member, reserved, until)

    def _revive(self, member: Member) -> bool:
        tree = self.tree(member.site.database)
        parent = member.parent
        if not member.is_source:
            if parent is None or not tree.has_slot(parent):
                return False
            tree.detach(member)
            tree.attach(member, parent)
        tree.set_state(member, State.ACTIVE)
        self.changed[member] = None
        return True

    def _lose(self, member: Member) -> None:
        """It is not offered any more and holds nothing, but the nodes below it are found through it."""
        tree = self.tree(member.site.database)
        tree.give_up_slot(member)
        tree.release(member)
        tree.set_state(member, State.INACTIVE)
        self.changed[member] = None

    def _keep(self, member: Member, now: float) -> None:
        if member.state is State.ACTIVE:
            named_only = member.is_source and member.seen is None
            self._leases.set(member, math.inf if named_only else now + self._limits.active_lease_s)
        elif member.state is State.INACTIVE:
            self._leases.set(member, now + self._limits.forget_s)

    def _reserve(self, tree: Tree, member: Member, source: Member, until: float) -> None:
        tree.reserve(member, source, until)
        self._leases.reserve(member)
        self.changed[member] = None

    def _add_source(self, site: Site) -> None:
        """A source that has not been heard of itself: it has no lease that could end."""
        member = Member(site)
        self._add(member)
        tree = self.tree(site.database)
        tree.set_source(member, is_source=True)
        tree.set_state(member, State.ACTIVE)

    def _add(self, member: Member) -> None:
        self.members[member.site] = member
        self.forgotten.pop(member.site, None)
        self.tree(member.site.database).add(member)
        self.changed[member] = None

    def _forget(self, member: Member) -> None:
        tree = self.tree(member.site.database)
        tree.remove(member)
        if not tree.members:
            del self.trees[member.site.database]
        del self.members[member.site]
        self.changed.pop(member, None)
        self.reported.pop(member, None)
        self.forgotten[member.site] = None

    def _check_same_log(self, site: Site, source: Site) -> None:
        if site.database != source.database:
            what = f"{site} cannot replicate from {source}: that is another log"
            raise TailraceError("input.invalid", what, hint="name a source of the same log")

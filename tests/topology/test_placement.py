"""Placement: tiers fill in order, slots are never given twice, and whatever happens the tree stays a tree."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from tailrace.errors import TailraceError
from tailrace.topology.answers import Confirmed, Offer, Reason, Refusal
from tailrace.topology.member import UNKNOWN, Report, State
from tailrace.topology.placement import Placement
from tailrace.topology.rebalancing import propose_move
from tailrace.topology.site import Site
from tests.topology import naive
from tests.topology.places import LIMITS, ROOT, join, placement, site

LEASE_S = LIMITS.active_lease_s


def tier(found: Placement, number: int) -> int | None:
    return found.members[site(number)].tier


def refused(found: object) -> Reason:
    assert isinstance(found, Refusal), found
    assert found.retry_after_s > 0
    assert found.what
    return found.reason


@pytest.mark.parametrize("fanout", [1, 2, 8])
def test_tiers_fill_in_order(fanout: int) -> None:
    found = placement(fanout)
    for number in range(40):
        join(found, number)
    tiers = [tier(found, number) for number in range(40)]
    assert tiers == sorted(tiers, key=lambda depth: depth or 0)
    assert max(member.load for member in found.members.values()) == fanout


def test_the_least_loaded_of_a_tier_comes_first() -> None:
    found = placement(2)
    join(found, 0)
    join(found, 1)
    assert {join(found, number) for number in (2, 3)} == {site(0), site(1)}


def test_candidates_are_few() -> None:
    found = placement(2, candidates_max=3)
    for number in range(30):
        join(found, number)
    offer = found.register(site(99), UNKNOWN, 0.0)
    assert isinstance(offer, Offer)
    assert len(offer.candidates) == 3


def test_a_registration_reserves_its_slot() -> None:
    found = placement(1)
    first, second = found.register(site(0), UNKNOWN, 0.0), found.register(site(1), UNKNOWN, 0.0)
    assert isinstance(first, Offer) and first.reserved == ROOT
    assert refused(second) is Reason.FULL


def test_without_a_source_there_is_none() -> None:
    assert refused(Placement(LIMITS).register(site(0), UNKNOWN, 0.0)) is Reason.NO_SOURCE


def test_names_of_logs_that_nobody_has_leave_nothing_behind() -> None:
    found = placement()
    for number in range(3):
        found.register(site(number, f"log{number}"), UNKNOWN, 0.0)
        found.confirm(site(number, f"log{number}"), site(9, f"log{number}"), 0.0)
        found.keepalive(site(number, f"log{number}"), UNKNOWN, 0.0)
        assert propose_move(found, f"log{number}", 0.0) is None
    assert list(found.trees) == ["orders"]
    found.reset(ROOT, State.INACTIVE, 0.0)
    found.expire(LIMITS.forget_s + 1)
    assert not found.trees


def test_a_source_may_be_named_by_its_replica() -> None:
    found = Placement(LIMITS)
    offer = found.register(site(0), UNKNOWN, 0.0, sources=[ROOT])
    assert isinstance(offer, Offer) and offer.reserved == ROOT
    found.expire(1e9)
    assert found.members[ROOT].state is State.ACTIVE


def test_too_many_pending_at_one_source() -> None:
    found = placement(100, pending_max=3)
    for number in range(3):
        assert isinstance(found.register(site(number), UNKNOWN, 0.0), Offer)
    assert refused(found.register(site(3), UNKNOWN, 0.0)) is Reason.PENDING
    found.confirm(site(0), ROOT, 0.0)
    assert isinstance(found.register(site(3), UNKNOWN, 0.0), Offer)


def test_pending_is_counted_for_each_source() -> None:
    found = placement(100, pending_max=1)
    join(found, 0)
    assert isinstance(found.register(site(1), UNKNOWN, 0.0), Offer)
    second = found.register(site(2), UNKNOWN, 0.0)
    assert isinstance(second, Offer) and second.reserved == site(0)


def test_pending_ends_and_frees_its_slot() -> None:
    found = placement(1)
    found.register(site(0), UNKNOWN, 0.0)
    found.keepalive(ROOT, UNKNOWN, LIMITS.pending_lease_s - 0.1)
    assert refused(found.register(site(1), UNKNOWN, LIMITS.pending_lease_s - 0.1)) is Reason.FULL
    offer = found.register(site(1), UNKNOWN, LIMITS.pending_lease_s)
    assert isinstance(offer, Offer) and offer.reserved == ROOT
    assert found.members[site(0)].state is State.INACTIVE
    assert refused(found.confirm(site(0), ROOT, LIMITS.pending_lease_s)) is Reason.FULL


def test_a_late_confirmation_is_good_while_the_slot_is_free() -> None:
    found = placement(1)
    found.register(site(0), UNKNOWN, 0.0)
    assert isinstance(found.confirm(site(0), ROOT, 1000.0), Refusal)  # the source's own lease is over, too
    found.keepalive(ROOT, UNKNOWN, 1000.0)
    assert isinstance(found.confirm(site(0), ROOT, 1000.0), Confirmed)


def test_another_candidate_than_the_reserved_one_needs_a_free_slot() -> None:
    found = placement(2)
    join(found, 0)
    found.register(site(1), UNKNOWN, 0.0)
    assert isinstance(found.confirm(site(1), site(0), 0.0), Confirmed)
    assert found.members[ROOT].load == 1, "what was reserved is free again"
    join(found, 2)
    found.register(site(3), UNKNOWN, 0.0)
    assert refused(found.confirm(site(3), ROOT, 0.0)) is Reason.FULL
    assert found.members[site(3)].state is State.PENDING


def test_confirming_again_changes_nothing() -> None:
    found = placement(1)
    join(found, 0)
    assert found.confirm(site(0), ROOT, 0.0) == Confirmed(1, LEASE_S)
    assert found.members[ROOT].load == 1


def test_a_node_that_is_not_known_is_not_a_source() -> None:
    assert refused(placement().confirm(site(0), site(1), 0.0)) is Reason.NOT_A_SOURCE


def test_pending_nodes_are_not_offered_to_each_other() -> None:
    found = placement(4)
    for number in (0, 1):
        join(found, number)
    for number in (0, 1):
        offer = found.register(site(number), UNKNOWN, 0.0)
        assert isinstance(offer, Offer)
        assert {candidate.site for candidate in offer.candidates} <= {ROOT, site(1 - number)}
    assert refused(found.confirm(site(0), site(1), 0.0)) is Reason.NOT_A_SOURCE


def test_nobody_is_offered_what_is_below_it() -> None:
    found = placement(1)
    for number in range(4):
        join(found, number)
    offer = found.register(site(1), UNKNOWN, 0.0)
    assert isinstance(offer, Offer)
    assert [candidate.site for candidate in offer.candidates] == [site(0)]


def test_a_cycle_is_refused() -> None:
    found = placement(1)
    for number in range(3):
        join(found, number)
    assert refused(found.confirm(site(0), site(2), 0.0)) is Reason.CYCLE
    assert refused(found.confirm(site(0), site(0), 0.0)) is Reason.CYCLE
    assert tier(found, 2) == 3


def test_a_cycle_through_a_rule_is_not_offered() -> None:
    found = placement(8)
    join(found, 0)
    join(found, 1)
    found.rules.add(site(1), site(0))
    offer = found.register(site(0), UNKNOWN, 0.0)
    assert isinstance(offer, Offer)
    assert [candidate.site for candidate in offer.candidates] == [ROOT]
    assert refused(found.confirm(site(0), site(1), 0.0)) is Reason.CYCLE


def test_a_node_that_is_gone_is_not_offered_but_what_is_below_it() -> None:
    found = placement(1)
    join(found, 0)
    join(found, 1)
    now = LEASE_S + 1
    found.keepalive(ROOT, UNKNOWN, LEASE_S - 1)
    found.keepalive(site(1), UNKNOWN, LEASE_S - 1)
    found.expire(now)
    assert found.members[site(0)].state is State.INACTIVE
    assert tier(found, 1) == 2
    offer = found.register(site(2), UNKNOWN, now)
    assert isinstance(offer, Offer)
    assert [candidate.site for candidate in offer.candidates] == [ROOT, site(1)]


def test_a_node_that_comes_back_has_its_slot_if_it_is_free() -> None:
    found = placement(1)
    join(found, 0)
    found.keepalive(ROOT, UNKNOWN, LEASE_S)
    assert not found.members[site(0)].holds_slot
    assert found.keepalive(site(0), UNKNOWN, LEASE_S + 1).is_known
    assert found.members[site(0)].state is State.ACTIVE
    found.keepalive(ROOT, UNKNOWN, 2 * LEASE_S + 1)
    join(found, 1, 2 * LEASE_S + 1)
    assert not found.keepalive(site(0), UNKNOWN, 2 * LEASE_S + 2).is_known


def test_an_unknown_node_is_told_to_register() -> None:
    assert not placement().keepalive(site(7), UNKNOWN, 0.0).is_known


def test_only_logs_that_reach_back_are_offered() -> None:
    found = placement(2)
    join(found, 0)
    found.keepalive(ROOT, Report(first_offset=100, received=200), 0.0)
    found.keepalive(site(0), Report(first_offset=10, received=200), 0.0)
    for position, expected in ((99, [site(0)]), (100, [ROOT, site(0)]), (None, [ROOT, site(0)])):
        offer = found.register(site(1), Report(received=position), 0.0)
        assert isinstance(offer, Offer)
        assert [candidate.site for candidate in offer.candidates] == expected
    assert refused(found.register(site(1), Report(received=9), 0.0)) is Reason.NO_OVERLAP


def test_who_has_the_log_and_no_slot_is_waited_for() -> None:
    """Whoever hears that nobody has its log any more may copy everything anew."""
    found = placement(1)
    join(found, 0)
    join(found, 1)
    found.keepalive(site(1), Report(first_offset=100, received=200), 0.0)
    assert refused(found.register(site(2), Report(received=50), 0.0)) is Reason.FULL
    found.keepalive(site(0), Report(first_offset=60), 0.0)
    found.keepalive(ROOT, Report(first_offset=60), 0.0)
    assert refused(found.register(site(2), Report(received=50), 0.0)) is Reason.NO_OVERLAP
    crowded = placement(8, pending_max=1)
    join(crowded, 0)
    crowded.keepalive(site(0), Report(first_offset=100), 0.0)
    crowded.register(site(1), UNKNOWN, 0.0)
    assert refused(crowded.register(site(2), Report(received=50), 0.0)) is Reason.PENDING


def test_an_earlier_generation_is_not_offered() -> None:
    found = placement(2)
    found.keepalive(ROOT, Report(generation=2), 0.0)
    assert isinstance(found.register(site(0), Report(generation=2), 0.0), Offer)
    assert refused(found.register(site(0), Report(generation=3), 0.0)) is Reason.GENERATION


def test_a_refusal_changes_nothing() -> None:
    found = placement(1)
    for number in range(3):
        join(found, number)
    found.keepalive(ROOT, Report(first_offset=100), 0.0)
    found.changed.clear()
    assert refused(found.register(site(0), Report(received=1), 0.0)) is Reason.NO_OVERLAP
    assert [tier(found, number) for number in range(3)] == [1, 2, 3]
    assert not found.changed
    naive.check(found)


def test_who_cannot_be_reached_comes_last_until_it_is_heard_of() -> None:
    found = placement(8)
    join(found, 0)
    for unreachable, expected in (([], ROOT), ([ROOT], site(0)), ([site(0)], ROOT)):
        offer = found.register(site(1), UNKNOWN, 0.0, unreachable=unreachable)
        assert isinstance(offer, Offer) and offer.reserved == expected
    found.keepalive(site(0), UNKNOWN, 0.0)
    offer = found.register(site(2), UNKNOWN, 0.0)
    assert isinstance(offer, Offer)
    assert [candidate.site for candidate in offer.candidates] == [site(0)], "nobody who is in doubt"


def test_more_than_the_fanout_only_when_asked() -> None:
    found = placement(1)
    found.register(site(0), UNKNOWN, 0.0)
    assert isinstance(found.register(site(1), UNKNOWN, 0.0), Refusal)
    offer = found.register(site(1), UNKNOWN, 0.0, over_fanout=True)
    assert isinstance(offer, Offer)
    assert isinstance(found.confirm(site(1), offer.reserved, 0.0), Confirmed)
    assert found.members[ROOT].load == 2


def test_a_log_can_have_a_fanout_of_its_own() -> None:
    found = placement(1)
    found.override_fanout("orders", 3)
    assert [join(found, number) for number in range(3)] == [ROOT] * 3
    found.override_fanout("orders", None)
    assert join(found, 3) != ROOT


def test_another_log_is_no_source() -> None:
    with pytest.raises(TailraceError, match="another log"):
        placement().confirm(site(0), site(1, "bills"), 0.0)


def test_what_replicas_need() -> None:
    found = placement(1)
    for number in range(3):
        join(found, number)
    found.keepalive(site(0), Report(received=50), 0.0)
    found.keepalive(site(1), Report(received=30), 0.0)
    needed = found.needed(found.members[ROOT])
    assert (needed.is_known, needed.offset, needed.replicas) == (False, 30, 3)
    found.keepalive(site(2), Report(received=40), LEASE_S - 1)
    found.keepalive(ROOT, UNKNOWN, LEASE_S - 1)
    found.expire(LEASE_S + 1)
    needed = found.needed(found.members[ROOT])
    assert (needed.is_known, needed.offset, needed.replicas) == (True, 40, 1), "who is gone holds nothing"


def test_who_is_gone_for_long_is_forgotten() -> None:
    found = placement(2)
    join(found, 0)
    found.reset(site(0), State.INACTIVE, 0.0)
    found.expire(LIMITS.forget_s + 1)
    assert site(0) not in found.members
    assert site(0) in found.forgotten


def test_a_source_that_an_operator_names_need_not_keep_alive() -> None:
    found = placement(2)
    named = site(50)
    found.reset(named, State.ACTIVE, 0.0)
    found.expire(10 * LEASE_S)
    assert found.members[ROOT].state is State.INACTIVE, "it was heard of, and is not any more"
    offer = found.register(site(0), UNKNOWN, 10 * LEASE_S, sources=[named])
    assert isinstance(offer, Offer) and offer.reserved == named


def test_a_stopped_node_gets_no_place() -> None:
    found = placement(2)
    join(found, 0)
    found.members[site(0)].is_stopped = True
    assert refused(found.register(site(0), UNKNOWN, 0.0)) is Reason.STOPPED
    assert refused(found.confirm(site(0), ROOT, 0.0)) is Reason.STOPPED
    assert found.members[site(0)].parent is found.members[ROOT]
    found.members[site(0)].is_stopped = False
    assert isinstance(found.confirm(site(0), ROOT, 0.0), Confirmed)


def test_nobody_is_reset_to_pending() -> None:
    with pytest.raises(TailraceError):
        placement().reset(site(0), State.PENDING, 0.0)


NUMBERS = st.integers(0, 9)
REPORTS = st.builds(
    Report,
    generation=st.sampled_from([None, 1, 2]),
    first_offset=st.sampled_from([None, 0, 50]),
    received=st.sampled_from([None, 40, 60]),
)


class PlacementMachine(RuleBasedStateMachine):
    """Whatever nodes do, in whatever order and at whatever time."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        limits = replace(LIMITS, fanout=2, pending_max=1, candidates_max=3, forget_s=100.0)
        self.placement = Placement(limits)
        self.placement.reset(ROOT, State.ACTIVE, 0.0)
        self.offers: dict[Site, Offer] = {}
        self.moves: dict[Site, Site] = {}

    @rule(number=NUMBERS, report=REPORTS, unreachable=st.sets(NUMBERS, max_size=2))
    def register(self, number: int, report: Report, unreachable: set[int]) -> None:
        node = site(number)
        self.placement.expire(self.now)
        known = self.placement.members.get(node)
        if known is not None and known.is_source:
            return
        doubted = [site(other) for other in unreachable]
        expected = naive.candidates(self.placement, "orders", report, known, doubted)
        found = self.placement.register(node, report, self.now, unreachable=doubted)
        if isinstance(found, Refusal):
            assert expected == []
        else:
            assert [(candidate.tier, candidate.load) for candidate in found.candidates] == expected
            self.offers[node] = found

    @rule(number=NUMBERS, which=st.integers(0, 2))
    def confirm(self, number: int, which: int) -> None:
        node = site(number)
        if node in self.offers:
            candidates = self.offers[node].candidates
            self.placement.confirm(node, candidates[which % len(candidates)].site, self.now)

    @rule(number=NUMBERS, other=NUMBERS)
    def confirm_anybody(self, number: int, other: int) -> None:
        self.placement.confirm(site(number), site(other), self.now)

    @rule(number=NUMBERS, report=REPORTS)
    def keepalive(self, number: int, report: Report) -> None:
        answer = self.placement.keepalive(site(number), report, self.now)
        if answer.move is not None:
            self.moves[site(number)] = answer.move

    @rule()
    def everybody_keeps_alive(self) -> None:
        for node in list(self.placement.members):
            self.keepalive_of(node)

    def keepalive_of(self, node: Site) -> None:
        member = self.placement.members.get(node)
        if member is not None:
            self.placement.keepalive(node, member.report, self.now)

    @rule()
    def source_keeps_alive(self) -> None:
        self.keepalive_of(ROOT)

    @rule(seconds=st.sampled_from([1.0, 20.0, 40.0, 200.0]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        self.placement.expire(self.now)

    @rule(number=NUMBERS, state=st.sampled_from([State.ACTIVE, State.INACTIVE]))
    def reset(self, number: int, state: State) -> None:
        self.placement.reset(site(number), state, self.now)

    @rule()
    def rebalance(self) -> None:
        move = propose_move(self.placement, "orders", self.now)
        if move is not None:
            assert move.to_tier < move.from_tier

    @rule(number=NUMBERS)
    def follow_the_move(self, number: int) -> None:
        if (target := self.moves.pop(site(number), None)) is not None:
            self.placement.confirm(site(number), target, self.now)

    @rule(fanout=st.integers(2, 4))
    def another_fanout(self, fanout: int) -> None:
        if all(member.load <= fanout for member in self.placement.members.values()):
            self.placement.override_fanout("orders", fanout)

    @invariant()
    def all_is_as_found_the_slow_way(self) -> None:
        naive.check(self.placement)

    @invariant()
    def fanout_is_kept(self) -> None:
        assert all(m.load <= self.placement.fanout("orders") for m in self.placement.members.values())


PlacementMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestPlacementMachine = PlacementMachine.TestCase

"""The simulation: the real registry, any number of nodes, the same outcome every time."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.topology.scenario import Outcome, Scenario
from tailrace.topology.simulate import simulate


@pytest.fixture(scope="module")
def outcome() -> Outcome:
    return simulate(Scenario(nodes=2000, seed=7))


def test_all_find_a_source_and_find_one_again(outcome: Outcome) -> None:
    assert outcome.settled_s is not None
    assert outcome.killed == 200
    assert outcome.cut_off > 100
    assert outcome.heal_s is not None
    assert outcome.cut_off_by_second[0] == outcome.cut_off
    assert outcome.cut_off_by_second[-1] == 0
    assert sum(outcome.depth_after.counts.values()) == 1800


def test_no_node_ever_has_more_replicas_than_the_fanout(outcome: Outcome) -> None:
    assert outcome.children_max == 8


def test_tiers_are_full_before_some_are_killed(outcome: Outcome) -> None:
    assert outcome.depth_before.counts == {1: 8, 2: 64, 3: 512, 4: 1416}


def test_the_source_sends_to_its_own_replicas_only(outcome: Outcome) -> None:
    assert outcome.root_bytes <= 8 * outcome.simulated_s * 1_000_000
    assert outcome.total_bytes > 100 * outcome.root_bytes


def test_every_call_is_counted(outcome: Outcome) -> None:
    assert sum(outcome.calls_by_second) == sum(outcome.calls.values())
    assert max(outcome.calls_by_second) == outcome.calls_per_s_peak


def test_the_same_seed_gives_the_same_outcome() -> None:
    def play(seed: int) -> Outcome:
        return replace(simulate(Scenario(nodes=300, seed=seed, churn=0.3)), took_s=0, registry_took_s=0)

    assert play(1) == play(1)
    assert play(1) != play(2)


@pytest.mark.parametrize("fanout", [1, 2])
def test_narrow_trees_heal_too(fanout: int) -> None:
    outcome = simulate(Scenario(nodes=60, fanout=fanout, churn=0.2, arrive_s=120, settle_s=300))
    assert outcome.heal_s is not None
    assert outcome.children_max == fanout


def test_nobody_is_killed_without_churn() -> None:
    outcome = simulate(Scenario(nodes=50, churn=0))
    assert (outcome.killed, outcome.cut_off, outcome.moves) == (0, 0, 0)

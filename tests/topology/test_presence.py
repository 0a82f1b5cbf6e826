"""Sources that a registry knows."""

from __future__ import annotations

from tailrace.topology.drawing import tree
from tailrace.topology.knobs import Knobs
from tailrace.topology.member import Report, State
from tailrace.topology.presence import Presence
from tailrace.topology.registry import Registry
from tailrace.topology.site import Site
from tailrace.topology.storage import NoStorage
from tests.topology.clock import Clock
from tests.topology.test_knobs import Passing

ROOT, LEAF = Site("shop", "root:1"), Site("shop", "leaf:1")
REPORT = Report(generation=0, first_offset=0, received=50)


def test_a_source_is_known_with_its_position() -> None:
    clock = Clock()
    registry, knobs = Registry(NoStorage(), clock, clock.wall), Knobs()
    presence = Presence(registry, ROOT, lambda: REPORT, knobs, print)
    registry.set_tunable("physrep_fanout", "3")
    presence.turn()
    registry.register_replicant(LEAF)
    registry.update_registry(LEAF, ROOT)
    registry.keepalive(LEAF, Report(received=42))
    clock.now += 7
    assert list(tree(registry.topology())) == [
        "shop",
        "  root:1  source, tier 0, offset 50, 1 below, keeps its log from 42 for leaf:1, heard of 7 s ago",
        "    leaf:1  Active, tier 1, offset 42, 8 messages behind, heard of 7 s ago",
    ]
    assert knobs.number("physrep_fanout") == 3
    clock.now += 24
    assert registry.topology()[0].state is State.INACTIVE, "its lease is over"
    presence.turn()
    assert registry.topology()[0].state is State.ACTIVE


def test_one_that_was_a_replica_is_a_source_now() -> None:
    registry = Registry(NoStorage())
    registry.register_replicant(LEAF, sources=[ROOT])
    registry.update_registry(LEAF, ROOT)
    Presence(registry, LEAF, lambda: REPORT, Knobs(), print).turn()
    assert [(row.site, row.tier) for row in registry.topology()] == [(LEAF, 0), (ROOT, 0)]


def test_keepalives_come_as_often_as_the_registry_says_until_it_says_goodbye() -> None:
    clock, said = Clock(), list[str]()
    registry, knobs = Registry(NoStorage(), clock, clock.wall), Knobs(clock=clock)
    registry.set_tunable("physrep_keepalive_freq_sec", "0.25")
    seen: list[float] = []

    def report() -> Report:
        seen.append(clock.now)
        if len(seen) == 4:
            stopping.set()
        return REPORT

    stopping = Passing(clock)
    Presence(registry, ROOT, report, knobs, said.append).run(stopping)
    assert [at - 1000 for at in seen] == [0, 0.25, 0.5, 0.75]
    assert registry.topology()[0].state is State.INACTIVE


def test_a_registry_that_forgot_a_source_hears_of_it_again_at_once() -> None:
    clock = Clock()
    first, second = (Registry(NoStorage(), clock, clock.wall) for _ in range(2))
    presence = Presence(first, ROOT, lambda: REPORT, Knobs(clock=clock), print)
    presence.turn()
    presence._registry = second
    stopping = Passing(clock)
    stopping.then = stopping.set
    presence.run(stopping)
    assert [row.is_source for row in second.topology()] == [True]

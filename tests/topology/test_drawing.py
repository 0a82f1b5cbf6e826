"""A topology as people and programs look at it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest

from tailrace.topology.answers import Confirmed, Offer
from tailrace.topology.drawing import dot, tree
from tailrace.topology.holders import Held, holders
from tailrace.topology.member import Report, State
from tailrace.topology.registry import Registry
from tailrace.topology.registryguest import RegistryGuest
from tailrace.topology.serving import GuestServer
from tests.cli.conftest import Tailrace, tailrace
from tests.topology.clock import Clock
from tests.topology.logs import TOKEN, serve
from tests.topology.places import ROOT, site
from tests.topology.test_registry import in_memory

__all__ = ["tailrace"]  # a fixture


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def registry(clock: Clock) -> Registry:
    """Fan-out 1: the root, 1 below it, 2 below 1, 3 below 2."""
    made = in_memory(clock)
    made.set_tunable("physrep_fanout", "1")
    made.set_tunable("physrep_rebalance_hysteresis", "100")
    made.keepalive(ROOT, Report())
    for number, received in ((1, 900), (2, 500), (3, 700)):
        report = Report(generation=1, first_offset=100, received=received, lag_bytes=2_000)
        offer = made.register_replicant(site(number), report)
        assert isinstance(offer, Offer)
        assert isinstance(made.update_registry(site(number), offer.reserved), Confirmed)
        made.keepalive(site(number), report)
    return made


@pytest.fixture
def server(registry: Registry) -> Iterator[GuestServer]:
    made = serve([RegistryGuest(registry, lambda _: True)])
    yield made
    made.stop()


def test_tiers_lag_age_and_who_holds_the_log(registry: Registry, clock: Clock) -> None:
    clock.now += 7
    lines = list(tree(registry.topology()))
    lag = "behind its source by 2.0 kB, log from 100"
    assert lines == [
        "orders",
        f"  {ROOT.host}  source, tier 0, 1 below, keeps its log from 500 for {site(2).host}, heard of 7 s ago",
        f"    {site(1).host}  Active, tier 1, offset 900, {lag}, 1 below, "
        f"keeps its log from 500 for {site(2).host}, heard of 7 s ago",
        f"      {site(2).host}  Active, tier 2, offset 500, 400 messages behind, {lag}, 1 below, "
        f"keeps its log from 700 for {site(3).host}, heard of 7 s ago",
        f"        {site(3).host}  Active, tier 3, offset 700, 200 messages behind, {lag}, heard of 7 s ago",
    ]


def test_who_is_gone_holds_nothing(registry: Registry) -> None:
    registry.reset_nodes([site(3)], State.INACTIVE)
    assert holders(registry.topology()) == {ROOT: Held(500, site(2)), site(1): Held(500, site(2))}


def test_an_orphan_is_listed(
    registry: Registry, server: GuestServer, tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is below a node that was cut off is shown with it, and named what it is."""
    registry.reset_nodes([site(1)], State.INACTIVE)
    monkeypatch.setenv("TAILRACE_TOKEN", TOKEN)
    command = ("topology", "show", "--registry", f"127.0.0.1:{server.port}")
    drawn = tailrace(*command)
    orphans = [line.split()[0] for line in drawn.out.splitlines() if "no tier, ORPHAN" in line]
    assert (drawn.status, orphans) == (0, [site(number).host for number in (1, 2, 3)])
    nodes = tailrace(*command, "--json").json["nodes"]
    assert [(node["site"]["host"], node["tier"], node["is_orphan"]) for node in nodes] == [
        (ROOT.host, 0, False),
        *((site(number).host, None, True) for number in (1, 2, 3)),
    ]
    assert nodes[2]["held"] == {"offset": 700, "by": {"database": "orders", "host": site(3).host}}
    assert tailrace(*command, "--dot").out.count('style="dashed"') == 3


def test_graphviz_can_read_it(registry: Registry) -> None:
    first, *inner, last = dot(registry.topology())
    assert (first, last) == ("digraph topology {", "}")
    name = r'"(?:[^"\\]|\\.)*"'
    statement = re.compile(rf'  {name}( \[label={name}( style="dashed")?\]| -> {name});')
    assert all(statement.fullmatch(line) for line in inner), inner
    assert sum(" -> " in line for line in inner) == 3

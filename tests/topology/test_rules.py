"""Reverse rules: pairs, seen from both sides."""

from __future__ import annotations

from tailrace.topology.rules import Rules
from tests.topology.places import ROOT, site


def test_a_rule_is_seen_from_both_sides() -> None:
    rules = Rules()
    rules.add(site(0), ROOT)
    rules.add(site(0), site(1))
    rules.add(site(2), ROOT)
    assert rules.sources_of(site(0)) == (ROOT, site(1))
    assert rules.replicas_of(ROOT) == (site(0), site(2))
    assert sorted(rules) == [(site(0), site(1)), (site(0), ROOT), (site(2), ROOT)]
    for replica, source in list(rules):
        rules.remove(replica, source)
        rules.remove(replica, source)
    assert not rules
    assert rules.replicas_of(ROOT) == ()

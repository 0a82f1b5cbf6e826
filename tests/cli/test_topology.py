"""`tailrace topology`."""

from __future__ import annotations

from tailrace.topology.tunables import TUNABLES
from tests.cli.conftest import Tailrace


def test_tunables_are_listed(tailrace: Tailrace) -> None:
    lines = tailrace("topology", "tunables").out.splitlines()
    assert [line.split()[0] for line in lines] == list(TUNABLES)
    assert next(line for line in lines if line.startswith("physrep_fanout ")).split()[1:3] == ["8", "replicas"]


def test_tunables_as_json(tailrace: Tailrace) -> None:
    found = {row["name"]: row for row in tailrace("topology", "tunables", "--json").json}
    assert found["physrep_keepalive_freq_sec"]["default"] == 10
    assert found["physrep_shuffle_host_list"]["default"] is False
    assert set(found["physrep_fanout"]) == {"name", "kind", "default", "unit", "help", "obeyed_by", "value"}


def test_a_simulation_is_told(tailrace: Tailrace) -> None:
    outcome = tailrace("topology", "simulate", "--nodes", 100, "--seed", 3)
    assert outcome.status == 0
    assert "100 replicas with a fan-out of 8" in outcome.out
    assert "10 were killed at once" in outcome.out
    assert "the most that any node ever had: 8" in outcome.out


def test_a_simulation_as_json(tailrace: Tailrace) -> None:
    found = tailrace("topology", "simulate", "--nodes", 100, "--fanout", 4, "--json").json
    assert (found["killed"], found["children_max"]) == (10, 4)


def test_what_cannot_be_simulated(tailrace: Tailrace) -> None:
    outcome = tailrace("topology", "simulate", "--nodes", 100, "--settle", "0s")
    assert outcome.status == 2
    assert "input.invalid" in outcome.err

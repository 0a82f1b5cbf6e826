"""`tailrace topology`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.log.commitlog import CommitLog
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


@pytest.mark.parametrize("address", ["127.0.0.1:99999", "http://127.0.0.1:4700", "me@127.0.0.1:4700", ""])
@pytest.mark.parametrize("command", [["topology", "show", "--registry"], ["replica", "--data", "copy", "--from"]])
def test_addresses_that_are_none(
    tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch, command: list[str], address: str
) -> None:
    monkeypatch.setenv("TAILRACE_TOKEN", "a-token-0123")
    outcome = tailrace(*command, address)
    assert (outcome.status, "input.invalid" in outcome.err) == (2, True), outcome.err
    assert "Traceback" not in outcome.err


def test_a_log_that_is_no_copy_is_not_promoted(tailrace: Tailrace, tmp_path: Path) -> None:
    CommitLog.open(tmp_path / "log").close()
    outcome = tailrace("replica", "promote", tmp_path)
    assert (outcome.status, "can be written already" in outcome.err) == (2, True), outcome.err

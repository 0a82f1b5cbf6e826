"""Tunables of a registry, as real processes obey them while they run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.topology.copied import promote
from tailrace.topology.drawing import tree
from tailrace.topology.member import State
from tailrace.topology.registryclient import RegistryClient
from tests.cli.conftest import Tailrace, tailrace
from tests.node.test_serve import NodeProcess, free_ports, node_file
from tests.relay.nodes import wait_for
from tests.topology.logs import SMALL_SEGMENTS, append, segments
from tests.topology.test_placing import OPERATOR, by_port, client_at
from tests.topology.test_tree import ReplicaProcess, captured, root_of, write

__all__ = ["tailrace"]  # a fixture


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


class TunedReplica(NodeProcess):
    """A replica whose file says nothing of what the registry may say."""

    def __init__(self, directory: Path, name: str, port: int, root: int) -> None:
        at = f'address: "127.0.0.1:{root}", token: "${{TOKEN}}"'
        file = f"""node: {name}
data: ./{name}
listen: 127.0.0.1:{port}
tokens: {{all: "${{TOKEN}}"}}
heartbeat: 300ms
replicate_from:
  sources: [{{name: root, {at}}}]
  registry: {{{at}, database: shop}}
"""
        super().__init__(directory, name, file)
        self.log = directory / name / "log"

    def is_equal(self) -> bool:
        try:
            root = segments(self.directory / "root" / "log")
            return self.log.exists() and segments(self.log) == root and bool(self.status())
        except FileNotFoundError:  # it is being cut
            return False


def topology(
    stack: ExitStack, directory: Path, ports: list[int], **tunables: str
) -> tuple[NodeProcess, RegistryClient]:
    """A source that is known to its own registry, in which these are set."""
    registry = "{path: registry.db, database: shop}"
    root = root_of(stack, directory, ports[0], registry=registry, operator=f'"{OPERATOR}"')
    client = client_at(ports[0], OPERATOR)
    for name, text in {"physrep_keepalive_freq_sec": "0.3", **tunables}.items():
        client.set_tunable(name, text)
    write(root, 1, 100)
    wait_for(lambda: captured(directory) == 100, 60)
    return root, client


def test_a_fleet_is_tuned_while_it_runs(
    stack: ExitStack, tmp_path: Path, tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One more replica than may be served has to go below; how the log is read and what is told changes, too."""
    ports = free_ports(4)
    root, registry = topology(stack, tmp_path, ports)
    first = stack.enter_context(TunedReplica(tmp_path, "r1", ports[1], ports[0]))
    wait_for(first.is_equal, 60)
    wait_for(lambda: by_port(registry.topology())[ports[0]].report.received is not None, 60)
    rows = by_port(registry.topology())
    assert (rows[ports[0]].is_source, rows[ports[0]].age_s is not None) == (True, True)
    drawn = list(tree(list(rows.values())))
    assert f"source, tier 0, offset {rows[ports[0]].report.received}, 1 below" in drawn[1]

    monkeypatch.setenv("TAILRACE_TOKEN", OPERATOR)
    at = ("--registry", f"127.0.0.1:{ports[0]}")
    changed = tailrace("topology", "tunables", *at, "--database", "shop", "--set", "physrep_fanout=1", "--json")
    assert {row["name"]: row["value"] for row in changed.json}["physrep_fanout"] == "1"
    everywhere = tailrace("topology", "tunables", *at, "--json").json
    assert {row["name"]: row["value"] for row in everywhere}["physrep_fanout"] == "8"
    refused = tailrace("topology", "tunables", *at, "--set", "revsql_allow_command_execution=on")
    assert (refused.status, "no commands" in refused.err) == (2, True), refused.err
    wait_for(lambda: "set by the registry: physrep_fanout=1" in root.said(), 60)
    wait_for(lambda: "set by the registry: physrep_fanout=1" in first.said(), 60)
    extra = stack.enter_context(ReplicaProcess(tmp_path, "extra", ports[3], [ports[0]]))
    wait_for(lambda: "topology.full" in extra.said(), 60)
    second = stack.enter_context(TunedReplica(tmp_path, "r2", ports[2], ports[0]))
    wait_for(second.is_equal, 60)
    wait_for(lambda: by_port(registry.topology())[ports[2]].tier == 2, 60)

    assert "physrep_debug: " not in first.said()
    registry.set_tunable("physrep_debug", "on")
    registry.set_tunable("blocking_physrep", "on")
    wait_for(lambda: "physrep_debug: the registry was told" in first.said(), 60)
    wait_for(lambda: "blocking_physrep=on" in second.said(), 60)
    write(root, 101, 100)
    wait_for(lambda: captured(tmp_path) == 200, 60)
    wait_for(lambda: first.is_equal() and second.is_equal(), 60)


def test_a_source_is_known_to_a_registry_elsewhere(stack: ExitStack, tmp_path: Path) -> None:
    ports = free_ports(3)
    keeper = node_file("keeper", ports[0], {}, founder="true", registry="{path: r.db}", operator=f'"{OPERATOR}"')
    stack.enter_context(NodeProcess(tmp_path, "keeper", keeper))
    wait_for((tmp_path / "keeper" / "status.json").exists, 60)
    registry = client_at(ports[0], OPERATOR)
    registry.set_tunable("physrep_keepalive_freq_sec", "0.3")
    at = f'address: "127.0.0.1:{ports[0]}", token: "${{TOKEN}}"'
    root = root_of(stack, tmp_path, ports[1], announce=f"{{{at}, database: shop}}")
    wait_for(lambda: ports[1] in by_port(registry.topology()), 60)
    write(root, 1, 10)
    wait_for(lambda: captured(tmp_path) == 10, 60)
    wait_for(lambda: (by_port(registry.topology())[ports[1]].report.received or 0) >= 10, 60)
    assert by_port(registry.topology())[ports[1]].tier == 0
    assert root.end(signal.SIGTERM) == 0
    assert by_port(registry.topology())[ports[1]].state is State.INACTIVE, "it said goodbye"


def test_a_slow_copy_is_told_of(
    stack: ExitStack, tmp_path: Path, tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TOKEN", "not needed to look at it")
    ports = free_ports(2)
    quick = {"physrep_hung_replicant_check_freq_sec": "1", "physrep_hung_replicant_threshold": "2"}
    root, _ = topology(stack, tmp_path, ports, **quick)
    copy = stack.enter_context(TunedReplica(tmp_path, "r1", ports[1], ports[0]))
    wait_for(copy.is_equal, 60)
    wait_for(lambda: "physrep_hung_replicant_threshold=2" in root.said(), 60)
    assert "topology.slow" not in tailrace("node", "status", root.file).out
    assert copy._process is not None
    copy._process.send_signal(signal.SIGSTOP)
    wait_for(lambda: "replica r1: the copy was not heard of for" in tailrace("node", "status", root.file).out, 60)
    assert "ALARM: slow or hung, not heard of: r1 for" in root.said()
    copy._process.send_signal(signal.SIGCONT)
    wait_for(lambda: "r1 is heard of again" in root.said(), 60)
    wait_for(lambda: "topology.slow" not in tailrace("node", "status", root.file).out, 60)
    assert root.said().count("ALARM: slow or hung") == 1


@pytest.mark.parametrize("exits", [True, False])
def test_a_log_that_is_not_continued(stack: ExitStack, tmp_path: Path, exits: bool) -> None:
    ports = free_ports(2)
    topology(stack, tmp_path, ports, physrep_exit_on_invalid_logstream="on" if exits else "off")
    copy = stack.enter_context(TunedReplica(tmp_path, "r1", ports[1], ports[0]))
    wait_for(copy.is_equal, 60)
    assert copy.end(signal.SIGTERM) == 0
    promote(str(copy.log))
    with CommitLog.open(copy.log, SMALL_SEGMENTS) as risen:
        append(risen, 500, 5)
    (copy.log / "standing.json").write_text('{"generation": 0, "is_copy": true}')
    before = segments(copy.log)
    copy.start()
    if exits:
        wait_for(lambda: "topology.diverged" in copy.said(), 60)
        assert copy.wait() == 1
        assert segments(copy.log) == before
        assert "turn physrep_exit_on_invalid_logstream off" in copy.said()
    else:
        wait_for(copy.is_equal, 60)

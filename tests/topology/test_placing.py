"""Real replicas that a real registry places."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.relay.applier import Source
from tailrace.topology.answers import Row
from tailrace.topology.member import State
from tailrace.topology.registryclient import RegistryClient
from tests.cli.conftest import Tailrace, tailrace
from tests.node.test_serve import SECRET, NodeProcess, free_ports
from tests.relay.nodes import wait_for
from tests.topology.logs import segments
from tests.topology.test_tree import captured, root_of, write

__all__ = ["tailrace"]  # a fixture

OPERATOR = "operator-secret-0123"


class PlacedReplica(NodeProcess):
    """A replica that asks a registry, which is at the root unless said."""

    def __init__(
        self, directory: Path, name: str, port: int, root: int, fanout: int, *, registry: int | None = None
    ) -> None:
        super().__init__(
            directory,
            name,
            f"""node: {name}
data: ./{name}
listen: 127.0.0.1:{port}
tokens: {{all: "${{TOKEN}}"}}
heartbeat: 300ms
fanout: {fanout}
replicate_from:
  sources: [{{name: root, address: "127.0.0.1:{root}", token: "${{TOKEN}}"}}]
  keepalive: 300ms
  registry: {{address: "127.0.0.1:{registry or root}", token: "${{TOKEN}}", database: shop}}
""",
        )
        self.log = directory / name / "log"
        self.port = port


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def client_at(port: int, token: str = SECRET) -> RegistryClient:
    return RegistryClient(Source("registry", f"grpc://127.0.0.1:{port}", token))


def by_port(rows: list[Row]) -> dict[int, Row]:
    return {int(row.site.host.rpartition(":")[2]): row for row in rows}


def is_equal(directory: Path, replica: PlacedReplica) -> bool:
    return replica.log.exists() and segments(replica.log) == segments(directory / "root" / "log")


def test_tiers_are_filled_and_healed(stack: ExitStack, tmp_path: Path) -> None:
    """Fan-out 2: two replicas at the root, the others below; when one of the two dies its replicas go elsewhere."""
    ports = free_ports(6)
    root = root_of(stack, tmp_path, ports[0], registry="{path: registry.db}", operator=f'"{OPERATOR}"', fanout="2")
    registry = client_at(ports[0], OPERATOR)
    registry.set_tunable("physrep_fanout", "2")
    registry.set_tunable("physrep_keepalive_freq_sec", "1")
    write(root, 1, 100)
    replicas = {
        port: stack.enter_context(PlacedReplica(tmp_path, f"r{at}", port, ports[0], 2))
        for at, port in enumerate(ports[1:], 1)
    }
    wait_for(lambda: captured(tmp_path) == 100, 60)
    wait_for(lambda: all(is_equal(tmp_path, replica) for replica in replicas.values()), 90)

    def tiers() -> list[int | None]:
        found = by_port(registry.topology())
        return sorted((found[port].tier if port in found else None for port in replicas), key=str)

    wait_for(lambda: tiers() == [1, 1, 2, 2, 2], 60)
    rows = by_port(registry.topology())
    assert all(row.load <= 2 for row in rows.values())
    middle = next(port for port, row in rows.items() if row.tier == 1 and row.load)
    replicas[middle].end(signal.SIGKILL)
    write(root, 101, 100)
    wait_for(lambda: captured(tmp_path) == 200, 60)
    rest = [replica for port, replica in replicas.items() if port != middle]
    wait_for(lambda: all(is_equal(tmp_path, replica) for replica in rest), 90)

    def is_healed() -> bool:
        found = by_port(registry.topology())
        live = [found[replica.port] for replica in rest]
        return all(row.tier in (1, 2) and row.state is State.ACTIVE for row in live)

    wait_for(is_healed, 60)
    assert all(row.load <= 2 for row in registry.topology())


def test_an_operator_looks_stops_and_starts(
    stack: ExitStack, tmp_path: Path, tailrace: Tailrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    ports = free_ports(2)
    root = root_of(stack, tmp_path, ports[0], registry="{path: registry.db}", operator=f'"{OPERATOR}"')
    replica = stack.enter_context(PlacedReplica(tmp_path, "r1", ports[1], ports[0], 8))
    registry = client_at(ports[0], OPERATOR)
    wait_for(lambda: ports[1] in by_port(registry.topology()), 60)
    site = by_port(registry.topology())[ports[1]].site
    wait_for(lambda: by_port(registry.topology())[ports[1]].state is State.ACTIVE, 60)
    registry.stop_replication([site])
    wait_for(lambda: '"state": "stopped"' in (tmp_path / "r1" / "status.json").read_text(), 60)
    write(root, 1, 20)
    wait_for(lambda: captured(tmp_path) == 20, 60)
    assert not is_equal(tmp_path, replica)
    registry.start_replication([site])
    wait_for(lambda: is_equal(tmp_path, replica), 60)

    monkeypatch.setenv("TAILRACE_TOKEN", OPERATOR)
    at = ("--registry", f"127.0.0.1:{ports[0]}")
    drawn = tailrace("topology", "show", *at).out.splitlines()
    assert drawn[0] == "shop"
    assert drawn[1].startswith(f"  127.0.0.1:{ports[0]}  source, tier 0, 1 below")
    assert drawn[2].startswith(f"    127.0.0.1:{ports[1]}  Active, tier 1, offset ")
    nodes = tailrace("topology", "show", *at, "--json").json["nodes"]
    assert [node["tier"] for node in nodes] == [0, 1]
    assert nodes[0]["held"]["by"]["host"] == f"127.0.0.1:{ports[1]}"
    edge = f'"shop@127.0.0.1:{ports[0]}" -> "shop@127.0.0.1:{ports[1]}";'
    assert edge in tailrace("topology", "show", *at, "--dot").out
    assert "nobody is asked to move" in tailrace("topology", "rebalance", *at, "--database", "shop").out
    changed = tailrace("topology", "tunables", *at, "--set", "physrep_fanout=3")
    assert re.search(r"^physrep_fanout +3 replicas", changed.out, re.MULTILINE), changed
    unknown = tailrace("topology", "tunables", *at, "--set", "physrep_fanuot=3")
    assert (unknown.status, "physrep_fanout" in unknown.err) == (2, True), unknown.err
    monkeypatch.setenv("TAILRACE_TOKEN", SECRET)
    refused = tailrace("topology", "stop", site.host, *at, "--database", "shop")
    assert (refused.status, "only operators" in refused.err) == (2, True), refused.err
    assert OPERATOR not in refused.err + unknown.err + changed.out
    for command in (("status",), ("apply-now",)):
        node = tailrace("replica", *command, tmp_path / "root")
        assert (node.status, "is a node, no replica" in node.err) == (2, True), node.err
    plain = tailrace("replica", "apply-now", tmp_path / "r1")
    assert (plain.status, "the replica has no store" in plain.err) == (2, True), plain.err
    state = re.compile(r"replica +│ r1 +│ good +│ follow")
    wait_for(lambda: bool(state.search(tailrace("replica", "status", tmp_path / "r1").out)), 30)

    assert replica.end(signal.SIGTERM) == 0
    assert by_port(registry.topology())[ports[1]].state is State.INACTIVE, "it said goodbye"

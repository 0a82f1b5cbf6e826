"""Two tiers in networks of their own: nobody below can connect upwards, so those above dial."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Self

import pytest

from tailrace.relay.applier import Source
from tailrace.topology.registryclient import RegistryClient
from tailrace.topology.site import Site
from tests.node.test_serve import ENVIRONMENT, NodeProcess, free_ports, node_file
from tests.relay.nodes import wait_for
from tests.servers import certificate as certificates
from tests.servers.certificate import certificate
from tests.servers.far import FarNetwork, missing
from tests.topology.logs import segments
from tests.topology.test_tree import captured, write

OPERATOR = "operator-secret-0123"
REVERSE = "reverse-secret-4567"


class FarProcess:
    """`tailrace serve` at the far end of a network."""

    def __init__(self, network: FarNetwork, directory: Path, name: str, file: str) -> None:
        self.data = directory / name
        path = directory / f"{name}.yml"
        path.write_text(file)
        serve = [sys.executable, "-m", "tailrace", "serve", str(path)]
        self._command = network.inside(serve, os.getuid(), os.getgid())
        self._said = directory / f"{name}.log"
        self._directory = directory

    def __enter__(self) -> Self:
        with self._said.open("ab") as said:
            self._process = subprocess.Popen(
                self._command, cwd=self._directory, stdout=said, stderr=said, env=ENVIRONMENT
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(timeout=60)

    def said(self) -> str:
        return self._said.read_text()


@pytest.fixture
def network() -> Iterator[FarNetwork]:
    if why := missing() or certificates.missing():
        pytest.skip(why)
    made = FarNetwork()
    yield made
    made.remove()


def test_a_replica_below_is_dialled_from_above(network: FarNetwork, tmp_path: Path) -> None:
    """The registry is below, too. What comes through the connection is encrypted from end to end."""
    top, low, lowest = free_ports(3)
    with ExitStack() as stack:
        above, below = stack.enter_context(certificate()), stack.enter_context(certificate(network.address))
        tls_above = f"{{certificate: {above.path}, key: {above.key}}}"
        tls_below = f"{{certificate: {below.path}, key: {below.key}}}"
        registry_at = f'{{address: "{network.address}:{low}", token: "${{TOKEN}}", ca: {below.path}, database: shop}}'
        registry = f"""node: registry
data: ./registry
listen: {network.address}:{low}
founder: true
tokens: {{all: "${{TOKEN}}"}}
operator: "{OPERATOR}"
tls: {tls_below}
registry: {{path: registry.db}}
"""
        replica = f"""node: replica
data: ./replica
listen: {network.address}:{lowest}
tokens: {{all: "${{TOKEN}}"}}
tls: {tls_below}
heartbeat: 300ms
replicate_from:
  sources: [{{name: root, address: "127.0.0.1:{top}", token: "${{TOKEN}}", ca: {above.path}}}]
  keepalive: 300ms
  registry: {registry_at}
  reverse: {{secret: "{REVERSE}", database: shop}}
"""
        stack.enter_context(FarProcess(network, tmp_path, "registry", registry))
        waiting = stack.enter_context(FarProcess(network, tmp_path, "replica", replica))
        file = node_file(
            "root",
            top,
            {},
            founder="true",
            segment_bytes="20kB",
            tls=tls_above,
            dials=f'{{secret: "{REVERSE}", registry: {registry_at}, refresh: 500ms, every: 500ms}}',
        )
        root = stack.enter_context(NodeProcess(tmp_path, "root", file))
        wait_for((tmp_path / "root" / "status.json").exists, 60)
        write(root, 1, 200)
        wait_for(lambda: captured(tmp_path) == 200, 60)

        up = [sys.executable, "-c", f"import socket; socket.create_connection(('10.213.77.1', {top}), 3)"]
        assert subprocess.run(network.inside(up, 0, 0), capture_output=True).returncode != 0, "no way up"

        where = Source("registry", f"grpc+tls://{network.address}:{low}", OPERATOR, below.path.read_bytes())
        client = RegistryClient(where)
        wait_for((tmp_path / "registry" / "status.json").exists, 60)
        client.add_rule(Site("shop", f"{network.address}:{lowest}"), Site("shop", f"127.0.0.1:{top}"))

        def is_equal() -> bool:
            log = tmp_path / "replica" / "log"
            return log.exists() and segments(log) == segments(tmp_path / "root" / "log")

        wait_for(is_equal, 90)
        rows = {row.site.host: row for row in client.topology()}
        assert rows[f"{network.address}:{lowest}"].tier == 1
        assert rows[f"127.0.0.1:{top}"].load == 1, "the fan-out counts it"

        network.cut()
        write(root, 201, 100)
        wait_for(lambda: captured(tmp_path) == 300, 60)
        assert not is_equal()
        network.mend()
        wait_for(is_equal, 90)
        assert REVERSE not in waiting.said() + root.said()

"""Three tiers that a registry places, under load, while any process is killed at any time."""

from __future__ import annotations

import random
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.log.reader import LogReader
from tests.node.test_serve import NodeProcess, free_ports
from tests.relay.nodes import wait_for
from tests.topology.logs import segments
from tests.topology.test_placing import OPERATOR, PlacedReplica, by_port, client_at, is_equal
from tests.topology.test_tree import Writing, captured, root_of

FANOUT = 2


def registry_node(stack: ExitStack, directory: Path, port: int) -> NodeProcess:
    """A node that has nothing but the registry."""
    file = f"""node: registry
data: ./registry
listen: 127.0.0.1:{port}
founder: true
tokens: {{all: "${{TOKEN}}"}}
operator: "{OPERATOR}"
registry: {{path: registry-tables.db}}
"""
    made = stack.enter_context(NodeProcess(directory, "registry", file))
    wait_for((directory / "registry" / "status.json").exists, 60)
    return made


def survive(directory: Path, seconds: float, seed: int) -> None:
    """All are killed in turn, in an order and at times that chance decides."""
    chance = random.Random(seed)
    ports = free_ports(7)
    with ExitStack() as stack:
        registry = registry_node(stack, directory, ports[0])
        calls = client_at(ports[0], OPERATOR)
        calls.set_tunable("physrep_fanout", str(FANOUT))
        calls.set_tunable("physrep_keepalive_freq_sec", "1")
        root = root_of(stack, directory, ports[1], fanout=str(FANOUT))
        replicas = [
            stack.enter_context(PlacedReplica(directory, f"r{at}", port, ports[1], FANOUT, registry=ports[0]))
            for at, port in enumerate(ports[2:])
        ]

        def tiers() -> list[int]:
            found = by_port(calls.topology())
            return sorted(found[each.port].tier or 0 for each in replicas if each.port in found)

        wait_for(lambda: tiers() == [1, 1, 2, 2, 2], 90)
        writing = Writing(root)
        writing.start()
        stack.callback(writing.end)
        end_s = time.monotonic() + seconds
        processes: list[NodeProcess] = [registry, root, *replicas]
        victims: list[NodeProcess] = []
        while time.monotonic() < end_s:
            victims = victims or chance.sample(processes, len(processes))
            victim = victims.pop()
            victim.end(signal.SIGKILL)
            time.sleep(chance.uniform(0.0, 1.0))
            victim.start()
            time.sleep(chance.uniform(0.0, 2.0))
        written = writing.end()
        wait_for(lambda: captured(directory) == written, 90)
        wait_for(lambda: all(is_equal(directory, replica) for replica in replicas), 120)
        wait_for(lambda: all(tier > 0 for tier in tiers()) and len(tiers()) == len(replicas), 90)
        for replica in replicas:
            assert replica.end(signal.SIGTERM) == 0
        for replica in replicas:
            assert segments(replica.log) == segments(directory / "root" / "log")
            messages = (entry.message for entry in LogReader(str(replica.log)).entries())
            numbers = [message.data["id"] for message in messages if message.namespace == "main.t" and message.data]
            assert numbers == list(range(1, written + 1)), "nothing is missing, nothing came twice"


@pytest.mark.crash
def test_a_few_kills(tmp_path: Path) -> None:
    survive(tmp_path, 8.0, seed=1)


@pytest.mark.long
@pytest.mark.crash
@pytest.mark.parametrize("seed", range(2))
def test_a_minute_of_kills(tmp_path: Path, seed: int) -> None:
    survive(tmp_path, 60.0, seed)

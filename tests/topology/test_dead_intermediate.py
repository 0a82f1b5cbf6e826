"""A replica in the middle is killed under load: its children go on elsewhere from where they are."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.log.reader import LogReader
from tests.node.test_serve import free_ports
from tests.relay.nodes import wait_for
from tests.topology.logs import segments
from tests.topology.test_tree import ReplicaProcess, Writing, captured, is_equal, root_of


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def copied_bytes(replica: ReplicaProcess, *, at_least: int) -> int:
    """As it tells when it has told of so much."""
    wait_for(lambda: replica.status()["copied_bytes"] >= at_least, 60)
    return int(replica.status()["copied_bytes"])


def numbers(replica: ReplicaProcess) -> list[int]:
    messages = (entry.message for entry in LogReader(str(replica.log)).entries())
    return [message.data["id"] for message in messages if message.namespace == "main.t" and message.data]


@pytest.mark.crash
def test_children_of_a_killed_replica_copy_no_byte_twice(stack: ExitStack, tmp_path: Path) -> None:
    ports = free_ports(4)
    root = root_of(stack, tmp_path, ports[0])
    writing = Writing(root)
    writing.start()
    stack.callback(writing.end)
    middle = stack.enter_context(ReplicaProcess(tmp_path, "middle", ports[1], [ports[0]]))
    wait_for(lambda: middle.status().get("state") == "follow", 60)
    leaves = [
        stack.enter_context(ReplicaProcess(tmp_path, f"leaf{at}", port, [ports[1], ports[0]]))
        for at, port in enumerate(ports[2:])
    ]
    wait_for(lambda: all(leaf.status().get("next_offset", 0) > 20 for leaf in leaves), 60)
    assert {leaf.status()["source"] for leaf in leaves} == {"source0"}, "they copy from the middle"
    middle.end(signal.SIGKILL)
    reached = [leaf.status()["next_offset"] for leaf in leaves]
    wait_for(lambda: all(leaf.status()["source"] == "source1" for leaf in leaves), 60)
    wait_for(lambda: all(leaf.status()["next_offset"] > at + 20 for leaf, at in zip(leaves, reached, strict=True)), 60)
    written = writing.end()
    wait_for(lambda: captured(tmp_path) == written, 60)
    wait_for(lambda: all(is_equal(tmp_path, leaf) for leaf in leaves), 90)
    for leaf in leaves:
        size = sum(map(len, segments(leaf.log).values()))
        assert copied_bytes(leaf, at_least=size) == size, "no byte came twice"
        assert numbers(leaf) == list(range(1, written + 1)), "no gap, no duplicate"

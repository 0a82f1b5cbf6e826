"""Copies that could follow each other: somebody has to be above, and whoever is cut off from there is told."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.log.commitlog import CommitLog
from tests.node.test_serve import free_ports
from tests.relay.nodes import wait_for
from tests.topology.logs import SMALL_SEGMENTS, Copying, Served, append, replica_node, segments
from tests.topology.test_kept_log import reaches


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


@pytest.fixture
def log(stack: ExitStack, tmp_path: Path) -> CommitLog:
    made = stack.enter_context(CommitLog.open(tmp_path / "root", SMALL_SEGMENTS))
    append(made, 0, 20)
    return made


def test_two_copies_do_not_follow_each_other(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    """Each names the root and the other one. The root goes and comes back: then all is as before."""
    (port,) = free_ports(1)
    ports = free_ports(2)
    said: list[str] = []
    quick = {"tunables": {"physrep_reconnect_penalty": "100ms"}}
    with Served(tmp_path / "root", port=port):
        nodes = [
            stack.enter_context(
                replica_node(
                    tmp_path / f"copy{at}", [port, ports[1 - at]], said, listen=f"127.0.0.1:{ports[at]}", **quick
                )
            )
            for at in range(2)
        ]
        for node in nodes:
            reaches(node, log)
    wait_for(lambda: any("topology.cycle" in line for line in said), 30)
    append(log, 20, 20)
    stack.enter_context(Served(tmp_path / "root", port=port))
    for at, node in enumerate(nodes):
        reaches(node, log)
        assert segments(tmp_path / f"copy{at}" / "log") == segments(tmp_path / "root")


def test_a_ring_that_was_closed_at_both_ends_at_once_opens_again(
    stack: ExitStack, tmp_path: Path, log: CommitLog
) -> None:
    """Neither could see it when it began to follow the other one."""
    with Served(tmp_path / "root") as root, Copying(tmp_path / "first", [root.source]) as first:
        first.reaches(log)
    with Served(tmp_path / "first") as other, Copying(tmp_path / "second", [other.source]) as second:
        second.reaches(log)
    low = stack.enter_context(Served(tmp_path / "second"))
    copy = Copying(tmp_path / "first", [low.source])
    copy.replica.itself = "0123456789abcdef"
    stack.enter_context(copy)
    wait_for(lambda: copy.progress.behind_bytes == 0)
    assert copy.replica.above == (low.pulling.run,)
    low.pulling.above = lambda: ["fedcba9876543210", copy.replica.itself]
    wait_for(lambda: any("topology.cycle" in line for line in copy.said))
    wait_for(lambda: not copy.replica.above)


def test_a_copy_that_is_cut_off_two_tiers_above_is_told(log: CommitLog, stack: ExitStack, tmp_path: Path) -> None:
    """It hears of its source all the time, which has nothing new to tell."""
    said: list[str] = []
    watchful = {"tunables": {"physrep_hung_replicant_threshold": "1s", "physrep_hung_replicant_check_freq_sec": "1s"}}
    with Served(tmp_path / "root") as root:
        middle = stack.enter_context(replica_node(tmp_path / "middle", [root.server.port], []))
        leaf = stack.enter_context(replica_node(tmp_path / "leaf", [middle.port], said, **watchful))
        reaches(leaf, log)
        assert leaf.status()["top_s"] < 30
        assert leaf.alarms == []
    wait_for(lambda: any("the top was not heard of for more than 1 s" in alarm for alarm in leaf.alarms), 30)
    assert leaf.status()["state"] == "follow"
    assert leaf.status()["heard_s"] < leaf.status()["top_s"]

"""A replica that held too much of its source's log: the source lets go of it, loudly, and the replica says so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.log.commitlog import CommitLog
from tailrace.log.consumers import Consumers, State
from tailrace.node.form import RetentionForm
from tailrace.node.retaining import remove_unneeded
from tailrace.topology.request import Keep
from tests.relay.nodes import wait_for
from tests.topology.logs import SMALL_SEGMENTS, Served, append, replica_node, segments

RETENTION = RetentionForm(cap_bytes=60_000)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def test_past_the_cap_a_replica_is_let_go_of_and_copies_anew_if_it_may(stack: ExitStack, tmp_path: Path) -> None:
    log = stack.enter_context(CommitLog.open(tmp_path / "root", SMALL_SEGMENTS))
    append(log, 0, 20)
    root = stack.enter_context(Served(tmp_path / "root", hold=RETENTION.hold()))
    copy, said = tmp_path / "copy", list[str]()
    with replica_node(copy, [root.server.port], said) as node:
        wait_for(lambda: root.pulling.kept[-1:] == [Keep(name="copy", offset=log.next_offset)])
    had = segments(copy / "log")

    append(log, 20, 18)
    remove_unneeded(root.directory.as_posix(), RETENTION, said.append)
    assert not any("ALARM" in line for line in said), "it may hold as much as that"
    next_needed = int(max(had).removesuffix(".log"))
    assert int(min(segments(root.directory)).removesuffix(".log")) <= next_needed

    append(log, 38, 60)
    remove_unneeded(root.directory.as_posix(), RETENTION, said.append)
    (alarm,) = (line for line in said if "ALARM" in line)
    assert "not kept any more for consumer replica-copy" in alarm
    assert "its cap is 60000" in alarm
    assert Consumers(root.directory).get("replica-copy").state is State.INVALIDATED
    assert int(min(segments(root.directory)).removesuffix(".log")) > next_needed, "the disk is not filled"

    with replica_node(copy, [root.server.port], said, from_alarm_after=2) as node:
        wait_for(lambda: node.status()["state"] == "no viable source")
        assert any("no viable source" in line for line in said)
        assert segments(copy / "log") == had, "it throws nothing away"
        knocks = len(root.pulling.kept)
        wait_for(lambda: len(root.pulling.kept) > knocks)
        append(log, 98, 60)
        remove_unneeded(root.directory.as_posix(), RETENTION, said.append)
        assert sum("ALARM" in line for line in said) == 1, "however often it comes back with the same wish"

    node = stack.enter_context(replica_node(copy, [root.server.port], said, from_alarm_after=2, from_resync=True))
    wait_for(lambda: node.status()["state"] == "follow" and node.replica.progress.next_offset == log.next_offset)
    assert "everything is copied anew" in said
    assert segments(copy / "log") == segments(root.directory)
    assert Consumers(root.directory).get("replica-copy").state is State.LIVE, "the log is kept for it again"

"""A replica that held too much of its source's log: the source lets go of it, loudly, and the replica says so."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.log.consumers import Consumers, State
from tests.cli.conftest import Tailrace, tailrace
from tests.node.test_serve import NodeProcess, free_ports
from tests.relay.nodes import wait_for
from tests.topology.logs import segments
from tests.topology.test_tree import captured, root_of, write

__all__ = ["tailrace"]  # a fixture


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as opened:
        yield opened


def copy_of(directory: Path, root: int, *, resync: str) -> NodeProcess:
    return NodeProcess(
        directory,
        "copy",
        f"""node: copy
data: ./copy
listen: 127.0.0.1:0
tokens: {{all: "${{TOKEN}}"}}
heartbeat: 300ms
replicate_from:
  sources: [{{name: root, address: "127.0.0.1:{root}", token: "${{TOKEN}}"}}]
  keepalive: 300ms
  alarm_after: 2
  resync: {resync}
""",
    )


def test_past_the_cap_a_replica_is_let_go_of_and_copies_anew_if_it_may(
    stack: ExitStack, tmp_path: Path, tailrace: Tailrace
) -> None:
    (port,) = free_ports(1)
    root = root_of(stack, tmp_path, port, retention="{every: 200ms, cap_bytes: 60kB}")
    root_log, copy_log = tmp_path / "root" / "log", tmp_path / "copy" / "log"
    write(root, 1, 50)
    wait_for(lambda: captured(tmp_path) == 50, 60)
    with copy_of(tmp_path, port, resync="false") as copy:
        wait_for(lambda: copy.status().get("state") == "follow", 60)
        wait_for(lambda: copy.status()["next_offset"] > 50, 60)
        copy.end(signal.SIGKILL)
        had = segments(copy_log)

        number = 51
        while "ALARM" not in root.said():
            write(root, number, 50)
            number += 50
        alarm = next(line for line in root.said().splitlines() if "ALARM" in line)
        assert "not kept any more for consumer replica-copy" in alarm
        assert "its cap is 60000" in alarm
        assert Consumers(str(root_log)).get("replica-copy").state is State.INVALIDATED
        next_needed = int(max(had).removesuffix(".log"))
        wait_for(lambda: int(min(segments(root_log)).removesuffix(".log")) > next_needed, 60)

        copy.start()
        wait_for(lambda: copy.status()["state"] == "no viable source", 60)
        assert "no viable source" in copy.said()
        assert "no viable source" in tailrace("replica", "status", tmp_path / "copy").out
        assert segments(copy_log) == had, "it throws nothing away"

    allowed = stack.enter_context(copy_of(tmp_path, port, resync="true"))
    wait_for(lambda: copy_log.exists() and min(segments(copy_log), default="") > min(had), 60)
    wait_for(lambda: allowed.status()["state"] == "follow", 60)
    write(root, number, 10)
    wait_for(lambda: root_has_all_of(root_log, copy_log), 60)
    assert "everything is copied anew" in allowed.said()
    assert Consumers(str(root_log)).get("replica-copy").state is State.LIVE, "the log is kept for it again"


def root_has_all_of(root: Path, copy: Path) -> bool:
    """Equal where both are; the root may have let go of what the copy has."""
    ours, theirs = segments(copy), segments(root)
    return bool(theirs) and all(ours.get(name) == raw for name, raw in theirs.items())

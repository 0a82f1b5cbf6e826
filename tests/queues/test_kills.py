"""Kills of a site that sends and of a node that receives: every message is there once, in order."""

from __future__ import annotations

import random
import signal
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tailrace.log.reader import LogReader
from tailrace.queues.site import LOG
from tests.log.children import Child
from tests.node.test_serve import SECRET, NodeProcess, free_ports
from tests.queues.sender import CLIENT, RUN, SINK, SOURCE
from tests.queues.sites import received_in
from tests.relay.nodes import wait_for


class Sites:
    """A sender and a node that receives, both of which may be killed at any moment."""

    def __init__(self, directory: Path, stack: ExitStack) -> None:
        self._stack = stack
        self._plant = str(directory / SOURCE)
        (self._port,) = free_ports(1)
        lines = [f"node: {SINK}", f"data: ./{SINK}", f"listen: 127.0.0.1:{self._port}", "founder: true", "queues: {}"]
        file = "\n".join([*lines, f'tokens: {{{SOURCE}: "${{TOKEN}}"}}'])
        self.log = str(directory / SINK / LOG)
        self.sent = 0
        """All messages below this number were accepted from the application."""
        self.node = stack.enter_context(NodeProcess(directory, SINK, file))
        self.begin_sender()

    def begin_sender(self) -> None:
        self.sender = self._stack.enter_context(Child(RUN, self._plant, str(self._port), SECRET))
        found = int(self.sender.line())
        assert found >= self.sent, "a message was accepted and is gone"

    def kill_sender(self) -> None:
        self.sender.kill()
        for line in self.sender.lines():
            self.sent = int(line)

    def kill_node(self) -> None:
        self.node.end(signal.SIGKILL)

    def go_on(self) -> None:
        """Until something comes."""
        before = self._received()
        wait_for(lambda: self._received() > before, 120)

    def _received(self) -> int:
        return LogReader(self.log).next_offset if Path(self.log, "head").exists() else 0


def kill_often(directory: Path, kills: int, seed: int) -> None:
    chosen = random.Random(seed)
    with ExitStack() as stack:
        sites = Sites(directory, stack)
        for _ in range(kills):
            if chosen.random() < 0.7:
                sites.go_on()
            time.sleep(chosen.uniform(0.0, 0.5))
            if chosen.random() < 0.5:
                sites.kill_sender()
                sites.begin_sender()
            else:
                sites.kill_node()
                sites.node.start()
        sites.sender.tell("stop")
        while sites.sender.line() != "end":
            pass
        count = int(sites.sender.line())
        wait_for(lambda: len(received_in(sites.log, SOURCE, CLIENT)) >= count, 120)
        assert sites.node.end(signal.SIGTERM) == 0
        messages = received_in(sites.log, SOURCE, CLIENT)
    assert [int(message.payload) for message in messages] == list(range(count))
    assert [message.source_id for message in messages] == list(range(count))


@pytest.mark.crash
def test_a_few_kills(tmp_path: Path) -> None:
    kill_often(tmp_path, 4, seed=1)


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [2, 3])
def test_many_kills(tmp_path: Path, seed: int) -> None:
    kill_often(tmp_path, 40, seed)

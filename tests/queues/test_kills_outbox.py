"""Kills of an application, of the node that reads its outbox and of the one that receives, in any order: what comes is
what was committed, all of it, once and in order."""

from __future__ import annotations

import random
import signal
import time
from contextlib import ExitStack, closing
from itertools import pairwise
from pathlib import Path

import pytest

from tailrace.queues import wishes
from tailrace.queues.entries import Kind, Received
from tailrace.queues.site import LOG, STATE
from tests.log.children import Child
from tests.node.test_serve import NodeProcess, free_ports
from tests.queues.shop import CLIENT, NEVER, RUN, SINK, SOURCE, connecting, sales
from tests.queues.sites import received_in
from tests.relay.nodes import wait_for

_PLANT = """
node: {source}
data: ./{source}
listen: 127.0.0.1:{port}
founder: true
queues:
  segment_bytes: 20kB
  every: 500ms
  clients: {{{client}: {{outbox: {{{kind}: "{url}"}}}}}}
  destinations: {{{sink}: {{address: "127.0.0.1:{sink_port}", token: "${{TOKEN}}"}}}}
"""
_OFFICE = """
node: {sink}
data: ./{sink}
listen: 127.0.0.1:{sink_port}
founder: true
tokens: {{{source}: "${{TOKEN}}"}}
queues: {{}}
"""


class Shop:
    """An application, its node and another one, each a process that may be killed at any moment."""

    def __init__(self, directory: Path, url: str, stack: ExitStack) -> None:
        port, sink_port = free_ports(2)
        kind = "postgres" if url.startswith("postgresql://") else "sqlite"
        said = {"source": SOURCE, "sink": SINK, "client": CLIENT, "port": port, "sink_port": sink_port}
        with closing(connecting(url)()) as connection:
            connection.execute("CREATE TABLE sales (seller integer, number integer, PRIMARY KEY (seller, number))")
            connection.commit()
        self._url = url
        self._stack = stack
        self._log = str(directory / SINK / LOG)
        self._state = str(directory / SOURCE / STATE)
        self.plant = stack.enter_context(NodeProcess(directory, SOURCE, _PLANT.format(**said, kind=kind, url=url)))
        self.office = stack.enter_context(NodeProcess(directory, SINK, _OFFICE.format(**said)))
        wait_for(self._is_told, 60)
        self.begin()

    def begin(self) -> None:
        self.application = self._stack.enter_context(Child(RUN, self._url))
        assert self.application.line() == "ready"

    def go_on(self) -> None:
        """Until something comes."""
        before = len(self.received())
        wait_for(lambda: len(self.received()) > before, 120)

    def force(self) -> None:
        wishes.leave(self._state, CLIENT, SINK)

    def received(self) -> list[Received]:
        return received_in(self._log, SOURCE, CLIENT) if Path(self._log, "head").exists() else []

    def end(self) -> None:
        self.application.tell("stop")
        assert self.application.line() == "end"

    def check(self) -> None:
        """What whoever receives makes of it is what was committed."""
        expected = sales(self._url)
        wait_for(lambda: sorted(state_of(self.received())) == sorted(expected), 120)
        wait_for(self._is_idle, 120)
        found = self.received()
        assert sorted(state_of(found)) == sorted(expected)
        assert NEVER not in [message.payload for message in found]
        entries = [message for message in found if message.kind is Kind.LOG_ENTRY]
        ids = [message.source_id for message in entries]
        assert all(first < second for first, second in pairwise(ids)), "in order, and once"
        for seller in {message.payload.split(b":")[0] for message in entries}:
            numbers = [int(each.payload.split(b":")[1]) for each in entries if each.payload.startswith(seller + b":")]
            assert numbers == sorted(set(numbers))

    def _is_idle(self) -> bool:
        (session,) = self.plant.status()["queues"]["sessions"]
        return (session["state"], session["remaining_entries"]) == ("log entries", 0)

    def _is_told(self) -> bool:
        with closing(connecting(self._url)()) as connection:
            try:
                return bool(connection.execute("SELECT site FROM LRQ_Destinations").fetchone())
            except Exception:  # noqa: BLE001  the table is not there yet
                return False


def state_of(messages: list[Received]) -> list[str]:
    """A snapshot takes the place of what was there; messages that were sent meanwhile may be in it, too."""
    state: dict[str, None] = {}
    request = ""
    for message in messages:
        if message.kind is Kind.SNAPSHOT and message.request != request:
            state, request = {}, message.request
        elif message.kind is Kind.LOG_ENTRY:
            request = ""
        if message.kind is not Kind.SNAPSHOT_END:
            state[message.payload.decode()] = None
    return list(state)


def kill_often(directory: Path, url: str, kills: int, seed: int) -> None:
    chosen = random.Random(seed)
    with ExitStack() as stack:
        shop = Shop(directory, url, stack)
        for _ in range(kills):
            if chosen.random() < 0.7:
                shop.go_on()
            time.sleep(chosen.uniform(0.0, 0.5))
            match chosen.choice(["application", "plant", "office", "snapshot"]):
                case "application":
                    shop.application.kill()
                    shop.begin()
                case "plant":
                    shop.plant.end(signal.SIGKILL)
                    shop.plant.start()
                case "office":
                    shop.office.end(signal.SIGKILL)
                    shop.office.start()
                case "snapshot":
                    shop.force()
        shop.end()
        shop.check()


@pytest.fixture(params=["sqlite", "postgres"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "shop.db") if request.param == "sqlite" else str(request.getfixturevalue("database"))


@pytest.mark.crash
def test_a_few_kills(tmp_path: Path) -> None:
    kill_often(tmp_path, str(tmp_path / "shop.db"), 3, seed=1)


@pytest.mark.crash
@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", [2, 3])
def test_many_kills(tmp_path: Path, url: str, seed: int) -> None:
    kill_often(tmp_path, url, 30, seed)

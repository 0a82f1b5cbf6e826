"""Nodes without a store, for tests: a log, a server and appliers in this process."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

from tailrace.log.batch import batches_of
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.reader import LogReader
from tailrace.message import Lsn, Message, NodeId, Op, now
from tailrace.node.identity import enter, identity_of
from tailrace.relay.applier import Applier, Source, State
from tailrace.relay.flight import RelayServer
from tailrace.relay.journal import Journal
from tailrace.relay.service import Service
from tailrace.relay.vclock import Vclock

TOKEN = "canary-3f77"
HEARTBEAT_S = 0.2


class TestNode:
    """`with TestNode(...) as node`; `follow` others."""

    __test__ = False

    def __init__(
        self, directory: Path, cluster: str | None, *, heartbeat_s: float = HEARTBEAT_S, port: int = 0
    ) -> None:
        """Without a cluster it is one that has to join."""
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.identity = enter(str(directory), cluster) if cluster else identity_of(str(directory))
        self.log = CommitLog.open(directory / "log", LogConfig(segment_bytes=20_000))
        self.journal = Journal(self.log, self.identity.node)
        self.service = Service(self.identity, self.journal)
        self._heartbeat_s = heartbeat_s
        location = f"grpc://127.0.0.1:{port}"
        self.server = RelayServer(self.service, location=location, tokens={"all": TOKEN}, heartbeat_s=heartbeat_s)
        self.appliers: list[Applier] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for applier in self.appliers:
            applier.stop()
        self.server.stop()
        self.log.close()

    @property
    def id(self) -> NodeId:
        return self.identity.node

    @property
    def location(self) -> str:
        return f"grpc://127.0.0.1:{self.server.port}"

    def follow(self, other: TestNode, *, register: bool = True, token: str = TOKEN) -> Applier:
        if register:
            other.service.keep_for(self.id, Vclock())
        source = Source("source", other.location, token)
        applier = Applier(source, self.identity, self.journal, heartbeat_s=self._heartbeat_s)
        self.appliers.append(applier)
        applier.start()
        return applier

    def write(self, *numbers: int, namespace: str = "main.t") -> None:
        """One transaction."""
        rows = [Message(Op.INSERT, now(), namespace, {"n": number}, lsn=Lsn(number)) for number in numbers]
        self.journal.append_local(batches_of(rows))

    def messages(self) -> list[Message]:
        return [entry.message for entry in LogReader(self.log.directory).entries()]

    def received(self, origin: NodeId) -> list[tuple[int, int]]:
        """The lsn and the content of an origin's messages, in the order of this node's log."""
        return [(m.lsn, (m.data or {}).get("n", 0)) for m in self.messages() if m.origin == origin]


def wait_for(what: Callable[[], bool], seconds: float = 30.0) -> None:
    give_up_s = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < give_up_s, "it did not happen"
        time.sleep(0.01)


def wait_until(applier: Applier, *states: State) -> None:
    wait_for(lambda: applier.progress.state in states)

"""Logs that are copied, in this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self

from tailrace.log.agreement import Hold
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.consumers import Consumers
from tailrace.message import Message, Micros, Op
from tailrace.relay.applier import Source
from tailrace.relay.guest import Guest
from tailrace.relay.holds import Holds
from tailrace.topology.form import assemble
from tailrace.topology.pulling import Pulling
from tailrace.topology.replica import Progress, Replica, Settings
from tailrace.topology.replicanode import ReplicaNode
from tailrace.topology.request import Keep
from tailrace.topology.serving import GuestServer, LogGuest
from tests.relay.nodes import wait_for

TOKEN = "topology-test-token"
BEAT_S = 0.2
SMALL_SEGMENTS = LogConfig(segment_bytes=20_000)


def append(log: CommitLog, first: int, count: int, word: str = "x" * 50) -> None:
    """So many groups of three messages."""
    for number in range(first, first + count):
        log.append_messages(
            Message(Op.INSERT, Micros(1_000_000 + number), f"main.t{at % 2}", {"id": number * 3 + at, "word": word})
            for at in range(3)
        )


class WatchedPulling(Pulling):
    """Remembers what it was told to keep."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.kept: list[Keep] = []

    def keep(self, request: Keep) -> None:
        super().keep(request)
        self.kept.append(request)


class Served:
    """Serves a log directory at a port of its own, until it is closed."""

    def __init__(
        self, directory: Path, *, fanout: int = 8, port: int = 0, hold: Hold | None = None, guests: Sequence[Guest] = ()
    ) -> None:
        self.directory = directory
        self.holds = Holds(Consumers(str(directory)), ttl_s=3600.0)
        self.pulling = WatchedPulling(str(directory), self.holds, fanout=lambda: fanout, beat_s=BEAT_S, hold=hold)
        self.server = serve([LogGuest(self.pulling), *guests], port)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.server.stop()

    @property
    def source(self) -> Source:
        return Source(self.directory.name, f"grpc://127.0.0.1:{self.server.port}", TOKEN)


def serve(guests: Sequence[Guest], port: int = 0) -> GuestServer:
    return GuestServer(guests, location=f"grpc://127.0.0.1:{port}", tokens={"copies": TOKEN})


class Copying:
    """A replica at work in a thread."""

    def __init__(
        self, directory: Path, sources: Sequence[Source] | Callable[[], Sequence[Source]], **settings: Any
    ) -> None:
        self.said: list[str] = []
        chosen = sources if callable(sources) else lambda: sources
        made = Settings(**{"beat_s": BEAT_S, "keep_s": 0.1, "alarm_after": 2, **settings})
        self.replica = Replica(str(directory), directory.name, chosen, made, self.said.append)
        self.directory = directory
        self._thread = threading.Thread(target=self.replica.run)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.replica.stop()
        self._thread.join()

    @property
    def progress(self) -> Progress:
        return self.replica.progress

    def reaches(self, log: CommitLog, seconds: float = 30.0) -> None:
        wait_for(lambda: self.progress.next_offset == log.next_offset and self.progress.behind_bytes == 0, seconds)


def replica_node(directory: Path, sources: Sequence[int], said: list[str], /, **more: Any) -> ReplicaNode:
    """A whole replica in this process, whose keys in `replicate_from` begin with `from_`."""
    replicate = {key.removeprefix("from_"): more.pop(key) for key in list(more) if key.startswith("from_")}
    named = [{"name": f"top{at}", "address": f"127.0.0.1:{port}", "token": TOKEN} for at, port in enumerate(sources)]
    form, problems = assemble(
        {
            "node": directory.name,
            "data": str(directory),
            "listen": "127.0.0.1:0",
            "tokens": {"copies": TOKEN},
            "heartbeat": f"{BEAT_S}s",
            "replicate_from": {"sources": named, "keepalive": "100ms", **replicate},
            **more,
        },
        str(directory.parent),
    )
    assert form is not None, problems
    return ReplicaNode(form, said.append)


def segments(directory: Path) -> dict[str, bytes]:
    """The bytes of each segment."""
    return {path.name: path.read_bytes() for path in sorted(directory.glob("*.log"))}

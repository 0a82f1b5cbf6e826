"""A tree of real replica processes on this machine, and what it costs its root.

Each replica is a process of its own that runs what `tailrace replica` runs; they are forked from one that has loaded
everything, so that many start soon and share that memory. They wait for what is new (`blocking: true`): 72 processes
that ask every 50 ms would measure two cores that are busy with asking.
"""

from __future__ import annotations

import multiprocessing
import resource
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cached_property
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from log import rows as some_rows

from tailrace.log.batch import Batch
from tailrace.log.commitlog import CommitLog, LogConfig
from tailrace.log.consumers import Consumers
from tailrace.relay.holds import Holds
from tailrace.topology.form import assemble
from tailrace.topology.pulling import Pulling
from tailrace.topology.replicanode import ReplicaNode
from tailrace.topology.serving import GuestServer, LogGuest

TOKEN = "a token of this bench"
FANOUT = 8
GROUP_ROWS = 10_000
EVERY_S = 0.1
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["tailrace.topology.replicanode"])


@dataclass(frozen=True)
class Cost:
    """What the root spent while it wrote and its own replicas got it."""

    cpu_s: float
    sent_bytes: int


class Worker:
    """A process that answers what it is asked."""

    def __init__(self, target: Any, *arguments: Any) -> None:
        self._pipe, theirs = _FORKS.Pipe()
        self._process = _FORKS.Process(target=target, args=(*arguments, theirs), daemon=True)
        self._process.start()

    @cached_property
    def port(self) -> int:
        """Where it listens; it says so when it does."""
        return int(self._pipe.recv())

    def ask(self, question: Any) -> Any:
        _ = self.port
        self._pipe.send(question)
        return self._pipe.recv()

    def end(self) -> None:
        """At once: nothing of what it has is needed."""
        self._process.kill()
        self._process.join()


def root_cost(place: Path, leaves: int, groups: int) -> Cost:
    """Of a root with so many leaves: up to 8 copy the root itself, more are behind 8 others that do."""
    with ExitStack() as stack:
        root = stack.enter_context(working(_root, str(place / "root")))
        direct = [
            stack.enter_context(working(_replica, str(place / f"direct{at}"), root.port))
            for at in range(min(leaves, FANOUT))
        ]
        behind = [
            stack.enter_context(working(_replica, str(place / f"leaf{at}"), direct[at % FANOUT].port))
            for at in range(leaves if leaves > FANOUT else 0)
        ]
        reach(direct + behind, root.ask(("write", 1)))
        cpu_s, sent = root.ask("cost")
        end = root.ask(("write", groups))
        reach(direct, end)
        cpu_after_s, sent_after = root.ask("cost")
        reach(behind, end)
        return Cost(cpu_after_s - cpu_s, sent_after - sent)


@contextmanager
def working(target: Any, *arguments: Any) -> Iterator[Worker]:
    worker = Worker(target, *arguments)
    try:
        yield worker
    finally:
        worker.end()


def reach(replicas: list[Worker], offset: int, seconds: float = 300.0) -> None:
    give_up_s = time.monotonic() + seconds
    for replica in replicas:
        while replica.ask("offset") < offset:
            if time.monotonic() > give_up_s:
                raise SystemExit("a replica did not get there")
            time.sleep(0.02)


def _root(directory: str, pipe: Connection) -> None:
    batch = Batch("main.orders", some_rows(GROUP_ROWS))
    with CommitLog.open(directory, LogConfig(segment_bytes=64_000_000)) as log:
        pulling = Pulling(directory, Holds(Consumers(directory)), fanout=lambda: FANOUT, beat_s=1.0)
        server = GuestServer([LogGuest(pulling)], location="grpc://127.0.0.1:0", tokens={"bench": TOKEN})
        pipe.send(server.port)
        while asked := pipe.recv():
            if asked == "cost":
                used = resource.getrusage(resource.RUSAGE_SELF)
                pipe.send((used.ru_utime + used.ru_stime, pulling.sent_bytes))
                continue
            began_s = time.monotonic()
            for number in range(asked[1]):
                log.append([batch])
                time.sleep(max(0.0, began_s + (number + 1) * EVERY_S - time.monotonic()))
            pipe.send(log.next_offset)


def _replica(directory: str, source: int, pipe: Connection) -> None:
    form, problems = assemble(
        {
            "node": Path(directory).name,
            "data": directory,
            "listen": "127.0.0.1:0",
            "tokens": {"bench": TOKEN},
            "heartbeat": "1s",
            "replicate_from": {
                "sources": [{"name": "source", "address": f"127.0.0.1:{source}", "token": TOKEN}],
                "blocking": True,
            },
        },
        ".",
    )
    if form is None:
        raise SystemExit(str(problems))
    with ReplicaNode(form, lambda _: None) as node:
        pipe.send(node.port)
        while pipe.recv():
            pipe.send(node.replica.progress.next_offset)

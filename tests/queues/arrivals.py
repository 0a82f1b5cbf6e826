"""Receive queues as a site fills them, and a listener that remembers what it was told."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import pyarrow as pa

from tailrace.log.commitlog import CommitLog
from tailrace.log.group import OffsetRange
from tailrace.message import now
from tailrace.queues.answers import Ack, Answer
from tailrace.queues.entries import SHIPPED, Kind, received_batch
from tailrace.queues.incoming import Incoming
from tailrace.queues.listener import Listener
from tailrace.queues.receiving import Receiver


def arrive(log: CommitLog, client: str, source: str, *texts: str) -> OffsetRange:
    """One transaction of log entries."""
    return log.append([received_batch(client, source, Kind.LOG_ENTRY, shipped("t1", 0, *texts))])


def arrive_snapshot(log: CommitLog, client: str, source: str, request: str, *texts: str) -> OffsetRange:
    """A snapshot, in frames of two messages, with its end."""
    frames = [
        received_batch(client, source, Kind.SNAPSHOT, shipped(request, at, *texts[at : at + 2]), request)
        for at in range(0, len(texts), 2)
    ]
    end = received_batch(client, source, Kind.SNAPSHOT_END, shipped(request, len(texts), ""), request)
    return log.append([*frames, end])


def shipped(transaction: str, first: int, *texts: str) -> pa.RecordBatch:
    """Rows as they come from another site."""
    rows = [
        {"id": number, "transaction": transaction, "timestamp": now(), "payload": text.encode()}
        for number, text in enumerate(texts, first)
    ]
    return pa.RecordBatch.from_pylist(rows, schema=SHIPPED)


@dataclass
class Notebook:
    """Writes down every call, and answers as it was told to: by default with Ack."""

    calls: list[tuple[str, str, str]] = field(default_factory=list)
    """What was called, the source, and the payload or the request."""
    answers: dict[str, list[Answer | Exception]] = field(default_factory=lambda: defaultdict(list))
    """For a payload, a request with its call, or an error: what comes first is said first."""
    messages: list[Incoming] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)

    def told(self, source: str) -> list[str]:
        """The payloads and requests of one source."""
        return [what for _, where, what in self.calls if where == source]

    def on_snapshot_start(self, source: str, request: str) -> Answer:
        return self._note("start", source, request)

    def on_snapshot_message(self, source: str, message: Incoming) -> Answer:
        self.messages.append(message)
        return self._note("snapshot", source, message.payload.decode())

    def on_snapshot_end(self, source: str, request: str) -> Answer:
        return self._note("end", source, request)

    def on_log_entry(self, source: str, message: Incoming) -> Answer:
        self.messages.append(message)
        return self._note("entry", source, message.payload.decode())

    def on_error(self, source: str, error: Exception) -> None:
        self.errors.append(f"{source}: {error}")

    def _note(self, call: str, source: str, what: str) -> Answer:
        self.calls.append((call, source, what))
        planned = self.answers.get(f"{call} {what}") or self.answers.get(what)
        answer = planned.pop(0) if planned else Ack()
        if isinstance(answer, Exception):
            raise answer
        return answer


@contextmanager
def listening(receiver: Receiver, listener: Listener) -> Iterator[None]:
    """A thread in which a listener is called. What ended it is raised in the end."""
    with working(lambda stopping: receiver.listen(listener, stopping)):
        yield


@contextmanager
def working(work: Callable[[threading.Event], None]) -> Iterator[None]:
    """A thread that works until it is told to stop. What ended it is raised in the end."""
    stopping = threading.Event()
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work(stopping)
        except BaseException as error:  # noqa: BLE001  raised below
            failures.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join(30)
    if failures:
        raise failures[0]

"""What an application offers to be given its messages."""

from __future__ import annotations

from typing import Protocol

from tailrace.queues.answers import Ack, Answer, Retry, check_answer
from tailrace.queues.desk import Desk
from tailrace.queues.entries import Kind
from tailrace.queues.incoming import Incoming


class Listener(Protocol):
    """Gets the messages of one client, those of each source in order, one at a time in one thread.

    A message comes at least once. Whoever answers with anything but `Ack` gets it again or not at all; what follows
    from the same source comes after that, what comes from others does not wait. To raise is to retry.
    """

    def on_snapshot_start(self, source: str, request: str) -> Answer:
        """Everything that a source has will come now, before its log entries. What there is of an earlier snapshot that
        did not end counts no more: one that was interrupted by a crash comes again from its beginning. Called once each
        time that a snapshot is delivered, before its first message; anything but `Ack` is about that message."""
        ...

    def on_snapshot_message(self, source: str, message: Incoming) -> Answer:
        """A part of what the source has."""
        ...

    def on_snapshot_end(self, source: str, request: str) -> Answer:
        """The snapshot is complete. A newer one that has come meanwhile starts after it."""
        ...

    def on_log_entry(self, source: str, message: Incoming) -> Answer:
        """Something that happened at the source after its last snapshot, or without one."""
        ...

    def on_error(self, source: str, error: Exception) -> None:
        """A call raised this, and will be repeated. What is raised here ends the listening."""
        ...


def ask(listener: Listener, desk: Desk, message: Incoming) -> Answer:
    """What a listener answers about a message."""
    try:
        if message.starts_snapshot:
            started = check_answer(listener.on_snapshot_start(message.source, message.request))
            if not isinstance(started, Ack):
                return started
            desk.start(message)
        return check_answer(_call(listener, message))
    except Exception as error:  # noqa: BLE001  whatever an application raises
        listener.on_error(message.source, error)
        return Retry(reason=describe(error))


def describe(error: Exception) -> str:
    """An error in one line."""
    return f"{type(error).__name__}: {error}".strip()


def _call(listener: Listener, message: Incoming) -> object:
    if message.kind is Kind.LOG_ENTRY:
        return listener.on_log_entry(message.source, message)
    if message.kind is Kind.SNAPSHOT:
        return listener.on_snapshot_message(message.source, message)
    return listener.on_snapshot_end(message.source, message.request)

"""A message as an application gets it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.log.selection import SelectedFrame
from tailrace.queues.answers import Ack, Answer, Park, Retry
from tailrace.queues.entries import Received, received_messages


@dataclass(frozen=True, slots=True)
class Incoming(Received):
    """A message on its way to an application."""

    source: str
    """The site that sent it."""
    attempt: int
    """1 the first time."""
    starts_snapshot: bool
    """It is the first of a snapshot: whatever there was of an earlier one that did not end counts no more."""
    replay: str = ""
    """Not empty when it was parked, and somebody wants it delivered again: which replay it is."""

    @property
    def is_replay(self) -> bool:
        return bool(self.replay)


@dataclass(frozen=True, slots=True)
class Unanswered(Incoming):
    """A message that waits for one of three answers. What follows from the same source comes after it was answered."""

    settle: Callable[[Incoming, Answer], None] = field(kw_only=True, repr=False, compare=False)

    def ack(self) -> None:
        """It is done with."""
        self.settle(self, Ack())

    def retry(self, after_s: float | None = None, reason: str = "") -> None:
        """It is to come again later."""
        self.settle(self, Retry(after_s, reason))

    def park(self, reason: str) -> None:
        """It is put aside."""
        self.settle(self, Park(reason))


def messages_of(frame: SelectedFrame) -> Iterator[Received]:
    """The messages of a frame of a receive queue, with the offsets that they have."""
    rows = frame.numbered_rows()
    offsets: list[Any] = rows.column("offset").to_pylist()
    for offset, message in zip(offsets, received_messages(offsets[0] if offsets else 0, rows), strict=True):
        yield message if message.offset == offset else replace(message, offset=offset)

"""A lane: one source's queue on its way to one listener, in order. One lane that waits does not hold up the others."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import Final

from tailrace.log.cursor import Cursor
from tailrace.log.selection import SelectedFrame, Selection, exactly
from tailrace.log.view import LogView
from tailrace.message import Offset
from tailrace.queues.entries import Kind, Received
from tailrace.queues.incoming import Incoming, messages_of

_NOTHING: Final = iter(())


class Lane:
    """What is known about a queue while it is listened to."""

    def __init__(self, queue: str, source: str, done: int, snapshot: str, *, keeps_place: bool) -> None:
        self.queue = queue
        self.source = source
        self.next = done + 1
        """Everything before was answered."""
        self.safe = done
        """Up to here nothing is needed any more, even after a crash."""
        self.snapshot = snapshot
        """The request of the snapshot that the application is in the middle of."""
        self.out: Incoming | None = None
        """What was handed out and is not answered yet."""
        self.due_s = 0.0
        self.trouble = ""
        """Why the first message was not taken."""
        self.skipped: dict[int, int] = {}
        """The offsets that are parked, with the numbers under which they are."""
        self.replays: deque[int] = deque()
        self.is_busy = False
        """It is among those that take turns."""
        self.is_behind = False
        """The log was read further for others: this lane reads for itself until it has caught up."""
        self._keeps_place = keeps_place
        self._messages: Iterator[Received] = _NOTHING
        self._head: Received | None = None
        self._busy_from = 0
        self._read_to = Offset(0)
        self._cursor: Cursor | None = None

    @property
    def is_idle(self) -> bool:
        """Nothing that was read waits here."""
        return self._head is None and not self.is_behind and self.safe >= self.next - 1

    @property
    def reads_on(self) -> bool:
        """It reads the next frame for itself."""
        return self.is_behind and self._head is None

    def held_from(self, end: int) -> int:
        """From where on the log is needed for this lane, if it was read up to `end`."""
        return end if self.is_idle else max(self.safe + 1, self._busy_from)

    def offer(self, frame: SelectedFrame) -> None:
        """The next frame of the queue; one that comes too early is read again in its turn."""
        if self._head is not None or self.is_behind:
            self.is_behind = True
            return
        if self.is_idle:
            self._busy_from = max(frame.head.offset, frame.start)
        self._take(frame)
        self._head = next(self._messages, None)

    def peek(self, view: LogView, end: Offset) -> Received | None:
        """The message whose turn it is, if there is one before `end`."""
        while self._head is not None and self._head.offset < self.next:
            self._head = next(self._messages, None)
        while self._head is None and self._read_on(view, end):
            self._head = next((message for message in self._messages if message.offset >= self.next), None)
        return self._head

    def starts_snapshot(self, message: Received) -> bool:
        return message.kind is not Kind.LOG_ENTRY and message.request != self.snapshot

    def pass_over(self, message: Received, *, was_seen: bool) -> None:
        """A message is done with.

        A snapshot is needed until its end is done with, unless the application keeps its place by itself: after a crash
        it begins again, for nobody knows what the application has kept of it.
        """
        self.next = message.offset + 1
        self._head = next(self._messages, None)
        self.due_s, self.trouble = 0.0, ""
        if message.kind is Kind.SNAPSHOT:
            if was_seen:
                self.snapshot = message.request
            if not self._keeps_place:
                return
        else:
            self.snapshot = ""
        self.safe = message.offset

    def close(self) -> None:
        if self._cursor is not None:
            self._cursor.close()
            self._cursor = None

    def _take(self, frame: SelectedFrame) -> None:
        self._messages = messages_of(frame)
        self._read_to = min(frame.head.end, frame.end)

    def _read_on(self, view: LogView, end: Offset) -> bool:
        """Read the next frame for oneself; False when there is none before `end`."""
        if not self.is_behind:
            return False
        if self._cursor is None:
            self._cursor = Cursor(view, self._read_to, Selection(namespace=exactly(self.queue)))
        frame = next(iter(self._cursor.advance(end)), None)
        if frame is None:
            self.is_behind = False
            self.close()
            return False
        self._take(frame)
        return True

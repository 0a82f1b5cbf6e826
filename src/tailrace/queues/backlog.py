"""Backlog: what is in the log for one destination and has not been acknowledged, counted exactly."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from tailrace.queues.tags import Tags


@dataclass(frozen=True, slots=True)
class Remaining:
    """What is still to be sent."""

    entries: int = 0
    bytes: int = 0
    oldest_us: int | None = None
    """When the oldest of it was sent off by its client."""


@dataclass(slots=True)
class _Frame:
    end: int
    entries: int
    bytes: int
    at_us: int


class Backlog:
    """Of one tag and one client. Frames are looked at once, by their heads."""

    def __init__(self, tags: Tags, tag: str, client: str, start: int, *, seen: int = 0) -> None:
        """From a place on; somebody has seen everything before another one."""
        self.last = -1
        """The last place for which there was something. What was removed unseen counts, too."""
        self._removed = 0
        """Before this place something was removed."""
        self._seen = seen
        self._tags = tags
        self._tag = tag
        self._client = client
        self._counted = start
        self._frames: deque[_Frame] = deque()
        self._entries = 0
        self._bytes = 0
        self._turn = threading.Lock()

    def count(self, acknowledged: int) -> Remaining:
        """What remains when everything before a place is acknowledged."""
        with self._turn:
            self._look()
            self._pass_over(acknowledged)
            oldest_us = self._frames[0].at_us if self._frames else None
            return Remaining(self._entries, self._bytes, oldest_us)

    @property
    def counted(self) -> int:
        """Up to here the log was looked at."""
        return self._counted

    def is_missing(self, acknowledged: int) -> bool:
        """Whether something is gone, or may be, when everything before a place is acknowledged."""
        if acknowledged >= self._tags.active:
            return False
        with self._turn:
            self._look()
            return self._removed > acknowledged

    def _pass_over(self, place: int) -> int:
        """Count what ends before a place no more; says where that ends."""
        end = 0
        while self._frames and self._frames[0].end <= place:
            passed = self._frames.popleft()
            self._entries -= passed.entries
            self._bytes -= passed.bytes
            end = passed.end
        return end

    def _look(self) -> None:
        end, first = self._tags.end, self._tags.first
        self._removed = max(self._removed, self._pass_over(first))
        if first > max(self._counted, self._seen):
            self._removed, self.last = first, first - 1
        start = max(self._counted, first)
        for found in self._tags.frames(self._tag, self._client, start, end):
            head = found.head
            self._frames.append(_Frame(head.end, head.messages, head.body_bytes, head.timestamp))
            self._entries += head.messages
            self._bytes += head.body_bytes
            self.last = head.end - 1
        self._counted = max(end, start)

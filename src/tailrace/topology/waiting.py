"""Waiting: how far a log may be applied, where that is to happen later than it comes (Comdb2's `replicate_wait`).

A group waits for as long since it was written, by the clock of who wrote it. Where that clock is ahead of this one it
waits no longer than since it came.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from contextlib import closing
from typing import Final

from tailrace.log.cursor import Cursor
from tailrace.log.selection import EVERYTHING
from tailrace.log.view import LogView
from tailrace.message import Offset

_US: Final = 1_000_000
_SAMPLE_S: Final = 1.0
"""Times of arrival are known so exactly."""


class Waiting:
    """For one log that grows."""

    def __init__(self, wait_s: float, clock: Callable[[], float] = time.time) -> None:
        self.wait_s = wait_s
        self.hurried = Offset(0)
        """What is before this is wanted now."""
        self._clock = clock
        self._arrivals: deque[tuple[Offset, float]] = deque()
        """Up to where the log was there by then, in order."""
        self._known = Offset(0)
        self._ripe_s = 0.0
        """Before this time nothing behind `_known` may be applied."""

    def arrived(self, end: Offset) -> None:
        """The log goes up to here now."""
        if not self.wait_s:
            return
        if self._arrivals and end <= self._arrivals[-1][0]:
            return
        now_s = self._clock()
        if len(self._arrivals) > 1 and now_s - self._arrivals[-2][1] < _SAMPLE_S:
            self._arrivals.pop()
        self._arrivals.append((end, now_s))

    def forget(self, end: Offset) -> None:
        """What was behind an offset is not there any more."""
        while self._arrivals and self._arrivals[-1][0] > end:
            self._arrivals.pop()
        self._known, self._ripe_s = Offset(0), 0.0
        self.hurried = min(self.hurried, end)

    def upto(self, view: LogView, start: Offset, end: Offset) -> Offset:
        """Up to where it may be applied now, where `start` is how far it is; whole groups up to the end of the log."""
        if not self.wait_s:
            return end
        found = max(start, self._known)
        if self.hurried <= found and self._clock() < self._ripe_s:
            return found
        latest_us = 0
        with closing(Cursor(view, found, EVERYTHING)) as cursor:
            for frame in cursor.advance(end):
                latest_us = max(latest_us, frame.head.timestamp)
                ripe_s = min(latest_us / _US, self._arrival_s(frame.head.offset)) + self.wait_s
                if found >= self.hurried and ripe_s > self._clock():
                    self._ripe_s = ripe_s
                    break
                if frame.head.closes_group:
                    found, latest_us = frame.head.end, 0
        self._known = found
        while self._arrivals and self._arrivals[0][0] <= found:
            self._arrivals.popleft()
        return found

    def _arrival_s(self, offset: Offset) -> float:
        """By when a message was there."""
        return next((at_s for end, at_s in self._arrivals if end > offset), self._clock())

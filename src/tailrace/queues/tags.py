"""Tags: the frames of one destination and one client, found through the tag index and nowhere else.

The sessions of a site share one: what is new in the log is looked at once for all of them, by its heads.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from tailrace.log.frame import Head
from tailrace.log.segment import Located, Segment
from tailrace.log.view import LogView
from tailrace.message import Offset


class Tagged(NamedTuple):
    """One frame."""

    segment: Segment
    """Open until the next frame is asked for."""
    located: Located

    @property
    def head(self) -> Head:
        return self.located.head

    def body(self) -> memoryview:
        """Its rows, the checksum right."""
        return self.segment.body_of(self.located)


class _Reached(NamedTuple):
    base: Offset
    offset: Offset
    position: int


class Tags:
    """Of one log. Threads may share it."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._view = LogView(directory)
        self._turn = threading.Lock()
        self._reached: dict[tuple[str, str], _Reached] = {}
        """By tag and client: the last frame that was asked for. The next one that is asked for is often behind it."""

    @property
    def first(self) -> Offset:
        return self._view.bases()[0]

    @property
    def active(self) -> Offset:
        """Where the segment begins that is written to now: nothing behind is ever removed."""
        return self._view.head().base

    @property
    def end(self) -> Offset:
        return self._view.head().next_offset

    def frames(self, tag: str, client: str, start: int, end: int) -> Iterator[Tagged]:
        """Those that have both tags and messages between two places, in log order."""
        for base in self._bases(start, end):
            with Segment(self.directory, base) as segment:
                for position in self._positions(segment, tag, client, start):
                    located = segment.head_at(position)
                    if located.head.offset >= end:
                        return
                    if located.head.end > start and client in located.head.destinations:
                        self._reached[tag, client] = _Reached(base, located.head.offset, position)
                        yield Tagged(segment, located)

    def group_end(self, offset: int) -> Offset:
        """Where the group ends that an offset is in."""
        with self._turn:
            return next(head.end for head in self._view.heads(Offset(offset)) if head.closes_group)

    def _bases(self, start: int, end: int) -> list[Offset]:
        """Of the segments that may hold something between two places."""
        active = self.active
        if start >= active:
            return [active]
        bases = self._view.bases()
        first = max(0, bisect_left(bases, start + 1) - 1)
        return [base for base in bases[first:] if base < end]

    def _positions(self, segment: Segment, tag: str, client: str, start: int) -> Sequence[int]:
        """Where a segment has frames with a tag that end behind a place, and perhaps a few before."""
        with self._turn:
            head = self._view.head()
            is_active = segment.base == head.base
            found = self._view.published_contents(head) if is_active else self._view.contents(segment)
            positions = found.destinations.get(tag, ())
            if start <= segment.base or not positions:
                return positions[:]
            known = self._reached.get((tag, client))
            if is_active and known is not None and known.base == segment.base and known.offset <= start:
                return positions[bisect_left(positions, known.position) :]
            return positions[bisect_left(positions, self._view.locate(segment, Offset(start))) :]

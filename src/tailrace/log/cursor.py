"""A place in the log that moves forward, from frame to frame and from segment to segment."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterator

from tailrace.log import recovery
from tailrace.log.contents import Extent
from tailrace.log.segment import Located, Segment
from tailrace.log.selection import SelectedFrame, Selection
from tailrace.log.view import LogView
from tailrace.message import Offset


class Cursor:
    """Gives the frames of a selection in log order. `next_offset` is where it goes on."""

    def __init__(self, view: LogView, start: Offset, selection: Selection) -> None:
        self._view = view
        self._selection = selection
        self._segment: Segment | None = None
        self._position = 0
        self.next_offset = start

    def close(self) -> None:
        if self._segment is not None:
            self._segment.close()
            self._segment = None

    def advance(self, end: Offset) -> Iterator[SelectedFrame]:
        """Frames up to `end`, which must not be beyond the published end of the log. May be called again and again."""
        while self.next_offset < end:
            if self._segment is None:
                self._segment = self._view.open_segment(self.next_offset)
                self._position = self._view.locate(self._segment, self.next_offset)
            segment = self._segment
            head = self._view.head()
            if segment.base == head.base:
                yield from self._walk(segment, head.published, end)
                self.next_offset = end
                return
            if self._selection.destination is None:
                extent = yield from self._walk(segment, segment.size(), end)
            else:
                extent = yield from self._jump(segment, self._selection.destination, end)
            if self.next_offset < end:
                self._leave(segment, extent)

    def _walk(self, segment: Segment, limit: int, end: Offset) -> Generator[SelectedFrame, None, Extent]:
        """Frame by frame up to `end` or to the segment's end; returns how far the walk reached."""
        walk = segment.frames if self._selection.is_everything else segment.heads
        reached: Extent | None = None
        for located in walk(self._position, limit):
            if reached is not None:
                recovery.check_follows(segment, located, reached)
            if located.head.offset >= end:
                self.next_offset = end
                break
            reached = Extent(located.end, located.head.end, not located.head.is_batch)
            if located.head.end <= end:
                self._position = located.end
            if located.head.end > self.next_offset:
                frame = self._select(segment, located, end)
                self.next_offset = min(end, located.head.end)
                if frame is not None:
                    yield frame
        return reached or Extent(self._position, self.next_offset, ends_plain=False)

    def _jump(self, segment: Segment, destination: str, end: Offset) -> Generator[SelectedFrame, None, Extent]:
        """From one frame of a destination to its next, through the tag index."""
        found = self._view.contents(segment)
        positions = found.destinations.get(destination, ())
        for position in positions[bisect_left(positions, self._position) :]:
            located = segment.head_at(position)
            if located.head.offset >= end:
                break
            if located.head.end > self.next_offset:
                frame = self._select(segment, located, end)
                self.next_offset = min(end, located.head.end)
                if frame is not None:
                    yield frame
        self.next_offset = min(end, found.extent.end)
        return found.extent

    def _select(self, segment: Segment, located: Located, end: Offset) -> SelectedFrame | None:
        if not self._selection.wants(located.head):
            return None
        body = located.body if self._selection.is_everything else segment.body_of(located)
        place = segment.place(located.position, located.head.offset)
        return SelectedFrame(located.head, body, place, self.next_offset, end, self._selection)

    def _leave(self, segment: Segment, extent: Extent) -> None:
        """Go on in the next segment, which begins where this one ends."""
        following = self._view.base_after(segment.base)
        overtaken = self.next_offset < self._view.bases()[0]  # by retention: the next look says where the log begins
        if following is not None and not overtaken:
            recovery.check_joint(segment, extent, following)
            self.next_offset = max(self.next_offset, following)
        self.close()

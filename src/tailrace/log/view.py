"""A log directory as a reader sees it: where it begins and ends, and where in which file an offset is."""

from __future__ import annotations

import os
import threading
from bisect import bisect_right
from collections.abc import Iterator
from typing import Final

from tailrace.errors import Place, TailraceError
from tailrace.limits import U64_MAX
from tailrace.log import contents, index, recovery
from tailrace.log.contents import Contents
from tailrace.log.frame import Head, crc32
from tailrace.log.head import LogHead, read_head
from tailrace.log.index import Index
from tailrace.log.segment import Located, Segment, list_segments, segment_name
from tailrace.message import Offset

_LOOKS: Final = 3


class LogView:
    """Looks at a log directory and never changes it. Side files that are missing or wrong are made again in memory.
    Threads may share one: what it remembers is behind a lock."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._turn = threading.RLock()
        self._scanned: tuple[tuple[Offset, int], LogHead] | None = None
        self._contents: dict[tuple[Offset, int], Contents] = {}
        self._indexes: dict[tuple[Offset, int], Index] = {}
        self._active: tuple[Offset, Contents] | None = None

    def __reduce__(self) -> tuple[type[LogView], tuple[str]]:
        """In another process it looks anew."""
        return LogView, (self.directory,)

    def bases(self) -> list[Offset]:
        """The base offsets of all segments; raises when this is no log."""
        try:
            bases = list_segments(self.directory)
        except (FileNotFoundError, NotADirectoryError):
            bases = []
        if not bases:
            raise TailraceError(
                "log.not_found",
                "there is no log here: no directory with files such as 00000000000000000000.log",
                place=Place(self.directory),
                hint="name another directory with --log or TAILRACE_LOG",
            )
        return bases

    def head(self) -> LogHead:
        """How far the log is published. Without a head file the last segment is walked to its last complete group."""
        for _ in range(_LOOKS):
            head = read_head(self.directory)
            if head is None:
                break
            if self._size(head.base) >= head.published:
                return head  # otherwise its segment was sealed and compacted between the two looks: look again
        base = self.bases()[-1]
        with self._turn, Segment(self.directory, base) as segment:
            key = (base, segment.size())
            if self._scanned is None or self._scanned[0] != key:
                tail = recovery.scan(segment, None)
                if tail.problem is not None and not recovery.is_torn(segment, tail):
                    raise tail.problem
                self._scanned = (key, LogHead(base, tail.size, tail.size, tail.next_offset))
            return self._scanned[1]

    def open_segment(self, offset: Offset) -> Segment:
        """The segment that holds an offset."""
        while True:
            bases = self.bases()
            if offset < bases[0]:
                raise TailraceError(
                    "log.below_oldest",
                    f"offset {offset} is no longer in the log, the oldest is {bases[0]}",
                    place=Place(self.directory),
                    hint=f"tailrace log show {bases[0]}",
                )
            base = bases[bisect_right(bases, offset) - 1]
            try:
                return Segment(self.directory, base)
            except FileNotFoundError:  # removed between the two looks: look again
                continue

    def base_after(self, base: Offset) -> Offset | None:
        """The base of the next segment."""
        bases = self.bases()
        at = bisect_right(bases, base)
        return bases[at] if at < len(bases) else None

    def locate(self, segment: Segment, offset: Offset) -> int:
        """The position of a frame at most one index interval before an offset. Costs O(log n)."""
        position = self.index(segment).position_of(offset)
        return position if self._begins_by(segment, position, offset) else 0

    def locate_moment(self, segment: Segment, timestamp: int) -> int:
        """The position of a frame before which there is none with that timestamp or a later one."""
        position = self.index(segment).position_after(timestamp)
        return position if self._begins_by(segment, position, U64_MAX) else 0

    def find(self, offset: Offset) -> Located:
        """The frame that holds an offset of the published log, or the next one behind a gap."""
        head = self.head()
        with self.open_segment(offset) as segment:
            limit = head.published if segment.base == head.base else segment.size()
            for located in segment.heads(self.locate(segment, offset), limit):
                if located.head.end > offset:
                    return located
        following = self.base_after(segment.base)
        if following is None:
            what = f"offset {offset} is past the end of the log"
            raise TailraceError("log.past_end", what, place=Place(self.directory), hint="tailrace log current")
        return self.find(following)

    def heads(self, start: Offset) -> Iterator[Head]:
        """The heads of the published frames from the one on that holds an offset."""
        return (located.head for _, located in self.walk(start))

    def walk(self, start: Offset) -> Iterator[tuple[Segment, Located]]:
        """Like `heads`, with where each is. A segment is open only until the next frame is asked for."""
        head = self.head()
        while start < head.next_offset:
            with self.open_segment(start) as segment:
                limit = head.published if segment.base == head.base else segment.size()
                for located in segment.heads(self.locate(segment, start), limit):
                    if located.head.end > start:
                        start = located.head.end
                        yield segment, located
            following = self.base_after(segment.base)
            if following is None or segment.base >= head.base:
                return
            start = max(start, following)

    def index(self, segment: Segment) -> Index:
        """A segment's sparse index: the stored one when it is of this very segment. Every use of it is checked too."""
        key = (segment.base, segment.size())
        with self._turn:
            if key not in self._indexes:
                found = index.load(segment.path, segment.base)
                self._indexes.clear()  # one is enough for a reader that moves on, and keeps memory flat
                if found is None or not self._is_index_of(segment, found):
                    found = recovery.scan(segment, None).index
                self._indexes[key] = found
            return self._indexes[key]

    def contents(self, segment: Segment) -> Contents:
        """A sealed segment's table of contents."""
        key = (segment.base, segment.size())
        with self._turn:
            if key not in self._contents:
                found = contents.load(segment.path, segment.size())
                if found is None:
                    tail = recovery.scan(segment, None)
                    if tail.problem is not None:
                        raise tail.problem
                    found = tail.contents
                self._contents[key] = found
            return self._contents[key]

    def active_contents(self) -> Contents:
        """What the published part of the active segment holds. Only what is new since the last call is walked."""
        return self.published_contents(self.head())

    def published_contents(self, head: LogHead) -> Contents:
        """Like `active_contents`, of the segment that was active when a head was read. A later call notes more in it,
        so who shares the view with other threads and goes through one of its tables does as `last_offsets`."""
        with self._turn:
            return self._published_contents(head)

    def _published_contents(self, head: LogHead) -> Contents:
        if self._active and self._active[0] == head.base and self._active[1].segment_bytes == head.published:
            return self._active[1]
        with Segment(self.directory, head.base) as segment:
            if segment.size() < head.published:  # sealed and compacted since the head was read
                return self.contents(segment)
            known = self._active if self._active and self._active[0] == segment.base else None
            if known is not None and known[1].segment_bytes > head.published:
                known = None  # it was cut
            found = known[1] if known else Contents(end=segment.base)
            for located in segment.heads(found.segment_bytes, head.published):
                found.note(located)
            self._active = (segment.base, found)
        return found

    def all_contents(self) -> Iterator[tuple[Offset, Contents]]:
        """What every segment holds, the oldest first, the active one last."""
        head = self.head()  # read once: what is sealed or begun from now on does not count
        active = self.published_contents(head)
        bases = self.bases()
        with self._turn:
            for key in [key for key in self._contents if key[0] < bases[0]]:
                del self._contents[key]  # retention has removed the segment
        for base in bases:
            if base < head.base and (found := self._contents_of(base)) is not None:
                yield base, found
        yield head.base, active

    def last_offsets(self) -> dict[str, int]:
        """The last message of every namespace."""
        with self._turn:
            return {
                namespace: presence.last
                for _, found in self.all_contents()
                for namespace, presence in found.namespaces.items()
            }

    def _contents_of(self, base: Offset) -> Contents | None:
        try:
            with Segment(self.directory, base) as segment:
                return self.contents(segment)
        except FileNotFoundError:  # retention has removed it
            return None

    def _size(self, base: Offset) -> int:
        try:
            return os.stat(os.path.join(self.directory, segment_name(base))).st_size
        except FileNotFoundError:
            return -1

    def _is_index_of(self, segment: Segment, found: Index) -> bool:
        """A sealed segment's contents tell; they are of a segment of this length only, which compaction changes."""
        extent = contents.load_extent(segment.path, segment.size())
        if extent is None:
            return self.base_after(segment.base) is None
        return extent.index_crc == crc32(found.encode())

    def _begins_by(self, segment: Segment, position: int, offset: int) -> bool:
        """Whether a frame is at a position, and none before an offset is left out by starting there."""
        if position == 0:
            return True
        try:
            return segment.head_at(position).head.offset <= offset
        except TailraceError:
            return False

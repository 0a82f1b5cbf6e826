"""Reading a log, from any process and without a lock, while its writer goes on."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from tailrace.errors import Place, TailraceError
from tailrace.log.cursor import Cursor
from tailrace.log.segment import Segment
from tailrace.log.selection import EVERYTHING, SelectedFrame, Selection
from tailrace.log.view import LogView
from tailrace.log.watch import LOOK_EVERY_S, Watch
from tailrace.message import Entry, Lsn, Micros, NodeId, Offset

Found = TypeVar("Found")


class LogReader:
    """A log open for reading. It sees each commit group as soon as it is published, whole."""

    def __init__(self, directory: str | os.PathLike[str]) -> None:
        self.directory = os.path.abspath(directory)
        self.view = LogView(self.directory)

    @property
    def oldest(self) -> Offset:
        """Where the log begins. Messages from here on can be read, but for those that compaction removed."""
        return self.view.bases()[0]

    @property
    def next_offset(self) -> Offset:
        """Where the log ends: the offset that the next message will get."""
        return self.view.head().next_offset

    def frames(
        self, start: int | None = None, end: int | None = None, selection: Selection = EVERYTHING
    ) -> Iterator[SelectedFrame]:
        """The frames that hold the selected messages with `start` ≤ offset < `end`; by default all there are now."""
        first, last = self.check_range(start, end)
        cursor = Cursor(self.view, first, selection)
        try:
            yield from cursor.advance(last)
        finally:
            cursor.close()

    def entries(
        self, start: int | None = None, end: int | None = None, selection: Selection = EVERYTHING
    ) -> Iterator[Entry]:
        """Like `frames`, message by message."""
        for frame in self.frames(start, end, selection):
            yield from frame.entries()

    def tail(
        self,
        start: int | None = None,
        selection: Selection = EVERYTHING,
        *,
        stop: threading.Event | None = None,
        idle_s: float | None = None,
    ) -> Iterator[SelectedFrame]:
        """Like `frames`, and then wait for more. Ends when `stop` is set, or when nothing came for `idle_s` seconds."""
        first = self.check_range(start, None)[0]
        cursor = Cursor(self.view, first, selection)
        last_growth = time.monotonic()
        try:
            with Watch(self.directory) as watch:
                while stop is None or not stop.is_set():
                    end = self.next_offset
                    if cursor.next_offset < end:
                        yield from cursor.advance(end)
                        last_growth = time.monotonic()
                    left_s = LOOK_EVERY_S if idle_s is None else last_growth + idle_s - time.monotonic()
                    if left_s <= 0:
                        return
                    watch.wait(left_s)
        finally:
            cursor.close()

    def steadily(self, look: Callable[[], Found]) -> Found:
        """What a look finds that nothing was removed from under."""
        while True:
            oldest = self.oldest
            try:
                return look()
            except (FileNotFoundError, TailraceError) as error:
                is_gone = isinstance(error, FileNotFoundError) or error.code == "log.below_oldest"
                if not is_gone or self.oldest == oldest:
                    raise

    def offset_at(self, timestamp: Micros) -> Offset:
        """The first message with that timestamp or a later one; the end of the log when there is none."""
        return self.steadily(lambda: self._offset_at(timestamp))

    def offset_of(self, origin: NodeId, lsn: Lsn) -> Offset | None:
        """The first message of an origin with that lsn or a later one, None when there is none."""
        return self.steadily(lambda: self._offset_of(origin, lsn))

    def _offset_at(self, timestamp: Micros) -> Offset:
        head = self.view.head()
        for base in self.view.bases():
            with Segment(self.directory, base) as segment:
                is_active = base == head.base
                if not is_active and self.view.contents(segment).latest < timestamp:
                    continue
                position = self.view.locate_moment(segment, timestamp)
                for located in segment.heads(position, head.published if is_active else None):
                    if located.head.is_hole or located.head.timestamp < timestamp:
                        continue
                    for entry in self.entries(located.head.offset, located.head.end):
                        if entry.message.timestamp >= timestamp:
                            return entry.offset
        return head.next_offset

    def _offset_of(self, origin: NodeId, lsn: Lsn) -> Offset | None:
        selection = Selection(since={origin: Lsn(lsn - 1)})
        head = self.view.head()
        for base in self.view.bases():
            with Segment(self.directory, base) as segment:
                is_active = base == head.base
                if not is_active and self.view.contents(segment).origins.get(origin, (0, -1))[1] < lsn:
                    continue
                for located in segment.heads(0, head.published if is_active else None):
                    if located.head.origin == origin and selection.wants(located.head):
                        for entry in self.entries(located.head.offset, located.head.end, selection):
                            return entry.offset
        return None

    def check_range(self, start: int | None, end: int | None) -> tuple[Offset, Offset]:
        """The range that was asked for, or an error that says what there is."""
        oldest, next_offset = self.oldest, self.next_offset
        first = oldest if start is None else start
        last = next_offset if end is None else end
        if first < oldest:
            raise TailraceError(
                "log.below_oldest",
                f"offset {first} is not in the log, the oldest is {oldest}",
                place=Place(self.directory),
                hint=f"tailrace log show {oldest}",
            )
        if max(first, last) > next_offset:
            raise TailraceError(
                "log.past_end",
                f"offset {max(first, last - 1)} is past the end of the log, the newest is {next_offset - 1}",
                place=Place(self.directory),
                hint="tailrace log current",
            )
        if last < first:
            raise TailraceError("log.bad_range", f"the range from {first} to {last} runs backwards", hint="swap them")
        return Offset(first), Offset(last)

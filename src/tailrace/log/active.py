"""The active segment: the one file that grows. Its writer holds back the last frame of a group until it knows that it
is the last, writes in large pieces, and can take back a group that did not come to its end."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.limits import MIB
from tailrace.log import contents, index
from tailrace.log.contents import Contents
from tailrace.log.disk import Disk, SyncFailed, disk_errors
from tailrace.log.frame import Head, place_head
from tailrace.log.index import Index
from tailrace.log.recovery import Tail
from tailrace.log.segment import Located, segment_name
from tailrace.message import Offset

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_WRITE_BYTES: Final = 4 * MIB


class End(NamedTuple):
    """Where complete groups end."""

    position: int
    offset: Offset


class ActiveSegment:
    """The segment that groups are appended to."""

    def __init__(self, disk: Disk, directory: str, tail: Tail) -> None:
        self._disk = disk
        self.base = tail.base
        self.name = segment_name(tail.base)
        self.path = os.path.join(directory, self.name)
        self.end = End(tail.size, tail.next_offset)
        """The end of the last complete group; replaced in one step, so that other threads see both or neither."""
        self.index = tail.index
        self.contents = tail.contents
        self.durable = tail.next_offset
        """Everything before this offset is on disk, says whoever syncs; each frame carries it."""
        self._fd = disk.open(self.path)
        self._index_fd = disk.open(index.index_path(self.path))
        self._held: tuple[Head, ReadableBuffer] | None = None
        self._group: list[Located] = []
        self._queue: list[ReadableBuffer] = []
        self._queued_bytes = 0
        self._written = tail.size
        self._group_end = tail.next_offset

    @classmethod
    def create(cls, disk: Disk, directory: str, base: Offset) -> ActiveSegment:
        """A new segment; its directory entry is durable before anything in it is acknowledged (I1).

        When that fails nothing is left of it, durably: the segment before it may grow past its base.
        """
        path = os.path.join(directory, segment_name(base))
        disk.close(disk.create(path))
        try:
            index.store(disk, path, Index())
            disk.sync_directory(directory)
            return cls(disk, directory, Tail(base, 0, base, Index(), Contents(end=base)))
        except OSError:
            _take_back(disk, directory, path)
            raise

    @property
    def next_offset(self) -> Offset:
        return self.end.offset

    def add(self, head: Head, body: ReadableBuffer) -> None:
        """One more frame of the group that is being written."""
        if self._held is not None:
            self._queue_frame(*self._held, closes_group=False)
        self._held = (head, body)

    def finish_group(self, batch_ids: tuple[str, ...]) -> None:
        """Close and write the group. It is not durable before `sync`."""
        if self._held is None:
            return
        self._queue_frame(*self._held, closes_group=True, batch_ids=batch_ids)
        self._held = None
        self._end_group()

    def copy(self, frame: Located, raw: ReadableBuffer) -> None:
        """One more frame, exactly as another log has it at this place. The group that it closes is written."""
        self._queue_placed(frame, raw)
        if frame.head.closes_group:
            self._end_group()

    def abandon_group(self) -> None:
        """Take back what was written of a group that did not come to its end."""
        self._held = None
        self._group.clear()
        self._queue.clear()
        self._queued_bytes = 0
        if self._written > self.end.position:
            self._disk.truncate(self._fd, self.end.position)
            self._disk.sync(self._fd)  # or the rest might be there again after this segment was sealed
        self._written, self._group_end = self.end

    def sync(self) -> None:
        self._disk.sync(self._fd)

    def seal(self) -> None:
        """Nothing more will be written here: put its side files in place."""
        contents.store(self._disk, self.path, self.contents, self.index)

    def close(self) -> None:
        self._disk.close(self._fd)
        self._disk.close(self._index_fd)

    def _queue_frame(
        self, head: Head, body: ReadableBuffer, *, closes_group: bool, batch_ids: tuple[str, ...] = ()
    ) -> None:
        placed, encoded = place_head(
            head, offset=self._group_end, closes_group=closes_group, batch_ids=batch_ids, durable=self.durable
        )
        self._queue_placed(Located(self._written + self._queued_bytes, placed), encoded, body)

    def _queue_placed(self, frame: Located, *parts: ReadableBuffer) -> None:
        self._group.append(frame)
        self._group_end = frame.head.end
        self._queue += parts
        self._queued_bytes += frame.head.frame_bytes
        if self._queued_bytes >= _WRITE_BYTES:
            self._write_queue()

    def _end_group(self) -> None:
        self._write_queue()
        self._write_index()
        for located in self._group:
            self.contents.note(located)
        self._group.clear()
        self.end = End(self._written, self._group_end)

    def _write_index(self) -> None:
        latest = self.index.latest
        try:
            with disk_errors("writing the index", self.path):
                for located in self._group:
                    if self.index.note(located):
                        at = (len(self.index) - 1) * index.ENTRY_BYTES
                        self._disk.write(self._index_fd, [self.index.last_entry()], at)
        except BaseException:
            self.index.forget_from(self.end.position, latest)
            raise

    def _write_queue(self) -> None:
        at = self._written
        self._written += self._queued_bytes  # even a failed write may have left bytes that have to be taken back
        with disk_errors("writing a group", self.path):
            self._disk.write(self._fd, self._queue, at)
        self._queue.clear()
        self._queued_bytes = 0


def _take_back(disk: Disk, directory: str, path: str) -> None:
    try:
        disk.remove(path)
        disk.sync_directory(directory)
    except OSError as error:
        raise SyncFailed(*error.args) from error

"""The draft of a compacted segment: frames that stay, and holes for what does not."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from tailrace.limits import MIB, U32_MAX
from tailrace.log.batch import Batch, encode_frame
from tailrace.log.contents import Contents
from tailrace.log.disk import Disk
from tailrace.log.frame import Head, hole, place_head
from tailrace.log.index import Index
from tailrace.log.segment import Located

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_WRITE_BYTES: Final = 4 * MIB
_BATCH_IDS_MAX: Final = 1000
"""A hole remembers the batches it stands for, so that they are not published again."""


class SegmentDraft:
    """A new version of a segment, written beside the old one."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self.index = Index()
        self.contents = Contents()
        self.size = 0
        self._disk = disk
        if os.path.lexists(path):
            disk.remove(path)
        self._fd = disk.create(path)
        self._is_open = True
        self._hole: Head | None = None
        self._queue: list[ReadableBuffer] = []
        self._queued_bytes = 0

    def keep(self, located: Located, encoded_head: bytes, body: ReadableBuffer) -> None:
        """A frame that stays as it is."""
        self._close_hole()
        self._add(located.head, encoded_head, body)

    def keep_rows(self, head: Head, rows: pa.RecordBatch, offsets: pa.Int64Array) -> None:
        """What stays of a frame: the rows from the first kept to the last, holes before and behind."""
        first, last = int(offsets[0].as_py()), int(offsets[-1].as_py())
        if first > head.offset:
            self.leave_out(head, head.offset, first, closes_group=False)
        span = last - first + 1
        if span > len(offsets):
            rows = rows.append_column("offset", offsets)
        frame, body = encode_frame(Batch(head.namespace, rows, head.mode, head.origin), head.codec)
        closes_here = head.closes_group and last == head.end - 1
        batch_ids = head.batch_ids if last == head.end - 1 else ()
        self._close_hole()
        placed, encoded = place_head(
            frame._replace(span=span), offset=first, closes_group=closes_here, batch_ids=batch_ids
        )
        self._add(placed, encoded, body)
        if last < head.end - 1:
            self.leave_out(head, last + 1, head.end)

    def leave_out(self, head: Head, start: int, end: int, *, closes_group: bool | None = None) -> None:
        """Messages of a frame that go. Neighbouring holes become one; it closes a group when any of them did."""
        closes = head.closes_group if closes_group is None else closes_group
        batch_ids = head.batch_ids if end == head.end else ()
        pending = self._hole
        fits = pending is not None and pending.span + end - start <= U32_MAX
        if pending is not None and fits and len(pending.batch_ids) < _BATCH_IDS_MAX:
            self._hole = hole(
                offset=pending.offset,
                span=pending.span + end - start,
                timestamp=max(pending.timestamp, head.timestamp),
                closes_group=pending.closes_group or closes,
                batch_ids=pending.batch_ids + batch_ids,
            )
            return
        self._close_hole()
        self._hole = hole(
            offset=start, span=end - start, timestamp=head.timestamp, closes_group=closes, batch_ids=batch_ids
        )

    def finish(self) -> None:
        """Everything is on disk when this returns; the draft is not in its place yet."""
        self._close_hole()
        self._write()
        self._disk.sync(self._fd)
        self._disk.close(self._fd)
        self._is_open = False

    def discard(self) -> None:
        """Remove the draft, unless it has taken the old version's place."""
        if self._is_open:
            self._disk.close(self._fd)
            self._is_open = False
        if os.path.lexists(self.path):
            self._disk.remove(self.path)

    def _close_hole(self) -> None:
        if self._hole is not None:
            pending, self._hole = self._hole, None
            placed, encoded = place_head(
                pending, offset=pending.offset, closes_group=pending.closes_group, batch_ids=pending.batch_ids
            )
            self._add(placed, encoded, b"")

    def _add(self, head: Head, encoded_head: bytes, body: ReadableBuffer) -> None:
        located = Located(self.size, head)
        self.index.note(located)
        self.contents.note(located)
        self._queue += (encoded_head, body)
        self._queued_bytes += head.frame_bytes
        self.size += head.frame_bytes
        if self._queued_bytes >= _WRITE_BYTES:
            self._write()

    def _write(self) -> None:
        self._disk.write(self._fd, self._queue, self.size - self._queued_bytes)
        self._queue.clear()
        self._queued_bytes = 0

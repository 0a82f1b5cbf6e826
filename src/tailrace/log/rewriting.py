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
from tailrace.message import Offset

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_WRITE_BYTES: Final = 4 * MIB
_BATCH_IDS_MAX: Final = 1000
"""A hole remembers the batches it stands for, so that they are not published again."""


class SegmentDraft:
    """A new version of a segment, written beside the old one."""

    def __init__(self, disk: Disk, path: str, base: Offset) -> None:
        self.path = path
        self.index = Index()
        self.contents = Contents(end=base)
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
        self._close_hole(located.head.offset)
        self._add(located.head, encoded_head, body)

    def keep_rows(self, head: Head, rows: pa.RecordBatch, offsets: pa.Int64Array) -> None:
        """What stays of a frame: the rows from the first kept to the last, holes before and behind."""
        first, last = int(offsets[0].as_py()), int(offsets[-1].as_py())
        if first > head.offset:
            self.leave_out(head, first, closes_group=False)
        span = last - first + 1
        if span > len(offsets):
            rows = rows.append_column("offset", offsets)
        frame, body = encode_frame(Batch(head.namespace, rows, head.mode, head.origin), head.codec)
        closes_here = head.closes_group and last == head.end - 1
        batch_ids = head.batch_ids if last == head.end - 1 else ()
        self._close_hole(first)
        placed, encoded = place_head(
            frame._replace(span=span),
            offset=first,
            closes_group=closes_here,
            batch_ids=batch_ids,
            durable=head.durable,
        )
        self._add(placed, encoded, body)
        if last < head.end - 1:
            self.leave_out(head, head.end)

    def leave_out(self, head: Head, end: int, *, closes_group: bool | None = None) -> None:
        """The messages of a frame up to `end` go. Neighbouring holes become one; it closes a group when any of them
        did. A hole begins where the frame before it ends, so it covers the gaps that Transporter leaves."""
        closes = head.closes_group if closes_group is None else closes_group
        batch_ids = head.batch_ids if end == head.end else ()
        pending = self._hole
        if pending is not None and len(pending.batch_ids) < _BATCH_IDS_MAX:
            self._hole = hole(
                offset=pending.offset,
                span=end - pending.offset,
                timestamp=max(pending.timestamp, head.timestamp),
                closes_group=pending.closes_group or closes,
                batch_ids=pending.batch_ids + batch_ids,
            )
            return
        self._close_hole()
        start = self.contents.end
        self._hole = hole(
            offset=start, span=end - start, timestamp=head.timestamp, closes_group=closes, batch_ids=batch_ids
        )

    def finish(self, end: Offset) -> None:
        """Everything up to `end` is on disk when this returns; the draft is not in its place yet."""
        self._close_hole(end)
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

    def _close_hole(self, upto: int | None = None) -> None:
        """Write the hole that is due; one that is too long for a frame becomes several."""
        if self._hole is None:
            return
        pending, self._hole = self._hole, None
        end = pending.end if upto is None else upto
        for start in range(pending.offset, end, U32_MAX):
            is_last = start + U32_MAX >= end
            placed, encoded = place_head(
                pending._replace(span=min(U32_MAX, end - start)),
                offset=start,
                closes_group=pending.closes_group and is_last,
                batch_ids=pending.batch_ids if is_last else (),
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

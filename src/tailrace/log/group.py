"""A commit group while it is written, and the offsets it gets."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from tailrace.log.active import ActiveSegment
from tailrace.log.batch import Batch, encode_frame
from tailrace.log.frame import Codec, Head
from tailrace.message import Offset

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer


class OffsetRange(NamedTuple):
    """Offsets from `first` up to, not including, `end`."""

    first: Offset
    end: Offset


class Group:
    """A commit group that is being written."""

    def __init__(self, active: ActiveSegment, codec: Codec) -> None:
        self._active = active
        self._codec = codec
        self.range = OffsetRange(active.next_offset, active.next_offset)
        """The offsets the group got; known when it is complete."""

    def add(self, batch: Batch) -> None:
        """Append a batch; nobody sees it before the group is complete."""
        for piece in batch.pieces():
            if len(piece):
                self.add_frame(*encode_frame(piece, self._codec))

    def add_frame(self, head: Head, body: ReadableBuffer) -> None:
        """Append a frame that was encoded elsewhere."""
        self._active.add(head, body)

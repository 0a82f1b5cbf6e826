"""Framing: bytes of a log as they come from a source, cut into frames.

Nothing is believed that was not checked: places, lengths, checksums, and that offsets follow each other (I10).
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.errors import Place, TailraceError
from tailrace.limits import FRAME_BYTES_MAX
from tailrace.log.frame import Head, ShortFrame, crc32, parse_head
from tailrace.log.segment import Located, segment_name
from tailrace.message import Offset
from tailrace.topology.copied import Spot


class Framing:
    """Cuts what comes from one place on."""

    def __init__(self, spot: Spot, next_offset: Offset, *, ends_plain: bool = True) -> None:
        """`ends_plain` says whether offsets may be missing there, as beside Transporter's frames."""
        self._spot = spot
        self._next_offset = next_offset
        self._ends_plain = ends_plain
        self._rest = b""

    def frames(self, spot: Spot, raw: bytes | memoryview) -> Iterator[tuple[Located, memoryview]]:
        """The frames that some bytes complete, with their own bytes."""
        if spot.base != self._spot.base and not self._rest:
            self._spot = Spot(spot.base, 0)
        if spot != (self._spot.base, self._spot.position + len(self._rest)):
            what = f"bytes came for byte {spot.position} of {segment_name(spot.base)}, where others should follow"
            raise TailraceError("topology.mismatch", what, hint="it is matched again")
        buffer = memoryview(b"".join((self._rest, raw)) if self._rest else raw)
        name = segment_name(self._spot.base)
        at = 0
        try:
            while at < len(buffer):
                place = Place(name, self._spot.position)
                try:
                    head = parse_head(buffer, at, file=name, position=self._spot.position)
                except ShortFrame:
                    break
                if at + head.frame_bytes > len(buffer):
                    break
                frame = buffer[at : at + head.frame_bytes]
                self._check(head, frame, place)
                yield Located(self._spot.position, head), frame
                at += head.frame_bytes
                self._spot = Spot(self._spot.base, self._spot.position + head.frame_bytes)
                self._next_offset, self._ends_plain = head.end, not head.is_batch
        finally:
            self._rest = bytes(buffer[at:])
        if len(self._rest) > FRAME_BYTES_MAX:
            what = f"a frame has more than {FRAME_BYTES_MAX} bytes"
            raise TailraceError("topology.mismatch", what, place=place, hint="it is matched again")

    def _check(self, head: Head, frame: memoryview, place: Place) -> None:
        is_next = head.offset == self._next_offset
        if not is_next and not (head.offset > self._next_offset and (self._ends_plain or not head.is_batch)):
            what = f"a frame with offset {head.offset} came where {self._next_offset} should follow"
            raise TailraceError("topology.mismatch", what, place=place, hint="it is matched again")
        if head.is_batch and crc32(frame[head.head_bytes :]) != head.body_crc:
            what = "the checksum of a frame differs: it was damaged at the source or on the way"
            raise TailraceError("topology.damaged", what, place=place, hint="tailrace log verify at the source")

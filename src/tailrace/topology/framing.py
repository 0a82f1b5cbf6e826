"""Framing: bytes of a log as they come from a source, cut into frames.

Nothing is believed that was not checked: places, lengths, checksums, and that offsets follow each other (I10).
"""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.errors import Place, TailraceError
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
        self._rest = bytearray()
        """The beginning of a frame whose end has not come."""
        self._wanted = 0
        """So many bytes it takes to go on with it."""

    def frames(self, spot: Spot, raw: bytes | memoryview) -> Iterator[tuple[Located, memoryview]]:
        """The frames that some bytes complete, with their own bytes; only what is torn between two pieces is copied."""
        if spot.base != self._spot.base and not self._rest:
            self._spot = Spot(spot.base, 0)
        if spot != (self._spot.base, self._spot.position + len(self._rest)):
            what = f"bytes came for byte {spot.position} of {segment_name(spot.base)}, where others should follow"
            raise TailraceError("topology.mismatch", what, hint="it is matched again")
        came = memoryview(raw)
        while self._rest and came:
            missing = self._wanted - len(self._rest)
            self._rest += came[:missing]
            came = came[missing:]
            if len(self._rest) == self._wanted:
                begun, self._rest = self._rest, bytearray()
                yield from self._cut(memoryview(begun))
        yield from self._cut(came)

    def _cut(self, buffer: memoryview) -> Iterator[tuple[Located, memoryview]]:
        name = segment_name(self._spot.base)
        at = 0
        while at < len(buffer):
            try:
                head = parse_head(buffer, at, file=name, position=self._spot.position)
            except ShortFrame as short:
                self._wanted = short.needed
                break
            self._wanted = head.frame_bytes
            if at + head.frame_bytes > len(buffer):
                break
            frame = buffer[at : at + head.frame_bytes]
            self._check(head, frame, Place(name, self._spot.position))
            yield Located(self._spot.position, head), frame
            at += head.frame_bytes
            self._spot = Spot(self._spot.base, self._spot.position + head.frame_bytes)
            self._next_offset, self._ends_plain = head.end, not head.is_batch
        self._rest += buffer[at:]

    def _check(self, head: Head, frame: memoryview, place: Place) -> None:
        is_next = head.offset == self._next_offset
        if not is_next and not (head.offset > self._next_offset and (self._ends_plain or not head.is_batch)):
            what = f"a frame with offset {head.offset} came where {self._next_offset} should follow"
            raise TailraceError("topology.mismatch", what, place=place, hint="it is matched again")
        if head.is_batch and crc32(frame[head.head_bytes :]) != head.body_crc:
            what = "the checksum of a frame differs: it was damaged at the source or on the way"
            raise TailraceError("topology.damaged", what, place=place, hint="tailrace log verify at the source")

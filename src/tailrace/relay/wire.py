"""Groups on the wire: frames as they are in the log, in Arrow batches with one column.

Nothing that comes from a peer is believed: lengths, checksums and the form of a frame are looked at before it is used
(I10).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import pyarrow as pa

from tailrace.errors import TailraceError
from tailrace.limits import FRAME_BYTES_MAX, GIB, MIB
from tailrace.log.frame import Head, ShortFrame, crc32, parse_head, place_head
from tailrace.namespace import RESERVED, check_name
from tailrace.relay.names import TRAVELLING
from tailrace.relay.outgoing import Frame
from tailrace.relay.refusal import interleaved, malformed

SCHEMA: Final = pa.schema([pa.field("frame", pa.binary(), nullable=False)])
GROUP_BYTES_MAX: Final = 4 * GIB
"""A group that a peer sends."""
_BATCH_BYTES: Final = 4 * MIB
_HERE: Final = "what a peer sent"


def packed(group: list[Frame]) -> Iterator[pa.RecordBatch]:
    """A group as batches of which each has room."""
    return all_packed([group])


class Unpacker:
    """Puts groups together again."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._bytes = 0

    @property
    def is_between_groups(self) -> bool:
        return not self._frames

    def groups(self, batch: pa.RecordBatch) -> Iterator[list[Frame]]:
        """The groups that a batch completes."""
        for value in check_batch(batch).column("frame"):
            buffer: Any = value.as_buffer()
            head, body = parsed(memoryview(buffer))
            if self._frames and head.origin != self._frames[0][0].origin:
                raise interleaved(2)
            self._frames.append((head, body))
            self._bytes += head.frame_bytes
            if self._bytes > GROUP_BYTES_MAX:
                raise malformed(f"{_HERE} cannot be read: a group has more than {GROUP_BYTES_MAX} bytes")
            if head.closes_group:
                group, self._frames, self._bytes = self._frames, [], 0
                yield group


def check_batch(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Refuse a batch that is not of frames, or whose lengths lie."""
    if not batch.schema.equals(SCHEMA):
        raise malformed(f"{_HERE} cannot be read: a batch has other columns than it should")
    try:
        batch.validate(full=True)
    except pa.ArrowException as error:
        raise malformed(f"{_HERE} cannot be read: {' '.join(str(error).split())[:200]}") from error
    if batch.column("frame").null_count:
        raise malformed(f"{_HERE} cannot be read: a frame is missing")
    return batch


def parsed(frame: memoryview) -> tuple[Head, memoryview]:
    """A frame that came from outside."""
    if len(frame) > FRAME_BYTES_MAX:
        raise malformed(f"{_HERE} cannot be read: a frame has {len(frame)} bytes, {FRAME_BYTES_MAX} are allowed")
    try:
        head = parse_head(frame, 0, file=_HERE, position=0)
    except ShortFrame as short:
        raise malformed(f"{_HERE} cannot be read: a frame of {len(frame)} bytes ends before its head does") from short
    except TailraceError as error:
        raise malformed(f"{_HERE} cannot be read: {error.what}") from error
    if head.frame_bytes != len(frame):
        raise malformed(f"{_HERE} cannot be read: a frame claims {head.frame_bytes} bytes and has {len(frame)}")
    if not head.is_batch or head.is_hole or head.span != head.messages:
        raise malformed(f"{_HERE} cannot be read: a frame is no batch with all its messages")
    body = frame[head.head_bytes :]
    if crc32(body) != head.body_crc:
        raise malformed(f"{_HERE} cannot be read: the checksum of a frame's body differs")
    if head.namespace not in TRAVELLING:
        try:
            check_name(head.namespace, "namespace")
        except TailraceError as error:
            raise malformed(f"{_HERE} cannot be read: {error.what}") from error
        if head.namespace.startswith(RESERVED):
            raise malformed(f"{_HERE} cannot be read: namespace {head.namespace} is reserved")
    return head, body


def all_packed(groups: Iterable[list[Frame]]) -> Iterator[pa.RecordBatch]:
    """Groups, one after the other."""
    return (batch for batch, _ in packed_together(groups) if batch is not None)


def packed_together(groups: Iterable[list[Frame]]) -> Iterator[tuple[pa.RecordBatch | None, bool]]:
    """Groups as batches that have room, several small ones in one; with each batch, whether a group ends with it.
    Nothing is held back there, so whoever stops at such a batch has all that was taken. No batch for an empty group."""
    rows: list[bytes] = []
    size = 0
    for group in groups:
        if not group:
            yield None, False
        for number, (head, body) in enumerate(group, 1):
            is_last = number == len(group)
            _, encoded = place_head(head, offset=head.offset, closes_group=is_last, durable=head.durable)
            rows.append(b"".join((encoded, body)))
            size += len(rows[-1])
            if size >= _BATCH_BYTES:
                yield _batch(rows), is_last
                rows, size = [], 0
    if rows:
        yield _batch(rows), True


def _batch(rows: list[bytes]) -> pa.RecordBatch:
    return pa.record_batch([pa.array(rows, pa.binary())], schema=SCHEMA)

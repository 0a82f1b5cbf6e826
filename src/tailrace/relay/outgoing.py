"""What a peer gets: the groups of a log that its clock does not cover, in log order, whole.

What the peer itself wrote is not sent back, except what it had sent before it lost it. Messages of namespaces that it
does not want become noops, so that its clock has no holes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from tailrace.limits import MIB
from tailrace.log.batch import Batch, decode_body, encode_frame
from tailrace.log.cursor import Cursor
from tailrace.log.frame import Head
from tailrace.log.selection import EVERYTHING
from tailrace.message import NodeId, Offset, Op
from tailrace.relay.journal import span_of
from tailrace.relay.names import NOOPS, TRAVELLING
from tailrace.relay.refusal import check_next
from tailrace.relay.vclock import LOCAL, Vclock

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

    from tailrace.log.view import LogView

Frame = tuple[Head, "ReadableBuffer"]
_STEP_BYTES: Final = 16 * MIB
"""So much of a group is gathered at a time."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What a peer wants."""

    peer: NodeId
    """Who asks; 0 for one that writes nothing."""
    without: frozenset[NodeId] = frozenset()
    """Origins whose messages it does not want."""
    namespace: re.Pattern[str] | None = None


class Outgoing:
    """The groups for one peer. `vclock` is what it has when it has got them."""

    def __init__(self, view: LogView, wish: Wish, vclock: Vclock, here: Vclock) -> None:
        self.vclock = vclock
        self._wish = wish
        self._theirs_upto = here[wish.peer]
        """The peer's own messages up to here it may have lost; later ones it has."""
        self._cursor = Cursor(view, first_missing(view, vclock), EVERYTHING)
        self._group: list[Frame] = []

    @property
    def next_offset(self) -> Offset:
        """Where in the log it goes on."""
        return self._cursor.next_offset

    def groups(self, end: Offset) -> Iterator[list[Frame]]:
        """The groups up to an offset of the log. May be called again and again."""
        return (group for group in self.steps(end) if group)

    def steps(self, end: Offset) -> Iterator[list[Frame]]:
        """Like `groups`, with an empty one now and then while a large one is gathered: the peer wants to hear of us."""
        size = 0
        for frame in self._cursor.advance(end):
            self._group.append((frame.head, frame.body))
            size += frame.head.body_bytes
            if frame.head.closes_group:
                size, group, self._group = 0, self._group, []
                if wanted := self._wanted([each for each in group if each[0].origin != LOCAL]):
                    yield wanted
            elif size >= _STEP_BYTES:
                size = 0
                yield []

    def close(self) -> None:
        self._cursor.close()

    def _wanted(self, group: list[Frame]) -> list[Frame]:
        if not group:
            return []
        origin, first, last = span_of([head for head, _ in group])
        known = self.vclock[origin]
        is_theirs = origin == self._wish.peer and last > self._theirs_upto
        if last <= known or is_theirs or origin in self._wish.without:
            return []
        check_next(origin, first, known)
        self.vclock = self.vclock.advanced(origin, last)
        return [self._seen(head, body) for head, body in group]

    def _seen(self, head: Head, body: ReadableBuffer) -> Frame:
        pattern = self._wish.namespace
        is_wanted = pattern is None or head.namespace in TRAVELLING or pattern.search(head.namespace)
        return (head, body) if is_wanted else noops(head, body)


def first_missing(view: LogView, vclock: Vclock) -> Offset:
    """An offset before which a log has nothing that a clock does not cover."""
    end = view.head().next_offset  # first: what is appended while we look is behind it
    for base, found in view.all_contents():
        if any(high > vclock[NodeId(origin)] for origin, (_, high) in found.origins.items() if origin != LOCAL):
            return _first_in(view, base, vclock)
    return end


def _first_in(view: LogView, base: Offset, vclock: Vclock) -> Offset:
    begin = base
    for head in view.heads(base):
        if head.origin != LOCAL and head.last_lsn > vclock[head.origin]:
            return begin
        if head.closes_group:
            begin = head.end
    return begin


def noops(head: Head, body: ReadableBuffer) -> Frame:
    """As many messages as a frame has, at the same places in their origin's order, which say nothing."""
    rows = decode_body(body)
    columns: dict[str, pa.Array[Any]] = {
        "op": pa.repeat(pa.scalar(int(Op.NOOP), pa.int8()), rows.num_rows),
        "timestamp": rows.column("timestamp"),
        "lsn": rows.column("lsn"),
        "data": pa.nulls(rows.num_rows, pa.struct([])),
    }
    silent = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return encode_frame(Batch(NOOPS, silent, head.mode, head.origin), head.codec)

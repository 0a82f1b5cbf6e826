"""What a reader asks for, and the frames it gets: only those that hold something of it, cut down to it."""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

from tailrace.errors import Place, TailraceError
from tailrace.log.frame import Head
from tailrace.message import Entry, Lsn, Message, NodeId, Offset, Op

if TYPE_CHECKING:
    import pyarrow as pa

    from tailrace.log.segment import Located, Segment


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages of a range are wanted; everything by default."""

    namespace: re.Pattern[str] | None = None
    """Namespaces in which the pattern is found anywhere, as in Transporter."""
    destination: str | None = None
    since: Mapping[NodeId, Lsn] | None = None
    """Only messages whose lsn is above the one given for their origin; an unlisted origin counts as 0."""

    @property
    def is_everything(self) -> bool:
        return self.namespace is None and self.destination is None and self.since is None

    def wants(self, head: Head) -> bool:
        """Whether a frame can hold a wanted message, judged by its head."""
        return (
            not head.is_hole
            and (self.namespace is None or self.namespace.search(head.namespace) is not None)
            and (self.destination is None or self.destination in head.destinations)
            and (self.since is None or head.last_lsn > self.since.get(head.origin, 0))
        )


EVERYTHING = Selection()


def exactly(*namespaces: str) -> re.Pattern[str]:
    """A pattern that is found in these namespaces only."""
    names = "|".join(re.escape(name) for name in namespaces)
    return re.compile(rf"\A(?:{names})\Z")


@dataclass(frozen=True, slots=True)
class SelectedFrame:
    """A frame with the part of it that was asked for."""

    head: Head
    body: memoryview = field(repr=False)
    place: Place
    start: Offset
    """No message before this offset."""
    end: Offset
    """No message from this offset on."""
    selection: Selection = EVERYTHING

    def rows(self) -> pa.RecordBatch:
        """The wanted messages as columns."""
        stored = self._stored()
        return self._rows(stored, self._kept(stored))

    def numbered_rows(self) -> pa.RecordBatch:
        """The wanted messages as columns, the first of which is their `offset`."""
        stored = self._stored()
        kept = self._kept(stored)
        return self._rows(stored, kept).add_column(0, "offset", self._offsets(stored, kept))

    def offsets(self) -> pa.Int64Array:
        """The offsets of `rows`."""
        stored = self._stored()
        return self._offsets(stored, self._kept(stored))

    def entries(self) -> Iterator[Entry]:
        """The wanted messages one by one."""
        if not self.head.is_batch:
            yield Entry(self.head.offset, self.head.mode, self._plain())
            return
        from tailrace.log.batch import message_rows

        stored = self._stored()
        kept = self._kept(stored)
        try:
            messages = list(message_rows(self._rows(stored, kept), self.head.namespace, self.head.origin))
        except (ValueError, OverflowError, KeyError) as error:
            what = f"a message has values that Python cannot hold: {error}"
            raise TailraceError("message.invalid", what, place=self.place, hint="read the frame's columns") from error
        offsets: list[Any] = self._offsets(stored, kept).to_pylist()
        for offset, message in zip(offsets, messages, strict=True):
            yield Entry(offset, self.head.mode, message)

    def _rows(self, stored: pa.RecordBatch, kept: pa.BooleanArray | None) -> pa.RecordBatch:
        rows = stored if kept is None else stored.filter(kept)
        return rows.drop_columns(["offset"]) if "offset" in rows.schema.names else rows

    def _offsets(self, stored: pa.RecordBatch, kept: pa.BooleanArray | None) -> pa.Int64Array:
        offsets = self._stored_offsets(stored)
        return offsets if kept is None else offsets.filter(kept)

    def _kept(self, rows: pa.RecordBatch) -> pa.BooleanArray | None:
        """Which of the stored messages are wanted; None when all are."""
        import pyarrow as pa
        import pyarrow.compute as pc

        masks: list[pa.BooleanArray] = []
        if self.start > self.head.offset or self.end < self.head.end:
            offsets = self._stored_offsets(rows)
            masks.append(pc.greater_equal(offsets, pa.scalar(self.start, pa.int64())))
            masks.append(pc.less(offsets, pa.scalar(self.end, pa.int64())))
        if self.selection.destination is not None:
            destinations = rows.column("destinations").to_pylist()
            masks.append(pa.array([self.selection.destination in (names or ()) for names in destinations], pa.bool_()))
        if self.selection.since is not None:
            known = self.selection.since.get(self.head.origin, 0)
            masks.append(pc.greater(rows.column("lsn"), pa.scalar(known, pa.int64())))
        return functools.reduce(pc.and_, masks) if masks else None

    def _stored_offsets(self, rows: pa.RecordBatch) -> pa.Int64Array:
        import numpy as np
        import pyarrow as pa

        if "offset" in rows.schema.names:
            return cast("pa.Int64Array", rows.column("offset"))
        numbers: Any = np.arange(self.head.offset, self.head.offset + self.head.messages, dtype=np.int64)
        return pa.array(numbers, pa.int64())

    def _stored(self) -> pa.RecordBatch:
        import pyarrow as pa

        from tailrace.log.batch import decode_body, rows_of
        from tailrace.log.documents import NOT_COLUMNAR

        if not self.head.is_batch:
            try:
                return rows_of([self._plain()])
            except NOT_COLUMNAR as error:
                what = f"a document has no columnar form: {error}"
                hint = f"read it by itself: tailrace log show {self.head.offset}"
                raise TailraceError("message.invalid", what, place=self.place, hint=hint) from error
        try:
            rows = decode_body(self.body)
        except (pa.ArrowException, OSError, StopIteration) as error:
            raise self._corrupt(f"a frame's body is no Arrow batch: {error}") from error
        if rows.num_rows != self.head.messages:
            raise self._corrupt(f"a frame says {self.head.messages} messages but holds {rows.num_rows}")
        return rows

    def plain_data(self) -> Any:
        """The JSON document of a plain frame."""
        try:
            return json.loads(bytes(self.body))
        except (ValueError, RecursionError) as error:
            raise self._corrupt(f"a frame's data is no JSON document: {error}") from error

    def _plain(self) -> Message:
        data = self.plain_data()
        return Message(
            op=self.head.op or Op.INSERT,
            timestamp=self.head.timestamp,
            namespace=self.head.namespace,
            data=data if isinstance(data, dict) or data is None else {"value": data},
        )

    def _corrupt(self, what: str) -> TailraceError:
        return TailraceError("log.corrupt", what, place=self.place, hint="tailrace log verify")


def whole_frame(segment: Segment, located: Located) -> SelectedFrame:
    """A frame with all its messages."""
    head = located.head
    place = segment.place(located.position, head.offset)
    return SelectedFrame(head, located.body or segment.body_of(located), place, head.offset, head.end)

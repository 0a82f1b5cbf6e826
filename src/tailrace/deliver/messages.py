"""Messages on their way from the log to a writer: those of one namespace, as columns."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final, cast

import pyarrow as pa
import pyarrow.compute as pc

from tailrace.log.batch import key_of
from tailrace.log.selection import SelectedFrame
from tailrace.message import Mode, NodeId, Op

DELIVERED: Final = (Op.INSERT, Op.UPDATE, Op.DELETE)
"""What writers get. Commands and noops are acknowledged without."""


@dataclass(frozen=True, slots=True)
class Messages:
    """Messages of one namespace, in log order.

    `rows` has the columns `offset, op, timestamp, lsn, data` and, where there is something to say, `tx`,
    `destinations` and `before`. `data` and `before` are structs: the fields of the message.
    """

    namespace: str
    rows: pa.RecordBatch
    key: tuple[str, ...] = ()
    mode: Mode = Mode.SYNC
    origin: NodeId = NodeId(0)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    @property
    def data(self) -> pa.StructArray:
        """What each message says."""
        return cast("pa.StructArray", self.rows.column("data"))

    @property
    def before(self) -> pa.StructArray | None:
        """What each row was before, if anybody said."""
        if "before" not in self.rows.schema.names:
            return None
        return cast("pa.StructArray", self.rows.column("before"))

    @property
    def fields(self) -> list[str]:
        """The names of the fields of `data`."""
        return [field.name for field in self.data.type]

    def ops(self) -> pa.Array[Any]:
        return self.rows.column("op")

    def offsets(self) -> pa.Array[Any]:
        return self.rows.column("offset")

    def filter(self, kept: pa.Array[Any]) -> Messages:
        """Only the messages for which `kept` is true; null counts as false."""
        mask: Any = kept
        return replace(self, rows=self.rows.filter(mask))

    def take(self, places: pa.Array[Any]) -> Messages:
        """The messages at these places, in this order."""
        taken: Any = self.rows.take(places)
        return replace(self, rows=taken)

    def slice(self, start: int, count: int) -> Messages:
        return replace(self, rows=self.rows.slice(start, count))

    def with_column(self, name: str, column: pa.Array[Any]) -> Messages:
        """The same messages with a column put in place of another, or added."""
        names = self.rows.schema.names
        if name in names:
            return replace(self, rows=self.rows.set_column(names.index(name), name, column))
        return replace(self, rows=self.rows.append_column(name, column))

    def after(self, offset: int) -> Messages:
        """Only what comes after an offset."""
        return self.filter(pc.greater(self.offsets(), pa.scalar(offset, pa.int64())))


def no_messages(namespace: str, schema: pa.Schema) -> Messages:
    """No messages at all, with the columns of a frame."""
    if "offset" not in schema.names:
        schema = schema.insert(0, pa.field("offset", pa.int64()))
    return Messages(namespace, pa.RecordBatch.from_pylist([], schema=schema), key_of(schema))


def messages_of(frame: SelectedFrame) -> Messages:
    """The messages of a frame, but for those no writer gets."""
    rows = frame.numbered_rows()
    messages = Messages(
        namespace=frame.head.namespace,
        rows=rows,
        key=key_of(rows.schema),
        mode=frame.head.mode,
        origin=frame.head.origin,
    )
    if frame.head.op in DELIVERED:
        return messages
    wanted: Any = pa.array([int(op) for op in DELIVERED], pa.int8())
    return messages.filter(pc.is_in(messages.ops(), value_set=wanted))

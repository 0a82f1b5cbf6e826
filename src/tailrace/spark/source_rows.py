"""Frames as rows of a DataFrame. Columns that nobody asked for are not decoded."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from tailrace.deliver.conforming import fit, op_names
from tailrace.deliver.gathering import BYTES_MAX, ROWS_MAX
from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.log.batch import TIMESTAMP
from tailrace.log.frame import Head
from tailrace.log.selection import SelectedFrame
from tailrace.message import Op
from tailrace.spark.source_documents import plain_text, texts
from tailrace.spark.source_wanted import Wanted, Within, mask

_ALWAYS: Final = frozenset(("op", "offset"))
"""Stored columns that are read in any case: so many messages there are, and these are their offsets."""
_UNREADABLE: Final = (pa.ArrowException, OSError, StopIteration)


@dataclass(frozen=True, slots=True)
class Rows:
    """Makes rows of one schema; `data` and `before` are structs or JSON text, as it says."""

    schema: pa.Schema
    wanted: Wanted
    without_new_fields: frozenset[str] = frozenset()
    """The columns whose fields are left out without a word when the schema lacks them."""

    def batches(self, frames: Iterable[SelectedFrame]) -> Iterator[pa.RecordBatch]:
        """The wanted messages of frames, in their order, in pieces that are neither tiny nor huge."""
        heap: list[pa.RecordBatch] = []
        count = size = 0
        for frame in frames:
            for batch in self._rows_of(frame):
                heap.append(batch)
                count, size = count + batch.num_rows, size + batch.nbytes
                if count >= ROWS_MAX or size >= BYTES_MAX:
                    yield _joined(heap)
                    heap, count, size = [], 0, 0
        if heap:
            yield _joined(heap)

    def _rows_of(self, frame: SelectedFrame) -> Iterator[pa.RecordBatch]:
        stored, offsets = self._kept(frame, self._stored(frame))
        for at in range(0, stored.num_rows, ROWS_MAX):
            piece = stored.slice(at, ROWS_MAX)
            rows = piece.add_column(0, "offset", offsets.slice(at, ROWS_MAX))
            columns = [self._column(frame, rows, entry) for entry in self.schema]
            yield pa.RecordBatch.from_arrays(columns, schema=self.schema)

    def _stored(self, frame: SelectedFrame) -> pa.RecordBatch:
        head = frame.head
        if not head.is_batch:
            is_json = all(not pa.types.is_struct(entry.type) for entry in self.schema)
            return _plain_rows(frame) if is_json else frame.rows()
        needed = _ALWAYS.union(self.schema.names, (condition.column for condition in self.wanted.open_conditions(head)))
        try:
            names = ipc.read_schema(pa.py_buffer(frame.body)).names
            chosen = [at for at, name in enumerate(names) if name in needed]
            options = ipc.IpcReadOptions(use_threads=False, included_fields=chosen)
            with ipc.open_stream(pa.py_buffer(frame.body), options=options) as stream:
                rows = stream.read_next_batch()
        except _UNREADABLE as error:
            raise _corrupt(frame, f"a frame's body is no Arrow batch: {error}") from error
        if rows.num_rows != head.messages:
            raise _corrupt(frame, f"a frame says {head.messages} messages but holds {rows.num_rows}")
        return rows

    def _kept(self, frame: SelectedFrame, stored: pa.RecordBatch) -> tuple[pa.RecordBatch, pa.Array[Any]]:
        """The wanted rows and their offsets."""
        head = frame.head
        if "offset" in stored.schema.names:
            offsets: pa.Array[Any] = stored.column("offset")
            stored = stored.drop_columns(["offset"])
        else:
            numbers: Any = np.arange(head.offset, head.offset + head.messages, dtype=np.int64)
            offsets = pa.array(numbers, pa.int64())
        conditions = self.wanted.open_conditions(head)
        if frame.start > head.offset or frame.end < head.end:
            conditions.append(Within("offset", frame.start, frame.end - 1))
        kept: Any = mask(conditions, stored, offsets)
        return (stored, offsets) if kept is None else (stored.filter(kept), offsets.filter(kept))

    def _column(self, frame: SelectedFrame, rows: pa.RecordBatch, entry: pa.Field[Any]) -> pa.Array[Any]:
        name, head, count = entry.name, frame.head, rows.num_rows
        column: pa.Array[Any]
        if name in ("mode", "namespace", "origin"):
            column = pa.repeat(pa.scalar(_of_frame(head, name), entry.type), count)
        elif name not in rows.schema.names:
            column = pa.nulls(count, entry.type)
        elif name == "op":
            column = op_names().take(rows.column(name))
        else:
            column = rows.column(name)
            column = self._document(frame, rows, column, entry) if pa.types.is_struct(column.type) else column
        return column

    def _document(
        self, frame: SelectedFrame, rows: pa.RecordBatch, column: pa.Array[Any], entry: pa.Field[Any]
    ) -> pa.Array[Any]:
        if pa.types.is_string(entry.type):
            return _texts(frame, column)
        if entry.name not in self.without_new_fields:
            self._refuse_new_fields(frame, rows, column.type, entry.type)
        return fit(Messages(frame.head.namespace, rows), entry.name, column, entry.type)

    def _refuse_new_fields(
        self, frame: SelectedFrame, rows: pa.RecordBatch, found: pa.DataType, known: pa.DataType
    ) -> None:
        if new := list(_new_fields(found, known)):
            first = rows.column("offset")[0].as_py()
            what = f"{frame.head.namespace} has fields from offset {first} on that the schema lacks: {', '.join(new)}"
            hint = "load again to have them, or set the option onNewField to ignore"
            raise TailraceError("schema.changed", what, place=frame.place, hint=hint)


def _new_fields(found: Any, known: Any, path: str = "") -> Iterator[str]:
    """The fields of a type that another lacks, at any depth."""
    if pa.types.is_struct(found) and pa.types.is_struct(known):
        inner = {entry.name: entry.type for entry in known}
        for entry in found:
            if entry.name in inner:
                yield from _new_fields(entry.type, inner[entry.name], f"{path}{entry.name}.")
            elif not pa.types.is_null(entry.type):
                yield path + entry.name
    elif pa.types.is_map(found) and pa.types.is_map(known):
        yield from _new_fields(found.item_type, known.item_type, path)
    elif hasattr(found, "value_type") and pa.types.is_list(known):
        yield from _new_fields(found.value_type, known.value_type, path)


def _plain_rows(frame: SelectedFrame) -> pa.RecordBatch:
    """A frame that Transporter wrote: one message, its document as the text that it is."""
    head = frame.head
    columns: dict[str, pa.Array[Any]] = {
        "op": pa.array([head.op or Op.INSERT], pa.int8()),
        "timestamp": pa.array([head.timestamp], TIMESTAMP),
        "lsn": pa.array([0], pa.int64()),
        "data": pa.array([plain_text(frame)], pa.string()),
    }
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _texts(frame: SelectedFrame, column: pa.Array[Any]) -> pa.Array[Any]:
    try:
        return texts(column)
    except (ValueError, TypeError, OverflowError) as error:
        what = f"a message has values for which there is no JSON: {error}"
        hint = "read its namespace by itself, with the option namespace"
        raise TailraceError("message.invalid", what, place=frame.place, hint=hint) from error


def _of_frame(head: Head, name: str) -> Any:
    """What all messages of a frame have in common."""
    if name == "mode":
        return head.mode.name.lower()
    return head.namespace if name == "namespace" else int(head.origin)


def _joined(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    concat: Any = pa
    joined: pa.RecordBatch = batches[0] if len(batches) == 1 else concat.concat_batches(batches)
    return joined


def _corrupt(frame: SelectedFrame, what: str) -> TailraceError:
    return TailraceError("log.corrupt", what, place=frame.place, hint="tailrace log verify")

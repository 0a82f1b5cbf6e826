"""Batches: messages of one namespace as Arrow columns, and their way into and out of a frame's body.

The columns are `op, timestamp, lsn, data` and, where there is something to say, `tx, destinations, before` and
`offset` (only after compaction, when the rows no longer follow each other).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from tailrace.errors import TailraceError
from tailrace.limits import COMPRESS_BYTES_MIN, FRAME_BYTES_MAX, FRAME_ROWS_MAX, U64_MAX
from tailrace.log import documents
from tailrace.log.documents import NOT_COLUMNAR
from tailrace.log.frame import Codec, Head, crc32
from tailrace.message import SECONDS_MAX, Lsn, Message, Micros, Mode, NodeId, Offset, Op, Row
from tailrace.namespace import check_name

TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
KEY_METADATA: Final = b"tailrace.key"
"""Schema metadata: the primary key's columns as a JSON list."""

_COLUMNS: Final[dict[str, pa.DataType]] = {
    "op": pa.int8(),
    "timestamp": TIMESTAMP,
    "lsn": pa.int64(),
    "tx": pa.string(),
    "destinations": pa.list_(pa.string()),
    "offset": pa.int64(),
}
_REQUIRED: Final = ("op", "timestamp", "lsn", "data")
_WRITE_OPTIONS: Final = {
    Codec.NONE: ipc.IpcWriteOptions(),
    Codec.LZ4: ipc.IpcWriteOptions(compression="lz4"),
    Codec.ZSTD: ipc.IpcWriteOptions(compression="zstd"),
}
_READ_OPTIONS: Final = ipc.IpcReadOptions(use_threads=False)
"""Handing columns to other threads costs more than it brings for batches that fit the cache."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages of one namespace, from one origin, read in one mode, in order."""

    namespace: str
    rows: pa.RecordBatch
    mode: Mode = Mode.SYNC
    origin: NodeId = NodeId(0)

    def __post_init__(self) -> None:
        check_name(self.namespace, "namespace")
        if not 0 <= self.origin <= U64_MAX:
            raise _invalid(self.namespace, f"origin {self.origin} is not a 64-bit number")
        _check_schema(self.namespace, self.rows.schema)

    def __len__(self) -> int:
        return int(self.rows.num_rows)

    def slice(self, start: int, count: int) -> Batch:
        return Batch(self.namespace, self.rows.slice(start, count), self.mode, self.origin)

    def pieces(self) -> Iterator[Batch]:
        """The batch in pieces that fit a frame. A single message that does not fit is refused when it is encoded."""
        fits = len(self) <= FRAME_ROWS_MAX and self.rows.get_total_buffer_size() <= FRAME_BYTES_MAX // 2
        if fits or len(self) <= 1:
            yield self
            return
        rows_bytes = max(1, self.rows.nbytes)
        step = max(1, min(FRAME_ROWS_MAX, len(self) * (FRAME_BYTES_MAX // 2) // rows_bytes))
        if step >= len(self):
            yield self
            return
        for start in range(0, len(self), step):
            yield from self.slice(start, step).pieces()


_ALIGNED_BYTES: Final = 8
"""Columns that are not stored compressed are used where they are, and Arrow wants them at such places."""


def batch_of(
    namespace: str,
    data: pa.RecordBatch | pa.StructArray,
    *,
    op: Op = Op.INSERT,
    timestamp: Micros,
    mode: Mode = Mode.SYNC,
    origin: NodeId = NodeId(0),
    first_lsn: int = 0,
    key: Sequence[str] = (),
) -> Batch:
    """A batch in which every row had the same thing happen to it at the same time, as in a copy."""
    rows = data if isinstance(data, pa.StructArray) else data.to_struct_array()
    count = len(rows)
    columns: dict[str, pa.Array[Any]] = {
        "op": pa.repeat(pa.scalar(int(op), pa.int8()), count),
        "timestamp": pa.repeat(pa.scalar(timestamp, TIMESTAMP), count),
        "lsn": pa.array(np.arange(first_lsn, first_lsn + count, dtype=np.int64)),
        "data": rows,
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return Batch(namespace, with_key(batch, key), mode, origin)


def batches_of(messages: Iterable[Message], mode: Mode = Mode.SYNC) -> Iterator[Batch]:
    """Messages as batches, in the order given: each run of one namespace and origin with like columns is a batch."""
    for (namespace, origin, *_), run in groupby(messages, key=_shape):
        yield from _batches_of_run(namespace, origin, mode, list(run))


def with_key(rows: pa.RecordBatch, key: Sequence[str]) -> pa.RecordBatch:
    """Rows that say which columns of `data` are their primary key."""
    if not key:
        return rows
    return rows.replace_schema_metadata({**(rows.schema.metadata or {}), KEY_METADATA: json.dumps(list(key)).encode()})


def key_of(schema: pa.Schema) -> tuple[str, ...]:
    """The primary key's columns, none when nobody said."""
    stored = (schema.metadata or {}).get(KEY_METADATA)
    return tuple(json.loads(stored)) if stored else ()


def encode_body(rows: pa.RecordBatch, codec: Codec) -> tuple[pa.Buffer, Codec]:
    """The rows as an Arrow IPC stream, and the codec that was worth using."""
    is_small = rows.get_total_buffer_size() < COMPRESS_BYTES_MIN or rows.nbytes < COMPRESS_BYTES_MIN
    used = Codec.NONE if is_small else codec
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, rows.schema, options=_WRITE_OPTIONS[used]) as stream:
        stream.write_batch(rows)
    return sink.getvalue(), used


def encode_frame(batch: Batch, codec: Codec) -> tuple[Head, pa.Buffer]:
    """A batch as a frame that has no place in the log yet: its head, at offset 0, and its body."""
    rows = batch.rows
    body, used = encode_body(rows, codec)
    lowest_lsn, highest_lsn = _range(batch, "lsn", np.int64)
    lowest_timestamp, highest_timestamp = _range(batch, "timestamp", np.int64)
    if lowest_lsn < 0 or lowest_timestamp < 0:
        raise _invalid(batch.namespace, "an lsn or a timestamp is negative")
    if highest_timestamp >= (SECONDS_MAX + 1) * 1_000_000:
        raise _invalid(batch.namespace, "a timestamp is past the year 9999; are they microseconds?")
    head = Head(
        offset=Offset(0),
        span=len(batch),
        messages=len(batch),
        timestamp=Micros(highest_timestamp),
        mode=batch.mode,
        op=common_op(batch),
        namespace=batch.namespace,
        is_batch=True,
        closes_group=False,
        codec=used,
        origin=batch.origin,
        first_lsn=Lsn(lowest_lsn),
        last_lsn=Lsn(highest_lsn),
        destinations=_destinations(rows),
        batch_ids=(),
        durable=Offset(0),
        body_crc=crc32(body),
        head_bytes=0,
        body_bytes=body.size,
    )
    return head, body


def decode_body(body: Any) -> pa.RecordBatch:
    """The rows of a body whose checksum was right. Raises pyarrow's own error when it is no Arrow stream."""
    buffer: Any = pa.py_buffer(body)
    if buffer.address % _ALIGNED_BYTES:
        buffer = pa.py_buffer(buffer.to_pybytes())
    with ipc.open_stream(buffer, options=_READ_OPTIONS) as stream:
        return stream.read_next_batch()


def message_rows(rows: pa.RecordBatch, namespace: str, origin: NodeId) -> Iterator[Message]:
    """The messages of a batch, one by one."""
    columns: dict[str, list[Any]] = {name: [None] * rows.num_rows for name in ("tx", "destinations", "before")}
    for name in rows.schema.names:
        columns[name] = _values(name, rows.column(name))
    for at in range(rows.num_rows):
        yield Message(
            op=Op(columns["op"][at]),
            timestamp=columns["timestamp"][at],
            namespace=namespace,
            data=columns["data"][at],
            before=columns["before"][at],
            origin=origin,
            lsn=columns["lsn"][at],
            tx=columns["tx"][at],
            destinations=tuple(columns["destinations"][at] or ()),
        )


def _values(name: str, column: pa.Array[Any]) -> list[Any]:
    if name in ("data", "before"):
        return documents.decode(column)
    return (column.view(pa.int64()) if name == "timestamp" else column).to_pylist()


def common_op(batch: Batch) -> Op | None:
    """The op that all rows have in common. Refuses a number that is no op (I10)."""
    lowest, highest = _range(batch, "op", np.int8)
    if lowest < Op.INSERT or highest > Op.NOOP:
        raise TailraceError(
            "log.op_unknown",
            f"op {highest if highest > Op.NOOP else lowest} of a message of {batch.namespace!r} is unknown",
            hint="use insert, update, delete, command or noop",
        )
    return Op(lowest) if lowest == highest else None


def _range(batch: Batch, column: str, kind: type[np.integer[Any]]) -> tuple[int, int]:
    """The lowest and the highest value, straight from the memory: small groups are appended by the thousand."""
    values = batch.rows.column(column)
    buffer = values.buffers()[1]
    if values.null_count or buffer is None:
        raise _invalid(batch.namespace, f"column {column} has nulls")
    width = np.dtype(kind).itemsize
    numbers = np.frombuffer(memoryview(buffer), kind, len(values), values.offset * width)
    return int(np.minimum.reduce(numbers)), int(np.maximum.reduce(numbers))


def _destinations(rows: pa.RecordBatch) -> tuple[str, ...]:
    if "destinations" not in rows.schema.names:
        return ()
    names = pc.unique(pc.list_flatten(rows.column("destinations"))).to_pylist()
    return tuple(sorted(check_name(name or "", "destination") for name in names))


def _shape(message: Message) -> tuple[str, NodeId, frozenset[str] | None, frozenset[str] | None]:
    return (message.namespace, message.origin, _fields(message.data), _fields(message.before))


def _fields(row: Row | None) -> frozenset[str] | None:
    return None if row is None else frozenset(row)


def _batches_of_run(namespace: str, origin: NodeId, mode: Mode, run: list[Message]) -> Iterator[Batch]:
    """Arrow columns hold one type each; a run whose values do not agree on it is halved until they do."""
    try:
        yield Batch(namespace, rows_of(run), mode, origin)
        return
    except NOT_COLUMNAR as error:
        if len(run) == 1:
            raise _invalid(namespace, f"a value has no columnar form: {error}") from error
    half = len(run) // 2
    yield from _batches_of_run(namespace, origin, mode, run[:half])
    yield from _batches_of_run(namespace, origin, mode, run[half:])


def rows_of(run: list[Message]) -> pa.RecordBatch:
    """Messages as columns; raises one of NOT_COLUMNAR when there is no type that all values of a column have."""
    for message in run:
        for destination in message.destinations:
            check_name(destination, "destination")
    columns: dict[str, pa.Array[Any]] = {
        "op": pa.array([message.op for message in run], pa.int8()),
        "timestamp": pa.array([message.timestamp for message in run], TIMESTAMP),
        "lsn": pa.array([message.lsn for message in run], pa.int64()),
        "data": documents.encode([message.data for message in run]),
    }
    if any(message.tx is not None for message in run):
        columns["tx"] = pa.array([message.tx for message in run], pa.string())
    if any(message.destinations for message in run):
        columns["destinations"] = pa.array([message.destinations for message in run], pa.list_(pa.string()))
    if any(message.before is not None for message in run):
        columns["before"] = documents.encode([message.before for message in run])
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _check_schema(namespace: str, schema: pa.Schema) -> None:
    missing = [name for name in _REQUIRED if name not in schema.names]
    if missing:
        raise _invalid(namespace, f"its batch has no column {', '.join(missing)}")
    for field in schema:
        expected = _COLUMNS.get(field.name)
        if field.name in ("data", "before"):
            if not pa.types.is_struct(field.type):
                raise _invalid(namespace, f"column {field.name} is {field.type}, not a struct")
        elif expected is None:
            raise _invalid(namespace, f"its batch has a column {field.name!r} that nobody knows")
        elif field.type != expected:
            raise _invalid(namespace, f"column {field.name} is {field.type}, not {expected}")


def _invalid(namespace: str, why: str) -> TailraceError:
    what = f"messages of {namespace!r} cannot be logged: {why}"
    return TailraceError("message.invalid", what, hint="mend the source")

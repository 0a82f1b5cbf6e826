"""Entries: messages of routing queues as rows of the log, on the way out and when they have come.

A payload stands in the log once, whoever gets it: its row has one tag for each destination. Rows of a group with the
same tags are frames of their own, so that who reads one tag reads nothing else. `lsn` is a row's queue id: the offset
that it would have if the rows of its group stood in their true order.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.limits import MIB
from tailrace.log.batch import TIMESTAMP, Batch
from tailrace.message import Micros, Mode, Op
from tailrace.queues.names import (
    LOG_ENTRIES,
    SNAPSHOTS,
    client_tag,
    entry_tag,
    receive_queue,
    snapshot_tag,
)

PAYLOAD_BYTES_MAX: Final = 32 * MIB
_FRAME_BYTES: Final = 8 * MIB
"""About so much is one frame, if it has several payloads."""


_FIELDS: Final[list[pa.Field[Any]]] = [
    pa.field("id", pa.int64(), nullable=False),
    pa.field("transaction", pa.string(), nullable=False),
    pa.field("timestamp", TIMESTAMP, nullable=False),
    pa.field("payload", pa.binary(), nullable=False),
]
SHIPPED: Final = pa.schema(_FIELDS)
"""Rows on their way from one site to another: without their destinations."""
NO_ROWS: Final = pa.RecordBatch.from_pylist([], schema=SHIPPED)


class Kind(IntEnum):
    """What an entry belongs to, with the seed's numbers."""

    LOG_ENTRY = 1
    SNAPSHOT = 2
    SNAPSHOT_END = 3


@dataclass(frozen=True, slots=True)
class Outgoing:
    """One payload on its way to some sites."""

    client: str
    payload: bytes
    sites: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Received:
    """One message in a receive queue."""

    offset: int
    """Its place in the receiving site's log: its id."""
    kind: Kind
    payload: bytes
    source_id: int
    """Its queue id at the sending site."""
    transaction: str
    """The same for all messages of one transaction of the sender."""
    request: str
    """Of a message of a snapshot: which one."""
    timestamp: Micros
    """When it was sent."""


def outgoing_batches(transactions: Sequence[tuple[str, Sequence[Outgoing]]], first: int, at: Micros) -> Iterator[Batch]:
    """The rows of whole transactions, each with its name, of a group that begins at an offset."""
    by_tags: dict[tuple[str, tuple[str, ...]], list[_Row]] = {}
    number = first
    for name, entries in transactions:
        for entry in entries:
            key = (entry.client, tuple(sorted(set(entry.sites))))
            by_tags.setdefault(key, []).append((number, entry.payload, name))
            number += 1
    for (client, sites), rows in by_tags.items():
        tags = [*(entry_tag(site) for site in sites), client_tag(client)]
        for some in _pieces(rows):
            yield _batch(LOG_ENTRIES, some, tags, at, {"client": client})


def snapshot_batches(
    client: str, request: str, payloads: Sequence[bytes], sites: Sequence[str], kind: Kind, first: int, at: Micros
) -> Iterator[Batch]:
    """Some rows of a snapshot, or its end, of a group that begins at an offset."""
    tags = [*(snapshot_tag(site) for site in sites), client_tag(client)]
    for some in _pieces((first + number, payload, request) for number, payload in enumerate(payloads)):
        yield _batch(SNAPSHOTS, some, tags, at, {"client": client, "kind": int(kind)})


def received_batch(client: str, source: str, kind: Kind, shipped: pa.RecordBatch, request: str = "") -> Batch:
    """What has come, as rows of the receive queue."""
    count = shipped.num_rows
    data: dict[str, pa.Array[Any]] = {
        "kind": pa.repeat(pa.scalar(int(kind), pa.int8()), count),
        "request": pa.repeat(pa.scalar(request), count),
        "payload": shipped.column("payload"),
    }
    columns: dict[str, pa.Array[Any]] = {
        "op": pa.repeat(pa.scalar(int(Op.INSERT), pa.int8()), count),
        "timestamp": shipped.column("timestamp"),
        "lsn": shipped.column("id"),
        "tx": shipped.column("transaction"),
        "data": pa.StructArray.from_arrays(list(data.values()), list(data)),
    }
    batch = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return Batch(receive_queue(client, source), batch, Mode.SYNC)


def received_messages(first_offset: int, rows: pa.RecordBatch) -> Iterator[Received]:
    """The rows of a frame of a receive queue, one by one."""
    data: Any = rows.column("data")
    told: Any = zip(
        data.field("kind").to_pylist(),
        data.field("payload").to_pylist(),
        rows.column("lsn").to_pylist(),
        rows.column("tx").to_pylist(),
        data.field("request").to_pylist(),
        rows.column("timestamp").view(pa.int64()).to_pylist(),
        strict=True,
    )
    for number, (kind, payload, source_id, transaction, request, at) in enumerate(told):
        yield Received(first_offset + number, Kind(kind), payload, source_id, transaction, request, Micros(at))


_Row = tuple[int, bytes, str]
"""Queue id, payload, and the transaction or request."""


def _batch(
    namespace: str, rows: Sequence[_Row], tags: Sequence[str], at: Micros, besides: dict[str, str | int]
) -> Batch:
    count = len(rows)
    ids, payloads, names = zip(*rows, strict=True)
    data: dict[str, Any] = {name: pa.repeat(pa.scalar(value), count) for name, value in besides.items()}
    data["payload"] = pa.array(payloads, pa.binary())
    columns: dict[str, Any] = {
        "op": pa.repeat(pa.scalar(int(Op.INSERT), pa.int8()), count),
        "timestamp": pa.repeat(pa.scalar(int(at), TIMESTAMP), count),
        "lsn": pa.array(ids, pa.int64()),
        "tx": pa.array(names, pa.string()),
        "destinations": _same_lists(tags, count),
        "data": pa.StructArray.from_arrays(list(data.values()), list(data)),
    }
    return Batch(namespace, pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)), Mode.SYNC)


def shipped_rows(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a send queue as they travel."""
    data: Any = rows.column("data")
    columns: list[Any] = [rows.column("lsn"), rows.column("tx"), rows.column("timestamp"), data.field("payload")]
    return pa.RecordBatch.from_arrays(columns, schema=SHIPPED)


def placed_at(offset: int, shipped: pa.RecordBatch) -> pa.RecordBatch:
    """Rows of a snapshot with the places that they have: who staged them did not know these."""
    ids: Any = pa.array(np.arange(offset, offset + shipped.num_rows, dtype=np.int64))
    return pa.RecordBatch.from_arrays([ids, *shipped.columns[1:]], schema=SHIPPED)


def in_order(shipped: list[pa.RecordBatch]) -> pa.RecordBatch:
    """Rows of several frames as they were sent."""
    if not shipped:
        return NO_ROWS
    if len(shipped) == 1:
        return shipped[0]
    table: Any = pa.Table.from_batches(shipped, SHIPPED).combine_chunks()
    (rows,) = table.take(pc.sort_indices(table.column("id"))).to_batches()
    taken: pa.RecordBatch = rows
    return taken


def _same_lists(tags: Sequence[str], count: int) -> pa.Array[Any]:
    ends: Any = pa.array(np.arange(0, (count + 1) * len(tags), len(tags), dtype=np.int32))
    return pa.ListArray.from_arrays(ends, pa.array(list(tags) * count, pa.string()))


def _pieces(rows: Iterable[_Row]) -> Iterator[list[_Row]]:
    some: list[_Row] = []
    size = 0
    for row in rows:
        if some and size + len(row[1]) > _FRAME_BYTES:
            yield some
            some, size = [], 0
        some.append(row)
        size += len(row[1])
    if some:
        yield some

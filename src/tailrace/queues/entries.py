"""Entries: messages of routing queues as rows of the log, on the way out and when they have come.

A payload stands in the log once, whoever gets it: its row has one tag for each destination. Rows with the same tags are
frames of their own, so that who reads one tag reads nothing else; their places in the transaction are in `lsn`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Final

import numpy as np
import pyarrow as pa

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
    source_offset: int
    """Its place in the sending site's log."""
    transaction: str
    """The same for all messages of one transaction of the sender."""
    request: str
    """Of a message of a snapshot: which one."""
    timestamp: Micros
    """When it was sent."""


def outgoing_batches(entries: Sequence[Outgoing], transaction: str, at: Micros) -> Iterator[Batch]:
    """The rows of one transaction."""
    by_tags: dict[tuple[str, tuple[str, ...]], list[tuple[int, bytes]]] = {}
    for number, entry in enumerate(entries):
        by_tags.setdefault((entry.client, tuple(sorted(set(entry.sites)))), []).append((number, entry.payload))
    for (client, sites), rows in by_tags.items():
        tags = [*(entry_tag(site) for site in sites), client_tag(client)]
        for some in _pieces(rows):
            yield _batch(LOG_ENTRIES, some, tags, transaction, at, {"client": client})


def snapshot_batches(
    client: str, request: str, payloads: Iterable[tuple[int, bytes]], sites: Sequence[str], kind: Kind, at: Micros
) -> Iterator[Batch]:
    """Some rows of a snapshot, numbered, or its end."""
    tags = [*(snapshot_tag(site) for site in sites), client_tag(client)]
    for some in _pieces(payloads):
        yield _batch(SNAPSHOTS, some, tags, request, at, {"client": client, "kind": int(kind)})


def received_batch(
    client: str, source: str, kind: Kind, rows: Sequence[tuple[int, bytes, str, int]], request: str = ""
) -> Batch:
    """Rows of a receive queue: of each its place at the source, the payload, the transaction and the time."""
    offsets, payloads, transactions, times = zip(*rows, strict=True)
    data: dict[str, pa.Array[Any]] = {
        "kind": pa.array([int(kind)] * len(rows), pa.int8()),
        "request": pa.array([request] * len(rows), pa.string()),
        "payload": pa.array(payloads, pa.binary()),
    }
    columns: dict[str, pa.Array[Any]] = {
        "op": pa.array([int(Op.INSERT)] * len(rows), pa.int8()),
        "timestamp": pa.array(times, TIMESTAMP),
        "lsn": pa.array(offsets, pa.int64()),
        "tx": pa.array(transactions, pa.string()),
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
    for number, (kind, payload, source_offset, transaction, request, at) in enumerate(told):
        yield Received(first_offset + number, Kind(kind), payload, source_offset, transaction, request, Micros(at))


def _batch(
    namespace: str,
    rows: Sequence[tuple[int, bytes]],
    tags: Sequence[str],
    transaction: str,
    at: Micros,
    besides: dict[str, str | int],
) -> Batch:
    count = len(rows)
    numbers, payloads = zip(*rows, strict=True)
    data: dict[str, Any] = {name: pa.repeat(pa.scalar(value), count) for name, value in besides.items()}
    data["payload"] = pa.array(payloads, pa.binary())
    columns: dict[str, Any] = {
        "op": pa.repeat(pa.scalar(int(Op.INSERT), pa.int8()), count),
        "timestamp": pa.repeat(pa.scalar(int(at), TIMESTAMP), count),
        "lsn": pa.array(numbers, pa.int64()),
        "tx": pa.repeat(pa.scalar(transaction), count),
        "destinations": _same_lists(tags, count),
        "data": pa.StructArray.from_arrays(list(data.values()), list(data)),
    }
    return Batch(namespace, pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)), Mode.SYNC)


def _same_lists(tags: Sequence[str], count: int) -> pa.Array[Any]:
    ends: Any = pa.array(np.arange(0, (count + 1) * len(tags), len(tags), dtype=np.int32))
    return pa.ListArray.from_arrays(ends, pa.array(list(tags) * count, pa.string()))


def _pieces(rows: Iterable[tuple[int, bytes]]) -> Iterator[list[tuple[int, bytes]]]:
    some: list[tuple[int, bytes]] = []
    size = 0
    for row in rows:
        if some and size + len(row[1]) > _FRAME_BYTES:
            yield some
            some, size = [], 0
        some.append(row)
        size += len(row[1])
    if some:
        yield some

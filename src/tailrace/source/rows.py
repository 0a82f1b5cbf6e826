"""Rows of a source as batches of the log."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from tailrace.deliver.clearing import COMMAND
from tailrace.log.batch import TIMESTAMP, Batch, batches_of, with_key
from tailrace.message import Message, Micros, Mode, Op, now


def inserted(namespace: str, data: pa.StructArray, key: Sequence[str], mode: Mode = Mode.COPY) -> Batch:
    """Rows that are simply there, as those of a copy: each one an insert, without an order of its own."""
    return _all(Op.INSERT, namespace, data, key, mode)


def deleted(namespace: str, data: pa.StructArray, key: Sequence[str]) -> Batch:
    """Rows that are gone now, without an order of their own."""
    return _all(Op.DELETE, namespace, data, key, Mode.SYNC)


def emptied(namespace: str, at: Micros) -> Iterator[Batch]:
    """A table has no rows any more."""
    return batches_of([Message(Op.COMMAND, at, namespace, dict(COMMAND))], Mode.SYNC)


def _all(op: Op, namespace: str, data: pa.StructArray, key: Sequence[str], mode: Mode) -> Batch:
    count = len(data)
    columns: dict[str, pa.Array[Any]] = {
        "op": pa.repeat(pa.scalar(int(op), pa.int8()), count),
        "timestamp": pa.repeat(pa.scalar(int(now()), TIMESTAMP), count),
        "lsn": pa.repeat(pa.scalar(0, pa.int64()), count),
        "data": data,
    }
    rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return Batch(namespace, with_key(rows, tuple(key)), mode)

"""Messages one by one, as the dicts that people's functions get."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from tailrace.deliver.messages import Messages
from tailrace.log.documents import is_json
from tailrace.message import EPOCH, Op

OPS: Final = {int(op): op.name.lower() for op in Op}


def rows_of(messages: Messages, columns: Sequence[list[Any]] | None = None) -> Iterator[dict[str, Any]]:
    """Messages as dicts with `namespace, op, timestamp, offset, data, before`.

    `columns` are the values of the fields of `data`, if somebody has them already.
    """
    namespace = messages.namespace
    data = documents(messages.data, columns)
    before = iter([None] * len(messages)) if messages.before is None else documents(messages.before)
    times = messages.rows.column("timestamp").view(pa.int64())
    heads: list[list[Any]] = [column.to_pylist() for column in (messages.ops(), times, messages.offsets())]
    for op, timestamp, offset, row, was in zip(*heads, data, before, strict=True):
        yield {
            "namespace": namespace,
            "op": OPS[op],
            "timestamp": timestamp,
            "offset": offset,
            "data": row,
            "before": was,
        }


def documents(struct: pa.StructArray, columns: Sequence[list[Any]] | None = None) -> Iterator[dict[str, Any] | None]:
    """The rows of a struct column."""
    columns = columns_of(struct) if columns is None else columns
    names = [field.name for field in struct.type]
    rows: Iterator[dict[str, Any]] = (
        (dict(zip(names, values, strict=True)) for values in zip(*columns, strict=True))
        if names
        else ({} for _ in range(len(struct)))
    )
    if not struct.null_count:
        return rows
    return (row if is_there else None for row, is_there in zip(rows, struct.is_valid().to_pylist(), strict=True))


def columns_of(struct: pa.StructArray) -> list[list[Any]]:
    """The values of every field."""
    return [values_of(field, column) for field, column in zip(struct.type, struct.flatten(), strict=True)]


def values_of(field: pa.Field[Any], column: pa.Array[Any]) -> list[Any]:
    """The values of a column as Python's; JSON text is read."""
    if is_json(field):
        return [None if text is None else json.loads(text) for text in column.to_pylist()]
    kind: Any = column.type
    if pa.types.is_timestamp(kind) and kind.unit == "us" and kind.tz in (None, "UTC"):
        return _moments(column, kind.tz)
    return column.to_pylist()


def _moments(column: pa.Array[Any], zone: str | None) -> list[Any]:
    """Much faster than `to_pylist`, which looks the zone up for every value."""
    start = EPOCH if zone else EPOCH.replace(tzinfo=None)
    since: list[Any] = (column.to_numpy(zero_copy_only=False) - np.datetime64(0, "us")).tolist()
    return [None if passed is None else start + passed for passed in since]

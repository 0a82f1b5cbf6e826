"""Messages to try functions on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from tailrace.deliver.messages import Messages
from tailrace.log import documents
from tailrace.log.batch import TIMESTAMP, with_key
from tailrace.message import Op, Row

DELETE, INSERT, UPDATE = Op.DELETE, Op.INSERT, Op.UPDATE


def messages_with(
    data: pa.Array[Any],
    *,
    ops: Sequence[Op] | None = None,
    before: pa.Array[Any] | None = None,
    key: tuple[str, ...] = (),
    namespace: str = "shop.orders",
) -> Messages:
    """One message per row of a struct column, with offsets from 100 on."""
    count = len(data)
    columns: dict[str, pa.Array[Any]] = {
        "offset": pa.array(range(100, 100 + count), pa.int64()),
        "op": pa.array([int(op) for op in ops or [INSERT] * count], pa.int8()),
        "timestamp": pa.array(range(count), TIMESTAMP),
        "lsn": pa.array(range(count), pa.int64()),
        "data": data,
    }
    if before is not None:
        columns["before"] = before
    rows = pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))
    return Messages(namespace, with_key(rows, key), key)


def messages_of(rows: Sequence[Row | None], kind: pa.DataType | None = None, **more: Any) -> Messages:
    """One message per document."""
    given: Any = list(rows)
    return messages_with(pa.array(given, kind), **more)


def column(values: Sequence[Any], kind: pa.DataType | None = None, name: str = "v") -> pa.StructArray:
    """A struct column with one field."""
    child: Any = pa.array(values, kind)
    return pa.StructArray.from_arrays([child], names=[name])


def json_field(name: str) -> pa.Field[Any]:
    """A field that holds JSON text."""
    return pa.field(name, pa.string(), metadata={documents.TYPE_METADATA: documents.JSON})


def data_of(messages: Messages) -> list[Row | None]:
    """The documents, after a look at whether the columns are sound."""
    messages.rows.validate(full=True)
    return documents.decode(messages.data)


def before_of(messages: Messages) -> list[Row | None]:
    """What the rows were before."""
    assert messages.before is not None
    return documents.decode(messages.before)


def offsets_of(messages: Messages) -> list[Any]:
    return messages.offsets().to_pylist()

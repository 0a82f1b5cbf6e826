"""Messages as JSON lines: the rows alone, or each with its envelope."""

from __future__ import annotations

from typing import Any

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.adaptor.files.jsontext import joined, json_objects, json_of, json_of_struct, lines_of, quoted
from tailrace.deliver.conforming import op_names
from tailrace.deliver.messages import Messages
from tailrace.message import Op


def json_lines(messages: Messages, *, with_envelope: bool, deletes: str) -> memoryview:
    """Messages as lines. A deleted row that would stand there alone, like one that exists, has an envelope or is left
    out."""
    if with_envelope:
        return lines_of(envelopes(messages))
    is_delete = pc.equal(messages.ops(), pa.scalar(int(Op.DELETE), pa.int8()))
    if not pc.any(is_delete).as_py():
        return lines_of(json_of_struct(messages.data))
    if deletes == "skip":
        kept: Any = pc.invert(is_delete)
        return lines_of(json_of_struct(messages.filter(kept).data))
    return lines_of(pc.if_else(is_delete, envelopes(messages), json_of_struct(messages.data)))


def envelopes(messages: Messages) -> pa.Array[Any]:
    """Messages as `{"op", "namespace", "timestamp", "offset", "data", "before"}`."""
    columns: dict[str, Any] = {
        "op": quoted(op_names().take(messages.ops())),
        "namespace": pa.scalar(orjson.dumps(messages.namespace).decode()),
        "timestamp": json_of(messages.rows.column("timestamp")),
        "offset": json_of(messages.offsets()),
        "data": json_of_struct(messages.data),
        "before": pa.scalar("null") if messages.before is None else json_of_struct(messages.before),
    }
    return json_objects(columns)


def plain_texts(messages: Messages) -> pa.Array[Any]:
    """Messages for people: op, namespace, offset and row."""
    ops, offsets = op_names().take(messages.ops()), json_of(messages.offsets())
    texts: pa.Array[Any] = joined(ops, f" {messages.namespace} ", offsets, " ", json_of_struct(messages.data))
    return texts

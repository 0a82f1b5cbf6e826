"""Conforming: messages of frames with different columns, put into one common form."""

from __future__ import annotations

from base64 import b64decode
from functools import cache
from typing import Any, Final

import orjson
import pyarrow as pa
import pyarrow.compute as pc

from tailrace.deliver.messages import Messages
from tailrace.errors import TailraceError
from tailrace.log.batch import TIMESTAMP
from tailrace.log.documents import is_json
from tailrace.message import Op
from tailrace.moments import time_texts, values

_CODED: Final = ({"$binary"}, {"$text"})
"""What JSON has no word for, in base64: a blob, and text that is not UTF-8."""


@cache
def op_names() -> pa.Array[Any]:
    """The name of every op, at its number. Made late: Arrow's first array takes long, for it looks for pandas."""
    return pa.array([op.name.lower() for op in Op], pa.string())


def frame_schema(kind: pa.DataType, before: pa.DataType) -> pa.Schema:
    """The columns of a DataFrame of messages whose data and before are of these types."""
    columns: dict[str, pa.DataType] = {
        "offset": pa.int64(),
        "op": pa.string(),
        "timestamp": TIMESTAMP,
        "lsn": pa.int64(),
        "tx": pa.string(),
        "namespace": pa.string(),
        "data": kind,
        "before": before,
    }
    return pa.schema(columns)


def conform(messages: Messages, schema: pa.Schema) -> pa.RecordBatch:
    """Messages as rows of `frame_schema`. Raises when a value does not fit: it would be changed."""
    rows = messages.rows
    count = rows.num_rows
    has_tx = "tx" in rows.schema.names
    before = messages.before
    columns: list[pa.Array[Any]] = [
        messages.offsets(),
        op_names().take(messages.ops()),
        rows.column("timestamp"),
        rows.column("lsn"),
        rows.column("tx") if has_tx else pa.nulls(count, pa.string()),
        pa.repeat(pa.scalar(messages.namespace, pa.string()), count),
        fit(messages, "data", messages.data, schema.field("data").type),
        pa.nulls(count, schema.field("before").type)
        if before is None
        else fit(messages, "before", before, schema.field("before").type),
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def fit(messages: Messages, name: str, column: pa.Array[Any], kind: pa.DataType) -> pa.Array[Any]:
    """A column with another type; a struct field by field, for Arrow would match fields by place."""
    if column.type == kind and not _has_json(column.type):
        return column
    if pa.types.is_struct(kind) and pa.types.is_struct(column.type):
        present = {entry.name: at for at, entry in enumerate(column.type)}
        children = [
            _fit_child(messages, column, present[entry.name], entry)
            if entry.name in present
            else pa.nulls(len(column), entry.type)
            for entry in kind
        ]
        mask: Any = column.is_null()
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=mask)
    try:
        return _as_text(column) if pa.types.is_string(kind) else column.cast(kind)
    except pa.ArrowException as error:
        first = messages.offsets()[0].as_py() if len(messages) else None
        what = f"field {name} of {messages.namespace} from offset {first} on does not fit {kind}: {error}"
        raise TailraceError("schema.changed", what, hint="change the field's type with a function") from error


def _fit_child(messages: Messages, column: pa.Array[Any], at: int, wanted: pa.Field[Any]) -> pa.Array[Any]:
    child = pc.struct_field(column, [at])
    if is_json(column.type.field(at)) and pa.types.is_string(wanted.type):
        return plain_text(child)
    if is_json(column.type.field(at)) and pa.types.is_binary(wanted.type):
        return _plain_bytes(child)
    return fit(messages, wanted.name, child, wanted.type)


def _has_json(kind: pa.DataType) -> bool:
    return pa.types.is_struct(kind) and any(map(is_json, kind))


def plain_text(column: pa.Array[Any]) -> pa.Array[Any]:
    """Values stored as JSON, as text: a text without its quotes, anything else as it is written."""
    texts: list[Any] = column.to_pylist()
    plain = [orjson.loads(text) if text is not None and text.startswith('"') else text for text in texts]
    return pa.array(plain, pa.string())


def _plain_bytes(column: pa.Array[Any]) -> pa.Array[Any]:
    """Values stored as JSON, as bytes: those of a blob or of a text, anything else as it is written."""
    return pa.array([None if text is None else _bytes(text) for text in column.to_pylist()], pa.binary())


def _bytes(text: str) -> bytes:
    value = orjson.loads(text)
    if isinstance(value, str):
        return value.encode()
    coded = next(iter(value.values())) if isinstance(value, dict) and value.keys() in _CODED else None
    return b64decode(coded) if isinstance(coded, str) else text.encode()


def _as_text(column: pa.Array[Any]) -> pa.Array[Any]:
    """Values as text, those of nested types as JSON."""
    if pa.types.is_time(column.type):
        return time_texts(column)
    if pa.types.is_nested(column.type):
        options = orjson.OPT_NON_STR_KEYS
        texts = [
            None if value is None else orjson.dumps(value, default=str, option=options).decode()
            for value in values(column)
        ]
        return pa.array(texts, pa.string())
    return column.cast(pa.string())


def ops_of(names: pa.Array[Any]) -> pa.Array[Any]:
    """The numbers of ops by their names."""
    return pc.index_in(names, value_set=op_names()).cast(pa.int8())
